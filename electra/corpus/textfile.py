"""Raw documents of one .txt or .jsonl file."""

import codecs
import json
from collections.abc import Iterator
from typing import BinaryIO, Literal

from electra.artifacts import NOT_JSON
from electra.errors import DataError

# a document is held in memory whole; a file without line ends would be one document otherwise
MAX_DOCUMENT_BYTES = 1 << 28


def text_documents(file: BinaryIO, name: str, documents: Literal["blank_line", "line", "file"]) -> Iterator[str]:
    """The documents of a text file.

    Args:
        file: UTF-8 text.
        name: the file's name for messages.
        documents: what separates documents.

    Raises:
        DataError: not UTF-8 text, or a document of more than ``MAX_DOCUMENT_BYTES``.
    """
    if documents == "line":
        for _, line in _lines(file, name):
            yield line
        return
    lines: list[str] = []
    size = 0
    for number, line in _lines(file, name):
        if documents == "blank_line" and not line.strip():
            if lines:
                yield "".join(lines)
            lines, size = [], 0
            continue
        lines.append(line)
        size += len(line)
        if size > MAX_DOCUMENT_BYTES:
            raise _too_long(name, number)
    if lines:
        yield "".join(lines)


def jsonl_documents(file: BinaryIO, name: str, text_field: str) -> Iterator[str]:
    """The documents of a JSON lines file: the field ``text_field`` of each line; null counts as empty.

    Raises:
        DataError: not UTF-8 text, a line that is no JSON object, a missing field, or one that holds no text.
    """
    for number, line in _lines(file, name):
        if not line.strip():
            continue
        where = f"{name}:{number}"
        expected = f'one JSON object a line, such as {{"{text_field}": "..."}}'
        try:
            record = json.loads(line)
        except NOT_JSON as error:
            raise DataError(f"not valid JSON: {error}", where=where, next_step=f"expected {expected}") from None
        if not isinstance(record, dict):
            raise DataError(
                f"not a JSON object but {_json_type(record)}", where=where, next_step=f"expected {expected}"
            )
        if text_field not in record:
            raise DataError(
                f"no field {text_field!r}; the fields are: {', '.join(record) or 'none'}",
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
        yield text or ""


def _lines(file: BinaryIO, name: str) -> Iterator[tuple[int, str]]:
    """Line numbers from 1, and the lines with their ends."""
    offset = number = 0
    while line := file.readline(MAX_DOCUMENT_BYTES + 1):
        number += 1
        if len(line) > MAX_DOCUMENT_BYTES:
            raise _too_long(name, number)
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError as error:
            raise DataError(
                f"not UTF-8 text: byte 0x{line[error.start]:02x} at byte {offset + error.start}",
                where=f"{name}:{number}",
                next_step="convert the file (iconv -t UTF-8), or take it out of `paths` if it is no text",
            ) from None
        if "\0" in text:
            raise DataError(
                f"not text but binary: a NUL byte at byte {offset + line.index(0)}",
                where=f"{name}:{number}",
                next_step="take the file out of `paths`; if it is UTF-16, convert it: iconv -f UTF-16 -t UTF-8",
            )
        if offset == 0 and line.startswith(codecs.BOM_UTF8):
            text = text[1:]
        yield number, text
        offset += len(line)


def _too_long(name: str, number: int) -> DataError:
    return DataError(
        f"a document of more than {MAX_DOCUMENT_BYTES >> 20} MiB",
        where=f"{name}:{number}",
        next_step="set `documents` of the source to what separates documents in this file: blank_line or line",
    )


def _json_type(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "a string", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")
