"""Quality rules for whole documents: Gopher's, its repetition rules, and those that FineWeb adds.

A document is dropped by the first rule it breaks.
"""

from itertools import filterfalse

import numpy as np

from electra.config.text import FineWeb, Gopher, Repetition
from electra.text.corpus.near_duplicates import SpacedWords

BULLETS = ("•", "‣", "▶", "◀", "◦", "■", "□", "▪", "▫", "–", "-", "*", "·", "●", "○")
ELLIPSES = ("...", "…")
DIGITS = b"0123456789"
# Sentence ends in many scripts, and the quotes and brackets that may follow
PUNCTUATION = tuple(".!?…:;\"'”’»)]。！？」』）؟۔।॥։")


def gopher(lines: list[str], rules: Gopher) -> str | None:
    """Return the first of Gopher's quality rules that a document breaks; None if it breaks none.

    Words are separated by spaces, as in Gopher; for scripts without spaces the rules about words must be switched off.
    """
    text = " ".join(lines)
    data = text.encode("utf-8", "surrogatepass")  # counting bytes is several times as fast as characters
    num_words = data.count(b" ") + 1
    if rules.min_words is not None and num_words < rules.min_words:
        return "too_few_words"
    if rules.max_words is not None and num_words > rules.max_words:
        return "too_many_words"
    num_characters = len(text) - (num_words - 1)
    length = num_characters / num_words
    if rules.min_word_length is not None and length < rules.min_word_length:
        return "short_words"
    if rules.max_word_length is not None and length > rules.max_word_length:
        return "long_words"
    if rules.max_symbol_ratio is not None:
        most = rules.max_symbol_ratio * num_words
        if data.count(b"#") > most or data.count(b"...") + text.count("…") > most:
            return "symbols"
    if _exceeds(sum(line.startswith(BULLETS) for line in lines), rules.max_bullet_lines, len(lines)):
        return "bullets"
    if _exceeds(sum(line.endswith(ELLIPSES) for line in lines), rules.max_ellipsis_lines, len(lines)):
        return "ellipses"
    words = text.split(" ")
    if rules.min_alphabetic_words is not None:
        most = (1 - rules.min_alphabetic_words) * num_words
        others = list(filterfalse(str.isalpha, words))  # some may contain letters too
        if len(others) > most and sum(not any(map(str.isalpha, word)) for word in others) > most:
            return "not_alphabetic"
    if rules.max_digits is not None and sum(map(data.count, DIGITS)) > rules.max_digits * num_characters:
        return "digits"
    if rules.min_stop_words is not None:
        lower = [word for word in rules.stop_words if len(word) <= 12 and word.lower().split(" ") == [word]]
        spaced = f" {text} "
        if sum(f" {word} " in spaced for word in lower) < rules.min_stop_words:  # else skip lowercasing
            lowered = {word.lower() for word in words if len(word) <= 12}
            if sum(word in lowered for word in rules.stop_words) < rules.min_stop_words:
                return "stop_words"
    return None


def fineweb(lines: list[str], rules: FineWeb) -> str | None:
    """Return the first of FineWeb's additional rules that a document breaks; None if it breaks none."""
    punctuated = sum(line.endswith(PUNCTUATION) for line in lines)
    if rules.min_punctuated_lines is not None and punctuated < rules.min_punctuated_lines * len(lines):
        return "unpunctuated_lines"
    if _exceeds(sum(len(line) < rules.short_line for line in lines), rules.max_short_lines, len(lines)):
        return "short_lines"
    if _exceeds(_repeated_lines(lines)[1], rules.max_duplicate_line_chars, sum(map(len, lines))):
        return "duplicate_line_chars"
    return None


