"""Encoding of text word by word, every distinct word once, because most words of a text occurred before."""

import re
from array import array

import numpy as np
from tokenizers import Tokenizer

WORD = re.compile(r"[!-/:-@\[-`{-~]|[^ !-/:-@\[-`{-~]+")  # one ASCII punctuation character, or the text between
# The only mark that NFC composes with ASCII punctuation; the results (≮ ≠ ≯) are not ASCII punctuation. In lines that
# contain it, "<", "=" and ">" before a non-ASCII character do not separate words.
STROKE = "\u0338"
WORD_WITH_STROKE = re.compile(r"(?:[^ !-/:-@\[-`{-~]|[<=>](?=[^\x00-\x7f]))+|[!-/:-@\[-`{-~]")
WORD_BYTES = 250  # approximate memory of an entry besides its characters
CACHE_BYTES = 25_000_000  # per generation; there are two


class WordEncoder:
    """Encoder of lines with a cache of words: the same ids as the tokenizer's, several times as fast.

    BERT's pre-tokeniser splits at spaces and around ASCII punctuation, and neither its normaliser nor WordPiece looks
    across such a split: the ids of a line are the concatenated ids of its words.

    Args:
        tokenizer: a tokenizer made by ``electra.text.tokenizer``.
        dtype: type of the ids.
    """

    def __init__(self, tokenizer: Tokenizer, dtype: np.dtype):
        self._tokenizer, self._dtype = tokenizer, dtype
        # two generations: a full newer one replaces the older, whose words not used since are forgotten
        self._ids: dict[str, bytes] = {}
        self._older: dict[str, bytes] = {}
        self._bytes = 0

    def encode(self, lines: list[str]) -> list[bytes]:
        """Return the ids of each line, as the bytes of an array of ``dtype``."""
        words = [(WORD_WITH_STROKE if STROKE in line else WORD).findall(line) for line in lines]
        self._learn(set().union(*words))
        ids = self._ids.__getitem__
        return [b"".join(map(ids, line)) for line in words]

    def _learn(self, words: set[str]) -> None:
        if self._bytes > CACHE_BYTES:
            self._older, self._ids, self._bytes = self._ids, {}, 0
        missing = words.difference(self._ids)
        found = {word: self._older[word] for word in missing.intersection(self._older)}
        new = list(missing.difference(found))
        for word, encoding in zip(new, self._tokenizer.encode_batch_fast(new, add_special_tokens=False), strict=True):
            found[word] = array(self._dtype.char, encoding.ids).tobytes()
        self._ids |= found
        self._bytes += sum(map(len, found)) + WORD_BYTES * len(found)
