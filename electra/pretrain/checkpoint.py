"""Checkpoints of a run, milestones of its schedule, and the thread that writes them while training goes on."""

import fcntl
import hashlib
import json
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch import Tensor

from electra.common.artifacts import (
    building,
    disk_errors,
    read_manifest,
    sha256,
    write_json,
    write_manifest,
    write_text,
)
from electra.common.errors import DataError, InfrastructureError
from electra.common.paths import Paths
from electra.config import Settings
from electra.model.pretrained import save_pretrained
from electra.pretrain.mirror import Mirror


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
        """Hold the folder's lock; the system frees it when the process dies, however it dies.

        Raises:
            InfrastructureError: another process is training the same thing right now.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        with open(self.folder / "lock", "w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise InfrastructureError(
                    "another process is running this very pre-training",
                    where=str(self.folder),
                    next_step="wait for it, or end it, then run the same command again",
                ) from None
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
            except (OSError, ValueError, KeyError, DataError) as error:
                print(f"checkpoint {folder.name} is damaged ({error}), trying the one before it", flush=True)
                continue
            return state, load_file(folder / "weights.safetensors"), load_file(folder / "moments.safetensors")
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
