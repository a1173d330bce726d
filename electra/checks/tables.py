"""Tables of bounded size, which the expectations are about.

A table has all rows if they fit, else a fixed sample by hash and every row that breaks a rule.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from electra.common.artifacts import MANIFEST, sha256

MAX_ROWS = 200_000  # rows in a table; larger tables are sampled
MAX_OFFENDERS = 1_000  # rule-breaking rows that are added to the sample
MAX_HASHES = 4_000_000  # hashes kept for finding duplicates: 32 MB
INTACT = "as listed"


@dataclass(frozen=True)
class Table:
    """A table to validate, and the columns that identify a row in messages (none for tables with one row)."""

    frame: pd.DataFrame
    named_by: list[str]


class RowSample:
    """Collect a table of bounded size from a stream of rows.

    A row is sampled if its 64-bit key is below a bound, so the choice depends on the row alone. Rows that break a rule
    are always kept (up to ``MAX_OFFENDERS``): rules that must hold for every row are checked on every row.

    Args:
        expected_rows: rows in the whole stream.
        named_by: columns that identify a row in messages.
    """

    def __init__(self, expected_rows: int, named_by: list[str]):
        self.named_by = named_by
        self._bound = hash_bound(expected_rows, MAX_ROWS)
        self._offenders = 0
        self._taken: list[tuple[pd.DataFrame, np.ndarray, np.ndarray]] = []

    def chooses(self, keys: np.ndarray) -> np.ndarray:
        """Return a mask [N] of the sampled rows, for statistics that are too expensive for every row."""
        return keys <= self._bound

    def add(self, rows: pd.DataFrame, keys: np.ndarray, breaks_rule: np.ndarray) -> None:
        """Add the rows [N] that belong in the table; keys uint64 [N], breaks_rule bool [N]."""
        sampled = self.chooses(keys)
        extra = breaks_rule & ~sampled
        extra &= np.cumsum(extra) + self._offenders <= MAX_OFFENDERS
        self._offenders += int(extra.sum())
        taken = sampled | extra
        self._taken.append((rows[taken], keys[taken], breaks_rule[taken]))

    def add_all(self, part: "RowSample") -> None:
        """Add the sample of the next part of the stream; the result equals one sample of both parts."""
        for rows, keys, breaks_rule in part._taken:
            self.add(rows, keys, breaks_rule)

    def table(self, columns: list[str]) -> Table:
        """Return the rows in the order of the stream; ``columns`` is used if there are none."""
        frames = [rows for rows, _, _ in self._taken if len(rows)] or [pd.DataFrame(columns=columns)]
        return Table(pd.concat(frames, ignore_index=True), self.named_by)


@dataclass
class DuplicateCount:
    """Share of rows whose 64-bit hash was seen before.

    Above ``MAX_HASHES`` expected rows only hashes below a bound are kept. Equal rows have equal hashes, so all or none
    of them are kept, and the share is an unbiased estimate.
    """

    expected_rows: int
    _held: list[np.ndarray] = field(default_factory=list)

    def add(self, hashes: np.ndarray) -> None:
        """Count rows by their hashes, uint64 [N]."""
        self._held.append(hashes[hashes <= hash_bound(self.expected_rows, MAX_HASHES)])

    def hashes(self) -> np.ndarray:
        """Return the kept hashes, uint64."""
        return np.concatenate([*self._held, np.empty(0, np.uint64)])

    def share(self) -> float:
        """Return the rows that repeat an earlier one, as a share of all rows."""
        hashes = self.hashes()
        return (len(hashes) - len(np.unique(hashes))) / max(1, len(hashes))


def hash_bound(expected: int, wanted: int) -> np.uint64:
    """Return the bound on 64-bit hashes below which about ``wanted`` of ``expected`` hashes fall."""
    return np.uint64(2**64 - 1) if expected <= wanted else np.uint64(2**64 * wanted // expected)


def files_table(
    folder: Path, manifest: dict[str, Any], read: Callable[[Path], object], errors: tuple[type[Exception], ...]
) -> tuple[Table, list[Path]]:
    """Return one row per file on disk or in the manifest, with path and state.

    Files that match the manifest are trusted to be readable. Changed files are read once as a test, so that the rows of
    a readable one can still be checked and named.

    Args:
        read: reads one whole file.
        errors: exceptions that ``read`` raises for unreadable files.

    Returns:
        The table, and the readable paths, sorted.
    """
    listed = {entry["path"]: entry for entry in manifest["files"]}
    on_disk = {p.relative_to(folder).as_posix(): p for p in folder.rglob("*") if p.is_file() and p.name != MANIFEST}
    rows, readable = [], []
    for name in sorted(listed | on_disk):
        path = on_disk.get(name)
        if path is None:
            rows.append((name, "missing"))
            continue
        state = _compare(path, listed.get(name))
        if state != INTACT:
            try:
                read(path)
            except errors as error:
                rows.append((name, f"{state}; cannot be read: {str(error).splitlines()[0]:.160}"))
                continue
        rows.append((name, state))
        readable.append(path)
    return Table(pd.DataFrame(rows, columns=["file", "state"]), named_by=["file"]), readable


def _compare(path: Path, entry: dict[str, Any] | None) -> str:
    if entry is None:
        return "not in the manifest"
    if path.stat().st_size != entry["bytes"] or sha256(path) != entry["sha256"]:
        return "changed since it was written"
    return INTACT
