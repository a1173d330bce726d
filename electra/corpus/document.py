"""Documents on their way to the corpus: identity, exact de-duplication beyond memory, mixing by weight."""

import errno
import hashlib
import os
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

CACHE_KIB = 64 * 1024


class SeenIds:
    """A set of 64-bit document ids in a temporary SQLite table, removed on exit.

    The ids are the table's integer keys: about 20 bytes a document on disk, at most 64 MiB in memory. Two different
    documents of ten million share an id with a probability of 3e-6, and then one of them is dropped; in return
    ``doc_id`` is unique by construction.

    Raises:
        OSError: the disk is full (``ENOSPC``).
    """

    def __init__(self, path: Path):
        self.path = path

    def __enter__(self) -> "SeenIds":
        self._database = sqlite3.connect(self.path, isolation_level=None)
        # one transaction that is never committed, and nothing kept for recovery: the table dies with the run
        for pragma in ("journal_mode=OFF", "synchronous=OFF", "locking_mode=EXCLUSIVE", f"cache_size=-{CACHE_KIB}"):
            self._database.execute(f"PRAGMA {pragma}")
        try:
            self._database.execute("CREATE TABLE seen (id INTEGER PRIMARY KEY)")
            self._database.execute("BEGIN")
        except sqlite3.OperationalError as error:
            self.__exit__()
            raise self._explained(error) from error
        return self

    def __exit__(self, *exception: object) -> None:
        self._database.close()
        self.path.unlink(missing_ok=True)

    def add(self, id: bytes) -> bool:
        """Add an id of 8 bytes; whether it is new."""
        number = int.from_bytes(id, "big", signed=True)
        try:
            return self._database.execute("INSERT OR IGNORE INTO seen VALUES (?)", (number,)).rowcount == 1
        except sqlite3.OperationalError as error:
            raise self._explained(error) from error

    def _explained(self, error: sqlite3.OperationalError) -> Exception:
        if error.sqlite_errorcode == sqlite3.SQLITE_FULL:
            return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))
        return error


@dataclass(frozen=True)
class Cleaned:
    """What cleaning made of one raw document.

    Attributes:
        text: one sentence or paragraph a line; empty if less than ``min_chars`` were left.
        digest: sha256 of the text; null bytes for an empty one.
        lost_lines: lines dropped because letters were lost in them.
        cut_characters: characters beyond ``max_chars``.
    """

    text: str
    digest: bytes
    lost_lines: int
    cut_characters: int


@dataclass(frozen=True)
class Document:
    """A cleaned document.

    Attributes:
        source: name of the source it came from.
        text: one sentence or paragraph a line.
        digest: sha256 of the text; its first 8 bytes name the document, the next 8 decide the split.
    """

    source: str
    text: str
    digest: bytes

    @property
    def doc_id(self) -> str:
        return self.digest[:8].hex()

    @property
    def split_point(self) -> float:
        """In [0, 1), spread evenly, independent of ``doc_id``; documents below the held-out fraction are held out."""
        return (int.from_bytes(self.digest[8:16], "big") >> 11) / 2**53


def text_hash(text: str) -> bytes:
    """sha256 of a cleaned text: its identity, for duplicates, names and the split."""
    return hashlib.sha256(text.encode("utf-8")).digest()


def kept_documents(source: str, cleaned: Iterable[Cleaned], seen: SeenIds, removed: Counter[str]) -> Iterator[Document]:
    """Of a source's cleaned documents those that are long enough and new.

    Args:
        seen: ids of the documents kept so far, over all sources.
        removed: counts what was left out: documents ``duplicate`` and ``too_short``; ``lines_with_lost_letters``;
            ``cut_documents`` and ``cut_characters`` beyond ``max_chars``.
    """
    for made in cleaned:
        removed["lines_with_lost_letters"] += made.lost_lines
        if not made.text:
            removed["too_short"] += 1
            continue
        if not seen.add(made.digest[:8]):
            removed["duplicate"] += 1
            continue
        if made.cut_characters:
            removed["cut_documents"] += 1
            removed["cut_characters"] += made.cut_characters
        yield Document(source, made.text, made.digest)


def interleave(streams: Sequence[Iterator[Document]], weights: Sequence[float]) -> Iterator[Document]:
    """Documents of all streams, so that the characters of any prefix stand in the ratio of the weights.

    The next document comes from the stream that is furthest behind its share (the first such, if several are), so
    no stream is ever ahead by more than one document. When a stream ends, the others go on without it.
    """
    running = dict(enumerate(streams))
    characters = [0] * len(streams)
    while running:
        behind = min(running, key=lambda i: characters[i] / weights[i])
        document = next(running[behind], None)
        if document is None:
            del running[behind]
            continue
        characters[behind] += len(document.text)
        yield document
