"""The inputs stage: lists the external files that the settings name, with checksums, and makes DVC watch them.

Writes a JSON file for each stage that reads external files. A sha256 is computed only for files whose size, time of
change or inode differs from the last run.

DVC compares files and folders with their last state (sizes and times first, then content) to find out which stages are
out of date. It does not support globs, and a profile's settings cannot define a list of dependencies, so the list is
written between two comments in ``dvc.yaml``; a glob is replaced by its folder.
"""

import glob
import json
import os
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from electra.common.artifacts import building, sha256, write_json, write_manifest, write_text
from electra.common.errors import DataError, InfrastructureError
from electra.common.globs import expanded
from electra.common.paths import Paths
from electra.common.urls import without_secrets
from electra.config import FilesCorpus, FilesTasks, HubCorpus, HubTasks, Settings
from electra.tasks.catalogue import TASKS

STAGES = ("corpus", "tasks", "tokenizer", "pretrain", "probe")


@dataclass(frozen=True)
class Outside:
    """External files named by one setting.

    Attributes:
        pattern: a path, a glob, an fsspec URL, or a folder.
        key: the setting's name.
        is_folder: whether ``pattern`` is a folder, all of whose files are inputs.
    """

    pattern: str
    key: str
    is_folder: bool = False


def outside(settings: Settings, root: Path) -> dict[str, list[Outside]]:
    """Return the external inputs of each of :data:`STAGES`, without pinned hub revisions, which cannot change."""
    found: dict[str, list[Outside]] = {stage: [] for stage in STAGES}
    for source in settings.corpus.sources:
        if isinstance(source, FilesCorpus):
            found["corpus"] += [Outside(pattern, "corpus.sources paths") for pattern in source.paths]
            if source.checksums:
                found["corpus"].append(Outside(source.checksums, "corpus.sources checksums"))
        elif isinstance(source, HubCorpus) and (root / source.dataset).is_dir():
            found["corpus"].append(Outside(source.dataset, "corpus.sources dataset", is_folder=True))
    found["tasks"] += _of_public_tasks(settings, root)
    for description in settings.tasks.custom_files.values():
        found["tasks"].append(Outside(str(description), "tasks.own"))
        for table in _tables_of(root / description):
            found["tasks"].append(Outside(str(description.parent / table), f"tasks.own: {description}"))
    found["probe"] = [Outside(file, "tasks.pairs") for file in settings.tasks.pairs]
    if settings.tokenizer.vocab_file:
        found["tokenizer"].append(Outside(settings.tokenizer.vocab_file, "tokenizer.vocab_file"))
    first = settings.pretrain.initialize_from
    if first and (root / first).is_dir():
        found["pretrain"].append(Outside(first, "pretrain.initialize_from", is_folder=True))
    return found


def _of_public_tasks(settings: Settings, root: Path) -> Iterator[Outside]:
    """Yield the files and local dataset folders of the built-in tasks in ``cells.tasks``.

    Missing files are left out: a missing test split is allowed, and the stage ``tasks`` reports any other.
    """
    source = settings.tasks.source
    specs = [TASKS[name] for name in settings.cells.tasks if name in TASKS]
    if isinstance(source, FilesTasks):
        for spec in specs:
            folder = getattr(source, spec.source)
            for file in (spec.path_in(root / folder, split) for split in spec.files) if folder else ():
                if file.is_file():
                    yield Outside(_named(file, folder, root), f"tasks.source.{spec.source}")
    elif isinstance(source, HubTasks):
        for key in sorted({spec.hub_dataset for spec in specs if spec.source in ("glue", "squad")}):
            if (root / getattr(source, key)).is_dir():
                yield Outside(getattr(source, key), f"tasks.source.{key}", is_folder=True)


def _named(file: Path, folder: str, root: Path) -> str:
    """Return the path of a file in ``root / folder`` in the form of ``folder``: absolute or relative to the root."""
    return str(Path(folder) / file.relative_to(root / folder))


def _tables_of(description: Path) -> list[str]:
    """Return the tables that a task's description names; the stage ``tasks`` validates the description."""
    try:
        values = yaml.safe_load(description.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError, RecursionError):
        return []
    if not isinstance(values, dict):
        return []
    return [table for split in ("train", "dev", "test") if isinstance(table := values.get(split), str)]


BEGIN = "# files from outside, by `electra inputs`:"
END = "# (end of files from outside)"
PLUGINS = {"http": "dvc_http", "https": "dvc_http", "s3": "dvc_s3", "gs": "dvc_gs", "azure": "dvc_azure"}


