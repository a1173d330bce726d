"""Own tasks: the TaskSpec of a description (custom_schema.py), and the rows of its tables."""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from electra.common.artifacts import sha256
from electra.common.errors import ConfigError, DataError
from electra.readers.custom_schema import (
    CustomChoice,
    CustomClassification,
    CustomPair,
    CustomRegression,
    CustomSpan,
    CustomTagging,
    CustomTask,
    read_custom_task,
)
from electra.readers.questions import read_questions
from electra.readers.tables import as_label, read_table, table_files
from electra.readers.templates import columns_of, filled
from electra.tasks.catalogue import TaskSpec
from electra.tasks.format import (
    Row,
    bioes_labels,
    choice_row,
    is_entity_tag,
    nearest_occurrence,
    question_row,
    sentence_row,
    tagged_row,
)

_MOST_LABELS = 1000  # more labels mean that the column is wrong
TrainColumn = Callable[[str], Iterator[tuple[str, Any]]]  # column name -> (place, value) of each row


def custom_spec(name: str, task: CustomTask, train_column: TrainColumn) -> TaskSpec:
    """Return the task's specification.

    The training table (dev if there is none) is read only to infer labels. The name of an evaluation-only task is
    prefixed with that of the task whose models score it: ``MNLI/HANS``.

    Raises:
        ConfigError: ``positive`` is not one of the labels.
        DataError: the labels of the training table cannot be used.
    """
    files = {split: getattr(task, split) for split in ("train", "dev", "test") if getattr(task, split, None)}
    base: dict[str, Any] = {"name": name, "source": "own", "files": files, "official_rows": {}}
    if task.fine_tuned_on is not None:
        base |= {"name": f"{task.fine_tuned_on}/{name}", "fine_tuned_on": task.fine_tuned_on}
    match task:
        case CustomClassification() | CustomPair():
            texts = (task.text, None) if isinstance(task, CustomClassification) else (task.text_a, task.text_b)
            labels = tuple(task.labels or _infer_labels(train_column(task.label)))
            if task.positive is not None and task.positive not in labels:
                raise ConfigError(f"{name}: positive: {task.positive!r} is not one of {', '.join(labels)}")
            return TaskSpec(
                **base,
                kind="classification",
                metrics=tuple(dict.fromkeys([task.metric, "accuracy"])),
                labels=labels,
                text_a=texts[0],
                text_b=texts[1],
                label=task.label,
                positive=task.positive or "1",
                unordered=isinstance(task, CustomPair) and task.unordered,
                label_map=task.label_map,
            )
        case CustomRegression():
            return TaskSpec(
                **base,
                kind="regression",
                metrics=tuple(dict.fromkeys([task.metric, "spearman", "pearson"])),
                text_a=task.text_a,
                text_b=task.text_b,
                label=task.label,
                score_range=task.range,
                unordered=task.unordered,
            )
        case CustomTagging():
            tags: dict[str, str] = {}  # tag -> place of its first occurrence
            for where, value in train_column(task.tags):
                for tag in as_words(value, task.tags, where):
                    tags.setdefault(tag, where)
            has_entities = task.metric == "f1" or (task.metric is None and all(map(is_entity_tag, tags)))
            found = task.labels or sorted(_types(tags) if has_entities else tags)
            metrics = ("f1", "precision", "recall") if has_entities else ("accuracy",)
            labels = bioes_labels(found) if has_entities else tuple(found)
            return TaskSpec(**base, kind="tagging", metrics=metrics, labels=labels)
        case CustomSpan():
            names = [task.metric, "f1", "exact", *(["best_f1", "best_exact"] if task.unanswerable else [])]
            return TaskSpec(**base, kind="span", metrics=tuple(dict.fromkeys(names)))
        case CustomChoice():
            numbers = tuple(str(number) for number in range(len(task.choices)))
            return TaskSpec(**base, kind="multiple_choice", metrics=("accuracy",), labels=numbers)


