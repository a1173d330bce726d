"""Checkpoints of a run, milestones of its schedule, the thread that writes them, and their mirror.

The mirror is a second place for checkpoints, such as a bucket, from which a fresh machine resumes.
``<url>/<fingerprint>/step_<n>/`` and ``milestone_<percent>/`` are as in the local folder. A folder is complete when the
file that seals it is there: ``state.json`` or ``manifest.json``, which hold the checksums of the others and are written
last; then ``latest`` is moved. Credentials come from the environment, in the way the storage's own tools read them.
"""

import hashlib
import json
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor

from electra.common.artifacts import (
    MANIFEST,
    building,
    read_manifest,
    sha256,
    write_json,
    write_manifest,
    write_text,
)
from electra.common.errors import ConfigError, DataError, InfrastructureError
from electra.common.output import disk_errors, exclusive
from electra.common.paths import Paths
from electra.common.tensors import read_tensors
from electra.config import Settings
from electra.model.pretrained import save_pretrained

SEALS = ("state.json", MANIFEST)


class Mirror:
    """The mirror of one run's folder.

    Args:
        url: any fsspec URL, ending with the run's fingerprint.
        keep: how many checkpoints to keep there.

    Raises:
        ConfigError: the kind of URL is unknown, or the package it needs is not installed.
    """

    def __init__(self, url: str, keep: int):
        import fsspec

        self.url, self.keep = url, keep
        try:
            self.storage, self.path = fsspec.core.url_to_fs(url)
        except (ImportError, ValueError) as error:
            raise ConfigError(
                f"this mirror cannot be used: {error}",
                where="cluster.checkpoint_mirror",
                next_step="for s3:// install the extra: pip install 'electra-pipeline[s3]'",
            ) from None

    def copy(self, folder: Path, name: str) -> None:
        """Copy the checkpoint ``folder/name``, and before it what it needs: milestones that are not there yet.

        A storage that fails is told and not more: training goes on, and the next checkpoint is another try.
        """
        try:
            there = self._complete("milestone_")
            for milestone in sorted(folder.glob("milestone_*")):
                if milestone.name not in there and _seal(milestone):
                    self._upload(milestone)
            self._upload(folder / name)
            self.storage.pipe_file(f"{self.path}/latest", f"{name}\n".encode())
            for old in self._complete("step_")[: -self.keep]:
                self.storage.rm(f"{self.path}/{old}", recursive=True)
        except Exception as error:  # of any storage's own kind
            print(f"checkpoint {name} is not mirrored to {self.url}: {_in_words(error)}", flush=True)

    def fetch(self, folder: Path) -> None:
        """Bring the newest whole checkpoint, and its milestones, if it is newer than those of ``folder``.

        Raises:
            InfrastructureError: the storage cannot be read, and ``folder`` has no checkpoint to go on from.
        """
        local = sorted(path.name for path in folder.glob("step_*") if _seal(path))
        try:
            newer = [name for name in self._complete("step_") if not local or name > local[-1]]
            if any(self._download(name, folder) for name in reversed(newer)):
                for milestone in self._complete("milestone_"):
                    if not _seal(folder / milestone):
                        self._download(milestone, folder)
        except Exception as error:
            said = f"the mirror of checkpoints cannot be read: {_in_words(error)}"
            if not local:
                raise InfrastructureError(
                    said,
                    where=self.url,
                    next_step="mend it, or start from step 0 by removing cluster.checkpoint_mirror",
                ) from error
            print(f"{said}; going on from {local[-1]}", flush=True)

    def _complete(self, prefix: str) -> list[str]:
        """Names of the sealed folders, in order."""
        self.storage.invalidate_cache()  # another machine may have written since
        names = set()
        for seal in SEALS:
            for path in self.storage.glob(f"{self.path}/{prefix}*/{seal}"):
                names.add(str(path).rsplit("/", 2)[-2])
        return sorted(names)

    def _upload(self, folder: Path) -> None:
        seal = _seal(folder)
        assert seal, f"{folder} is not complete"
        remote = f"{self.path}/{folder.name}"
        files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
        for file in sorted(files, key=lambda path: path == seal):
            target = f"{remote}/{file.relative_to(folder).as_posix()}"
            self.storage.makedirs(target.rsplit("/", 1)[0], exist_ok=True)
            self.storage.put_file(str(file), target)

    def _download(self, name: str, folder: Path) -> bool:
        """Return whether it has come whole; a damaged one is told and left."""
        beside = folder / f".{name}"
        remote = f"{self.path}/{name}"
        with disk_errors(folder / name):
            shutil.rmtree(beside, ignore_errors=True)
            try:
                for path in self.storage.find(remote):
                    target = beside / str(path)[len(self.storage._strip_protocol(remote)) :].lstrip("/")
                    target.parent.mkdir(parents=True, exist_ok=True)
                    self.storage.get_file(path, str(target))
                if damaged := [file for file, sum in _sums(beside).items() if not _has_sum(beside / file, sum)]:
                    print(f"mirrored {name} is damaged ({', '.join(damaged)}), passing over it", flush=True)
                    return False
                shutil.rmtree(folder / name, ignore_errors=True)
                os.replace(beside, folder / name)
            finally:
                shutil.rmtree(beside, ignore_errors=True)
        print(f"{name} comes from {self.url}", flush=True)
        return True


