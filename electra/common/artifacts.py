"""Atomic writing of artefact folders, and the manifest in each of them.

A stage builds its folder next to the final path and renames it when it is complete (:func:`building`), so that an
interrupted stage never leaves a partial artefact that the next stage could read. Single files are written by
:mod:`electra.common.output`.
"""

import glob
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import wraps
from pathlib import Path
from typing import Any, Literal, TextIO

from pydantic import BaseModel, ValidationError

from electra.common.errors import ConfigError, DataError
from electra.common.locks import exclusive, holds
from electra.common.output import beside, cannot_write, disk_errors, exchange, writing
from electra.common.parsing import parse_json
from electra.common.paths import Paths

MANIFEST = "manifest.json"
MADE_BY_A_STAGE = "run the stage that makes it: dvc repro"


def sha256(path: Path) -> str:
    """Return the sha256 of a file's bytes in hexadecimal digits."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_text(path: Path, text: str) -> None:
    """Write a file atomically; see :func:`writing`."""
    with writing(path) as file:
        file.write(text)


def write_json(path: Path, value: Any) -> None:
    """Write JSON atomically; equal values, with keys in the same order, give the same bytes."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def read_json(path: Path, next_step: str = "remove it and run: dvc repro", missing: str = MADE_BY_A_STAGE) -> Any:
    """Return the value in a JSON file.

    Args:
        next_step: advice in the error for a damaged file.
        missing: advice in the error for a missing file.

    Raises:
        DataError: the file is missing, cannot be read or is damaged.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise DataError(f"{path} does not exist", next_step=missing) from None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {os.strerror(error.errno or 0)}") from None
    return parse_json(content, where=str(path), next_step=next_step)


def refuse_strange(folder: Path) -> None:
    """Refuse to replace a folder that is not an artefact, because files that the user put there would be lost.

    Raises:
        ConfigError: ``folder`` holds files but no manifest, is not a folder, or cannot be created.
    """
    try:
        os.lstat(folder)
    except FileNotFoundError:
        return
    except OSError as error:
        raise cannot_write(folder, error) from None
    if os.path.isfile(folder / MANIFEST):
        return
    found = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else [folder.name]
    if found:
        raise ConfigError(
            f"{folder} exists and has no {MANIFEST}: no command of this project wrote what it holds "
            f"({', '.join(found[:3])}{', ...' if len(found) > 3 else ''}), and it would be lost",
            next_step="name or make another folder; or move what is there, or remove it if it is not needed",
        )


def refuse_inside_artefact(target: Path) -> None:
    """Refuse to write inside an artefact, which would then differ from its manifest.

    Raises:
        ConfigError: a folder above ``target`` has a manifest.
    """
    parents = dict.fromkeys([*target.absolute().parents, *Path(os.path.realpath(target)).parents])
    for folder in parents:
        if os.path.isfile(folder / MANIFEST):
            raise ConfigError(
                f"{target} would be written into an artefact", where=str(folder), next_step="name a path outside of it"
            )


@contextmanager
def writing_named(path: Path, inputs: Iterable[Path | int] = ()) -> Iterator[TextIO]:
    """Open a file whose path the user chose for writing; see :func:`writing`.

    Args:
        inputs: files that the command reads.

    Raises:
        ConfigError: ``path`` is a folder, is inside an artefact, is an input, or cannot be written to.
        InfrastructureError: the disk is full or read-only.
    """
    refuse_inside_artefact(path)
    with writing(path, inputs) as file:
        yield file


@contextmanager
def building(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder that is renamed to ``folder`` if the block succeeds, and removed if it fails.

    If ``folder`` is a symbolic link, the link stays and its target is replaced.

    Raises:
        ConfigError: ``folder`` exists and is not an artefact.
        InfrastructureError: another process is writing it; see :func:`exclusive`.
    """
    refuse_strange(folder)
    with nullcontext() if holds(folder) else exclusive(folder), disk_errors(folder):
        final = Path(os.path.realpath(folder))
        scratch = beside(final, ".building")
        old = scratch.with_name(f"{scratch.name}.old")
        if old.exists() and not final.exists():  # killed between the two renames below
            os.rename(old, final)
        for left in final.parent.glob(f"{glob.escape(scratch.name)}*"):  # of a process that was killed
            shutil.rmtree(left)
        scratch.mkdir()
        try:
            yield scratch
            if not exchange(scratch, final):
                with suppress(FileNotFoundError):
                    os.rename(final, old)  # the next start brings it back if this process is killed here
                os.replace(scratch, final)
                shutil.rmtree(old, ignore_errors=True)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


