"""Checkpoints that survive kill -9 at any moment.

``checkpoints/<fingerprint>/step_<n>/`` with ``weights.safetensors``, ``moments.safetensors`` and ``state.json`` (which
holds the checksums of both). A checkpoint is written beside, synced and renamed, then ``latest`` is moved; a damaged
one is passed over for the one before it. The fingerprint is of settings, data and tokenizer, so that a changed learning
rate starts at step 0 and never from the old run. DVC does not know of this folder: a persisted output would be resumed
across a parameter change.
"""

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch import Tensor

from electra.artifacts import disk_errors, read_manifest, sha256, write_json, write_text
from electra.config import Settings
from electra.errors import DataError, InfrastructureError
from electra.paths import Paths
from electra.pretrain.mirror import Mirror


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
