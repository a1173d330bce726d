"""Column files in the layout of CoNLL: a word per line with its columns, a blank line between sentences."""

import codecs
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from electra.common.errors import DataError
from electra.common.lines import open_input, recoded, text_lines
from electra.tasks.catalogue import TaskSpec
from electra.tasks.format import Row, tagged_row

DOCUMENT_START = "-DOCSTART-"
# Only space and tab separate columns: a word may contain a no-break space.
_BLANKS = re.compile("[ \t]+")
_CHUNK = 2**20  # bytes decoded at a time


def read_conll(spec: TaskSpec, path: Path) -> Iterator[Row]:
    """Yield sentences in file order, with tags converted to IOB2; lines that begin a document are skipped.

    Raises:
        DataError: a line lacks columns of the layout, or its tag or entity type is unknown; names file and line.
    """
    headers = [spec.fixed_header or (), *spec.other_headers]
    columns: tuple[str, ...] = ()
    words: list[str] = []
    tags: list[str] = []
    number = 0
    for where, values in column_lines(path, encoding_of(path, spec.encodings)):
        if values is None:
            if words:
                yield tagged_row(spec, str(number), words, tags, where)
                number += 1
            words, tags = [], []
        elif values[0] != DOCUMENT_START:
            columns = columns or next((header for header in headers if len(header) == len(values)), headers[0])
            if len(values) != len(columns):
                raise DataError(
                    f"{spec.name}: expected {len(columns)} columns ({' '.join(columns)}), found {len(values)}",
                    where=where,
                    next_step="repair the line; columns are separated by spaces, sentences by blank lines",
                )
            tag = values[columns.index(spec.label)]
            check_tag(spec, tag, where)
            words.append(values[columns.index(spec.text_a)])
            tags.append(tag)


def check_tag(spec: TaskSpec, tag: str, where: str) -> None:
    """Raise DataError for a tag of an unknown scheme or an entity type that the task does not have."""
    if tag not in spec.labels:
        types = ", ".join(dict.fromkeys(label[2:] for label in spec.labels if label != "O"))
        raise DataError(
            f"{spec.name}: tag {tag!r} is not O or B-, I-, E- or S- with one of {types}",
            where=where,
            next_step=f"repair the line; the tag is the column {spec.label}",
        )


def column_lines(path: Path, encoding: str = "utf-8") -> Iterator[tuple[str, list[str] | None]]:
    """Yield the place and the columns of every line; None instead of columns for a blank line and at the end."""
    where = str(path)
    next_step = "set `encoding` in the task's YAML file, or convert it: iconv -f <its encoding> -t UTF-8"
    with recoded(open_input(path), str(path), encoding, next_step) as file:
        for line_number, line in text_lines(file, str(path)):
            where = f"{path}:{line_number}"
            values = _BLANKS.split(line.strip(" \t\r\n"))
            yield where, None if values == [""] else values
    yield where, None


def encoding_of(path: Path, encodings: Sequence[str]) -> str:
    """Return the first encoding in which the whole file can be decoded; the last one if there is none."""
    for encoding in encodings[:-1]:
        decode = codecs.getincrementaldecoder(encoding)().decode
        try:
            with open(path, "rb") as file:
                while chunk := file.read(_CHUNK):
                    decode(chunk)
                decode(b"", final=True)
        except UnicodeDecodeError:
            continue
        return encoding
    return encodings[-1]
