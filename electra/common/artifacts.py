"""Writing artefacts whole or not at all, and the manifest every artefact folder carries.

A stage builds its folder beside the final place and renames it when complete (:func:`building`), so that an
interrupted stage never leaves a half-written artefact that the next stage could read. How single files are written:
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
from electra.common.output import beside, cannot_write, disk_errors, exclusive, holds, writing
from electra.common.parsing import parse_json
from electra.common.paths import Paths

MANIFEST = "manifest.json"
MADE_BY_A_STAGE = "run the stage that makes it: dvc repro"


def sha256(path: Path) -> str:
    """Hex digest of a file's bytes."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_text(path: Path, text: str) -> None:
    """Write a file atomically; see :func:`writing`."""
    with writing(path) as file:
        file.write(text)


def write_json(path: Path, value: Any) -> None:
    """Write JSON atomically, keys in the order given, stable bytes."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def read_json(path: Path, next_step: str = "remove it and run: dvc repro", missing: str = MADE_BY_A_STAGE) -> Any:
    """Read JSON; a missing or broken file names the stage's artefact instead of raising a traceback.

    Args:
        next_step, missing: what the user can do about a broken file, and about a missing one.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise DataError(f"{path} does not exist", next_step=missing) from None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {os.strerror(error.errno or 0)}") from None
    return parse_json(content, where=str(path), next_step=next_step)


def refuse_strange(folder: Path) -> None:
    """Refuse a folder that an artefact would replace and that is none: what somebody else put there would be lost.

    Raises:
        ConfigError: it holds files and no manifest, is no folder, or cannot be one.
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
    """Refuse a place inside an artefact, which would no longer be what its manifest says.

    Raises:
        ConfigError: a folder above ``target`` has a manifest.
    """
    parents = dict.fromkeys([*target.absolute().parents, *Path(os.path.realpath(target)).parents])
    for folder in parents:
        if os.path.isfile(folder / MANIFEST):
            raise ConfigError(
                f"{target} would be written into an artefact", where=str(folder), next_step="name another place"
            )


@contextmanager
def writing_named(path: Path, inputs: Iterable[Path | int] = ()) -> Iterator[TextIO]:
    """A file that a user names to be written; see :func:`writing`.

    Args:
        inputs: what the command reads.

    Raises:
        ConfigError: it is a folder, lies in an artefact, is an input, or cannot be written to.
        InfrastructureError: the disk is full or read-only.
    """
    refuse_inside_artefact(path)
    with writing(path, inputs) as file:
        yield file


@contextmanager
def building(folder: Path) -> Iterator[Path]:
    """A scratch folder that becomes ``folder`` when the block ends well, and vanishes when it does not.

    A link to a folder stays, and the folder it leads to is replaced.

    Raises:
        ConfigError: ``folder`` holds something that is no artefact.
        InfrastructureError: another process is writing it; see :func:`exclusive`.
    """
    refuse_strange(folder)
    with nullcontext() if holds(folder) else exclusive(folder), disk_errors(folder):
        final = Path(os.path.realpath(folder))
        scratch = beside(final, ".building")
        for left in final.parent.glob(f"{glob.escape(scratch.name)}*"):  # by a process that was killed
            shutil.rmtree(left)
        scratch.mkdir()
        try:
            yield scratch
            old = scratch.with_name(f"{scratch.name}.old")
            with suppress(FileNotFoundError):
                os.rename(final, old)  # removing it takes time, in which a killed process would have lost both
            os.replace(scratch, final)
            shutil.rmtree(old, ignore_errors=True)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


Stage = Callable[[Any, Paths], None]  # of the settings and the paths


def renews(artefact: str) -> Callable[[Stage], Stage]:
    """Decorate a stage: from its start until it ends well, the artefact that is there counts as one of an earlier run.

    Where a stage fails, what it made before stays as it is, and must not be judged as what it was asked for now. A
    second start of the stage meanwhile is refused.

    Args:
        artefact: the property of ``Paths`` that is the folder; also the command's name.
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
    """Refuse an artefact that the last run of its stage was to replace and did not.

    Raises:
        DataError: it is still the one of an earlier run.
    """
    note, folder = _unfinished(paths, artefact), getattr(paths, artefact)
    manifest = folder / MANIFEST
    if note.is_file() and manifest.is_file() and note.read_text(encoding="utf-8") == sha256(manifest):
        raise DataError(
            f"this is of an earlier run: the last `electra {artefact}` did not end well",
            where=str(folder),
            next_step=f"mend what it complained about, then run: electra {artefact} (or dvc repro -f {artefact})",
        )


