"""Tasks of your own: the tables that a description (own_schema.py) names become rows like any other task's."""

import hashlib
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from electra.common.artifacts import sha256
from electra.common.errors import DataError
from electra.readers.custom_labels import as_label, as_words, own_spec
from electra.readers.custom_schema import (
    OwnChoice,
    OwnClassification,
    OwnPair,
    OwnRegression,
    OwnSpan,
    OwnTagging,
    read_own_task,
)
from electra.readers.official import read_questions
from electra.readers.tables import read_table, table_files
from electra.readers.templates import columns_of, filled, is_template
from electra.tasks.catalogue import TaskSpec
from electra.tasks.rows import Row, choice_row, nearest_occurrence, question_row, sentence_row, tagged_row


class OwnSource:
    """Reads the tables of one task.

    Args:
        path: the YAML file; its name without ``.yaml`` is the task's name.

    Attributes:
        spec: the task, with labels inferred from the training table where the description has none.
        counts: per task, what was repaired so far.

    Raises:
        ConfigError: the description is wrong.
        DataError: the training table cannot be read, or its labels cannot be those of a task.
    """

    def __init__(self, path: Path):
        self.path, self.task = path, read_own_task(path)
        self.spec = own_spec(path.stem, self.task, self._values)
        self.counts: dict[str, Counter[str]] = {self.spec.name: Counter()}

    def splits(self, spec: TaskSpec) -> list[str]:
        """The splits that the description names."""
        return list(spec.files)

    def read(self, spec: TaskSpec, split: str) -> Iterator[Row]:
        """Rows of one split, in the table's order.

        Raises:
            DataError: a missing column, a malformed row, a label that the training table does not have.
        """
        rows = self._questions(split) if self.task.format == "squad" else self._rows(spec, split)
        yield from islice(rows, self.task.max_train_examples if split == "train" else None)

    def describe(self, spec: TaskSpec) -> dict[str, Any]:
        """The description and the tables with their sha256, and the labels."""
        files = [{"name": self.path.name, "sha256": sha256(self.path)}]
        return {
            "kind": self.task.kind,
            "labels": list(spec.labels),
            "files": files + [_describe_files(name, self._tables(split)) for split, name in spec.files.items()],
        }

    def _tables(self, split: str) -> list[Path]:
        return table_files(self.path.parent, getattr(self.task, split))

    def _values(self, column: str) -> Iterator[tuple[str, Any]]:
        """One column of the training table, or of the one that is evaluated, with the places."""
        split = "dev" if self.task.train is None else "train"
        return ((where, values[column]) for where, values in self._records(split, [column]))

    def _records(self, split: str, columns: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
        for table in self._tables(split):
            yield from read_table(table, columns, self.task.layout)

    def _rows(self, spec: TaskSpec, split: str) -> Iterator[Row]:
        labelled = not split.startswith("test")
        for number, (where, values) in enumerate(self._records(split, self._columns(labelled))):
            id = str(number) if self.task.id is None else _text(values, self.task.id, where)
            yield self._row(spec, id, values, labelled, where)

    def _questions(self, split: str) -> Iterator[Row]:
        for table in self._tables(split):
            yield from read_questions(self.spec, table, self.counts[self.spec.name])

    def _columns(self, labelled: bool) -> list[str]:
        task = self.task
        texts: list[str | None]
        label: str | None
        match task:
            case OwnClassification():
                texts, label = [task.text], task.label
            case OwnPair() | OwnRegression():
                texts, label = [task.text_a, task.text_b], task.label
            case OwnTagging():
                texts, label = [task.words], task.tags
            case OwnSpan():
                texts, label = [task.question, task.context, task.start], task.answer
            case OwnChoice():
                texts, label = [task.text, *task.choices], task.label
        columns = [task.id, *(column for text in texts if text is not None for column in columns_of(text))]
        return [name for name in [*columns, label if labelled else None] if name is not None]

    def _row(self, spec: TaskSpec, id: str, values: dict[str, Any], labelled: bool, where: str) -> Row:
        task = self.task
        match task:
            case OwnTagging():
                tags = as_words(values[task.tags], task.tags, where) if labelled else None
                return tagged_row(spec, id, as_words(values[task.words], task.words, where), tags, where)
            case OwnSpan():
                return self._question(task, spec, id, values, where)
            case OwnChoice():
                label = as_label(values[task.label]) if labelled else None
                if label is not None and task.names is not None and label in task.names:
                    label = str(task.names.index(label))
                choices = [_text(values, column, where) for column in task.choices]
                return choice_row(spec, id, _text(values, task.text, where), choices, label, where)
        text_b = None if spec.text_b is None else _text(values, spec.text_b, where)
        label = as_label(values[spec.label]) if labelled else None
        return sentence_row(spec, id, _text(values, spec.text_a, where), text_b, label, where)

    def _question(self, task: OwnSpan, spec: TaskSpec, id: str, values: dict[str, Any], where: str) -> Row:
        assert task.question is not None and task.context is not None and task.answer is not None  # format is no squad
        context = _text(values, task.context, where)
        answer = "" if values[task.answer] is None else _text(values, task.answer, where)
        if task.start is None or not answer:
            start = nearest_occurrence(context, answer, 0) or 0
        else:
            try:
                start = int(values[task.start])
            except (TypeError, ValueError, OverflowError):  # a start of infinity
                given = f"{task.start} {values[task.start]!r}"
                raise DataError(f"{spec.name}: {given} is not a whole number", where=where) from None
        return question_row(
            spec,
            id=id,
            question=_text(values, task.question, where),
            context=context,
            answers=[(answer, start)] if answer else [],
            impossible=task.unanswerable and not answer,
            where=where,
            counts=self.counts[spec.name],
        )


def _text(values: dict[str, Any], text: str, where: str) -> str:
    """A column's text, or what the columns of a template make."""
    return (
        filled(text, lambda column: _cell(values, column, where)) if is_template(text) else _cell(values, text, where)
    )


def _cell(values: dict[str, Any], column: str, where: str) -> str:
    value = values[column]
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise DataError(f"column {column!r} holds {type(value).__name__}, not text", where=where)
    return str(value)


def _describe_files(name: str, paths: list[Path]) -> dict[str, Any]:
    """A table with its sha256; of many files that of all their names and sums."""
    if len(paths) == 1:
        return {"name": paths[0].name, "sha256": sha256(paths[0])}
    sums = "".join(f"{sha256(path)}  {path.name}\n" for path in paths)
    return {"name": name, "num_files": len(paths), "sha256": hashlib.sha256(sums.encode()).hexdigest()}