def check_evaluation(spec: TaskSpec, trained: TaskSpec) -> None:
    """Check that an evaluation-only task can be scored with the models of another task.

    Raises:
        ConfigError: the tasks differ in kind or number of texts, a label of the trained task has no counterpart, or no
            tag is one of both.
    """
    if spec.kind != trained.kind:
        raise ConfigError(f"{spec.name} is a task of {spec.kind}, {trained.name} one of {trained.kind}")
    if (spec.text_b is None) != (trained.text_b is None):
        raise ConfigError(f"{spec.name} and {trained.name}: one has pairs of texts, the other single ones")
    if spec.has_unanswerable and not trained.has_unanswerable:
        raise ConfigError(f"{spec.name} has unanswerable questions, {trained.name} has none such")
    if spec.has_entities != trained.has_entities:
        raise ConfigError(f"{spec.name} and {trained.name}: the tags of one mark entities, those of the other do not")
    if spec.kind == "multiple_choice" and len(spec.labels) != len(trained.labels):
        raise ConfigError(f"{spec.name} has {len(spec.labels)} choices, {trained.name} {len(trained.labels)}")
    if spec.kind == "tagging" and not (set(spec.labels) & set(trained.labels)) - {"O"}:
        raise ConfigError(
            f"{spec.name} and {trained.name} have no tag in common: {', '.join(spec.labels[:5])} and "
            f"{', '.join(trained.labels[:5])}",
            next_step=f"write the tags of {trained.name} into the table",
        )
    if spec.kind != "classification":
        return
    if unknown := [label for label in spec.label_map if label not in trained.labels]:
        raise ConfigError(
            f"{spec.name}: label_map: {', '.join(unknown)}: no label of {trained.name}, which has "
            f"{', '.join(trained.labels)}"
        )
    if lost := [label for label in trained.labels if spec.label_map.get(label, label) not in spec.labels]:
        raise ConfigError(
            f"{spec.name}: {trained.name}'s label {lost[0]} means none of {', '.join(spec.labels)}",
            next_step=f"say which in its YAML file: `label_map: {{{lost[0]}: {spec.labels[0]}}}`",
        )


def _infer_labels(column: Iterator[tuple[str, Any]]) -> list[str]:
    labels: set[str] = set()
    where = ""
    for where, value in column:
        label = as_label(value)
        if label is None:
            raise DataError("a label is missing", where=where, next_step="add it, or remove the row")
        labels.add(label)
        if len(labels) > _MOST_LABELS:
            raise DataError(
                f"more than {_MOST_LABELS} different labels",
                where=where,
                next_step="correct `label` in the task's YAML file, or use `kind: regression`",
            )
    if len(labels) < 2:
        raise DataError(f"expected two labels or more, found {sorted(labels)}", where=where or None)
    return sorted(labels)


def _types(tags: dict[str, str]) -> set[str]:
    for tag, where in tags.items():
        if not is_entity_tag(tag):
            raise DataError(
                f"tag {tag!r} marks no entity: tags are O or B-, I-, E- or S- and a type",
                where=where,
                next_step="repair the row, or use `metric: accuracy`",
            )
    types = {tag[2:] for tag in tags if tag != "O"}
    if not types:
        raise DataError("no tag of the training table marks an entity", next_step="correct `tags` in the YAML file")
    return types


def as_words(value: Any, column: str, where: str) -> list[str]:
    """Return a list unchanged, or text split at white space."""
    if isinstance(value, str):
        return value.split()
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return value
    raise DataError(f"column {column!r} holds neither text nor a list of texts", where=where)


