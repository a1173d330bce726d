"""Documents of text, JSON lines and parquet files, one at a time."""

import codecs
import json
from collections.abc import Iterator
from typing import BinaryIO, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from electra.common.errors import DataError
from electra.common.lines import ByteLines, JoinedBlanks, LineFeeds, byte_lines
from electra.common.parquet_pages import bounded_batches
from electra.common.parsing import is_text, parquet_errors
from electra.common.printing import listed

PARQUET_BATCH_ROWS = 64
# A document is held in memory; without this limit a file without line ends would be one document
MAX_DOCUMENT_BYTES = 1 << 28
_SEPARATE = "set `documents` of the source to what separates documents in this file: blank_line or line"
WRONG_ENCODING = (
    "set `encoding` of the source, such as cp1252 or latin-1 (files of another one are a source of their own), or take "
    "the file out of `paths` if it is no text"
)


LINES_CHARACTERS = 10_000  # of a document of consecutive lines


def text_documents(
    file: BinaryIO, name: str, documents: Literal["blank_line", "line", "lines", "file"]
) -> Iterator[str]:
    """Yield the documents of a text file.

    Args:
        file: UTF-8 text; a line ends with a line feed, a carriage return or both.
        name: the file's name for messages.
        documents: what separates documents; blank lines alone are none. ``lines``: a document ends with the line that
            makes it ``LINES_CHARACTERS`` long.

    Raises:
        DataError: not UTF-8 text, or a document of more than ``MAX_DOCUMENT_BYTES``.
    """
    lines: list[str] = []
    size = 0
    for number, line in _lines(LineFeeds(JoinedBlanks(file)), name):
        is_blank = not line.strip()
        if documents == "line":
            if not is_blank:
                yield line
            continue
        if documents == "blank_line" and is_blank:
            if lines:
                yield "".join(lines)
            lines, size = [], 0
            continue
        lines.append(line)
        size += len(line)
        if documents == "lines" and size >= LINES_CHARACTERS:
            yield "".join(lines)
            lines, size = [], 0
        elif size > MAX_DOCUMENT_BYTES:
            raise DataError(
                f"a document of more than {MAX_DOCUMENT_BYTES >> 20} MiB", where=f"{name}:{number}", next_step=_SEPARATE
            )
    if lines:
        yield "".join(lines)


def jsonl_documents(file: BinaryIO, name: str, text_field: str) -> Iterator[str]:
    """Yield the documents of a JSON lines file: the field ``text_field`` of each line; null counts as empty.

    Raises:
        DataError: not UTF-8 text, a line of more than ``MAX_DOCUMENT_BYTES``, a line that is no JSON object, a missing
            field, or a field that holds no text.
    """
    next_step = "split the document; each line of a .jsonl file is one"
    for number, line in _lines(JoinedBlanks(file), name, "line", next_step):
        if not line.strip():
            continue
        where = f"{name}:{number}"
        expected = f'one JSON object a line, such as {{"{text_field}": "..."}}'
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:  # ValueError: also numbers of thousands of digits
            raise DataError(f"not valid JSON: {error}", where=where, next_step=f"expected {expected}") from None
        if not isinstance(record, dict):
            raise DataError(
                f"not a JSON object but {_json_type(record)}", where=where, next_step=f"expected {expected}"
            )
        if text_field not in record:
            raise DataError(
                f"no field {text_field!r}; the fields are: {listed(record) or 'none'}",
                where=where,
                next_step="set text_field of the source",
            )
        text = record[text_field]
        if not isinstance(text, str | None):
            raise DataError(
                f"field {text_field!r} holds {_json_type(text)}, not text",
                where=where,
                next_step=f"expected {expected}; or set text_field of the source",
            )
        if text and "\\u" in line and not is_text(text):
            raise DataError(
                f"field {text_field!r} holds half of a surrogate pair, which is no character",
                where=where,
                next_step="write the text again with whole characters, or remove the line",
            )
        yield text or ""


def parquet_documents(file: BinaryIO, name: str, text_field: str, is_local: bool = True) -> Iterator[str]:
    """Yield the values of the column ``text_field``, a small batch in memory at a time; null counts as empty.

    Args:
        is_local: False if seeking is slow; see :func:`bounded_batches`.
    """
    with parquet_errors(name):
        parquet = pq.ParquetFile(file)
        columns = parquet.schema_arrow
        if columns.names.count(text_field) != 1:
            what = "several columns" if text_field in columns.names else "no column"
            raise DataError(
                f"{what} {text_field!r}; the columns are: {listed(columns.names)}",
                where=name,
                next_step="set text_field of the source",
            )
        if not _is_text_type(columns.field(text_field).type):
            raise DataError(
                f"column {text_field!r} holds {columns.field(text_field).type}, not text",
                where=name,
                next_step="set text_field of the source",
            )
        for batch in bounded_batches(file, parquet, [text_field], name, PARQUET_BATCH_ROWS, is_local):
            for text in batch.column(0).to_pylist():
                yield text or ""


def _is_text_type(type: pa.DataType) -> bool:
    if pa.types.is_dictionary(type):
        type = type.value_type
    return pa.types.is_string(type) or pa.types.is_large_string(type) or pa.types.is_string_view(type)


def _lines(file: ByteLines, name: str, what: str = "document", next_step: str = _SEPARATE) -> Iterator[tuple[int, str]]:
    """Yield line numbers from 1 and lines with their line ends; the last two arguments are passed to ``byte_lines``.

    Blank lines that are returned together have the number of the last one.
    """
    offset = number = 0
    lines = byte_lines(file, name, MAX_DOCUMENT_BYTES, what=what, next_step=next_step)
    for line in lines:
        number += line.count(b"\n") or 1
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError as error:
            raise DataError(
                f"not UTF-8 text: byte 0x{line[error.start]:02x} at byte {offset + error.start}",
                where=f"{name}:{number}",
                next_step=WRONG_ENCODING,
            ) from None
        if "\0" in text:
            raise DataError(
                f"not text but binary: a NUL byte at byte {offset + line.index(0)}",
                where=f"{name}:{number}",
                next_step="take the file out of `paths`; if it is UTF-16, set `encoding: utf-16` of the source",
            )
        if offset == 0 and line.startswith(codecs.BOM_UTF8):
            text = text[1:]
        yield number, text
        offset += len(line)


def _json_type(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "a string", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")
