"""Checking the files of an artefact against its manifest before a stage reads them.

A byte that changed on a disk or on its way, a file cut short, a file of another run: each would otherwise end as a
strange error far away, or as a wrong result. Every stage checks what it reads, once, when it starts.
"""

import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from electra.artifacts import MANIFEST, read_manifest, sha256
from electra.errors import DataError


@dataclass(frozen=True)
class Listed:
    """A file as its artefact's manifest lists it.

    Attributes:
        path: where it lies.
        num_bytes, sha256: what it should hold.
    """

    path: Path
    num_bytes: int
    sha256: str

    def verify(self) -> None:
        """Compare the file with the manifest.

        Raises:
            DataError: it is missing, of another size, or of other content.
        """
        try:
            found = self.path.stat().st_size
        except FileNotFoundError:
            raise self._damaged("a file that the manifest lists is missing") from None
        if found != self.num_bytes:
            raise self._damaged(f"the file holds {found:,} bytes, the manifest says {self.num_bytes:,}")
        if sha256(self.path) != self.sha256:
            raise self._damaged("the checksum of the file is not the manifest's: its content was changed or damaged")

    def _damaged(self, what: str) -> DataError:
        return DataError(
            what,
            where=str(self.path),
            next_step="restore it with: dvc checkout --force; without a cache remove its folder and run: dvc repro",
        )


def listed_files(folder: Path, pattern: str = "*") -> list[Listed]:
    """The files of an artefact whose path in it matches a shell pattern (``*`` also matches ``/``), in sorted order.

    Raises:
        DataError: there is no manifest, or it lists no files.
    """
    entries: list[dict[str, Any]] | None = read_manifest(folder).get("files")
    if entries is None:
        raise DataError("the manifest lists no files", where=str(folder / MANIFEST), next_step="run: dvc repro")
    return [
        Listed(folder / entry["path"], entry["bytes"], entry["sha256"])
        for entry in entries
        if fnmatchcase(entry["path"], pattern)
    ]


def verify_files(files: Iterable[Listed]) -> None:
    """Check many files, some at a time: hashing runs beside other threads.

    Raises:
        DataError: of the first file, in the order given, that is not as listed.
    """
    with ThreadPoolExecutor(min(8, len(os.sched_getaffinity(0)))) as threads:
        for _ in threads.map(Listed.verify, files):
            pass


def verify_folder(folder: Path) -> None:
    """Check a whole artefact.

    Raises:
        DataError: the manifest or a file is missing, or a file is not as listed.
    """
    verify_files(listed_files(folder))
