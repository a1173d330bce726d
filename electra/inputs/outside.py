"""Which files from outside the settings name, for each stage that reads some."""

from dataclasses import dataclass
from pathlib import Path

import yaml

from electra.config import FilesCorpus, FilesTasks, HubCorpus, HubTasks, Settings

STAGES = ("corpus", "tasks", "tokenizer", "pretrain")


@dataclass(frozen=True)
class Outside:
    """One setting that names files.

    Attributes:
        pattern: a path, a glob, an fsspec URL, or a folder.
        key: the setting's name.
        is_folder: all files in it count, whatever their names.
    """

    pattern: str
    key: str
    is_folder: bool = False


def outside(settings: Settings, root: Path) -> dict[str, list[Outside]]:
    """Outside inputs of each of :data:`STAGES`; pinned revisions of a hub are not listed: they cannot change."""
    found: dict[str, list[Outside]] = {stage: [] for stage in STAGES}
    for source in settings.corpus.sources:
        if isinstance(source, FilesCorpus):
            found["corpus"] += [Outside(pattern, "corpus.sources paths") for pattern in source.paths]
            if source.checksums:
                found["corpus"].append(Outside(source.checksums, "corpus.sources checksums"))
        elif isinstance(source, HubCorpus) and (root / source.dataset).is_dir():
            found["corpus"].append(Outside(source.dataset, "corpus.sources dataset", is_folder=True))
    tasks = settings.tasks.source
    if isinstance(tasks, FilesTasks | HubTasks):
        for key, value in tasks.model_dump(exclude={"kind"}).items():
            if value and not key.endswith("_revision") and (root / value).is_dir():
                found["tasks"].append(Outside(value, f"tasks.source.{key}", is_folder=True))
    for description in settings.tasks.own_files.values():
        found["tasks"].append(Outside(str(description), "tasks.own"))
        for table in _tables_of(root / description):
            found["tasks"].append(Outside(str(description.parent / table), f"tasks.own: {description}"))
    if settings.tokenizer.vocab_file:
        found["tokenizer"].append(Outside(settings.tokenizer.vocab_file, "tokenizer.vocab_file"))
    first = settings.pretrain.initialize_from
    if first and (root / first).is_dir():
        found["pretrain"].append(Outside(first, "pretrain.initialize_from", is_folder=True))
    return found


def _tables_of(description: Path) -> list[str]:
    """The tables that the description of a task names; whether it can be used otherwise is for the stage ``tasks``."""
    try:
        values = yaml.safe_load(description.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError, RecursionError):
        return []
    if not isinstance(values, dict):
        return []
    return [table for split in ("train", "dev", "test") if isinstance(table := values.get(split), str)]
