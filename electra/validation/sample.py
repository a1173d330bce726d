"""Tables of bounded size: all rows where they fit, else a fixed sample by hash and every row that breaks a rule."""

from dataclasses import dataclass, field

import numpy as np
import pandas as pd

MAX_ROWS = 200_000  # rows in a table; more are sampled
MAX_OFFENDERS = 1_000  # rule-breaking rows that are added to the sample
MAX_HASHES = 4_000_000  # hashes held while looking for duplicates: 32 MB


@dataclass(frozen=True)
class Table:
    """What a suite judges by columns, and which of them name a row to a person (none: the table has one row)."""

    frame: pd.DataFrame
    named_by: list[str]


class RowSample:
    """Collects a table from a stream of rows.

    A row is in the sample where its 64-bit key falls below a bound, so the choice depends on the row alone. Rows that
    break a rule are always taken (up to ``MAX_OFFENDERS``): a rule that must hold everywhere is judged everywhere.

    Args:
        expected_rows: rows in the whole stream.
        named_by: columns that name a row to a person.
    """

    def __init__(self, expected_rows: int, named_by: list[str]):
        self.named_by = named_by
        self._bound = hash_bound(expected_rows, MAX_ROWS)
        self._offenders = 0
        self._taken: list[tuple[pd.DataFrame, np.ndarray, np.ndarray]] = []

    def chooses(self, keys: np.ndarray) -> np.ndarray:
        """Which rows are in the sample proper, bool [N]: for figures that are too dear to take everywhere."""
        return keys <= self._bound

    def add(self, rows: pd.DataFrame, keys: np.ndarray, breaks_rule: np.ndarray) -> None:
        """Take the rows [N] that belong in the table; keys uint64 [N], breaks_rule bool [N]."""
        sampled = self.chooses(keys)
        extra = breaks_rule & ~sampled
        extra &= np.cumsum(extra) + self._offenders <= MAX_OFFENDERS
        self._offenders += int(extra.sum())
        taken = sampled | extra
        self._taken.append((rows[taken], keys[taken], breaks_rule[taken]))

    def add_all(self, part: "RowSample") -> None:
        """Take what a sample of the next part of the stream has; the result is that of one sample of both parts."""
        for rows, keys, breaks_rule in part._taken:
            self.add(rows, keys, breaks_rule)

    def table(self, columns: list[str]) -> Table:
        """The rows in the order of the stream; ``columns`` serves where there was none."""
        frames = [rows for rows, _, _ in self._taken if len(rows)] or [pd.DataFrame(columns=columns)]
        return Table(pd.concat(frames, ignore_index=True), self.named_by)


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
