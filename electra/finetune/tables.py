"""Rows of a table by column name, one at a time, from the formats that people keep tables in.

.csv (quotes as spreadsheets write them), .tsv (no quotes: as in GLUE, a quote is a character like any other), .jsonl
(an object a line) and .parquet.
"""

import csv
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from electra.artifacts import NOT_JSON
from electra.errors import DataError

Record = tuple[str, dict[str, Any]]  # where the row stands, and its values


def read_table(path: Path, columns: Sequence[str]) -> Iterator[Record]:
    """The rows in order, with these columns.

    Raises:
        DataError: no such file, an unknown format, a missing column, a malformed row; with file and line.
    """
    readers: dict[str, Callable[[Path, Sequence[str]], Iterator[Record]]] = {
        ".csv": _read_csv,
        ".tsv": _read_tsv,
        ".jsonl": _read_jsonl,
        ".parquet": _read_parquet,
    }
    if not path.is_file():
        raise DataError(f"{path} does not exist", next_step="add the file, or correct its path in the task's YAML file")
    if path.suffix not in readers:
        raise DataError(f"{path} is no table that can be read", next_step=f"use one of {', '.join(readers)}")
    try:
        yield from readers[path.suffix](path, columns)
    except UnicodeDecodeError as error:
        raise DataError(f"the file is not UTF-8 text: {error}", where=str(path)) from None


def _read_csv(path: Path, columns: Sequence[str]) -> Iterator[Record]:
    limit = csv.field_size_limit(sys.maxsize)  # a context may be longer than the 128 KiB that csv allows
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, strict=True)
            header = next(reader, [])
            _check_header(path, header, columns)
            for values in reader:
                if values:  # a blank line is no row
                    yield _record(header, values, f"{path}:{reader.line_num}", "comma")
    except csv.Error as error:
        raise DataError(
            f"not valid CSV: {error}", where=f"{path}:{reader.line_num}", next_step="quotes in a text are doubled"
        ) from None
    finally:
        csv.field_size_limit(limit)


def _read_tsv(path: Path, columns: Sequence[str]) -> Iterator[Record]:
    with open(path, encoding="utf-8-sig", newline="\n") as file:
        header: list[str] = []
        for number, line in enumerate(file, start=1):
            values = line.removesuffix("\n").removesuffix("\r").split("\t")
            if number == 1:
                header = values
                _check_header(path, header, columns)
            else:
                yield _record(header, values, f"{path}:{number}", "tab")


def _read_jsonl(path: Path, columns: Sequence[str]) -> Iterator[Record]:
    with open(path, encoding="utf-8-sig", newline="\n") as file:
        for number, line in enumerate(file, start=1):
            where = f"{path}:{number}"
            try:
                values = json.loads(line)
            except NOT_JSON as error:
                raise DataError(f"not valid JSON: {error}", where=where) from None
            if not isinstance(values, dict):
                raise DataError("expected one object a line", where=where)
            _check_header(path, list(values), columns, where)
            yield where, values


def _read_parquet(path: Path, columns: Sequence[str]) -> Iterator[Record]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            _check_header(path, file.schema_arrow.names, columns)
            number = 0
            for batch in file.iter_batches(batch_size=1024, columns=list(columns)):
                for values in batch.to_pylist():
                    yield f"{path}: row {number}", values
                    number += 1
    except pa.ArrowInvalid as error:
        raise DataError(f"not a Parquet file: {error}", where=str(path)) from None


def _check_header(path: Path, header: Sequence[str], columns: Sequence[str], where: str | None = None) -> None:
    if missing := [name for name in columns if name not in header]:
        raise DataError(
            f"no column {', '.join(map(repr, missing))}; the columns are {', '.join(header)}",
            where=where or str(path),
            next_step="correct the column's name in the task's YAML file",
        )


def _record(header: Sequence[str], values: Sequence[str], where: str, separator: str) -> Record:
    if len(values) != len(header):
        raise DataError(
            f"expected {len(header)} {separator}-separated columns, found {len(values)}",
            where=where,
            next_step="repair the row; the columns are " + ", ".join(header),
        )
    return where, dict(zip(header, values, strict=True))
