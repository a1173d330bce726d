"""The tasks stage: writes the tasks of ``cells.tasks`` in one format."""

import dataclasses
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from electra.common.artifacts import building, renews, write_json, write_manifest
from electra.common.errors import ConfigError, DataError
from electra.common.lines import MAX_LINE_BYTES
from electra.common.paths import Paths
from electra.config import Settings
from electra.config.tasks import FilesTasks, HubTasks
from electra.readers.custom import CustomSource, check_evaluation
from electra.readers.custom_schema import read_custom_task
from electra.readers.hub import HubSource
from electra.readers.official import OfficialSource
from electra.tasks.catalogue import SPEC_FILE, TASKS, TaskSpec
from electra.tasks.format import Row


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
        official = _open_source(settings.tasks.source) if public else None
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
        kind = settings.tasks.source.kind if settings.tasks.source else "own"
        more = {"evaluations": evaluations} if evaluations else {}
        write_manifest(folder, source={"kind": kind}, tasks=facts, **more)


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


def _open_source(source: FilesTasks | HubTasks | None) -> Source:
    assert source is not None, "the settings refuse public tasks without a source"
    if isinstance(source, HubTasks):
        return HubSource(source)
    folders = {key: Path(value) for key, value in source.model_dump(exclude={"kind"}).items() if value}
    return OfficialSource(**folders)


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
