"""Which documents were seen before, for more documents than fit in memory."""

import errno
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
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
        """Add an id of 8 bytes; whether it is new."""
        number = int.from_bytes(id, "big", signed=True)
        with full_disk(self.path):
            return self._database.execute("INSERT OR IGNORE INTO seen VALUES (?)", (number,)).rowcount == 1


@contextmanager
def full_disk(path: Path) -> Iterator[None]:
    """Turn SQLite's error for a full disk into the system's."""
    try:
        yield
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_FULL:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path)) from error
        raise
