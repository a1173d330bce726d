"""Measures of texts: length of words, signs of wrong decoding, and the share of rows that repeat an earlier one."""

import re
from dataclasses import dataclass, field

import ftfy
import numpy as np
from ftfy.badness import BADNESS_RE, is_bad
from ftfy.chardata import UTF8_DETECTOR_RE

MAX_HASHES = 4_000_000  # hashes kept for finding duplicates: 32 MB

# Scripts without spaces between words: Thai, Lao, Tibetan, Myanmar, Khmer, kana, bopomofo, Han, Yi, with their
# punctuation and wide forms. Hangul has spaces.
UNSPACED = re.compile(
    "[\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u2e80-\u312f\u31a0-\u4dbf\u4e00-\ua4cf\uaa60-\uaa7f\uf900-\ufaff"
    "\uff00-\uff9f\uffe0-\uffef\U0001b000-\U0001b16f\U00020000-\U0003ffff]+"
)
# ftfy's heuristic was made for short messages. In long texts it also matches correct text: a quotation mark before an
# accented letter (»É), one after an ordinal (ª»), the letter œ at the end of a word or before an accent.
ORDINARY = re.compile(r"[«»‹›“”„]\w|[ªº][»›”’)]|[Œœ](?:[\x00-\x7f]|\w)")
LEAST_SIGNS = 3  # least number of signs in a text that cannot be repaired
LEAST_SHARE = 0.01  # least share of signs among the characters that are not ASCII; mojibake has one in every few


def mean_word_chars(text: str, characters: int, words: int) -> float | None:
    """Return characters per word in scripts with spaces; None if more than half of the text is in other scripts.

    Args:
        characters, words: counts of the text, where words are separated by spaces.
    """
    if text.isascii() or not (unspaced := sum(map(len, UNSPACED.findall(text)))):
        return characters / max(1, words)
    if 2 * unspaced > characters:
        return None
    rest = UNSPACED.sub(" ", text).split()
    return sum(map(len, rest)) / max(1, len(rest)) + 1


def is_mojibake(text: str) -> bool:
    """Return True if a text was decoded wrongly: ftfy would repair a line, or it has many unlikely character pairs."""
    if text.isascii():
        return False
    lines = [line for line in text.split("\n") if not line.isascii()]
    repairable = (line for line in lines if any(map(is_bad, UTF8_DETECTOR_RE.findall(line))))
    if any(ftfy.fix_encoding(line) != line for line in repairable):
        return True
    signs = sum(not ORDINARY.fullmatch(sign) for line in lines for sign in BADNESS_RE.findall(line))
    return signs >= LEAST_SIGNS and signs >= LEAST_SHARE * sum(not c.isascii() for line in lines for c in line)


@dataclass
class DuplicateCount:
    """Share of rows whose 64-bit hash was seen before.

    Above ``MAX_HASHES`` expected rows only hashes below a bound are kept. Equal rows have equal hashes, so all or none
    of them are kept, and the share is an unbiased estimate.
    """

    expected_rows: int
    _held: list[np.ndarray] = field(default_factory=list)

    def add(self, hashes: np.ndarray) -> None:
        """Count rows by their hashes, uint64 [N]."""
        self._held.append(hashes[hashes <= hash_bound(self.expected_rows, MAX_HASHES)])

    def add_all(self, part: "DuplicateCount") -> None:
        """Add the rows of another count with the same ``expected_rows``."""
        self._held += part._held

    def hashes(self) -> np.ndarray:
        """Return the kept hashes, uint64."""
        return np.concatenate([*self._held, np.empty(0, np.uint64)])

    def share(self) -> float:
        """Return the rows that repeat an earlier one, as a share of all rows."""
        hashes = self.hashes()
        return (len(hashes) - len(np.unique(hashes))) / max(1, len(hashes))


def hash_bound(expected: int, wanted: int) -> np.uint64:
    """Return the bound on 64-bit hashes below which about ``wanted`` of ``expected`` hashes fall."""
    return np.uint64(2**64 - 1) if expected <= wanted else np.uint64(2**64 * wanted // expected)
