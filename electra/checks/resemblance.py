"""Measures of texts: near-copies of other documents, the length of words, signs of wrong decoding.

For near-copies, a passage is 32 bytes of a text's letters and digits, so case, spaces and ASCII punctuation do not
count. A document is described by the least hashes of its passages (MinHash with one permutation: Li, Owen and Zhang
2012; parts without a passage take the next one's: Shrivastava and Li 2014). Two documents agree in as large a share of
them as they share passages. Documents are compared where four of these hashes agree.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import ftfy
import numpy as np
from ftfy.badness import BADNESS_RE, is_bad
from ftfy.chardata import UTF8_DETECTOR_RE

MAX_HASHES = 4_000_000  # hashes held while looking for duplicates: 32 MB

# Scripts without spaces between words: Thai, Lao, Tibetan, Myanmar, Khmer, kana, bopomofo, Han, Yi, with the
# punctuation and wide forms that go with them. Hangul has spaces.
UNSPACED = re.compile(
    "[\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u2e80-\u312f\u31a0-\u4dbf\u4e00-\ua4cf\uaa60-\uaa7f\uf900-\ufaff"
    "\uff00-\uff9f\uffe0-\uffef\U0001b000-\U0001b16f\U00020000-\U0003ffff]+"
)
# ftfy's heuristic was made for short messages. In long texts it fires on what languages write: a quotation mark before
# an accented letter (»É), one after an ordinal (ª»), the letter œ at the end of a word or before an accent.
ORDINARY = re.compile(r"[«»‹›“”„]\w|[ªº][»›”’)]|[Œœ](?:[\x00-\x7f]|\w)")
LEAST_SIGNS = 3  # of a text that cannot be decoded otherwise
LEAST_SHARE = 0.01  # of its characters that are not ASCII; mojibake has a sign in every few


def mean_word_chars(text: str, characters: int, words: int) -> float | None:
    """Characters per word of the scripts that set words apart; None where more than half of a text has others.

    Args:
        characters, words: of the text, words being what stands between spaces.
    """
    if text.isascii() or not (unspaced := sum(map(len, UNSPACED.findall(text)))):
        return characters / max(1, words)
    if 2 * unspaced > characters:
        return None
    rest = UNSPACED.sub(" ", text).split()
    return sum(map(len, rest)) / max(1, len(rest)) + 1


def is_mojibake(text: str) -> bool:
    """True if a text was decoded wrongly: ftfy would repair a line, or it has many unlikely character pairs."""
    if text.isascii():
        return False
    lines = [line for line in text.split("\n") if not line.isascii()]
    repairable = (line for line in lines if any(map(is_bad, UTF8_DETECTOR_RE.findall(line))))
    if any(ftfy.fix_encoding(line) != line for line in repairable):
        return True
    signs = sum(not ORDINARY.fullmatch(sign) for line in lines for sign in BADNESS_RE.findall(line))
    return signs >= LEAST_SIGNS and signs >= LEAST_SHARE * sum(not c.isascii() for line in lines for c in line)


PASSAGE_BYTES = 32  # 2 ** len(_FACTORS)
NUM_HASHES = 32  # of a document, 16 bits each
BAND = 4  # hashes that must agree for two documents to be compared: together 64 bits
LEAST_AGREEING = 22  # of NUM_HASHES: about 0.7 of the passages
MAX_DOCUMENTS = 500_000  # compared with each other: 32 MB
BLOCK_BYTES = 1 << 20  # hashed at a time
ENOUGH = 100 * NUM_HASHES  # passages of a long document that are looked at, those with the least hashes
NOT_ALPHANUMERIC = bytes(code for code in range(128) if not chr(code).isalnum())
_NONE = np.uint64(2**64 - 1)
_BYTE_HASHES = np.random.Generator(np.random.Philox(1)).integers(0, 2**64, 256, np.uint64)
_FACTORS = np.random.Generator(np.random.Philox(2)).integers(0, 2**63, 5, np.uint64) * np.uint64(2) + np.uint64(1)


@dataclass
class NearDuplicateCount:
    """Share of documents that are nearly an earlier one.

    Of more than ``MAX_DOCUMENTS`` documents a sample is compared. The least of a document's hashes decides whether it
    is in the sample; near-duplicates mostly share it, so they are in or out together.

    Args:
        num_documents: of the whole corpus.
    """

    num_documents: int
    _held: list[np.ndarray] = field(default_factory=list)

    def add(self, texts: list[str]) -> None:
        """Count documents."""
        least = least_hashes(texts)
        in_sample = _mixed(least.min(axis=1)) <= hash_bound(self.num_documents, MAX_DOCUMENTS)
        # the least hashes themselves are near zero
        self._held.append(_mixed(least[in_sample]).astype(np.uint16))

    def add_all(self, part: "NearDuplicateCount") -> None:
        """Count the documents of the next part of the corpus."""
        self._held += part._held

    def share(self) -> float:
        """Documents that are nearly an earlier one, as a share of those compared."""
        hashes = np.concatenate([np.empty((0, NUM_HASHES), np.uint16), *self._held])
        if not len(hashes):
            return 0.0
        repeats = np.zeros(len(hashes), dtype=bool)
        for band in hashes.view(np.uint64).T:
            order = np.argsort(band, kind="stable")  # documents that agree in this band side by side, the first first
            begins = np.r_[True, band[order][1:] != band[order][:-1]]
            first = order[np.maximum.accumulate(np.where(begins, np.arange(len(order)), 0))]
            for earlier in (first, np.roll(order, 1)):
                agreeing = (hashes[order] == hashes[earlier]).sum(axis=1)
                repeats[order[~begins & (agreeing >= LEAST_AGREEING)]] = True
        return float(repeats.mean())


def least_hashes(texts: list[str]) -> np.ndarray:
    """For each text the least of the hashes of its passages in each of 32 parts, uint64 [texts, NUM_HASHES].

    The passages are divided into parts by their hashes. A text shorter than a passage is one.
    """
    contents = [_letters(text) for text in texts]
    least = np.full((len(texts), NUM_HASHES), _NONE)
    for block in _blocks(contents):
        _take_least(least, block)
    for row, content in zip(least, contents, strict=True):
        if len(content) < PASSAGE_BYTES:
            (whole,) = np.frombuffer(hashlib.blake2b(content, digest_size=8).digest(), np.uint64)
            row[int(whole % NUM_HASHES)] = whole
    return _filled(least)


def _filled(least: np.ndarray) -> np.ndarray:
    """Parts without a passage take the hash of the next that has one."""
    following = np.concatenate([least, least], axis=1)
    places = np.where(following == _NONE, 2 * NUM_HASHES, np.arange(2 * NUM_HASHES))
    next_filled = np.minimum.accumulate(places[:, ::-1], axis=1)[:, ::-1][:, :NUM_HASHES]
    return np.take_along_axis(following, next_filled, axis=1)


def _letters(text: str) -> bytes:
    """The part of a text that is compared; the whole text where that is empty."""
    content = text.lower().encode()
    return content.translate(None, NOT_ALPHANUMERIC) or content


Piece = tuple[int, int, bytes]  # of the content of a document: its number, its passages, bytes


def _blocks(contents: Iterable[bytes]) -> Iterator[list[Piece]]:
    """Contents in pieces, about ``BLOCK_BYTES`` of them at a time; every passage is in one piece."""
    block: list[Piece] = []
    size = 0
    for number, content in enumerate(contents):
        passages = len(content) - PASSAGE_BYTES + 1
        for start in range(0, passages, BLOCK_BYTES):
            piece = content[start : start + BLOCK_BYTES + PASSAGE_BYTES - 1]
            block.append((number, passages, piece))
            size += len(piece)
            if size >= BLOCK_BYTES:
                yield block
                block, size = [], 0
    if block:
        yield block


def _take_least(least: np.ndarray, block: list[Piece]) -> None:
    """Lower the least hashes [documents, NUM_HASHES] to those of the block."""
    numbers, passages, pieces = zip(*block, strict=True)
    lengths = np.array([len(piece) for piece in pieces])
    hashes = _BYTE_HASHES[np.frombuffer(b"".join(pieces), np.uint8)]
    width = 1
    for factor in _FACTORS:
        hashes = hashes[:-width] * factor + hashes[width:]
        width *= 2
    hashes = _mixed(hashes)
    # of a long text few hashes are looked at: a part of it has none of these with a probability of e^-100
    bounds = np.array([hash_bound(count, ENOUGH) for count in passages], np.uint64)
    lasts = np.cumsum(lengths) - PASSAGE_BYTES  # of each piece the last place where a passage of its own begins
    piece_of = np.repeat(np.arange(len(block)), lengths)[: len(hashes)]
    places = np.flatnonzero((hashes <= bounds[piece_of]) & (np.arange(len(hashes)) <= lasts[piece_of]))
    chosen = hashes[places]
    np.minimum.at(least, (np.array(numbers)[piece_of[places]], (chosen % NUM_HASHES).astype(np.int64)), chosen)


def _mixed(values: np.ndarray) -> np.ndarray:
    """Hashes of numbers, uint64 (the finaliser of splitmix64)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


