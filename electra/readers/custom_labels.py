"""A custom task's description as a TaskSpec, with the labels that the training table has."""

import json
from collections.abc import Callable, Iterator
from typing import Any

from electra.common.errors import ConfigError, DataError
from electra.readers.custom_schema import (
    OwnChoice,
    OwnClassification,
    OwnPair,
    OwnRegression,
    OwnSpan,
    OwnTagging,
    OwnTask,
)
from electra.tasks.catalogue import TaskSpec
from electra.tasks.tag_schemes import bioes_labels, is_entity_tag

_MOST_LABELS = 1000  # more than this in the label column is a wrong column
TrainColumn = Callable[[str], Iterator[tuple[str, Any]]]  # a column's name to its values with their places


def own_spec(name: str, task: OwnTask, train_column: TrainColumn) -> TaskSpec:
    """The task; the training table is read only where labels must be inferred (that of dev where there is none).

    A task that is evaluated only has the name of the one whose models it is scored with before its own: ``MNLI/HANS``.

    Raises:
        ConfigError: `positive` is none of the labels.
        DataError: the labels of the training table cannot be those of a task.
    """
    files = {split: getattr(task, split) for split in ("train", "dev", "test") if getattr(task, split, None)}
    base: dict[str, Any] = {"name": name, "source": "own", "files": files, "official_rows": {}}
    if task.fine_tuned_on is not None:
        base |= {"name": f"{task.fine_tuned_on}/{name}", "fine_tuned_on": task.fine_tuned_on}
    match task:
        case OwnClassification() | OwnPair():
            texts = (task.text, None) if isinstance(task, OwnClassification) else (task.text_a, task.text_b)
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
                unordered=isinstance(task, OwnPair) and task.unordered,
                label_map=task.label_map,
            )
        case OwnRegression():
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
        case OwnTagging():
            tags: dict[str, str] = {}  # with the place of its first occurrence
            for where, value in train_column(task.tags):
                for tag in as_words(value, task.tags, where):
                    tags.setdefault(tag, where)
            has_entities = task.metric == "f1" or (task.metric is None and all(map(is_entity_tag, tags)))
            found = task.labels or sorted(_types(tags) if has_entities else tags)
            metrics = ("f1", "precision", "recall") if has_entities else ("accuracy",)
            labels = bioes_labels(found) if has_entities else tuple(found)
            return TaskSpec(**base, kind="tagging", metrics=metrics, labels=labels)
        case OwnSpan():
            names = [task.metric, "f1", "exact", *(["best_f1", "best_exact"] if task.unanswerable else [])]
            return TaskSpec(**base, kind="span", metrics=tuple(dict.fromkeys(names)))
        case OwnChoice():
            numbers = tuple(str(number) for number in range(len(task.choices)))
            return TaskSpec(**base, kind="multiple_choice", metrics=("accuracy",), labels=numbers)


def check_evaluation(spec: TaskSpec, trained: TaskSpec) -> None:
    """Return whether the models of another task can answer a task that is evaluated only.

    Raises:
        ConfigError: they are of another kind, take another number of texts, or have a label that means nothing here.
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


def as_label(value: Any) -> str | None:
    """A label as a string: 1 and true of JSON as they stand there."""
    if value is None or value == "":
        return None
    return value if isinstance(value, str) else json.dumps(value, default=str)


def as_words(value: Any, column: str, where: str) -> list[str]:
    """A list as it is; text is split at spaces."""
    if isinstance(value, str):
        return value.split()
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return value
    raise DataError(f"column {column!r} holds neither text nor a list of texts", where=where)
