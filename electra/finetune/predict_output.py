"""Where predictions go: JSONL or CSV, as they come to standard output, or to a file that appears when complete."""

import csv
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, TextIO

from electra.artifacts import disk_errors
from electra.errors import DataError

OutputFormat = Literal["jsonl", "csv"]
Write = Callable[[list[dict[str, Any]]], None]


@contextmanager
def writing(path: Path | None, format: OutputFormat) -> Iterator[Write]:
    """A function that writes records; what it has written can be read when it returns, unless it goes to a file.

    Args:
        path: written beside and renamed when the block ends well; standard output where None.

    Raises:
        DataError: the file's folder does not exist.
        InfrastructureError: the disk is full or read-only.
    """
    if path is None:
        yield _writer(sys.stdout, format)
        return
    if not path.parent.is_dir():
        raise DataError(f"there is no folder {path.parent}", next_step="make it, or correct --output")
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    with disk_errors(path):
        try:
            with open(beside, "w", encoding="utf-8", newline="") as file:
                yield _writer(file, format)
                file.flush()
                os.fsync(file.fileno())
            os.replace(beside, path)
        finally:
            beside.unlink(missing_ok=True)


def _writer(file: TextIO, format: OutputFormat) -> Write:
    table: list[Any] = []  # the CSV writer, once the first record has told the columns

    def write(records: list[dict[str, Any]]) -> None:
        if format == "jsonl":
            file.writelines(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
        else:
            flat = [_flat(record) for record in records]
            if not table:
                table.append(csv.DictWriter(file, list(flat[0]), lineterminator="\n"))
                table[0].writeheader()
            table[0].writerows(flat)
        file.flush()

    return write


def _flat(record: dict[str, Any]) -> dict[str, Any]:
    """Values inside a value get a column each, ``probabilities.1``; a list is one cell, as JSON."""
    flat: dict[str, Any] = {}
    for name, value in record.items():
        if isinstance(value, dict):
            flat |= {f"{name}.{key}": inner for key, inner in value.items()}
        else:
            flat[name] = json.dumps(value, ensure_ascii=False) if isinstance(value, list) else value
    return flat