@dataclass
class DuplicateCount:
    """Share of rows whose 64-bit hash was seen before.

    Above ``MAX_HASHES`` expected rows only hashes below a bound are held. Equal rows have equal hashes, so they are in
    or out together and the share stays an unbiased estimate.
    """

    expected_rows: int
    _held: list[np.ndarray] = field(default_factory=list)

    def add(self, hashes: np.ndarray) -> None:
        """Count rows by their hashes, uint64 [N]."""
        self._held.append(hashes[hashes <= hash_bound(self.expected_rows, MAX_HASHES)])

    def add_all(self, part: "DuplicateCount") -> None:
        """Count the rows of another count that expects as many."""
        self._held += part._held

    def hashes(self) -> np.ndarray:
        """The hashes held, uint64."""
        return np.concatenate([*self._held, np.empty(0, np.uint64)])

    def share(self) -> float:
        """Rows that repeat an earlier one, as a share of all rows."""
        hashes = self.hashes()
        return (len(hashes) - len(np.unique(hashes))) / max(1, len(hashes))


def hash_bound(expected: int, wanted: int) -> np.uint64:
    """The largest 64-bit hash to take so that about ``wanted`` of ``expected`` are taken."""
    return np.uint64(2**64 - 1) if expected <= wanted else np.uint64(2**64 * wanted // expected)