def _unfinished(paths: Paths, artefact: str) -> Path:
    """Beside the logs: an artefact must be the same whether or not a run has failed."""
    return paths.logs / "unfinished" / artefact


def write_manifest(folder: Path, **facts: Any) -> None:
    """Write ``manifest.json``: the facts given, then name, size and sha256 of every file in the folder, sorted."""
    files = sorted(p for p in folder.rglob("*") if p.is_file() and p.name != MANIFEST)
    with ThreadPoolExecutor(min(8, len(os.sched_getaffinity(0)))) as threads:  # hashing runs beside other threads
        sums = threads.map(sha256, files)
        facts["files"] = [
            {"path": p.relative_to(folder).as_posix(), "bytes": p.stat().st_size, "sha256": digest}
            for p, digest in zip(files, sums, strict=True)
        ]
    write_json(folder / MANIFEST, facts)


def read_manifest(folder: Path, shape: type[BaseModel] | None = None) -> dict[str, Any]:
    """The manifest of an artefact folder.

    Args:
        shape: a model of what is read from it, such as :class:`ShardsManifest`.

    Raises:
        DataError: the folder has none, so the stage that makes it has not finished; or it is not of that shape.
    """
    return read_facts(folder / MANIFEST, shape)


def read_facts(
    path: Path,
    shape: type[BaseModel] | None = None,
    next_step: str = "restore it with: dvc checkout --force; or remove its folder and run: dvc repro",
    missing: str = MADE_BY_A_STAGE,
) -> dict[str, Any]:
    """A JSON file that holds an object of a shape; see :func:`read_manifest` and :func:`read_json`."""
    facts = read_json(path, next_step, missing)
    try:
        (shape or _Facts).model_validate(facts, strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"])) or "(top level)"
        raise DataError(
            f"this is not what is written there: {key}: {first['msg']}",
            where=str(path),
            next_step=next_step,
        ) from None
    return facts


class _Facts(BaseModel):
    """Anything with names and values."""


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
    shards: list[ShardFacts]


class ShardsManifest(Manifest):
    """Fields read from the manifest of ``data/shards``."""

    max_length: int
    vocab_size: int
    splits: dict[str, SplitFacts]


class JudgedShardsManifest(ShardsManifest):
    """Further fields that the checks read."""

    tokenizer_sha256: str


class SourceFacts(BaseModel):
    """Where the rows of ``data/tasks`` are from."""

    kind: Literal["files", "hub", "own"]  # own: tasks of tasks.own alone, or none


class TaskFacts(BaseModel):
    """One task of ``data/tasks``: rows by split."""

    rows: dict[str, int]


class TasksManifest(Manifest):
    """Fields read from the manifest of ``data/tasks``."""

    source: SourceFacts
    tasks: dict[str, TaskFacts]
    evaluations: dict[str, TaskFacts] = {}  # tasks that are scored with the models of another one


@dataclass(frozen=True)
class Listed:
    """A file as its artefact's manifest lists it.

    Attributes:
        path: where it lies.
        num_bytes, sha256: what it should hold.
    """

    path: Path
    num_bytes: int
    sha256: str

    def verify(self) -> None:
        """Compare the file with the manifest.

        Raises:
            DataError: it is missing, of another size, or of other content.
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


def listed_files(folder: Path, pattern: str = "*") -> list[Listed]:
    """The files of an artefact whose path in it matches a shell pattern (``*`` also matches ``/``), in sorted order.

    Raises:
        DataError: there is no manifest, or it lists no files.
    """
    return [
        Listed(folder / entry["path"], entry["bytes"], entry["sha256"])
        for entry in read_manifest(folder, Manifest)["files"]
        if fnmatchcase(entry["path"], pattern)
    ]


def verify_files(files: Iterable[Listed]) -> None:
    """Check many files, some at a time: hashing runs beside other threads.

    Raises:
        DataError: of the first file, in the order given, that is not as listed.
    """
    with ThreadPoolExecutor(min(8, len(os.sched_getaffinity(0)))) as threads:
        for _ in threads.map(Listed.verify, files):
            pass


def verify_folder(folder: Path) -> None:
    """Check a whole artefact.

    Raises:
        DataError: the manifest or a file is missing, or a file is not as listed.
    """
    verify_files(listed_files(folder))
