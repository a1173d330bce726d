"""The column files of the CoNLL shared tasks: a word a line with its columns, a blank line between sentences."""

import re
from collections.abc import Iterator
from pathlib import Path

from electra.common.errors import DataError
from electra.tasks.catalogue import TaskSpec
from electra.tasks.rows import Row, tagged_row

DOCUMENT_START = "-DOCSTART-"
# Only these two separate columns and end words: a word may hold a no-break space.
_BLANKS = re.compile("[ \t]+")


def read_conll(spec: TaskSpec, path: Path) -> Iterator[Row]:
    """Sentences in file order, tags in IOB2 whichever scheme the file is in; lines that begin a document are left out.

    Raises:
        DataError: a line without the columns of ``spec.fixed_header`` or with a tag of no scheme or an unknown type,
            named with file and line.
    """
    columns = spec.fixed_header or ()
    word_column, tag_column = columns.index(spec.text_a), columns.index(spec.label)
    words: list[str] = []
    tags: list[str] = []
    number = 0
    with open(path, encoding="utf-8-sig", newline="\n") as file:
        for line_number, line in enumerate(file, start=1):
            values = _BLANKS.split(line.strip(" \t\r\n"))
            where = f"{path}:{line_number}"
            if values == [""]:
                if words:
                    yield tagged_row(spec, str(number), words, tags, where)
                    number += 1
                words, tags = [], []
            elif values[0] != DOCUMENT_START:
                if len(values) != len(columns):
                    raise DataError(
                        f"{spec.name}: expected {len(columns)} columns ({' '.join(columns)}), found {len(values)}",
                        where=where,
                        next_step="repair the line; columns are separated by spaces, sentences by blank lines",
                    )
                check_tag(spec, values[tag_column], where)
                words.append(values[word_column])
                tags.append(values[tag_column])
    if words:
        yield tagged_row(spec, str(number), words, tags, str(path))


def check_tag(spec: TaskSpec, tag: str, where: str) -> None:
    """Refuse a tag of no scheme, and an entity type that the task does not have."""
    if tag not in spec.labels:
        types = ", ".join(dict.fromkeys(label[2:] for label in spec.labels if label != "O"))
        raise DataError(
            f"{spec.name}: tag {tag!r} is not O or B-, I-, E- or S- with one of {types}",
            where=where,
            next_step=f"repair the line; the tag is the column {spec.label}",
        )