def _seal(folder: Path) -> Path | None:
    return next((folder / name for name in SEALS if (folder / name).is_file()), None)


def _sums(folder: Path) -> dict[str, str]:
    """Checksums by file, as the seal tells them."""
    seal = _seal(folder)
    told: dict[str, Any] = json.loads(seal.read_text()) if seal else {}
    return told["sha256"] if "sha256" in told else {entry["path"]: entry["sha256"] for entry in told["files"]}


def _has_sum(file: Path, expected: str) -> bool:
    return file.is_file() and sha256(file) == expected


def _in_words(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error) or 'no more is known'}".splitlines()[0][:300]


class Background:
    """One piece of work at a time, in a thread of its own.

    What it is given must not change any more: training goes on meanwhile.
    """

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def __enter__(self) -> "Background":
        return self

    def __exit__(self, *_: object) -> None:
        """Let the work come to its end, whatever the reason to go."""
        if self._thread is not None:
            self._thread.join()

    @property
    def is_busy(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def start(self, work: Callable[[], None]) -> None:
        """Begin, once the work before is done.

        Raises:
            BaseException: what the work before raised.
        """
        self.wait()
        self._thread = threading.Thread(target=self._run, args=(work,), name="checkpoint")
        self._thread.start()

    def wait(self) -> None:
        """Wait until nothing is left to do.

        Raises:
            BaseException: what the work raised.
        """
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self.check()

    def check(self) -> None:
        """Raise what the work raised, if it did and is over."""
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # raised where training can end for it
            self._error = error


PERCENTAGES = ("6.25", "12.5", "25", "50")


class Milestones:
    """The milestones of one run.

    Args:
        folder: the run's checkpoints.
        num_steps: of the whole schedule.
    """

    def __init__(self, folder: Path, num_steps: int):
        self.folder = folder
        self.steps = {max(1, round(num_steps * float(percent) / 100)): percent for percent in PERCENTAGES}

    def is_due(self, step: int) -> bool:
        """Return whether the weights after this many steps are a milestone not yet kept."""
        return step in self.steps and not (self._kept(step) / "manifest.json").exists()

    def keep(self, step: int, weights: dict[str, Tensor], settings: Settings, vocab_size: int, tokenizer: Path) -> None:
        """Write the milestone of ``step`` steps taken."""
        save_pretrained(self._kept(step), weights, settings.model, vocab_size, tokenizer, settings.pretrain)

    def publish(self, target: Path) -> None:
        """All milestones as ``target/<percent>``."""
        with building(target) as scratch:
            for step, percent in self.steps.items():
                shutil.copytree(self._kept(step), scratch / percent)
            write_manifest(scratch, steps={percent: step for step, percent in self.steps.items()})

    def _kept(self, step: int) -> Path:
        return self.folder / f"milestone_{self.steps[step]}"


def fingerprint(settings: Settings, paths: Paths) -> str:
    """Twelve hex digits of everything that decides what pre-training yields; ``cluster`` is not part of it."""
    parts = {
        "model": settings.model.model_dump(),
        "pretrain": settings.pretrain.model_dump(),
        "fidelity": settings.fidelity,
        "shards": read_manifest(paths.shards),
        "tokenizer": read_manifest(paths.tokenizer),
    }
    if settings.pretrain.initialize_from:
        parts["initialize_from"] = read_manifest(Path(settings.pretrain.initialize_from))
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:12]


