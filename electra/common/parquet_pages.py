"""Reading parquet with bounded memory: page sizes are read from the headers before anything is decompressed.

A page holds whole values and is decompressed at once: a few megabytes on disk may be gigabytes in memory. The footer
has only sums. Headers are Thrift structs in the compact protocol (apache/parquet-format, parquet.thrift, PageHeader).
"""

from collections.abc import Iterator, Sequence
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from electra.common.errors import DataError

MAX_PAGE_BYTES = 1 << 28
_UNPACKED, _PACKED = 2, 3  # fields of a PageHeader: uncompressed_page_size, compressed_page_size
_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _STRUCT = 1, 2, 3, 7, 8, 9, 10, 12
_INTEGERS = (4, 5, 6)
_MAX_DEPTH = 16


def bounded_batches(
    file: BinaryIO, parquet: pq.ParquetFile, columns: Sequence[str], name: str, most_rows: int, is_local: bool = True
) -> Iterator[pa.RecordBatch]:
    """Yield batches of columns, with fewer rows if values may be long: each may be as long as the largest page.

    Args:
        file: the file that ``parquet`` reads; its position is changed.
        columns: names at the top of the schema.
        name: the file's name for messages.
        is_local: False if seeking is slow: then the footer's sizes of column chunks are believed, and page headers are
            read only in chunks that could be too large.

    Raises:
        DataError: a page of more than ``MAX_PAGE_BYTES``.
    """
    largest = 1
    for column in columns:
        size = largest_page(file, parquet, column, 0 if is_local else MAX_PAGE_BYTES)
        if size > MAX_PAGE_BYTES:
            raise DataError(
                f"a document of more than {MAX_PAGE_BYTES >> 20} MiB: a page of column {column!r} has {size:,} bytes",
                where=name,
                next_step="split the document, or write the file with smaller pages",
            )
        largest = max(largest, size)
    rows = max(1, min(most_rows, MAX_PAGE_BYTES // largest))
    yield from parquet.iter_batches(rows, columns=list(columns), use_threads=False)


def largest_page(file: BinaryIO, parquet: pq.ParquetFile, column: str, ignored: int = 0) -> int:
    """Return the decompressed size in bytes of the largest page of a column and its children; 0 if there is none.

    Args:
        file: the file that ``parquet`` reads; its position is changed.
        ignored: count column chunks of at most this many bytes according to the footer as one page each.
    """
    largest = 0
    for number in range(parquet.metadata.num_row_groups):
        group = parquet.metadata.row_group(number)
        for chunk in (group.column(index) for index in range(group.num_columns)):
            if not f"{chunk.path_in_schema}.".startswith(f"{column}."):
                continue
            if chunk.total_uncompressed_size <= ignored:
                largest = max(largest, chunk.total_uncompressed_size)
                continue
            start = min(at for at in (chunk.dictionary_page_offset, chunk.data_page_offset) if at)
            largest = max(largest, *_pages(file, start, start + chunk.total_compressed_size), 0)
    return largest


def _pages(file: BinaryIO, start: int, end: int) -> Iterator[int]:
    """Yield the decompressed sizes of the pages from ``start`` to ``end``.

    Stops at a damaged header, without an error: reading the page will raise it.
    """
    while start < end:
        file.seek(start)
        header = _Header(file)
        try:
            fields = header.struct()
        except ValueError:
            return
        packed = fields.get(_PACKED, 0)
        if packed < 0 or _UNPACKED not in fields:
            return
        yield fields[_UNPACKED]
        start += header.num_bytes + packed


class _Header:
    """Parser of one struct of the compact protocol; keeps only top-level integers."""

    def __init__(self, file: BinaryIO):
        self._file, self.num_bytes = file, 0

    def struct(self, depth: int = 0) -> dict[int, int]:
        """Return the integer fields of a struct by field id.

        Raises:
            ValueError: the bytes are not a struct.
        """
        if depth > _MAX_DEPTH:
            raise ValueError("nested too deeply")
        found: dict[int, int] = {}
        field = 0
        while first := self._take(1)[0]:
            field = field + (first >> 4) if first >> 4 else self._integer()
            kind = first & 15
            if kind in _INTEGERS:
                found[field] = self._integer()
            elif kind not in (_TRUE, _FALSE):  # the value of a boolean field is its type
                self._skip(kind, depth)
        return found

    def _skip(self, kind: int, depth: int) -> None:
        if kind in _INTEGERS:
            self._varint()
        elif kind in (_TRUE, _FALSE, _BYTE):
            self._take(1)
        elif kind == _DOUBLE:
            self._take(8)
        elif kind == _BINARY:
            self._take(self._varint())
        elif kind in (_LIST, _SET):
            first = self._take(1)[0]
            for _ in range(first >> 4 if first >> 4 < 15 else self._varint()):
                self._skip(first & 15, depth + 1)
        elif kind == _STRUCT:
            self.struct(depth + 1)
        else:  # a page header has no maps
            raise ValueError("no page header")

    def _integer(self) -> int:
        number = self._varint()
        return (number >> 1) ^ -(number & 1)

    def _varint(self) -> int:
        number = 0
        for shift in range(0, 70, 7):
            byte = self._take(1)[0]
            number |= (byte & 127) << shift
            if byte < 128:
                return number
        raise ValueError("a number of more than 64 bits")

    def _take(self, size: int) -> bytes:
        if size > 1 << 24:
            raise ValueError("a page header of megabytes")
        taken = self._file.read(size)
        if len(taken) < size:
            raise ValueError("the file ends in a page header")
        self.num_bytes += size
        return taken
