"""Tasks in Hugging Face datasets."""

from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from electra.common.artifacts import sha256
from electra.common.errors import ConfigError, DataError
from electra.common.hub import dataset_errors
from electra.common.printing import listed
from electra.config import HubTasks
from electra.tasks.catalogue import TaskSpec
from electra.tasks.format import Row, question_row, sentence_row


class HubSource:
    """Source of GLUE and SQuAD in the layout of ``nyu-mll/glue``, ``rajpurkar/squad`` and ``rajpurkar/squad_v2``.

    Attributes:
        counts: numbers of repairs so far, by task.
    """

    def __init__(self, source: HubTasks):
        self.source = source
        self.counts: dict[str, Counter[str]] = {}

    def splits(self, spec: TaskSpec) -> list[str]:
        """Return the available splits; only test splits may be missing."""
        import datasets

        dataset, revision = self._dataset(spec)
        with _loading(spec, dataset):
            there = datasets.get_dataset_split_names(dataset, spec.hub_config, revision=revision)
            if any("/" in split for split in spec.hub_splits.values()):
                configs = datasets.get_dataset_config_names(dataset, revision=revision)
                there += [split for split in spec.hub_splits.values() if split.partition("/")[0] in configs]
        return [ours for ours, theirs in spec.hub_splits.items() if not ours.startswith("test") or theirs in there]

    def read(self, spec: TaskSpec, split: str) -> Iterator[Row]:
        """Yield the rows of one split, in the dataset's order.

        Raises:
            DataError: no such dataset, split or column; a malformed row, with its number.
            InfrastructureError: the hub cannot be reached.
        """
        import datasets

        dataset, revision = self._dataset(spec)
        counts = self.counts.setdefault(spec.name, Counter())
        other, _, name = spec.hub_splits[split].rpartition("/")
        config = other or spec.hub_config
        with _loading(spec, dataset):
            table = datasets.load_dataset(dataset, config, split=name, revision=revision)
        for number, item in enumerate(table):
            where = f"{dataset} {config or ''} {name}, row {number}"
            try:
                yield self._row(spec, str(number), item, where, counts)
            except (KeyError, TypeError) as error:
                raise DataError(
                    f"{spec.name}: missing or wrong column {error}; the columns are {listed(table.column_names)}",
                    where=where,
                ) from None

    def describe(self, spec: TaskSpec) -> dict[str, Any]:
        """Return dataset, configuration and revision; for a local folder its files with their sha256."""
        dataset, revision = self._dataset(spec)
        if revision:
            return {"dataset": dataset, "config": spec.hub_config, "revision": revision}
        paths = sorted(path for path in Path(dataset).rglob("*") if path.is_file())
        return {
            "dataset": "local folder",
            "config": spec.hub_config,
            "files": [{"name": path.relative_to(dataset).as_posix(), "sha256": sha256(path)} for path in paths],
        }

    def _dataset(self, spec: TaskSpec) -> tuple[str, str | None]:
        """Return the dataset's name and revision; the revision is None for a local folder."""
        source = self.source
        if spec.source not in ("glue", "squad"):
            raise ConfigError(
                f"{spec.name} is read from files only",
                where="tasks.source.kind: hub",
                next_step=f"use `kind: files` with `{spec.source}`, or remove {spec.name} from cells.tasks",
            )
        dataset = getattr(source, spec.hub_dataset)
        return dataset, None if Path(dataset).is_dir() else getattr(source, f"{spec.hub_dataset}_revision")

    def _row(self, spec: TaskSpec, id: str, item: dict[str, Any], where: str, counts: Counter[str]) -> Row:
        if spec.kind == "span":
            answers = item["answers"]
            return question_row(
                spec,
                id=item["id"],
                question=item["question"],
                context=item["context"],
                answers=list(zip(answers["text"], answers["answer_start"], strict=True)),
                impossible=spec.has_unanswerable and not answers["text"],
                where=where,
                counts=counts,
            )
        name_a = spec.hub_a or spec.text_a
        name_b = spec.hub_b or spec.text_b
        text_b = item[name_b] if name_b else None
        return sentence_row(spec, id, item[name_a], text_b, _label(spec, item["label"]), where)


def _label(spec: TaskSpec, value: Any) -> str | None:
    """Return the official name of a hub label: class numbers index the label set, -1 means unlabelled."""
    if value is None or value == -1:
        return None
    if spec.kind == "classification" and isinstance(value, int) and value < len(spec.labels):
        return spec.labels[value]
    return str(value)


def _loading(spec: TaskSpec, dataset: str) -> AbstractContextManager[None]:
    return dataset_errors(
        f"{spec.name}: {dataset}",
        where=f"configuration {spec.hub_config}",
        next_step="check name and revision under tasks.source",
    )
