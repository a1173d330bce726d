"""Read rows to predict from a file or a pipe, as a stream: JSONL, CSV, TSV or plain lines."""

import json
import queue
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal

from electra.common.errors import ConfigError, DataError
from electra.common.lines import batches, csv_records, decoded
from electra.common.parsing import is_text, parse_json
from electra.common.printing import listed
from electra.tasks.format import Row

InputFormatName = Literal["jsonl", "csv", "tsv", "lines"]
_SUFFIXES: dict[str, InputFormatName] = {".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv", ".tsv": "tsv"}
_PATIENCE = 0.2  # seconds to wait for more rows of a pipe
_WINDOW_CHARS = 4 << 20  # limit of the rows in memory


def format_of(path: Path | None, num_texts: int) -> InputFormatName:
    """Return the format by the file's suffix; a pipe (None) has plain lines, or JSONL if rows have several texts."""
    default: InputFormatName = "lines" if num_texts == 1 else "jsonl"
    return default if path is None else _SUFFIXES.get(path.suffix.lower(), default)


def sniffed(lines: Iterable[bytes], format: InputFormatName) -> tuple[InputFormatName, Iterator[bytes]]:
    """Detect JSONL: used instead of plain lines if the first line is, or begins, a JSON object or list.

    Returns:
        The format, and all lines including the first one.
    """
    rest = iter(lines)
    first = list(islice(rest, 1 if format == "lines" else 0))
    return ("jsonl" if first and _is_json(first[0]) else format), chain(first, rest)


def _is_json(line: bytes) -> bool:
    text = line.removeprefix(b"\xef\xbb\xbf").strip()
    if text in (b"{", b"["):
        return True
    try:
        return text[:1] in (b"{", b"[") and isinstance(json.loads(text), dict | list)
    except (ValueError, RecursionError):
        return False  # a text that starts with a bracket


def text_of(value: Any) -> str | None:
    """Return the value if it is a text that is not empty and valid Unicode (no lone surrogates), else None."""
    return value if isinstance(value, str) and value.strip() and is_text(value) else None


def words_of(value: Any) -> list[str] | None:
    """Return a list of words, also from a text separated by spaces; None if a word is empty."""
    words = value.split() if isinstance(value, str) else value
    return words if isinstance(words, list) and words and all(text_of(word) for word in words) else None


class Rows:
    """Iterate over rows with ``id`` and the task's texts; ``id`` is the input's or the row's number from 1.

    Several texts may be given as one list: a column ``choices.0`` may also be the first item of a list ``choices``.
    Blank lines at the end, and anywhere in JSONL and CSV, are no rows, as in the tables of tasks.

    Args:
        lines: the input, as bytes with their line ends.
        format: CSV follows RFC 4180; TSV has no quoting; both have a header line.
        fields: names of the texts in the row.
        columns: their names in the input, in the same order.
        where: name of the input in messages.
        value: converts a field of the input to a value of the row; None if it is invalid.

    Raises:
        ConfigError: plain lines for a task with several texts.
        DataError: a malformed line, with its number; raised while iterating.
    """

    def __init__(
        self,
        lines: Iterable[bytes],
        format: InputFormatName,
        fields: tuple[str, ...],
        columns: tuple[str, ...],
        where: str,
        value: Callable[[Any], Any | None] = text_of,
    ):
        if format == "lines" and len(fields) > 1:
            raise ConfigError(
                f"plain lines hold one text, the task has {' and '.join(fields)}",
                next_step="give JSONL, CSV or TSV (by the file's suffix, or --input-format)",
            )
        self.lines, self.format, self.fields, self.columns, self.where = lines, format, fields, columns, where
        self.value = value
        self.lists = Counter(match[1] for column in columns if (match := re.fullmatch(r"(.+)\.\d+", column)))
        self.line = 0

    def __iter__(self) -> Iterator[Row]:
        records = {"jsonl": self._objects, "lines": self._plain, "csv": self._table, "tsv": self._table}[self.format]()
        for number, record in enumerate(records, start=1):
            row: Row = {"id": record.get("id", number)}
            if isinstance(row["id"], str) and not is_text(row["id"]):
                raise self._malformed("'id' holds half of a surrogate pair, which is no character")
            record = self._with_lists(record)
            for field, column in zip(self.fields, self.columns, strict=True):
                found = record.get(column)
                row[field] = self.value(found)
                if row[field] is None:
                    what = "is missing" if column not in record else "is empty" if found == "" else "holds no text"
                    raise self._malformed(f"{column!r} {what}")
            yield row

    def _with_lists(self, record: Row) -> Row:
        """Return the record with each item of a list under a separate name."""
        for name, number in self.lists.items():
            texts = record.get(name)
            if isinstance(texts, list):
                if len(texts) != number:
                    raise self._malformed(f"{name!r} holds {len(texts)} texts, the task has {number}")
                record = {**record, **{f"{name}.{i}": text for i, text in enumerate(texts)}}
        return record

    def _decoded(self) -> Iterator[str]:
        for line in self.lines:
            self.line += 1
            yield decoded(line, self.where, self.line)

    def _until_blank_end(self) -> Iterator[str]:
        """Yield lines without their ends, up to the last one that is not blank; a blank line before it is an error."""
        num_blank = 0
        for line in self._decoded():
            text = line.rstrip("\r\n")
            if text and num_blank:
                self.line -= num_blank
                raise self._malformed("the line is empty", "remove the line, or write its text")
            num_blank += not text
            if text:
                yield text

    def _plain(self) -> Iterator[Row]:
        for line in self._until_blank_end():
            yield {self.columns[0]: line}

    def _objects(self) -> Iterator[Row]:
        for line in self._decoded():
            if line.isspace():
                continue
            record = parse_json(line, where=f"{self.where}:{self.line}", next_step="repair the line")
            if not isinstance(record, dict):
                raise self._malformed("not a JSON object")
            yield record

    def _table(self) -> Iterator[Row]:
        records = self._cells()
        header = next(records, None)
        if header is None:
            return
        if missing := [column for column in self.columns if column not in header]:
            raise self._malformed(
                f"there is no column {', '.join(missing)}; the columns are: {listed(header)}",
                "name them with --text-columns",
            )
        if several := [column for column in self.columns if header.count(column) > 1]:
            raise self._malformed(
                f"several columns {', '.join(several)}; the columns are: {listed(header)}",
                "give each column of the input a name of its own",
            )
        for cells in records:
            if len(cells) != len(header):
                raise self._malformed(f"{len(cells)} cells, the header has {len(header)}")
            yield dict(zip(header, cells, strict=True))

    def _cells(self) -> Iterator[list[str]]:
        if self.format == "tsv":
            yield from (line.split("\t") for line in self._until_blank_end())
            return
        yield from (cells for _, cells in csv_records(enumerate(self._decoded(), start=1), self.where))

    def _malformed(self, what: str, next_step: str = "repair the line") -> DataError:
        return DataError(what, where=f"{self.where}:{self.line}", next_step=next_step)


