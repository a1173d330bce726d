"""Removal of duplicates: documents seen before, and documents that share most of their n-grams with a kept one.

Workers hash a document's shingles (n-grams of words) and sign them with MinHash (rensa). The main process finds the
kept documents that share a band of the signature, and compares the shingles: the signature selects the candidates, the
exact Jaccard similarity decides. Tables and shingles are stored on disk.

Words are casefolded and without punctuation, so a text with other case or punctuation is a duplicate. In scripts
without spaces every character is a word. The hashes are the same on every machine.
"""

import errno
import os
import re
import resource
import sqlite3
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from electra.config.text import NearDuplicates
from electra.text.corpus.cleaning.notes import EXAMPLE_CHARACTERS, Notes

SEEN_KIB = 64 * 1024


class SeenIds:
    """A set of 64-bit document ids in a temporary SQLite table, removed on exit.

    The ids are the table's integer keys: about 20 bytes per document on disk, at most 64 MiB in memory. Among ten
    million documents, two different ones share an id with a probability of 3e-6, and then one is dropped; in return
    ``doc_id`` is unique by construction.

    Raises:
        OSError: the disk is full (``ENOSPC``).
    """

    def __init__(self, path: Path):
        self.path = path

    def __enter__(self) -> "SeenIds":
        self._database = sqlite3.connect(self.path, isolation_level=None)
        # one uncommitted transaction without a journal: the table is temporary
        for pragma in ("journal_mode=OFF", "synchronous=OFF", "locking_mode=EXCLUSIVE", f"cache_size=-{SEEN_KIB}"):
            self._database.execute(f"PRAGMA {pragma}")
        try:
            with full_disk(self.path):
                self._database.execute("CREATE TABLE seen (id INTEGER PRIMARY KEY)")
                self._database.execute("BEGIN")
        except Exception:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self._database.close()
        self.path.unlink(missing_ok=True)

    def add(self, id: bytes) -> bool:
        """Add an id of 8 bytes; return whether it is new."""
        number = int.from_bytes(id, "big", signed=True)
        with full_disk(self.path):
            return self._database.execute("INSERT OR IGNORE INTO seen VALUES (?)", (number,)).rowcount == 1


@contextmanager
def full_disk(path: Path) -> Iterator[None]:
    """Convert SQLite's errors for a full disk and for the limit on file size into the system's OSError."""
    try:
        yield
    except sqlite3.OperationalError as error:
        number = errno.ENOSPC if error.sqlite_errorcode == sqlite3.SQLITE_FULL else None
        if error.sqlite_errorcode == sqlite3.SQLITE_IOERR_WRITE:  # SQLite gives no reason
            is_limited = resource.getrlimit(resource.RLIMIT_FSIZE)[0] != resource.RLIM_INFINITY
            number = errno.EFBIG if is_limited else errno.EIO
        if number is None:
            raise
        raise OSError(number, os.strerror(number), str(path)) from error


# Han, kana, Thai, Lao, Myanmar, Khmer: scripts without spaces between words; Hangul has spaces
WORD = re.compile(r"[぀-ヿ㐀-鿿豈-﫿\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\U00020000-\U0003ffff]|[^\W_]+")
# Byte table for ASCII text: lowercase; a space for everything but letters and digits
FOLDED = bytes(ord(chr(point).lower()) if point < 128 and chr(point).isalnum() else ord(" ") for point in range(256))
BASE = 0x9E3779B97F4A7C15  # odd, so that it has an inverse modulo 2^64
INVERSE = pow(BASE, -1, 2**64)
KEPT_POWERS = 1 << 15  # powers that are cached; for longer texts they are computed again


