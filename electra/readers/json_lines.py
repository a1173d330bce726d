"""SuperGLUE's files (Wang et al. 2019b): one object a line, whose keys a task's entry names."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from electra.common.errors import DataError
from electra.common.lines import open_input, text_lines
from electra.common.parsing import parse_json
from electra.readers.custom_labels import as_label
from electra.readers.templates import columns_of, filled
from electra.tasks.catalogue import TaskSpec
from electra.tasks.rows import Row, choice_row, sentence_row

ID = "idx"


def read_json_lines(spec: TaskSpec, path: Path, labelled: bool) -> Iterator[Row]:
    """Rows of a classification or multiple-choice task in file order; ``true`` and 1 are labels as they stand there.

    Args:
        labelled: False for a test split: a label that is there is not read.

    Raises:
        DataError: a line is no object, lacks a key or holds no text under it, a label is not the task's; with file
            and line.
    """
    texts = [spec.text_a, *([spec.text_b] if spec.text_b else []), *spec.choices]
    wanted = [ID, *(column for text in texts for column in columns_of(text)), *([spec.label] if labelled else [])]
    with open_input(path) as file:
        for number, line in text_lines(file, str(path)):
            where = f"{path}:{number}"
            record = parse_json(line, where=where, what=f"{spec.name}: ")
            missing = [key for key in wanted if key not in record] if isinstance(record, dict) else wanted
            if missing:
                raise DataError(
                    f"{spec.name}: expected an object with {', '.join(wanted)}; {', '.join(missing)} is missing",
                    where=where,
                    next_step="use the file as SuperGLUE distributes it",
                )
            yield _row(spec, record, texts, as_label(record[spec.label]) if labelled else None, where)


def _row(spec: TaskSpec, record: dict[str, Any], texts: list[str], label: str | None, where: str) -> Row:
    def text_of(column: str) -> str:
        if not isinstance(record[column], str):
            raise DataError(f"{spec.name}: {column!r} holds no text", where=where, next_step="repair the row")
        return record[column]

    id = str(record[ID])
    first, *others = [filled(text, text_of) for text in texts]
    if spec.kind == "multiple_choice":
        return choice_row(spec, id, first, others, label, where)
    return sentence_row(spec, id, first, others[0] if others else None, label, where)