def windows(rows: Iterable[Row], size: int) -> Iterator[list[Row]]:
    """Yield lists of ``size`` rows, or fewer if their texts are long; the last may be shorter."""
    yield from batches(rows, size, num_chars, _WINDOW_CHARS)


def num_chars(row: Row) -> int:
    """Return the number of characters of a row's texts and words."""
    texts = (text for value in row.values() for text in (value if isinstance(value, list) else [value]))
    return sum(len(text) for text in texts if isinstance(text, str))


class _RowQueue(queue.Queue["Row | Exception | None"]):
    """A queue that is full at ``maxsize`` rows, or at fewer rows if their texts are long."""

    def __init__(self, maxsize: int):
        super().__init__(maxsize)
        self.share = _WINDOW_CHARS / maxsize  # characters that count as a row
        self.held = 0

    def _qsize(self) -> int:
        return len(self.queue) + int(self.held / self.share)

    def _put(self, item: Row | Exception | None) -> None:
        self.held += num_chars(item) if isinstance(item, dict) else 0
        super()._put(item)

    def _get(self) -> Row | Exception | None:
        item = super()._get()
        self.held -= num_chars(item) if isinstance(item, dict) else 0
        return item


def impatient_windows(rows: Iterable[Row], size: int) -> Iterator[list[Row]]:
    """Group rows of a pipe like :func:`windows`, but pass on incomplete lists after a short wait.

    A thread reads ahead, at most one window. Its exceptions are raised here, after the rows before them.
    """
    waiting = _RowQueue(maxsize=size)

    def read() -> None:
        try:
            for row in rows:
                waiting.put(row)
            waiting.put(None)
        except Exception as error:
            waiting.put(error)

    threading.Thread(target=read, daemon=True).start()
    window: list[Row] = []
    deadline = 0.0
    held = 0
    while True:
        try:
            item = waiting.get(timeout=max(0.0, deadline - time.monotonic()) if window else None)
        except queue.Empty:
            yield window
            window, held = [], 0
            continue
        if isinstance(item, dict):
            deadline = deadline if window else time.monotonic() + _PATIENCE
            window.append(item)
            held += num_chars(item)
        if window and (not isinstance(item, dict) or len(window) == size or held >= _WINDOW_CHARS):
            yield window
            window, held = [], 0
        if isinstance(item, Exception):
            raise item
        if item is None:
            return
