"""Cutting a document into ELECTRA's two-segment examples (build_pretraining_dataset.py of the original).

Unlike in the original, nothing is dropped: text that does not fit continues in the next example, and both segments are
contiguous and in the order of the text. An example holds text of one document only. It ends at the end of a sentence if
possible, else between words. Both are found from the wordpieces alone: a mark such as ``.`` or ``。`` ends a sentence,
and a wordpiece that does not begin with ``##`` begins a word.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

import numpy as np

from electra.config import Shards

# Latin, CJK, full width, Arabic and Urdu, Devanagari, Armenian, Ethiopic, Khmer, Burmese, Tibetan
SENTENCE_ENDS = frozenset(".!?…。．！？｡؟۔।॥։።፧។៕၊။།")
CLAUSE_ENDS = frozenset(",;:、，；：،؛")
CLOSERS = frozenset(")]}»”’」』）】〉》〕")
DIGITS = frozenset("0123456789")


class Boundaries:
    """Finder of sentence ends and word beginnings among the wordpieces of documents.

    Args:
        vocabulary: entries in the order of their ids.
    """

    def __init__(self, vocabulary: list[str]):
        def table(entries: frozenset[str]) -> np.ndarray:
            return np.array([entry in entries for entry in vocabulary], dtype=bool)

        self._sentence, self._clause, self._closes = table(SENTENCE_ENDS), table(CLAUSE_ENDS), table(CLOSERS)
        self._continues = np.array([entry.startswith("##") for entry in vocabulary], dtype=bool)
        self._digit = np.array([entry.removeprefix("##")[:1] in DIGITS for entry in vocabulary], dtype=bool)
        self._point = table(frozenset("."))
        self._letter = np.array([len(entry) == 1 and entry.isalpha() for entry in vocabulary], dtype=bool)

    def of(self, pieces: np.ndarray, line_ends: list[int]) -> "DocumentBoundaries":
        """Return the boundaries of a document.

        Args:
            pieces: ids of its wordpieces.
            line_ends: positions after the last wordpiece of each line; lines end sentences too.
        """
        ends_sentence = self._sentence[pieces]
        # a point within a number (3.14) or after a single letter (e.g., J. Smith) does not end a sentence
        points = np.flatnonzero(self._point[pieces])
        following = self._digit[pieces[np.minimum(points + 1, len(pieces) - 1)]] & (points + 1 < len(pieces))
        before = np.maximum(points - 1, 0)
        initial = self._letter[pieces[before]] & ~self._continues[pieces[np.minimum(points, len(pieces) - 1)]]
        ends_sentence[points[following | (initial & (points > 0))]] = False
        sentences = self._after_closers(np.flatnonzero(ends_sentence) + 1, pieces)
        clauses = self._after_closers(np.flatnonzero(self._clause[pieces]) + 1, pieces)
        words = np.flatnonzero(~self._continues[pieces])
        return DocumentBoundaries(sorted({*sentences, *line_ends}), clauses, words.tolist())

    def _after_closers(self, ends: np.ndarray, pieces: np.ndarray) -> list[int]:
        """Return the ends moved behind closing brackets and quotes, and behind further marks (``?!``)."""
        while True:
            more = ends < len(pieces)
            at = pieces[np.minimum(ends, len(pieces) - 1)]
            more &= self._closes[at] | self._sentence[at]
            if not more.any():
                return np.unique(ends).tolist()
            ends = ends + more


class DocumentBoundaries:
    """Boundaries of one document: increasing positions of the ends of sentences and clauses and of the word starts."""

    def __init__(self, sentences: list[int], clauses: list[int], words: list[int]):
        self.sentences, self._clauses, self._words = sentences, clauses, words

    def last(self, end: int, least: int) -> int:
        """Return the last sentence end from ``least`` to ``end``, else the last clause end, else the last word start.

        Return ``end`` if there is none, as in a long run of letters of a script without spaces.
        """
        for ends in (self.sentences, self._clauses, self._words):
            position = bisect_right(ends, end) - 1
            if position >= 0 and ends[position] >= least:
                return ends[position]
        return end

    def between_words(self, position: int) -> int:
        """Return the last word start at or before a position; the position itself if there is none."""
        at = bisect_left(self._words, position)
        if at < len(self._words) and self._words[at] == position:
            return position
        return self._words[at - 1] if at else position


SHORTEST_TARGET = 5  # tokens of the shortest example made on purpose: [CLS] a [SEP] b [SEP]


def document_generator(seed: int, doc_id: str) -> np.random.Generator:
    """Return the random generator of one document; it depends only on the seed and the document's hash."""
    key = np.array([seed % 2**64, int(doc_id, 16) % 2**64], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=key))


def cut_document(
    num_tokens: int,
    line_ends: list[int],
    rules: Shards,
    generator: np.random.Generator,
    boundaries: DocumentBoundaries | None = None,
) -> Iterator[tuple[int, int, int]]:
    """Cut ``num_tokens`` wordpieces into the spans of consecutive examples.

    Args:
        num_tokens: wordpieces of the document.
        line_ends: increasing positions after the last wordpiece of each line (a line is a sentence or a paragraph).
        rules: maximum length and the probabilities of short and of single-segment examples.
        generator: the document's random generator.
        boundaries: if given, an example ends at a boundary in its last quarter, and its first segment at one near its
            middle, if there are any; otherwise an example ends when it is full, and its first segment at a line end.

    Yields:
        (start, middle, end): the first segment is ``start:middle``, the second ``middle:end``; middle equals end if
        there is only one segment. The spans cover 0 to ``num_tokens`` without gaps.
    """
    start = 0
    while start < num_tokens:
        short, length, single = generator.random(3)
        target = rules.max_length
        if short < rules.short_example_probability:
            target = SHORTEST_TARGET + int(length * (rules.max_length - SHORTEST_TARGET + 1))
        wanted = (target - 3) // 2  # length of the first segment
        if single < rules.single_segment_probability or num_tokens - start <= wanted:
            end = _end(start, start + target - 2, num_tokens, boundaries)
            yield start, end, end
        else:
            end = _end(start, start + target - 3, num_tokens, boundaries)
            middle = _middle(start, end, wanted, boundaries.sentences if boundaries else line_ends)
            if boundaries and middle - start == wanted:  # no sentence end nearby
                middle = max(start + 1, boundaries.between_words(middle))
            yield start, middle, end
        start = end


def _end(start: int, full: int, num_tokens: int, boundaries: DocumentBoundaries | None) -> int:
    if full >= num_tokens:
        return num_tokens
    return boundaries.last(full, full - (full - start) // 4) if boundaries else full


def _middle(start: int, end: int, wanted: int, line_ends: list[int]) -> int:
    """Return the line end nearest to ``start + wanted``; ``start + wanted`` itself if none is near."""
    aim = start + wanted
    after = bisect_left(line_ends, aim)
    near = [at for at in line_ends[max(0, after - 1) : after + 1] if start < at < end and abs(at - aim) <= wanted // 2]
    return min(near, key=lambda at: abs(at - aim), default=aim)
