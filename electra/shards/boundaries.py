"""Where an example may end: at the end of a sentence, else between words.

Known from wordpieces alone, so that nothing is tokenized twice: a wordpiece that is a mark such as ``.`` or ``。`` ends
a sentence, and one that does not begin with ``##`` begins a word.
"""

from bisect import bisect_left, bisect_right

import numpy as np

# Latin, CJK, full width, Arabic and Urdu, Devanagari, Armenian, Ethiopic, Khmer, Burmese, Tibetan
SENTENCE_ENDS = frozenset(".!?…。．！？｡؟۔।॥։።፧។៕၊။།")
CLAUSE_ENDS = frozenset(",;:、，；：،؛")
CLOSERS = frozenset(")]}»”’」』）】〉》〕")
DIGITS = frozenset("0123456789")


class Boundaries:
    """Finds sentence ends and word beginnings among the wordpieces of documents.

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
        """The boundaries of a document.

        Args:
            pieces: ids of its wordpieces.
            line_ends: positions after the last wordpiece of each line; they end sentences too.
        """
        ends_sentence = self._sentence[pieces]
        # a point within a number (3.14) or after a single letter (e.g., J. Smith) ends nothing
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
        """The same ends, behind closing brackets and quotes, and behind further marks (``?!``)."""
        while True:
            more = ends < len(pieces)
            at = pieces[np.minimum(ends, len(pieces) - 1)]
            more &= self._closes[at] | self._sentence[at]
            if not more.any():
                return np.unique(ends).tolist()
            ends = ends + more


class DocumentBoundaries:
    """Boundaries of one document: increasing positions after sentences and clauses, and of the beginnings of words."""

    def __init__(self, sentences: list[int], clauses: list[int], words: list[int]):
        self.sentences, self._clauses, self._words = sentences, clauses, words

    def last(self, end: int, least: int) -> int:
        """The best position from ``least`` to ``end``: of a sentence's end, else a clause's, else between two words.

        Where there is none, as in a long run of letters of a script without spaces, ``end`` itself.
        """
        for ends in (self.sentences, self._clauses, self._words):
            position = bisect_right(ends, end) - 1
            if position >= 0 and ends[position] >= least:
                return ends[position]
        return end

    def between_words(self, position: int) -> int:
        """The nearest position up to here at which a word begins."""
        at = bisect_left(self._words, position)
        if at < len(self._words) and self._words[at] == position:
            return position
        return self._words[at - 1] if at else position