def repetition(lines: list[str], rules: Repetition) -> str | None:
    """Return the first of Gopher's repetition rules that a document breaks; None if it breaks none."""
    repeated, characters = _repeated_lines(lines)
    num_characters = sum(map(len, lines))
    if _exceeds(repeated, rules.max_duplicate_lines, len(lines)):
        return "duplicate_lines"
    if _exceeds(characters, rules.max_duplicate_line_chars, num_characters):
        return "duplicate_line_chars"
    top, duplicate = rules.max_top_ngram_chars, rules.max_duplicate_ngram_chars
    words = SpacedWords(" ".join(lines))
    lengths, widest = words.lengths, int(words.lengths.max())
    least, most_often = min(duplicate, default=0), len(lengths)
    for n in sorted({*top, *duplicate}):
        if not 2 <= n <= len(lengths):
            continue
        # a longer n-gram is no more frequent than the shorter ones in it
        if n in top and most_often * n * widest > top[n] * num_characters:
            most_often, characters = _top_ngram(words.ngrams(n), lengths, n, top[n] * num_characters / (n * widest))
            if characters > top[n] * num_characters:
                return f"top_{n}_gram"
        if n in duplicate:
            enough = min(duplicate.values()) * num_characters
            inside = _repeated_ngram_chars(words.ngrams(n), lengths, n, n * widest, enough)
            if _exceeds(inside, duplicate[n], num_characters):
                return f"duplicate_{n}_grams"
            # words in longer repeated n-grams are also in shorter ones, so the rules for longer n-grams hold as well
            if n == least and inside <= enough and n >= max(top, default=0):
                return None
    return None


def _exceeds(found: int, share: float | None, of: int) -> bool:
    return share is not None and found > share * of


def _repeated_lines(lines: list[str]) -> tuple[int, int]:
    """Return the number of lines that repeat an earlier line of the document, and their characters."""
    if len(set(lines)) == len(lines):
        return 0, 0
    seen: set[str] = set()
    repeated = characters = 0
    for line in lines:
        if line in seen:
            repeated += 1
            characters += len(line)
        seen.add(line)
    return repeated, characters


def _top_ngram(hashes: np.ndarray, lengths: np.ndarray, n: int, enough: float) -> tuple[int, int]:
    """Return an upper bound on the most frequent n-gram's count, and its characters times its count.

    The characters are 0 if the count is 1 or at most ``enough``; the count is exact if they are not 0.
    """
    # n-grams that share 12 bits are counted together: a fast upper bound, which is mostly low enough
    together = int(np.bincount((hashes >> np.uint64(52)).astype(np.intp)).max())
    if together < 2 or together <= enough:
        return together, 0
    ordered = np.sort(hashes)
    ends = np.concatenate((np.flatnonzero(ordered[1:] != ordered[:-1]), [len(ordered) - 1]))
    counts = ends + 1
    counts[1:] -= counts[:-1].copy()
    top = int(counts.max())
    if top < 2 or top <= enough:
        return top, 0
    most = ordered[ends[counts == top]]
    first = np.flatnonzero(np.isin(hashes, most)) if len(most) > 1 else np.flatnonzero(hashes == most[0])[:1]
    sizes = sum(lengths[first + offset] for offset in range(n))
    return top, int(np.max(sizes) * top)


def _repeated_ngram_chars(hashes: np.ndarray, lengths: np.ndarray, n: int, longest: int, enough: float) -> int:
    """Return the characters of the words inside repeated n-grams, each word once.

    If an upper bound is at most ``enough``, return the upper bound.
    """
    ordered = np.sort(hashes)
    at_most = longest * int(np.count_nonzero(ordered[1:] == ordered[:-1]))
    if at_most <= enough:
        return at_most
    _, first = np.unique(hashes, return_index=True)
    again = np.ones(len(hashes), dtype=bool)
    again[first] = False
    starts = np.zeros(len(lengths) + 1, dtype=np.int64)
    at = np.flatnonzero(again)
    starts[at] += 1
    starts[at + n] -= 1
    return int(lengths[np.cumsum(starts[:-1]) > 0].sum())