Stage = Callable[[Any, Paths], None]  # of the settings and the paths


def renews(artefact: str) -> Callable[[Stage], Stage]:
    """Decorate a stage: until it succeeds, an existing artefact counts as the output of an earlier run.

    If the stage fails, its earlier output stays, and must not be mistaken for the requested one. A second process of
    the same stage is refused.

    Args:
        artefact: name of the folder's property in ``Paths``; also the command's name.
    """

    def decorate(stage: Stage) -> Stage:
        @wraps(stage)
        def run(settings: Any, paths: Paths) -> None:
            folder: Path = getattr(paths, artefact)
            with exclusive(folder):
                note, manifest = _unfinished(paths, artefact), folder / MANIFEST
                write_text(note, sha256(manifest) if manifest.is_file() else "")
                stage(settings, paths)
                note.unlink(missing_ok=True)

        return run

    return decorate


def refuse_earlier(paths: Paths, artefact: str) -> None:
    """Refuse an artefact that the last run of its stage should have replaced but did not.

    Raises:
        DataError: the artefact is still that of an earlier run.
    """
    note, folder = _unfinished(paths, artefact), getattr(paths, artefact)
    manifest = folder / MANIFEST
    if note.is_file() and manifest.is_file() and note.read_text(encoding="utf-8") == sha256(manifest):
        raise DataError(
            f"this is the output of an earlier run: the last `electra {artefact}` did not end well",
            where=str(folder),
            next_step=f"fix the error that it reported, then run: electra {artefact} (or dvc repro -f {artefact})",
        )


def _unfinished(paths: Paths, artefact: str) -> Path:
    """Return the path of the stage's marker, in the logs: a failed run must not change an artefact."""
    return paths.logs / "unfinished" / artefact


def write_manifest(folder: Path, **facts: Any) -> None:
    """Write ``manifest.json``: ``facts``, then path, size and sha256 of every file in the folder, sorted."""
    files = sorted(p for p in folder.rglob("*") if p.is_file() and p.name != MANIFEST)
    with ThreadPoolExecutor(min(8, len(os.sched_getaffinity(0)))) as threads:  # hashing releases the GIL
        sums = threads.map(sha256, files)
        facts["files"] = [
            {"path": p.relative_to(folder).as_posix(), "bytes": p.stat().st_size, "sha256": digest}
            for p, digest in zip(files, sums, strict=True)
        ]
    write_json(folder / MANIFEST, facts)


def read_manifest(folder: Path, shape: type[BaseModel] | None = None) -> dict[str, Any]:
    """Return the manifest of an artefact folder.

    Args:
        shape: model to validate it with, such as :class:`ShardsManifest`.

    Raises:
        DataError: there is no manifest, because the stage has not finished, or it does not match ``shape``.
    """
    return read_facts(folder / MANIFEST, shape)