def watched(found: Iterable[Outside], root: Path) -> tuple[list[str], list[str]]:
    """Return the sorted dependencies, none inside another, and one line for each input that cannot be watched."""
    paths: set[str] = set()
    notes: list[str] = []
    for item in found:
        pattern = item.pattern.removeprefix("file://")
        if "://" in pattern:
            reason = _cannot_watch(pattern)
            if reason:
                notes.append(f"{without_secrets(pattern)}: {reason}")
            else:
                paths.add(_folder_of(pattern))
        elif (root / pattern).exists():  # file names may contain brackets
            paths.add(os.path.normpath(pattern))
        else:
            paths |= _of_glob(pattern, root, notes)
    return sorted(path for path in paths if not any(_is_inside(path, other) for other in paths)), notes


def write_watched(file: Path, paths: list[str]) -> bool:
    """Write the dependencies between the two comments in ``dvc.yaml``.

    Returns:
        Whether the file was changed; a file without the comments is never changed.
    """
    before = file.read_text(encoding="utf-8")
    after = with_watched(before, paths)
    if before == after:
        return False
    write_text(file, after)
    return True


def with_watched(pipeline: str, paths: list[str]) -> str:
    """Return the text of a ``dvc.yaml`` with these dependencies between the two comments, if it has the comments."""
    lines = pipeline.splitlines(keepends=True)
    stripped = [line.strip() for line in lines]
    if BEGIN not in stripped or END not in stripped:
        return pipeline
    begin, end = stripped.index(BEGIN), stripped.index(END)
    indent = lines[begin][: -len(lines[begin].lstrip())]
    # a JSON string is a YAML string; "${" must be escaped, because DVC reads it as a parameter
    entries = [f"{indent}- {json.dumps(path.replace('${', chr(92) + '${'), ensure_ascii=False)}\n" for path in paths]
    return "".join([*lines[: begin + 1], *entries, *lines[end:]])


def holds_outputs(folder: str, root: Path) -> bool:
    """Return True for a folder that has outputs of stages: data, models, results, the workspace and those above it.

    DVC refuses such a folder as a dependency.
    """
    paths, here = Paths(root), root.resolve()
    written = (path.resolve() for path in (paths.corpus.parent, paths.pretrained.parent, paths.results))
    return (root / folder).resolve() in (here, *here.parents, *written)


def _of_glob(pattern: str, root: Path, notes: list[str]) -> set[str]:
    parts = Path(pattern).parts
    plain = next(number for number, part in enumerate((*parts, "*")) if glob.has_magic(part))
    base = os.path.normpath(Path(*parts[:plain])) if plain else "."
    if holds_outputs(base, root):
        notes.append(
            f"{pattern}: changed and removed files are noticed, added ones are not; put the files into a folder"
        )
        return {os.path.normpath(name) for name in expanded(pattern, root)}
    if not (root / base).is_dir():
        return set()
    # DVC does not follow links to folders inside a folder
    names = expanded(pattern, root)
    folders = {Path(folder) for folder in {os.path.dirname(name) for name in names}}
    linked = {part for folder in folders for part in (folder, *folder.parents) if (root / part).is_symlink()}
    return {base} | {os.path.normpath(folder) for folder in linked if str(folder) != base}


def _is_inside(path: str, other: str) -> bool:
    if "://" in path or "://" in other or Path(other) not in Path(path).parents:
        return False
    between = [part for part in (Path(path), *Path(path).parents) if Path(other) in part.parents]
    return not any(part.is_symlink() for part in between)


def _cannot_watch(url: str) -> str | None:
    parts = urlsplit(url)
    if parts.username or parts.password or parts.query:
        return "not watched: the URL may hold a secret, which dvc.yaml must not"
    if PLUGINS.get(parts.scheme) is None or find_spec(PLUGINS[parts.scheme]) is None:
        return f"not watched: DVC here knows no {parts.scheme}:// (pip install dvc-{parts.scheme} may help)"
    if parts.scheme.startswith("http") and glob.has_magic(parts.path):
        return "not watched: DVC knows no globs of web pages"
    return None


def _folder_of(url: str) -> str:
    return url[: url.index("*")].rpartition("/")[0] if "*" in url else url


# A second change within a tick of the file system's clock may not change the time, so newer files are not cached
SETTLED_SECONDS = 2.0


