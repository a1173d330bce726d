"""Writing artefacts whole or not at all, and the manifest every artefact folder carries.

A stage builds its folder beside the final place and renames it when complete (:func:`building`), so that an
interrupted stage never leaves a half-written artefact that the next stage could read.
"""

import errno
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from electra.errors import DataError, InfrastructureError

MANIFEST = "manifest.json"
# What json.loads raises: JSONDecodeError, a ValueError of its own for numbers of thousands of digits, deep nesting
NOT_JSON = (ValueError, RecursionError)


def sha256(path: Path) -> str:
    """Hex digest of a file's bytes."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_text(path: Path, text: str) -> None:
    """Write a file atomically: beside it first, then rename."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    with disk_errors(path):
        try:
            with open(beside, "w", encoding="utf-8", newline="\n") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.replace(beside, path)
        finally:
            beside.unlink(missing_ok=True)
    _remove_left_over(path)


def _remove_left_over(path: Path) -> None:
    """What processes that were killed while they wrote this file have left beside it."""
    for left in path.parent.glob(f".{path.name}.*"):
        process = left.suffix[1:]
        if process.isdigit() and not Path("/proc", process).exists():
            left.unlink(missing_ok=True)


def write_json(path: Path, value: Any) -> None:
    """Write JSON atomically, keys in the order given, stable bytes."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def read_json(path: Path) -> Any:
    """Read JSON; a missing or broken file names the stage's artefact instead of raising a traceback."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(f"{path} does not exist", next_step="run the stage that makes it: dvc repro") from None
    except NOT_JSON as error:
        raise DataError(f"{path} is not valid JSON: {error}", next_step="remove it and run: dvc repro") from None


@contextmanager
def disk_errors(where: Path) -> Iterator[None]:
    """Turn a full or read-only disk into a message; other errors pass through."""
    try:
        yield
    except Exception as error:
        number = _system_error(error)
        if number in (errno.ENOSPC, errno.EDQUOT, errno.EROFS):
            raise InfrastructureError(
                f"cannot write: {os.strerror(number)}",
                where=str(where),
                next_step="free some space (dvc gc -w removes unused cache entries) and run the same command again",
            ) from error
        raise


def _system_error(error: Exception) -> int | None:
    """The system's number of an error; tokenizers and safetensors, written in Rust, only mention it in their text."""
    if isinstance(error, OSError):
        return error.errno
    mentioned = re.search(r"\(os error (\d+)\)", str(error))
    return int(mentioned[1]) if mentioned else None


@contextmanager
def building(folder: Path) -> Iterator[Path]:
    """A scratch folder that becomes ``folder`` when the block ends well, and vanishes when it does not."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    scratch = folder.with_name(f".{folder.name}.building")
    with disk_errors(folder):
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir()
        try:
            yield scratch
            shutil.rmtree(folder, ignore_errors=True)
            os.replace(scratch, folder)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


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


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of an artefact folder.

    Raises:
        DataError: the folder has none, so the stage that makes it has not finished.
    """
    return read_json(folder / MANIFEST)