class Checkpoints:
    """The checkpoints of one fingerprint.

    Args:
        folder: ``checkpoints/<fingerprint>``.
        keep: how many to keep.
        mirror: fsspec URL below which the run has a second folder, ``<mirror>/<fingerprint>``.
    """

    def __init__(self, folder: Path, keep: int, mirror: str | None = None):
        self.folder, self.keep = folder, keep
        self.mirror = Mirror(f"{mirror.rstrip('/')}/{folder.name}", keep) if mirror else None

    @contextmanager
    def only_writer(self) -> Iterator[None]:
        """Hold the folder's lock; see :func:`exclusive`.

        Raises:
            InfrastructureError: another process is training the same thing right now.
        """
        with exclusive(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            yield

    def save(self, step: int, weights: dict[str, Tensor], moments: dict[str, Tensor], extra: dict[str, Any]) -> None:
        """Write the checkpoint of ``step`` steps taken, then remove the oldest beyond ``keep``."""
        final = self.folder / f"step_{step:09d}"
        beside = self.folder / f".step_{step:09d}"
        with disk_errors(final):
            shutil.rmtree(beside, ignore_errors=True)
            beside.mkdir(parents=True)
            try:
                files = {"weights.safetensors": weights, "moments.safetensors": moments}
                for name, tensors in files.items():
                    save_file(tensors, beside / name)
                    _sync(beside / name)
                sums = {name: sha256(beside / name) for name in files}
                write_json(beside / "state.json", {"step": step, "sha256": sums, **extra})
                shutil.rmtree(final, ignore_errors=True)
                os.replace(beside, final)
                _sync(self.folder)
            finally:
                shutil.rmtree(beside, ignore_errors=True)
        write_text(self.folder / "latest", final.name + "\n")
        for old in self._complete()[: -self.keep]:
            shutil.rmtree(old, ignore_errors=True)
        if self.mirror:
            self.mirror.copy(self.folder, final.name)

    def load_latest(self) -> tuple[dict[str, Any], dict[str, Tensor], dict[str, Tensor]] | None:
        """State, weights and moments of the newest checkpoint that is whole, or None where there is none.

        Raises:
            InfrastructureError: there is none here, and the mirror cannot be read.
        """
        if self.mirror:
            self.folder.mkdir(parents=True, exist_ok=True)
            self.mirror.fetch(self.folder)
        for folder in reversed(self._complete()):
            try:
                state = json.loads((folder / "state.json").read_text())
                for name, expected in state["sha256"].items():
                    if sha256(folder / name) != expected:
                        raise DataError("checksum differs", where=str(folder / name))
                weights, moments = (read_tensors(folder / f"{name}.safetensors") for name in ("weights", "moments"))
            except (OSError, ValueError, KeyError, DataError) as error:
                print(f"checkpoint {folder.name} is damaged ({error}), trying the one before it", flush=True)
                continue
            return state, weights, moments
        return None

    def clear(self) -> None:
        """Remove the folder: the stage has succeeded. The mirror stays: no remote has the result yet."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _complete(self) -> list[Path]:
        return sorted(path for path in self.folder.glob("step_*") if (path / "state.json").is_file())


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
