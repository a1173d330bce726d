"""Text as sequences of hashed words, and their n-grams: what near-duplicates and leaks are found by.

Words are casefolded and punctuation does not count, so that a text is the same re-cased and re-punctuated. In scripts
without spaces every character is a word. The hashes are the same on every machine.
"""

import hashlib
import re
import unicodedata

import numpy as np

# Han, kana, Thai, Lao, Myanmar, Khmer: scripts without spaces between words; Hangul has spaces
WORD = re.compile(r"[぀-ヿ㐀-鿿豈-﫿\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\U00020000-\U0003ffff]|[^\W_]+")
REMEMBERED_WORDS = 1_000_000
NO_WORD = {point: " " for point in range(128) if not chr(point).isalnum()}


class WordHasher:
    """64-bit hashes of the words of texts; remembers those it met."""

    def __init__(self) -> None:
        self._known: dict[str, int] = {}

    def words(self, text: str) -> np.ndarray:
        """uint64 [num_words]."""
        words = words_of(text)
        known = self._known
        try:
            return np.fromiter(map(known.__getitem__, words), dtype=np.uint64, count=len(words))
        except KeyError:
            pass
        if len(known) > REMEMBERED_WORDS:
            known.clear()
        for word in set(words).difference(known):
            known[word] = int.from_bytes(hashlib.blake2b(word.encode("utf-8"), digest_size=8).digest(), "little")
        return np.fromiter(map(known.__getitem__, words), dtype=np.uint64, count=len(words))


def words_of(text: str) -> list[str]:
    """Casefolded words without punctuation, in Unicode NFKC."""
    if text.isascii():
        return text.lower().translate(NO_WORD).split()  # the same, several times as fast
    words: list[str] = []
    for line in text.split("\n"):
        if line.isascii():
            words += line.lower().translate(NO_WORD).split()
        else:
            words += WORD.findall(unicodedata.normalize("NFKC", line).casefold())
    return words


def ngram_hashes(words: np.ndarray, n: int) -> np.ndarray:
    """Hashes of all n-grams, uint64 [num_words - n + 1]; of a shorter text its one hash as a whole, of none nothing."""
    n = min(n, len(words))
    if n == 0:
        return words
    with np.errstate(over="ignore"):
        mixed = words.copy()
        for step in range(1, n):
            mixed = (mixed[:-1] ^ (mixed[:-1] >> np.uint64(31))) * np.uint64(0x9E3779B97F4A7C15) + words[step:]
        mixed = (mixed ^ (mixed >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
        return mixed ^ (mixed >> np.uint64(29))
