"""An ``.npy`` file that grows: no whole array is held in memory."""

from pathlib import Path

import numpy as np
from numpy.lib import format as npy


class GrowingArray:
    """``.npy`` file to which rows are appended.

    The header with the number of rows is rewritten at the end; numpy pads it so that the number fits.

    Raises:
        OSError: the disk is full.
    """

    def __init__(self, path: Path):
        self._file = open(path, "wb")  # noqa: SIM115
        self._rows = 0
        self._like: np.ndarray | None = None

    def __len__(self) -> int:
        return self._rows

    def append(self, rows: np.ndarray) -> None:
        """Append rows [n, width] of the same width and type as the first ones."""
        if self._like is None:
            self._like = rows[:0]
            self._write_header()
        self._rows += len(rows)
        self._file.write(np.ascontiguousarray(rows).data)

    def close(self) -> None:
        """Write the final header and close the file."""
        self._file.seek(0)
        self._write_header()
        self._file.close()

    def _write_header(self) -> None:
        assert self._like is not None, "an array without rows has no width"
        facts = npy.header_data_from_array_1_0(self._like)
        npy.write_array_header_1_0(self._file, {**facts, "shape": (self._rows, *self._like.shape[1:])})