def read_facts(
    path: Path,
    shape: type[BaseModel] | None = None,
    next_step: str = "restore it with: dvc checkout --force; or remove its folder and run: dvc repro",
    missing: str = MADE_BY_A_STAGE,
) -> dict[str, Any]:
    """Return the object in a JSON file, validated; see :func:`read_manifest` and :func:`read_json`."""
    facts = read_json(path, next_step, missing)
    try:
        (shape or _Facts).model_validate(facts, strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"])) or "(top level)"
        raise DataError(
            f"the file does not have the expected content: {key}: {first['msg']}",
            where=str(path),
            next_step=next_step,
        ) from None
    return facts


class _Facts(BaseModel):
    """Any JSON object."""


class FileFacts(BaseModel):
    """One file of an artefact."""

    path: str
    bytes: int
    sha256: str


class Manifest(BaseModel):
    """Fields read from every manifest."""

    files: list[FileFacts]


class CorpusManifest(Manifest):
    """Fields read from the manifest of ``data/corpus``."""

    documents: int


class TokenizerManifest(Manifest):
    """Fields read from the manifest of ``data/tokenizer``."""

    vocab_size: int


class ShardFacts(BaseModel):
    """One part of a split of ``data/shards``."""

    name: str
    examples: int
    tokens: int


class SplitFacts(BaseModel):
    """One split of ``data/shards``."""

    examples: int
    tokens: int
    words: int = 0  # 0: written before words were counted
    shards: list[ShardFacts]


class ShardsManifest(Manifest):
    """Fields read from the manifest of ``data/shards``."""

    max_length: int
    vocab_size: int
    splits: dict[str, SplitFacts]


class JudgedShardsManifest(ShardsManifest):
    """Fields read from the manifest of ``data/shards`` by the checks and by the probe."""

    tokenizer_sha256: str


class SourceFacts(BaseModel):
    """Source of the rows in ``data/tasks``."""

    kind: Literal["files", "hub", "own"]  # own: only tasks of tasks.own, or no tasks


class TaskFacts(BaseModel):
    """One task of ``data/tasks``: rows by split."""

    rows: dict[str, int]


class TasksManifest(Manifest):
    """Fields read from the manifest of ``data/tasks``."""

    source: SourceFacts
    tasks: dict[str, TaskFacts]
    evaluations: dict[str, TaskFacts] = {}  # evaluation sets scored with another task's models


@dataclass(frozen=True)
class ListedFile:
    """A file listed in an artefact's manifest.

    Attributes:
        path: path of the file.
        num_bytes, sha256: expected size and content.
    """

    path: Path
    num_bytes: int
    sha256: str

    def verify(self) -> None:
        """Compare the file with the manifest.

        Raises:
            DataError: the file is missing, or its size or content differs.
        """
        try:
            found = self.path.stat().st_size
        except FileNotFoundError:
            raise self._damaged("a file that the manifest lists is missing") from None
        if found != self.num_bytes:
            raise self._damaged(f"the file holds {found:,} bytes, the manifest says {self.num_bytes:,}")
        if sha256(self.path) != self.sha256:
            raise self._damaged("the checksum of the file is not the manifest's: its content was changed or damaged")

    def _damaged(self, what: str) -> DataError:
        return DataError(
            what,
            where=str(self.path),
            next_step="restore it with: dvc checkout --force; without a cache remove its folder and run: dvc repro",
        )


def listed_files(folder: Path, pattern: str = "*") -> list[ListedFile]:
    """Return the files of an artefact whose paths match a shell pattern (``*`` also matches ``/``), sorted.

    Raises:
        DataError: there is no manifest, or it lists no files.
    """
    return [
        ListedFile(folder / entry["path"], entry["bytes"], entry["sha256"])
        for entry in read_manifest(folder, Manifest)["files"]
        if fnmatchcase(entry["path"], pattern)
    ]


def verify_files(files: Iterable[ListedFile]) -> None:
    """Check files against the manifest, in parallel threads.

    Raises:
        DataError: for the first file, in the given order, that differs from the manifest.
    """
    with ThreadPoolExecutor(min(8, len(os.sched_getaffinity(0)))) as threads:
        for _ in threads.map(ListedFile.verify, files):
            pass


def verify_folder(folder: Path) -> None:
    """Check all files of an artefact against its manifest.

    Raises:
        DataError: the manifest or a file is missing, or a file differs from the manifest.
    """
    verify_files(listed_files(folder))