class RememberedHashes:
    """sha256 of files, cached in a JSON file that may be removed at any time.

    Args:
        memory: the JSON file: absolute path -> [bytes, nanoseconds of the last change, inode, sha256].
    """

    def __init__(self, memory: Path):
        self._memory = memory
        try:
            known = json.loads(memory.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            known = {}
        self._known: dict[str, list[int | str]] = known if isinstance(known, dict) else {}

    def of(self, paths: Iterable[str | Path]) -> list[tuple[int, str]]:
        """Return size in bytes and sha256 of each file, in the given order, and cache them for the next run.

        Raises:
            OSError: a file cannot be read.
        """
        kept: dict[str, list[int | str]] = {}
        now, here = time.time_ns(), os.getcwd()
        files = [os.path.join(here, path) for path in paths]
        seen = [_size_time_inode(path) for path in files]
        known = [self._known.get(path, []) for path in files]
        digests = [
            str(before[3]) if len(before) == 4 and before[:3] == facts else ""
            for before, facts in zip(known, seen, strict=True)
        ]
        unknown = [number for number, digest in enumerate(digests) if not digest]
        with ThreadPoolExecutor(min(8, len(os.sched_getaffinity(0)))) as threads:  # hashing releases the GIL
            for number, digest in zip(unknown, threads.map(sha256, (Path(files[n]) for n in unknown)), strict=True):
                digests[number] = digest
        for path, facts, digest in zip(files, seen, digests, strict=True):
            if now - facts[1] > SETTLED_SECONDS * 1e9:
                kept[path] = [*facts, digest]
        write_text(self._memory, json.dumps(dict(sorted(kept.items()))) + "\n")
        return [(facts[0], digest) for facts, digest in zip(seen, digests, strict=True)]


def _size_time_inode(path: str) -> list[int]:
    status = os.stat(path)
    return [status.st_size, status.st_mtime_ns, status.st_ino]


VERSIONS = ("ETag", "etag", "VersionId", "version_id", "generation", "LastModified", "mtime")


def list_inputs(settings: Settings, paths: Paths) -> None:
    """Write ``data/inputs/<stage>.json``: path, bytes and sha256 of every file (for a URL: size and version).

    Each stage depends on its list, so that it runs again only if one of its inputs was changed, added or removed. Also
    updates the dependencies in ``dvc.yaml`` (:mod:`electra.inputs`).

    Raises:
        DataError: a pattern matches nothing, or a file cannot be read.
        InfrastructureError: the server of a URL cannot be reached, or the disk is full.
    """
    found = outside(settings, paths.root)
    root, hashes = paths.root.absolute(), RememberedHashes(paths.logs / "inputs.json")
    files = {stage: _files(items, paths.root) for stage, items in found.items()}
    local = sorted({name for of_stage in files.values() for name, facts in of_stage.items() if facts is None})
    try:
        places = [os.path.join(root, name.removeprefix("file://")) for name in local]
        known = dict(zip(local, hashes.of(places), strict=True))
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror or error}", where=str(error.filename)) from error
    with building(paths.inputs) as folder:
        for stage, of_stage in files.items():
            listed = [
                {"path": without_secrets(name), **(facts or {"bytes": known[name][0], "sha256": known[name][1]})}
                for name, facts in sorted(of_stage.items())
            ]
            write_json(folder / f"{stage}.json", listed)
        write_manifest(folder, files_of={stage: len(of_stage) for stage, of_stage in files.items()})
    counts = ", ".join(f"{len(of_stage):,} of {stage}" for stage, of_stage in files.items() if of_stage)
    print(f"inputs: {counts or 'no files from outside'}")
    watch_inputs(settings, paths)


def watch_inputs(settings: Settings, paths: Paths) -> None:
    """Update the dependencies in ``dvc.yaml`` from the settings, and print which inputs DVC cannot watch."""
    file = paths.root / "dvc.yaml"
    if not file.is_file():
        return
    if not settings.cells.tasks:  # evaluate needs the folder, which fine-tuning would create
        paths.finetuned("x").parent.mkdir(parents=True, exist_ok=True)
    names, notes = watched((item for items in outside(settings, paths.root).values() for item in items), paths.root)
    if write_watched(file, names):
        print(f"inputs: dvc.yaml now watches {', '.join(names) or 'no files from outside'}")
    for note in notes:
        print(f"inputs: {note}")


def _files(items: Iterable[Outside], root: Path) -> dict[str, dict[str, Any] | None]:
    """Return the names of all files; for URLs with the size and version that the server reports."""
    from electra.text.corpus.files import find_files

    found: dict[str, dict[str, Any] | None] = {}
    for item in items:
        if item.is_folder:
            below = sorted(path for path in (root / item.pattern).rglob("*") if path.is_file())
            found |= dict.fromkeys(_named(path, item.pattern, root) for path in below)
        elif item.key == "corpus.sources paths":
            for file in find_files([item.pattern]):
                found[file.name] = None if file.is_local else _ask(file.filesystem, file.path, file.name)
        elif (root / item.pattern).is_file():  # file names may contain brackets
            found[item.pattern] = None
        elif names := [n for n in expanded(item.pattern, root) if (root / n).is_file()]:
            found |= dict.fromkeys(names)
        else:
            raise DataError("there is no such file", where=f"{item.key}: {item.pattern}", next_step="correct the path")
    return found


def _ask(filesystem: Any, path: str, name: str) -> dict[str, Any]:
    try:
        info = filesystem.info(path)
    except FileNotFoundError as error:
        raise DataError("there is no such file", where=without_secrets(name)) from error
    except (OSError, ValueError) as error:
        shown = without_secrets(name)
        raise InfrastructureError(
            f"cannot be reached: {str(error).replace(name, shown)}", where=shown, next_step="check the network"
        ) from error
    told = {key.lower(): str(info[key]) for key in VERSIONS if info.get(key)}
    return {"bytes": info.get("size"), **told}
