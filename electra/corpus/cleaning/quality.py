"""Rules for whole documents: a document that breaks one is dropped, by the first rule it breaks."""

from collections.abc import Iterator

import numpy as np

from electra.config.cleaning import FineWeb, Gopher, Repetition

BULLETS = ("•", "‣", "▶", "◀", "◦", "■", "□", "▪", "▫", "–", "-", "*", "·", "●", "○")
ELLIPSES = ("...", "…")
# Sentence ends of many scripts, and closing quotes and brackets after them
PUNCTUATION = tuple(".!?…:;\"'”’»)]。！？」』）؟۔।॥։")


def gopher(lines: list[str], rules: Gopher) -> str | None:
    """The first of Gopher's quality rules that a document breaks; None where it keeps all.

    Words are what stands between spaces, as in Gopher; in scripts without spaces the rules about words do not apply and
    have to be switched off.
    """
    words = [word for line in lines for word in line.split(" ")]
    num_words = len(words)
    if rules.min_words is not None and num_words < rules.min_words:
        return "too_few_words"
    if rules.max_words is not None and num_words > rules.max_words:
        return "too_many_words"
    num_characters = sum(map(len, words))
    length = num_characters / max(1, num_words)
    if rules.min_word_length is not None and length < rules.min_word_length:
        return "short_words"
    if rules.max_word_length is not None and length > rules.max_word_length:
        return "long_words"
    text = "\n".join(lines)
    if rules.max_symbol_ratio is not None:
        most = rules.max_symbol_ratio * num_words
        if text.count("#") > most or text.count("...") + text.count("…") > most:
            return "symbols"
    if _exceeds(sum(line.startswith(BULLETS) for line in lines), rules.max_bullet_lines, len(lines)):
        return "bullets"
    if _exceeds(sum(line.endswith(ELLIPSES) for line in lines), rules.max_ellipsis_lines, len(lines)):
        return "ellipses"
    different = set(words)
    if rules.min_alphabetic_words is not None:
        without = {word for word in different if not word.isalpha() and not any(map(str.isalpha, word))}
        if without and sum(word in without for word in words) > (1 - rules.min_alphabetic_words) * num_words:
            return "not_alphabetic"
    if rules.max_digits is not None and sum(map(text.count, "0123456789")) > rules.max_digits * num_characters:
        return "digits"
    if rules.min_stop_words is not None:
        lowered = {word.lower() for word in different if len(word) <= 12}
        if sum(word in lowered for word in rules.stop_words) < rules.min_stop_words:
            return "stop_words"
    return None


def fineweb(lines: list[str], rules: FineWeb) -> str | None:
    """The first of FineWeb's own rules that a document breaks."""
    punctuated = sum(line.endswith(PUNCTUATION) for line in lines)
    if rules.min_punctuated_lines is not None and punctuated < rules.min_punctuated_lines * len(lines):
        return "unpunctuated_lines"
    if _exceeds(sum(len(line) < rules.short_line for line in lines), rules.max_short_lines, len(lines)):
        return "short_lines"
    if _exceeds(_repeated_lines(lines)[1], rules.max_duplicate_line_chars, sum(map(len, lines))):
        return "duplicate_line_chars"
    return None


def repetition(lines: list[str], rules: Repetition) -> str | None:
    """The first of Gopher's repetition rules that a document breaks."""
    repeated, characters = _repeated_lines(lines)
    num_characters = sum(map(len, lines))
    if _exceeds(repeated, rules.max_duplicate_lines, len(lines)):
        return "duplicate_lines"
    if _exceeds(characters, rules.max_duplicate_line_chars, num_characters):
        return "duplicate_line_chars"
    top, duplicate = rules.max_top_ngram_chars, rules.max_duplicate_ngram_chars
    ids, lengths = _numbered(" ".join(lines).split(" "))
    least = min(duplicate, default=0)
    for n, hashes in _ngram_hashes(ids, max([*top, *duplicate, 0])):
        if n in top and _exceeds(_top_ngram_chars(hashes, lengths, n), top[n], num_characters):
            return f"top_{n}_gram"
        if n in duplicate:
            inside = _repeated_ngram_chars(hashes, lengths, n)
            if _exceeds(inside, duplicate[n], num_characters):
                return f"duplicate_{n}_grams"
            # words inside longer repeated n-grams are inside shorter ones too: the rules for those cannot be broken
            if n == least and inside <= min(duplicate.values()) * num_characters and n >= max(top, default=0):
                return None
    return None


def _exceeds(found: int, share: float | None, of: int) -> bool:
    return share is not None and found > share * of


def _repeated_lines(lines: list[str]) -> tuple[int, int]:
    """How many lines stood before in the document, and their characters."""
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


def _numbered(words: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """An id [num_words] and the length [num_words] of each word."""
    numbers = {word: number for number, word in enumerate(dict.fromkeys(words))}
    ids = np.fromiter(map(numbers.__getitem__, words), dtype=np.uint64, count=len(words))
    of_each = np.fromiter(map(len, numbers), dtype=np.int64, count=len(numbers))
    return ids, of_each[ids.astype(np.int64)]


def _ngram_hashes(ids: np.ndarray, longest: int) -> Iterator[tuple[int, np.ndarray]]:
    """(n, hash of the n-gram at each position [num_words - n + 1]) from 2 to ``longest``."""
    with np.errstate(over="ignore"):
        hashes = (ids + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        mixed = hashes.copy()
        for n in range(2, longest + 1):
            if len(ids) < n:
                return
            mixed = (mixed[:-1] ^ (mixed[:-1] >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9) + hashes[n - 1 :]
            yield n, mixed


def _top_ngram_chars(hashes: np.ndarray, lengths: np.ndarray, n: int) -> int:
    """Characters of the most frequent n-gram times its count, where it occurs at least twice."""
    ordered = np.sort(hashes)
    ends = np.flatnonzero(np.append(ordered[1:] != ordered[:-1], True))
    counts = np.diff(ends, prepend=-1)
    top = counts.max()
    if top < 2:
        return 0
    most = ordered[ends[counts == top]]
    first = np.flatnonzero(np.isin(hashes, most)) if len(most) > 1 else np.flatnonzero(hashes == most[0])[:1]
    sizes = sum(lengths[first + offset] for offset in range(n))
    return int(np.max(sizes) * top)


def _repeated_ngram_chars(hashes: np.ndarray, lengths: np.ndarray, n: int) -> int:
    """Characters of the words inside n-grams that stood before, each word once."""
    _, first = np.unique(hashes, return_index=True)
    if len(first) == len(hashes):
        return 0
    again = np.ones(len(hashes), dtype=bool)
    again[first] = False
    starts = np.zeros(len(lengths) + 1, dtype=np.int64)
    at = np.flatnonzero(again)
    starts[at] += 1
    starts[at + n] -= 1
    return int(lengths[np.cumsum(starts[:-1]) > 0].sum())