def word_hashes(texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Return 64-bit hashes of the words of texts (:func:`words_of`), independent of the words' positions.

    A word's hash is a polynomial of its bytes, then mixed; all polynomials are differences of one cumulative sum.

    Returns:
        The hashes of the words of all texts, concatenated, uint64 [num_words], and the end of each text's hashes.
    """
    folded = [
        text.encode().translate(FOLDED) if text.isascii() else " ".join(words_of(text)).encode() for text in texts
    ]
    letters = np.frombuffer(b" ".join(folded), dtype=np.uint8)
    inside = np.zeros(len(letters) + 2, dtype=bool)
    np.not_equal(letters, ord(" "), out=inside[1:-1])
    edges = np.flatnonzero(inside[1:] != inside[:-1])
    starts, ends = edges[::2], edges[1::2]
    sums = np.zeros(len(letters) + 1, dtype=np.uint64)
    np.cumsum(letters * _powers(BASE, len(letters)), out=sums[1:])
    hashes = _spread((sums[ends] - sums[starts]) * _powers(INVERSE, len(letters))[starts])
    return hashes, starts.searchsorted(np.cumsum([len(data) + 1 for data in folded]))


def _powers(base: int, count: int) -> np.ndarray:
    """Return the 1st to ``count``-th power modulo 2^64."""
    return _first_powers(base)[:count] if count <= KEPT_POWERS else np.cumprod(np.full(count, base, dtype=np.uint64))


@cache
def _first_powers(base: int) -> np.ndarray:
    return np.cumprod(np.full(KEPT_POWERS, base, dtype=np.uint64))


def words_of(text: str) -> list[str]:
    """Return the casefolded words of a text without punctuation, in Unicode NFKC."""
    if text.isascii():
        return text.encode().translate(FOLDED).decode().split()  # same result, several times as fast
    words: list[str] = []
    for line in text.split("\n"):
        if line.isascii():
            words += line.encode().translate(FOLDED).decode().split()
        else:
            words += WORD.findall(unicodedata.normalize("NFKC", line).casefold())
    return words


def ngram_hashes(words: np.ndarray, n: int) -> np.ndarray:
    """Return the hashes of all n-grams, uint64 [num_words - n + 1]; for fewer than n words one hash of all of them."""
    n = min(n, len(words))
    if n == 0:
        return words
    with np.errstate(over="ignore"):
        mixed = words.copy()
        for step in range(1, n):
            mixed = (mixed[:-1] ^ (mixed[:-1] >> np.uint64(31))) * np.uint64(0x9E3779B97F4A7C15) + words[step:]
        mixed = (mixed ^ (mixed >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
        return mixed ^ (mixed >> np.uint64(29))


class SpacedWords:
    """Words of a text, separated by single spaces: ``lengths`` in characters [num_words], and hashes of n-grams."""

    def __init__(self, text: str):
        data = np.frombuffer(text.encode("utf-8", "surrogatepass"), dtype=np.uint8)
        spaces = np.flatnonzero(data == ord(" "))
        starts, ends = np.concatenate(([0], spaces + 1)), np.concatenate((spaces, [len(data)]))
        self.lengths = ends - starts
        if not text.isascii():  # continuation bytes of UTF-8 do not count
            before = np.concatenate(([0], np.cumsum((data & 0xC0) != 0x80)))
            self.lengths = before[ends] - before[starts]
        # polynomial hash of the bytes modulo 2^64: a substring's hash is a difference, scaled to a common power
        powers = _powers(BASE, len(data) + 1)
        sums = np.zeros(len(data) + 1, dtype=np.uint64)
        np.cumsum(data * powers[:-1], out=sums[1:])
        self._starts, self._ends, self._powers = sums[starts], sums[ends], powers[len(data) - starts]

    def ngrams(self, n: int) -> np.ndarray:
        """Return hashes of the text's n-grams, equal for equal n-grams, uint64 [num_words - n + 1]."""
        count = len(self.lengths) - n + 1
        return (self._ends[n - 1 :] - self._starts[:count]) * self._powers[:count]


SEED = 1  # of MinHash's permutations
MAX_COMPARED = 200  # candidates that a document is compared with, the earliest ones
RULE = "near_duplicates.document"
CACHE_KIB = 256 * 1024
FILTER_BYTES = 1 << 25  # one per value of a band's last bits: most bands are new, and skip the table


@dataclass(frozen=True)
class Signature:
    """Signature and shingles of a document, for finding near-duplicates.

    Attributes:
        shingles: hashes of its n-grams as bytes: uint32, sorted, unique.
        bands: hashes of the bands of its signature as bytes: uint64 [bands].
    """

    shingles: bytes
    bands: bytes


class Signer:
    """MinHash signer of documents."""

    def __init__(self, rules: NearDuplicates):
        from rensa import RMinHash

        self._rules, self._minhash = rules, RMinHash

    def sign(self, texts: Sequence[str]) -> list[Signature]:
        """Return the signatures of texts; empty ones for texts without words.

        Signing short texts together is several times as fast as one at a time.
        """
        rules, num_texts = self._rules, len(texts)
        shingles, ends = self._shingles(texts)
        signed = np.flatnonzero(np.diff(ends, prepend=0))
        if not len(signed):
            return [Signature(b"", b"")] * num_texts
        matrix = self._minhash.digest_matrix_from_flat_token_hashes(
            _spread(shingles), np.append(0, ends[signed]).astype(np.uint64), rules.bands * rules.rows, SEED
        )
        rows = np.array(matrix.to_rows(), dtype=np.uint64).reshape(len(signed), rules.bands, rules.rows)
        with np.errstate(over="ignore"):
            bands = np.arange(1, rules.bands + 1, dtype=np.uint64)[None]
            for column in np.moveaxis(_spread(rows), 2, 0):
                bands = (bands ^ (bands >> np.uint64(29))) * np.uint64(0x9E3779B97F4A7C15) + column
        of_text = dict(zip(signed.tolist(), (row.tobytes() for row in bands), strict=True))
        starts = np.append(0, ends[:-1]).tolist()
        return [
            Signature(shingles[start:end].tobytes(), of_text.get(number, b""))
            for number, (start, end) in enumerate(zip(starts, ends.tolist(), strict=True))
        ]

    def _shingles(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Return the shingles of each text, concatenated, uint32, sorted and unique per text, and each text's end."""
        n = self._rules.shingle_words
        words, word_ends = word_hashes(texts)
        lengths = np.diff(word_ends, prepend=0)
        owner = np.arange(len(texts), dtype=np.uint64).repeat(lengths)
        found = []
        if len(words) >= n:  # n-grams across two texts do not count
            within = owner[: len(words) - n + 1] == owner[n - 1 :]
            found.append((owner[: len(words) - n + 1] << 32 | ngram_hashes(words, n) >> 32)[within])
        for number in np.flatnonzero((lengths > 0) & (lengths < n)):
            whole = words[word_ends[number] - lengths[number] : word_ends[number]]
            found.append(np.uint64(number) << 32 | ngram_hashes(whole, n) >> 32)
        keys = np.unique(np.concatenate(found)) if found else words
        return keys.astype(np.uint32), keys.searchsorted(np.arange(1, len(texts) + 1, dtype=np.uint64) << 32)


def _spread(values: np.ndarray) -> np.ndarray:
    """Return uint64 hashes of numbers (splitmix64)."""
    with np.errstate(over="ignore"):
        mixed = values.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return mixed ^ (mixed >> np.uint64(31))


class NearDuplicateIndex:
    """Index of the documents kept so far by the bands of their signatures.

    Args:
        folder: folder for a table of bands (about 30 bytes each) and a file of shingles (4 bytes each).
        rules: the minimum similarity of near-duplicates.
        notes: record of the near-duplicates found.

    Raises:
        OSError: the disk is full (``ENOSPC``).
    """

    def __init__(self, folder: Path, rules: NearDuplicates, notes: Notes):
        self._rules, self._notes = rules, notes
        self._path = folder / "bands.sqlite"
        self._shingles_path = folder / "shingles.bin"
        self._shingles = open(self._shingles_path, "w+b")  # noqa: SIM115  closed by close()
        self._end = 0
        self._filter = np.zeros(FILTER_BYTES, dtype=bool)
        self._database = sqlite3.connect(self._path, isolation_level=None)
        # one uncommitted transaction without a journal: the tables are temporary
        for pragma in ("journal_mode=OFF", "synchronous=OFF", "locking_mode=EXCLUSIVE", f"cache_size=-{CACHE_KIB}"):
            self._database.execute(f"PRAGMA {pragma}")
        with full_disk(self._path):
            self._database.execute(
                "CREATE TABLE bands (hash INTEGER, document INTEGER, PRIMARY KEY (hash, document)) WITHOUT ROWID"
            )
            self._database.execute(
                "CREATE TABLE documents (id INTEGER PRIMARY KEY, start INTEGER, size INTEGER, head TEXT)"
            )
            self._database.execute("BEGIN")

    def close(self) -> None:
        """Remove the table and the file of shingles."""
        self._database.close()
        self._shingles.close()
        self._path.unlink(missing_ok=True)
        self._shingles_path.unlink(missing_ok=True)

    def add(self, text: str, signature: Signature) -> bool:
        """Add a document and return True; record a near-duplicate of a kept document in the notes and return False."""
        shingles = np.frombuffer(signature.shingles, dtype=np.uint32)
        if not len(shingles):
            return True
        hashes = np.frombuffer(signature.bands, dtype=np.int64)
        bands = hashes.tolist()
        places = hashes & (FILTER_BYTES - 1)
        maybe_there = hashes[self._filter[places]].tolist()
        with full_disk(self._path):
            for start, size, head in self._sharing(maybe_there) if maybe_there else ():
                if self._similar(shingles, start, size):
                    self._notes.pair(RULE, text, head)
                    return False
            number = self._database.execute(
                "INSERT INTO documents (start, size, head) VALUES (?, ?, ?)",
                (self._end, len(shingles), text[:EXAMPLE_CHARACTERS]),
            ).lastrowid
            rows = ", ".join(["(?, ?)"] * len(bands))  # one statement takes two thirds of the time of several
            self._database.execute(
                f"INSERT OR IGNORE INTO bands VALUES {rows}", [value for band in bands for value in (band, number)]
            )
        self._filter[places] = True
        self._shingles.write(signature.shingles)
        self._end += len(signature.shingles)
        return True

    def _sharing(self, bands: list[int]) -> list[tuple[int, int, str]]:
        """Return offset, size and first characters of the earliest documents with one of the bands, in their order."""
        return self._database.execute(
            "SELECT start, size, head FROM documents WHERE id IN "
            f"(SELECT DISTINCT document FROM bands WHERE hash IN ({', '.join('?' * len(bands))}) "
            f"ORDER BY document LIMIT {MAX_COMPARED}) ORDER BY id",
            bands,
        ).fetchall()

    def _similar(self, shingles: np.ndarray, start: int, size: int) -> bool:
        least = self._rules.threshold
        if min(size, len(shingles)) < least * max(size, len(shingles)):
            return False
        self._shingles.flush()
        other = np.frombuffer(os.pread(self._shingles.fileno(), 4 * size, start), dtype=np.uint32)
        shared = len(np.intersect1d(shingles, other, assume_unique=True))
        return shared >= least * (len(shingles) + size - shared)


@contextmanager
def near_duplicate_index(
    rules: NearDuplicates | None, folder: Path, notes: Notes
) -> Iterator[NearDuplicateIndex | None]:
    """Yield the index if ``rules`` are set, else None; its files in ``folder`` are removed when the block ends."""
    if rules is None:
        yield None
        return
    index = NearDuplicateIndex(folder, rules, notes)
    try:
        yield index
    finally:
        index.close()
