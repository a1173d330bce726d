"""Measures of texts: length of words, and signs of wrong decoding."""

import re

import ftfy
from ftfy.badness import BADNESS_RE, is_bad
from ftfy.chardata import UTF8_DETECTOR_RE

from electra.common.scripts import UNSPACED

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
