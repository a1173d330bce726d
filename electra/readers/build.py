"""The tasks stage: every task of the matrix, from any source, in one format."""

import dataclasses
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from electra.common.artifacts import building, write_json, write_manifest
from electra.common.errors import DataError
from electra.common.lines import MAX_LINE_BYTES
from electra.common.paths import Paths
from electra.config import EmbeddedTasks, FilesTasks, HubTasks, Settings
from electra.readers.custom import OwnSource
from electra.tasks.catalogue import SPEC_FILE, TASKS, TaskSpec
from electra.tasks.rows import Row


class Source(Protocol):
    """Where labelled rows come from."""

    counts: dict[str, Counter[str]]

    def splits(self, spec: TaskSpec) -> list[str]: ...
    def read(self, spec: TaskSpec, split: str) -> Iterator[Row]: ...
    def describe(self, spec: TaskSpec) -> dict[str, Any]: ...


def prepare_tasks(settings: Settings, paths: Paths) -> None:
    """Write ``data/tasks/<task>/<split>.jsonl`` for the tasks of ``cells.tasks``, and the manifest.

    Embedded data is first written in the official formats, kept in ``data/tasks/official/``, and read from there. What
    an own task is, its labels included, is written to ``data/tasks/<task>/task.json``.

    Raises:
        DataError: a missing file or a malformed row, with file and line.
        InfrastructureError: the hub cannot be reached, the disk is full.
    """
    with building(paths.tasks) as folder:
        own_files = settings.tasks.own_files
        public = [name for name in settings.cells.tasks if name not in own_files]
        official = _open_source(settings, folder, public) if public else None
        facts = {}
        for name in settings.cells.tasks:
            source: Source
            if name in own_files:
                source = own = OwnSource(own_files[name])
                spec = own.spec
                write_json(folder / name / SPEC_FILE, dataclasses.asdict(spec))
            else:
                assert official is not None
                source, spec = official, TASKS[name]
            rows = {
                split: _write_rows(spec, split, source.read(spec, split), folder / name / f"{split}.jsonl")
                for split in source.splits(spec)
            }
            repaired = dict(sorted(source.counts[name].items()))
            facts[name] = {"rows": rows, **repaired, **source.describe(spec)}
            counts = ", ".join(f"{split} {number:,}" for split, number in rows.items())
            notes = "".join(f", {what.replace('_', ' ')} {number:,}" for what, number in repaired.items() if number)
            print(f"{name}: {counts}{notes}")
        write_manifest(folder, source=_describe_source(settings), tasks=facts)


def _open_source(settings: Settings, folder: Path, tasks: list[str]) -> Source:
    source = settings.tasks.source
    if isinstance(source, HubTasks):
        from electra.readers.hub import HubSource

        return HubSource(source)
    from electra.readers.official import OfficialSource

    if isinstance(source, FilesTasks):
        folders = {key: Path(value) for key, value in source.model_dump(exclude={"kind"}).items() if value}
        return OfficialSource(folders.pop("glue", None), folders.pop("squad", None), **folders)
    from electra.microworld.tasks import write_official_tasks

    official = folder / "official"
    official.mkdir()
    write_official_tasks(official, tasks, source.seed, source.train_examples, source.dev_examples)
    return OfficialSource(official / "glue", official / "squad")


def _describe_source(settings: Settings) -> dict[str, Any]:
    source = settings.tasks.source
    if isinstance(source, EmbeddedTasks):
        return {"kind": "embedded", "seed": source.seed}
    return {"kind": source.kind}


def _write_rows(spec: TaskSpec, split: str, rows: Iterator[Row], path: Path) -> int:
    """One JSON object a line; the number of rows."""
    path.parent.mkdir(exist_ok=True)
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
