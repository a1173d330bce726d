"""Evaluation text in the corpus: word n-grams of development and test sets that occur in documents.

Texts are compared by their "letters": casefolded letters and digits only, in UTF-8. So case, punctuation, spaces and
tokenisation do not matter. A sorted table holds all 24-byte windows of the evaluation texts. Only every eighth position
of a document is looked up, since every common part of at least 31 bytes contains such a window. A match is extended to
both sides, and counts if it contains a whole n-gram.
"""

import re
import unicodedata
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from electra.text.corpus.near_duplicates import words_of

STEP = 8
WINDOW = 3 * STEP
LEAST_LETTERS = WINDOW + STEP - 1  # minimum bytes of an n-gram; shorter ones, such as thirteen numbers, occur anywhere
NOT_ASCII = re.compile(r"[^\x00-\x7f]")
NO_ASCII_LETTER = bytes(point for point in range(128) if not chr(point).isalnum())
LOWER = bytes(range(256)).lower()
AGAIN = np.uint64(0xD6E8FEB86659FD93)
ARRAYS = ("letters", "row_starts", "word_starts", "row_words", "windows", "places")


def letters_of(text: str) -> bytes:
    """Return the casefolded letters and digits of a text as UTF-8."""
    if text.isascii():
        return text.encode("ascii").translate(LOWER, NO_ASCII_LETTER)
    others = set(NOT_ASCII.findall(text))  # a few: quotation marks, dashes, accents
    if all(map(_leaves_nothing, others)):
        return text.encode("ascii", "ignore").translate(LOWER, NO_ASCII_LETTER)
    folded = unicodedata.normalize("NFKC", text).casefold()
    letters = folded.encode("utf-8").translate(None, NO_ASCII_LETTER)
    for character in set(NOT_ASCII.findall(folded)):
        if not character.isalnum():
            letters = letters.replace(character.encode("utf-8"), b"")
    return letters


@lru_cache(maxsize=4096)
def _leaves_nothing(character: str) -> bool:
    """Return whether a character contains no letter or digit, also after NFKC, and combines with no neighbour."""
    if unicodedata.category(character)[0] == "M":
        return False
    return not any(map(str.isalnum, unicodedata.normalize("NFKC", character).casefold()))


@dataclass(frozen=True)
class Leaks:
    """Evaluation text found in a document.

    Attributes:
        lines: numbers of the lines that contain some of the common part, sorted.
        rows: numbers of the evaluation texts, sorted.
    """

    lines: list[int]
    rows: list[int]