class CustomSource:
    """Source of the rows of one own task.

    Args:
        path: the YAML file; its name without ``.yaml`` is the task's name.

    Attributes:
        spec: the task; labels are inferred from the training table if the description has none.
        counts: numbers of repairs so far, by task.

    Raises:
        ConfigError: the description is wrong.
        DataError: the training table cannot be read, or its labels cannot be used.
    """

    def __init__(self, path: Path):
        self.path, self.task = path, read_custom_task(path)
        self.spec = custom_spec(path.stem, self.task, self._values)
        self.counts: dict[str, Counter[str]] = {self.spec.name: Counter()}

    def splits(self, spec: TaskSpec) -> list[str]:
        """Return the splits that the description names."""
        return list(spec.files)

    def read(self, spec: TaskSpec, split: str) -> Iterator[Row]:
        """Yield the rows of one split, in the table's order.

        Raises:
            DataError: a column is missing, a row is malformed, or the training table lacks a label.
        """
        rows = self._rows(split)
        if self.task.format == "squad":
            counts = self.counts[self.spec.name]
            rows = (row for table in self._tables(split) for row in read_questions(self.spec, table, counts))
        yield from islice(rows, self.task.max_train_examples if split == "train" else None)

    def describe(self, spec: TaskSpec) -> dict[str, Any]:
        """Return kind and labels, and the description and tables with their sha256."""
        files = [{"name": self.path.name, "sha256": sha256(self.path)}]
        return {
            "kind": self.task.kind,
            "labels": list(spec.labels),
            "files": files + [_describe_files(name, self._tables(split)) for split, name in spec.files.items()],
        }

    def _tables(self, split: str) -> list[Path]:
        return table_files(self.path.parent, getattr(self.task, split))

    def _values(self, column: str) -> Iterator[tuple[str, Any]]:
        """Return (place, value) of a column of the training table, or of dev for an evaluation-only task."""
        split = "dev" if self.task.train is None else "train"
        return ((where, values[column]) for where, values in self._records(split, [column]))

    def _records(self, split: str, columns: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
        for table in self._tables(split):
            yield from read_table(table, columns, self.task.layout)

    def _rows(self, split: str) -> Iterator[Row]:
        labelled = not split.startswith("test")
        for number, (where, values) in enumerate(self._records(split, self._columns(labelled))):
            id = str(number) if self.task.id is None else _text(values, self.task.id, where)
            yield self._row(id, values, labelled, where)

    def _columns(self, labelled: bool) -> list[str]:
        task = self.task
        texts: list[str | None]
        label: str | None
        match task:
            case CustomClassification():
                texts, label = [task.text], task.label
            case CustomPair() | CustomRegression():
                texts, label = [task.text_a, task.text_b], task.label
            case CustomTagging():
                texts, label = [task.words], task.tags
            case CustomSpan():
                texts, label = [task.question, task.context, task.start], task.answer
            case CustomChoice():
                texts, label = [task.text, *task.choices], task.label
        columns = [task.id, *(column for text in texts if text is not None for column in columns_of(text))]
        return [name for name in [*columns, label if labelled else None] if name is not None]

    def _row(self, id: str, values: dict[str, Any], labelled: bool, where: str) -> Row:
        task, spec = self.task, self.spec
        match task:
            case CustomTagging():
                tags = as_words(values[task.tags], task.tags, where) if labelled else None
                return tagged_row(spec, id, as_words(values[task.words], task.words, where), tags, where)
            case CustomSpan():
                return self._question(task, id, values, where)
            case CustomChoice():
                label = as_label(values[task.label]) if labelled else None
                if label is not None and task.names is not None:
                    if label not in task.names:
                        raise DataError(
                            f"{spec.name}: label {label!r} is not one of {', '.join(task.names)}",
                            where=where,
                            next_step="repair the row, or correct `names` in the task's YAML file",
                        )
                    label = str(task.names.index(label))
                choices = [_text(values, column, where) for column in task.choices]
                return choice_row(spec, id, _text(values, task.text, where), choices, label, where)
        text_b = None if spec.text_b is None else _text(values, spec.text_b, where)
        label = as_label(values[spec.label]) if labelled else None
        return sentence_row(spec, id, _text(values, spec.text_a, where), text_b, label, where)

    def _question(self, task: CustomSpan, id: str, values: dict[str, Any], where: str) -> Row:
        assert task.question is not None and task.context is not None and task.answer is not None  # format is not squad
        context = _text(values, task.context, where)
        is_empty = values[task.answer] is None or _is_nan(values[task.answer])
        answer = "" if is_empty else _text(values, task.answer, where)
        answer = answer if answer.strip() else ""
        if task.start is None or not answer:
            start = nearest_occurrence(context, answer, 0) or 0
        else:
            try:
                start = int(values[task.start])
            except (TypeError, ValueError, OverflowError):  # Overflow: infinity
                given = f"{task.start} {values[task.start]!r}"
                raise DataError(f"{self.spec.name}: {given} is not a whole number", where=where) from None
        return question_row(
            self.spec,
            id=id,
            question=_text(values, task.question, where),
            context=context,
            answers=[(answer, start)] if answer else [],
            impossible=task.unanswerable and not answer,
            where=where,
            counts=self.counts[self.spec.name],
        )


def _text(values: dict[str, Any], text: str, where: str) -> str:
    """Return the text of a column or of a filled template."""
    return filled(text, lambda column: column_text(values, column, where))


def _is_nan(value: Any) -> bool:
    """Return True for NaN, which pandas writes for a missing cell."""
    return isinstance(value, float) and value != value


def column_text(values: dict[str, Any], column: str, where: str) -> str:
    """Return the text of a column, numbers as text.

    Raises:
        DataError: the cell is NaN or null, or holds a list, an object or a boolean.
    """
    value = values[column]
    if value is None or _is_nan(value):
        what = "null" if value is None else "NaN"
        raise DataError(f"column {column!r} is empty ({what})", where=where, next_step="fill it in, or remove the row")
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise DataError(f"column {column!r} holds {type(value).__name__}, not text", where=where)
    return str(value)


def _describe_files(name: str, paths: list[Path]) -> dict[str, Any]:
    """Return a table's name and sha256; for several files the sha256 of all their names and checksums."""
    if len(paths) == 1:
        return {"name": paths[0].name, "sha256": sha256(paths[0])}
    sums = "".join(f"{sha256(path)}  {path.name}\n" for path in paths)
    return {"name": name, "num_files": len(paths), "sha256": hashlib.sha256(sums.encode()).hexdigest()}
