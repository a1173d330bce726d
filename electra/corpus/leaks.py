"""Evaluation text in the corpus: n-grams of words of development and test sets, looked for in documents.

Texts are compared by their letters: casefolded, without anything but letters and digits, as UTF-8. So case,
punctuation, spaces and tokenisation do not matter. All windows of 24 bytes of the evaluation texts are in a
sorted table; of a document only every eighth position is looked up, since a common part of at least 31 bytes has such a
window. Where one is known, the common part is followed to both sides, and counts if it has a whole n-gram.
"""

import re
import unicodedata
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from electra.corpus.near_duplicates import words_of

STEP = 8
WINDOW = 3 * STEP
LEAST_LETTERS = WINDOW + STEP - 1  # bytes of an n-gram; shorter ones, such as thirteen numbers, stand in any text
NOT_ASCII = re.compile(r"[^\x00-\x7f]")
NO_ASCII_LETTER = bytes(point for point in range(128) if not chr(point).isalnum())
LOWER = bytes(range(256)).lower()
AGAIN = np.uint64(0xD6E8FEB86659FD93)
ARRAYS = ("letters", "row_starts", "word_starts", "row_words", "windows", "places")


def letters_of(text: str) -> bytes:
    """The letters of a text."""
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
    """Return whether a character is no letter, holds none and changes none beside it."""
    if unicodedata.category(character)[0] == "M":
        return False
    return not any(map(str.isalnum, unicodedata.normalize("NFKC", character).casefold()))


@dataclass(frozen=True)
class Leaks:
    """Evaluation text found in a document.

    Attributes:
        lines: numbers of the lines that a common part reaches into, sorted.
        rows: numbers of the evaluation texts, sorted.
    """

    lines: list[int]
    rows: list[int]


class EvaluationTexts:
    """The letters of evaluation texts, and the table of their windows.

    Args:
        arrays: ``letters`` uint8 [num_bytes], of all texts one after the other; ``row_starts`` int64 [num_rows + 1];
            ``word_starts`` int64: of every word in ``letters``, with the text's end after each text's last;
            ``row_words`` int64 [num_rows + 1]: the text's first entry in ``word_starts``; ``windows`` uint64, sorted
            hashes; ``places`` int64: where in ``letters`` each window begins.
        num_words: of an n-gram; a text of fewer words counts as a whole.
    """

    def __init__(self, arrays: dict[str, np.ndarray], num_words: int):
        self._arrays, self._num_words = arrays, num_words
        self._windows, self._places = arrays["windows"], arrays["places"]
        self._letters = arrays["letters"].tobytes()
        self._bits = min(26, max(16, (8 * len(self._windows)).bit_length()))
        self._known = np.zeros(1 << self._bits, dtype=bool)
        self._known[self._slots(self._windows)] = True
        self._known_again = np.zeros(1 << self._bits, dtype=bool)  # by other bits: one in ten passes the first table
        self._known_again[self._slots(self._windows * AGAIN)] = True

    @classmethod
    def of(cls, texts: list[str], num_words: int = 13, min_words: int = 8) -> "EvaluationTexts":
        """The table of texts; those of fewer than ``min_words`` words or ``LEAST_LETTERS`` bytes are never found."""
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
        """Numbers of the texts that are long enough to be found."""
        return np.flatnonzero(np.diff(self._arrays["row_starts"]) > 0)

    def save(self, folder: Path) -> None:
        """Write an ``.npy`` file for each array."""
        for name in ARRAYS:
            np.save(folder / f"{name}.npy", self._arrays[name], allow_pickle=False)

    @classmethod
    def load(cls, folder: Path, num_words: int) -> "EvaluationTexts":
        """Read what :meth:`save` wrote; processes of one machine share the memory."""
        arrays = {name: np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False) for name in ARRAYS}
        return cls(arrays, num_words)

    def find(self, texts: list[str]) -> list[Leaks | None]:
        """For each document the evaluation texts that it has an n-gram of; None if there are none.

        N-grams may go over line ends. Documents are looked through together: most of the time goes into calls.
        """
        if not len(self._windows):
            return [None] * len(texts)
        letters = [letters_of(text) for text in texts]
        # from a multiple of eight to the next one but one: no window of two documents is one of an evaluation text
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
        followed: dict[int, int] = {}  # place - position -> how far in the document
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
        """Return whether there is an n-gram of a text within its letters from ``start`` to ``end``."""
        first, last = self._arrays["row_words"][row : row + 2].tolist()
        words = self._arrays["word_starts"][first:last]  # with the text's end
        inside = int(np.searchsorted(words, end, side="right")) - int(np.searchsorted(words, start)) - 1
        return inside >= min(self._num_words, len(words) - 1) and end - start >= LEAST_LETTERS

    def _slots(self, hashes: np.ndarray) -> np.ndarray:
        return (hashes >> np.uint64(64 - self._bits)).view(np.int64)


@lru_cache(maxsize=1)
def load_texts(folder: Path, num_words: int) -> EvaluationTexts:
    """The evaluation texts in a folder, read once a process."""
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
    """uint64 hashes of three columns of eight bytes; the upper bits are the better ones."""
    mixed = first * np.uint64(0x9E3779B97F4A7C15)
    mixed += second * np.uint64(0xD6E8FEB86659FD93)
    mixed += third * np.uint64(0xC2B2AE3D27D4EB4F)
    return mixed