class EvaluationTexts:
    """Letters of the evaluation texts, and the table of their windows.

    Args:
        arrays: ``letters`` uint8 [num_bytes]: the letters of all texts, concatenated; ``row_starts`` int64
            [num_rows + 1]: the start of each text in ``letters``; ``word_starts`` int64: the start of each word in
            ``letters``, with the text's end after the last word of each text; ``row_words`` int64 [num_rows + 1]: each
            text's first entry in ``word_starts``; ``windows`` uint64: sorted hashes; ``places`` int64: the start of
            each window in ``letters``.
        num_words: words in an n-gram; a text of fewer words counts as one n-gram.
    """

    def __init__(self, arrays: dict[str, np.ndarray], num_words: int):
        self._arrays, self._num_words = arrays, num_words
        self._windows, self._places = arrays["windows"], arrays["places"]
        self._letters = arrays["letters"].tobytes()
        self._bits = min(26, max(16, (8 * len(self._windows)).bit_length()))
        self._known = np.zeros(1 << self._bits, dtype=bool)
        self._known[self._slots(self._windows)] = True
        self._known_again = np.zeros(1 << self._bits, dtype=bool)  # other bits: one in ten passes the first filter
        self._known_again[self._slots(self._windows * AGAIN)] = True

    @classmethod
    def of(cls, texts: list[str], num_words: int = 13, min_words: int = 8) -> "EvaluationTexts":
        """Return the table of texts; texts of fewer than ``min_words`` words or ``LEAST_LETTERS`` bytes never match."""
        letters, row_starts, word_starts, row_words = bytearray(), [0], [], [0]
        for text in texts:
            words = [word.encode("utf-8") for word in words_of(text)]
            if len(words) >= min_words and sum(map(len, words)) >= LEAST_LETTERS:
                for word in words:
                    word_starts.append(len(letters))
                    letters += word
            word_starts.append(len(letters))
            row_starts.append(len(letters))
            row_words.append(len(word_starts))
        array = np.frombuffer(bytes(letters), dtype=np.uint8)
        places = [np.arange(a, b - WINDOW + 1) for a, b in zip(row_starts, row_starts[1:], strict=False)]
        at = np.concatenate(places) if places else np.zeros(0, dtype=np.int64)
        windows = np.zeros(0, dtype=np.uint64)
        if len(at):
            eights = np.ndarray((len(letters) - STEP + 1,), "<u8", bytes(letters), 0, (1,))
            windows = _mixed(eights[at], eights[at + STEP], eights[at + 2 * STEP])
        order = np.argsort(windows, kind="stable")
        arrays: dict[str, np.ndarray] = {
            "letters": array,
            "row_starts": np.array(row_starts, dtype=np.int64),
            "word_starts": np.array(word_starts, dtype=np.int64),
            "row_words": np.array(row_words, dtype=np.int64),
            "windows": windows[order],
            "places": at[order].astype(np.int64),
        }
        return cls(arrays, num_words)

    def comparable(self) -> np.ndarray:
        """Return the numbers of the texts that are long enough to be found."""
        return np.flatnonzero(np.diff(self._arrays["row_starts"]) > 0)

    def save(self, folder: Path) -> None:
        """Write an ``.npy`` file for each array."""
        for name in ARRAYS:
            np.save(folder / f"{name}.npy", self._arrays[name], allow_pickle=False)

    @classmethod
    def load(cls, folder: Path, num_words: int) -> "EvaluationTexts":
        """Return the table that :meth:`save` wrote, memory-mapped: processes of one machine share the memory."""
        arrays = {name: np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False) for name in ARRAYS}
        return cls(arrays, num_words)

    def find(self, texts: list[str]) -> list[Leaks | None]:
        """Return for each document the evaluation texts of which it contains an n-gram; None if there are none.

        N-grams may cross line ends. Documents are searched together, because most of the time is overhead of calls.
        """
        if not len(self._windows):
            return [None] * len(texts)
        letters = [letters_of(text) for text in texts]
        # at least one word of zero bytes follows each document: no window across two documents can match
        padded = [found + bytes(2 * STEP - len(found) % STEP) for found in letters]
        ends = np.cumsum([len(found) // STEP for found in padded])
        eights = np.frombuffer(b"".join(padded), dtype="<u8")
        windows = _mixed(eights[:-2], eights[1:-1], eights[2:])
        at = np.flatnonzero(self._known.take(self._slots(windows)))
        at = at[self._known_again.take(self._slots(windows[at] * AGAIN))]
        windows = windows[at]
        first = np.searchsorted(self._windows, windows)
        known = np.flatnonzero(self._windows[np.minimum(first, len(self._windows) - 1)] == windows)
        matches: dict[int, list[tuple[int, int]]] = {}
        for number, document in zip(
            known.tolist(), np.searchsorted(ends, at[known], side="right").tolist(), strict=True
        ):
            start = int(ends[document]) - len(padded[document]) // STEP
            matches.setdefault(document, []).append(((int(at[number]) - start) * STEP, int(first[number])))
        return [
            self._followed(texts[document], letters[document], matches[document]) if document in matches else None
            for document in range(len(texts))
        ]

    def _followed(self, text: str, letters: bytes, matches: list[tuple[int, int]]) -> Leaks | None:
        spans: set[tuple[int, int]] = set()
        rows: set[int] = set()
        followed: dict[int, int] = {}  # offset (place - position) -> end of the match in the document
        for position, entry in matches:
            value = self._windows[entry]
            while entry < len(self._windows) and self._windows[entry] == value:
                place = int(self._places[entry])
                entry += 1
                if position < followed.get(place - position, 0):
                    continue
                row = int(np.searchsorted(self._arrays["row_starts"], place, side="right")) - 1
                begin, end = self._arrays["row_starts"][row : row + 2].tolist()
                before = _common_suffix(
                    letters[max(0, position - (place - begin)) : position], self._letters[begin:place]
                )
                after = _common_prefix(letters[position : position + end - place], self._letters[place:end])
                followed[place - position] = position + after
                if self._has_ngram(row, place - before, place + after):
                    spans.add((position - before, position + after))
                    rows.add(row)
        return Leaks(_lines_of(text, spans), sorted(rows)) if rows else None

    def _has_ngram(self, row: int, start: int, end: int) -> bool:
        """Return whether the letters of a text from ``start`` to ``end`` contain one of its n-grams."""
        first, last = self._arrays["row_words"][row : row + 2].tolist()
        words = self._arrays["word_starts"][first:last]  # with the text's end
        inside = int(np.searchsorted(words, end, side="right")) - int(np.searchsorted(words, start)) - 1
        return inside >= min(self._num_words, len(words) - 1) and end - start >= LEAST_LETTERS

    def _slots(self, hashes: np.ndarray) -> np.ndarray:
        return (hashes >> np.uint64(64 - self._bits)).view(np.int64)


@lru_cache(maxsize=1)
def load_texts(folder: Path, num_words: int) -> EvaluationTexts:
    """Return the evaluation texts in a folder, which are read once per process."""
    return EvaluationTexts.load(folder, num_words)


def _lines_of(text: str, spans: set[tuple[int, int]]) -> list[int]:
    sizes = [len(letters_of(line)) for line in text.split("\n")]
    ends = np.cumsum(sizes)
    reached: set[int] = set()
    for start, end in spans:
        first, last = np.searchsorted(ends, [start, end - 1], side="right").tolist()
        reached.update(number for number in range(first, last + 1) if sizes[number])
    return sorted(reached)


def _common_prefix(one: bytes, two: bytes) -> int:
    low, high = 0, min(len(one), len(two))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == two[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _common_suffix(one: bytes, two: bytes) -> int:
    return _common_prefix(one[::-1], two[::-1])


def _mixed(first: np.ndarray, second: np.ndarray, third: np.ndarray) -> np.ndarray:
    """Return uint64 hashes of three columns of eight bytes; the upper bits are better distributed."""
    mixed = first * np.uint64(0x9E3779B97F4A7C15)
    mixed += second * np.uint64(0xD6E8FEB86659FD93)
    mixed += third * np.uint64(0xC2B2AE3D27D4EB4F)
    return mixed
