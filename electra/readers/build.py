"""The tasks stage: writes the tasks of ``cells.tasks`` in one format; reading tasks from Hugging Face datasets."""

import dataclasses
import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from electra.common.artifacts import building, renews, sha256, write_json, write_manifest
from electra.common.errors import ConfigError, DataError, InfrastructureError
from electra.common.lines import MAX_LINE_BYTES
from electra.common.paths import Paths
from electra.common.printing import listed
from electra.config import HubTasks, Settings
from electra.readers.custom import CustomSource, check_evaluation
from electra.readers.custom_schema import read_custom_task
from electra.tasks.catalogue import SPEC_FILE, TASKS, TaskSpec
from electra.tasks.format import Row, question_row, sentence_row


class Source(Protocol):
    """Source of labelled rows."""

    counts: dict[str, Counter[str]]

    def splits(self, spec: TaskSpec) -> list[str]: ...
    def read(self, spec: TaskSpec, split: str) -> Iterator[Row]: ...
    def describe(self, spec: TaskSpec) -> dict[str, Any]: ...


@renews("tasks")
def prepare_tasks(settings: Settings, paths: Paths) -> None:
    """Write ``data/tasks/<task>/<split>.jsonl`` for the tasks of ``cells.tasks``, and the manifest.

    The specification of an own task, with its labels, is written to ``data/tasks/<task>/task.json``. An evaluation-only
    task is stored in the folder of the task whose models score it, so that their fine-tuning runs depend on it.

    Raises:
        ConfigError: the description of an own task is wrong.
        DataError: a file is missing or a row is malformed; names file and line.
        InfrastructureError: the hub cannot be reached, or the disk is full.
    """
    with building(paths.tasks) as folder:
        custom_files = settings.tasks.custom_files
        evaluated = _evaluated_only(settings)
        public = [name for name in settings.cells.tasks if name not in custom_files]
        official = _open_source(settings) if public else None
        facts, evaluations = {}, {}
        specs: dict[str, TaskSpec] = {}
        for name in settings.cells.tasks:
            if name in custom_files:
                own = CustomSource(custom_files[name])
                specs[name] = own.spec
                facts[name] = _write_custom(own, folder)
            else:
                assert official is not None
                specs[name] = TASKS[name]
                facts[name] = _write_task(official, specs[name], folder)
        for path in evaluated:
            own = CustomSource(path)
            assert own.spec.fine_tuned_on is not None
            check_evaluation(own.spec, specs[own.spec.fine_tuned_on])
            evaluations[own.spec.name] = _write_custom(own, folder)
        more = {"evaluations": evaluations} if evaluations else {}
        write_manifest(folder, source=_describe_source(settings), tasks=facts, **more)


def _evaluated_only(settings: Settings) -> list[Path]:
    """Return the descriptions in ``tasks.own`` of evaluation-only tasks whose training task is in ``cells.tasks``."""
    found, tasks = [], settings.cells.tasks
    for name, path in settings.tasks.custom_files.items():
        trained = read_custom_task(path).fine_tuned_on
        if trained is None:
            continue
        if name in tasks:
            raise ConfigError(
                f"{name} has no training table: it is scored with the models that are fine-tuned on {trained}",
                where="cells.tasks",
                next_step=f"name {trained} in cells.tasks, and {name} in tasks.own only",
            )
        if trained in tasks:
            found.append(path)
        else:
            print(f"{name}: left out, since {trained}, on which its models are fine-tuned, is not among cells.tasks")
    return found


def _write_custom(own: CustomSource, folder: Path) -> dict[str, Any]:
    write_json(folder / own.spec.name / SPEC_FILE, dataclasses.asdict(own.spec))
    return _write_task(own, own.spec, folder)


def _write_task(source: Source, spec: TaskSpec, folder: Path) -> dict[str, Any]:
    """Write every split of a task; return its entry in the manifest."""
    name = spec.name
    rows = {
        split: _write_rows(spec, split, source.read(spec, split), folder / name / f"{split}.jsonl")
        for split in source.splits(spec)
    }
    repaired = dict(sorted(source.counts[name].items()))
    counts = ", ".join(f"{split} {number:,}" for split, number in rows.items())
    notes = "".join(f", {what.replace('_', ' ')} {number:,}" for what, number in repaired.items() if number)
    print(f"{name}: {counts}{notes}")
    return {"rows": rows, **repaired, **source.describe(spec)}


def _open_source(settings: Settings) -> Source:
    source = settings.tasks.source
    if isinstance(source, HubTasks):
        return HubSource(source)
    from electra.readers.official import OfficialSource

    assert source is not None, "the settings refuse public tasks without a source"
    folders = {key: Path(value) for key, value in source.model_dump(exclude={"kind"}).items() if value}
    return OfficialSource(folders.pop("glue", None), folders.pop("squad", None), **folders)


def _describe_source(settings: Settings) -> dict[str, Any]:
    source = settings.tasks.source
    return {"kind": source.kind if source else "own"}


def _write_rows(spec: TaskSpec, split: str, rows: Iterator[Row], path: Path) -> int:
    """Write one JSON object per line; return the number of rows."""
    path.parent.mkdir(parents=True, exist_ok=True)
    number = 0
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        for row in rows:
            if row.get("label", row.get("tags", "")) is None and not split.startswith("test"):
                raise DataError(f"{spec.name}: row {row['id']} of split {split} has no label")
            line = json.dumps(row, ensure_ascii=False) + "\n"
            if len(line) > MAX_LINE_BYTES // 4 and len(line.encode("utf-8")) > MAX_LINE_BYTES:
                raise DataError(
                    f"{spec.name}: row {row['id']} of split {split} has more than {MAX_LINE_BYTES >> 20} MiB of text",
                    next_step="shorten its texts, or remove it",
                )
            file.write(line)
            number += 1
    if not number:
        raise DataError(f"{spec.name}: split {split} has no rows", next_step="check tasks.source")
    return number


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


@contextmanager
def _loading(spec: TaskSpec, dataset: str) -> Iterator[None]:
    """Convert errors of finding or fetching a dataset into the project's errors."""
    try:
        yield
    except (ConnectionError, TimeoutError) as error:
        raise InfrastructureError(
            f"{spec.name}: {dataset} cannot be fetched: {error}",
            next_step="check the network and run again; what is already fetched is kept",
        ) from error
    except (FileNotFoundError, ValueError) as error:
        raise DataError(
            f"{spec.name}: {dataset} cannot be loaded: {error}",
            where=f"configuration {spec.hub_config}",
            next_step="check name and revision under tasks.source",
        ) from error
