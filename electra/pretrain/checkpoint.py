"""Checkpoints of a run: what is saved and loaded, milestones of its schedule, and the thread that writes them.

Their mirror is in electra/pretrain/mirror.py.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
import torch.distributed
from safetensors.torch import save_file
from torch import Tensor, nn

from electra import config
from electra.common.artifacts import (
    MANIFEST,
    building,
    listed_files,
    read_manifest,
    sha256,
    write_json,
    write_manifest,
    write_text,
)
from electra.common.errors import ConfigError, DataError
from electra.common.locks import exclusive
from electra.common.output import disk_errors
from electra.common.paths import Paths
from electra.common.tensors import read_tensors
from electra.config import Cluster, Settings
from electra.config.milestones import Unit, named_amounts
from electra.model.pretrained import save_pretrained
from electra.pretrain.data.seen import Order, TextCounter, TextSeen
from electra.pretrain.mirror import Mirror
from electra.text.shards.layout import Shards

Saved = tuple[dict[str, Any], dict[str, Tensor], dict[str, Tensor]]  # state, weights, moments


class Background:
    """One piece of work at a time, in a thread of its own.

    The data of the work must not change until it is done: training goes on meanwhile.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")
        self._work: Future[None] | None = None

    def __enter__(self) -> "Background":
        return self

    def __exit__(self, *_: object) -> None:
        """Let the work come to its end, whatever ends the block."""
        self._thread.shutdown()

    @property
    def is_busy(self) -> bool:
        return self._work is not None and not self._work.done()

    def start(self, work: Callable[[], None]) -> None:
        """Begin, once the work before is done.

        Raises:
            BaseException: raised by the work before.
        """
        self.wait()
        self._work = self._thread.submit(work)

    def wait(self) -> None:
        """Wait until nothing is left to do.

        Raises:
            BaseException: raised by the work.
        """
        work, self._work = self._work, None
        if work is not None:
            work.result()

    def check(self) -> None:
        """Raise the exception with which the work ended, if any."""
        if not self.is_busy:
            self.wait()


PERCENTAGES = ("6.25", "12.5", "25", "50")


class Milestones:
    """The milestones of one run: after fixed percentages of its steps, and those of ``pretrain.milestones``.

    Args:
        folder: the run's checkpoints.
        recipe: settings of the run.
        shards: its training examples, which tell how much text a step has seen.

    Attributes:
        steps: name -> step, those of the settings last and in the order of their steps.
        seen: the text seen by those of the settings.

    Raises:
        ConfigError: the settings give more milestones than are kept, or two of one name.
        DataError: milestones by words are asked for, and the shards were written before words were counted.
    """

    def __init__(self, folder: Path, recipe: config.Pretrain, shards: Shards):
        self.folder, self.order = folder, Order.of(recipe)
        percents = {max(1, round(recipe.num_steps * float(percent) / 100)): percent for percent in PERCENTAGES}
        self.steps = {percent: step for step, percent in percents.items()}
        self.seen: dict[str, TextSeen] = {}
        if recipe.milestones:
            self._add_named(recipe, shards)

    def _add_named(self, recipe: config.Pretrain, shards: Shards) -> None:
        if not shards.num_words and any(" words" in rule for rule in recipe.milestones):
            raise DataError(
                "the shards have no count of words", where="pretrain.milestones", next_step="run: dvc repro -f shards"
            )
        counter = TextCounter(self.order, shards)
        whole = counter.after(recipe.num_steps)
        ends: dict[Unit, int] = {"tokens": whole.tokens, "words": whole.words, "steps": recipe.num_steps}
        try:
            named = named_amounts(recipe.milestones, ends)
        except ValueError as error:
            raise ConfigError(str(error), where="pretrain.milestones", next_step="change the rules") from None
        steps = {
            name: amount if unit == "steps" else counter.first_step(unit, amount)
            for name, (unit, amount) in named.items()
        }
        for name, step in sorted(steps.items(), key=lambda item: item[1]):
            self.steps[name], self.seen[name] = step, counter.after(step)

    def has_any_at(self, step: int) -> bool:
        """Return whether the weights after this many steps are a milestone, kept already or not.

        The answer is the same on all processes, also where they see other disks: gathering weights takes all of them.
        """
        return bool(self._names_at(step))

    def keep(self, step: int, weights: dict[str, Tensor], settings: Settings, vocab_size: int, tokenizer: Path) -> None:
        """Write the milestones of ``step`` steps taken that are not there yet."""
        for name in self._names_at(step):
            if not (self._kept(name) / MANIFEST).exists():
                save_pretrained(self._kept(name), weights, settings.model, vocab_size, tokenizer, settings.pretrain)

    def publish(self, paths: Paths, initialize_from: str | None = None) -> None:
        """Write all milestones to ``models/milestones/<name>``, after ``models/pretrained`` of the same run.

        The manifest has what ``electra trace --data`` needs: the order of the examples and the checksums of the
        training shards and of the final weights.
        """
        target = paths.milestones
        facts: dict[str, Any] = {
            "order": self.order.facts(),
            "shards": {file.path.name: file.sha256 for file in listed_files(paths.shards, "train-*")},
            "final": sha256(paths.pretrained / "model.safetensors"),
        }
        if initialize_from:
            facts["initialize_from"] = initialize_from
        if self.seen:
            facts["seen"] = {name: asdict(seen) for name, seen in self.seen.items()}
        with building(target) as scratch:
            for name in self.steps:
                shutil.copytree(self._kept(name), scratch / name)
            write_manifest(scratch, steps=self.steps, **facts)

    def _names_at(self, step: int) -> list[str]:
        return [name for name, at in self.steps.items() if at == step]

    def _kept(self, name: str) -> Path:
        return self.folder / f"milestone_{name}"


def fingerprint(settings: Settings, paths: Paths) -> str:
    """Return twelve hex digits of all that determines the result of pre-training; ``cluster`` is not part of it."""
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


def seconds_between_checkpoints(cluster: Cluster, waited: float) -> float:
    """Return the interval of the settings, or a longer one where the wait for a checkpoint would cost over 2%.

    Args:
        waited: seconds that training waited for the last checkpoint.
    """
    return max(60 * cluster.checkpoint_minutes, 50 * waited if waited > 1 else 0)


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

    def load_latest(self) -> Saved | None:
        """Return state, weights and moments of the newest checkpoint that is whole, or None where there is none.

        Raises:
            InfrastructureError: there is none here, and the mirror cannot be read.
        """
        has_asked_again = False
        self._fetch()
        while complete := self._complete():
            folder = complete[-1]
            try:
                state = json.loads((folder / "state.json").read_text())
                for name, expected in state["sha256"].items():
                    if sha256(folder / name) != expected:
                        raise DataError("checksum differs", where=str(folder / name))
                weights, moments = (read_tensors(folder / f"{name}.safetensors") for name in ("weights", "moments"))
            except (OSError, ValueError, KeyError, DataError) as error:
                print(f"checkpoint {folder.name} is damaged ({error}), trying the one before it", flush=True)
                self._set_aside(folder)
                if not has_asked_again:
                    has_asked_again = True
                    self._fetch()  # the mirror may have a copy that is whole
                continue
            return state, weights, moments
        return None

    def _set_aside(self, folder: Path) -> None:
        """Rename a damaged checkpoint, so that it is neither tried again nor counted among those to keep."""
        aside = self.folder / f"damaged_{folder.name}"
        with disk_errors(folder):
            shutil.rmtree(aside, ignore_errors=True)
            os.replace(folder, aside)

    def _fetch(self) -> None:
        if self.mirror:
            self.folder.mkdir(parents=True, exist_ok=True)
            self.mirror.fetch(self.folder)

    def clear(self) -> None:
        """Remove the folder here and in the mirror: the stage has succeeded; run again, it begins at step 0."""
        if self.mirror:
            self.mirror.clear()  # first: a run killed here goes on from the local folder, not from half a mirror
        shutil.rmtree(self.folder, ignore_errors=True)

    def _complete(self) -> list[Path]:
        return sorted(path for path in self.folder.glob("step_*") if (path / "state.json").is_file())


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def broadcast_saved(saved: Saved | None, device: torch.device) -> Saved | None:
    """Broadcast a checkpoint that the first process has loaded: only its machine needs to see the files.

    Args:
        saved: ignored on the other processes.
        device: on which the processes exchange tensors.
    """
    if torch.distributed.get_world_size() == 1:
        return saved
    parts = saved[1:] if saved and torch.distributed.get_rank() == 0 else None
    header: list[Any] = [None]
    if saved and parts:
        header = [(saved[0], [{name: tuple(tensor.shape) for name, tensor in part.items()} for part in parts])]
    torch.distributed.broadcast_object_list(header, src=0, device=device)
    if header[0] is None:
        return None
    state, shapes = header[0]
    shared: list[dict[str, Tensor]] = [{}, {}]
    for number, shape_of in enumerate(shapes):
        for name, shape in shape_of.items():
            tensor = parts[number][name].to(device) if parts else torch.empty(shape, device=device)
            torch.distributed.broadcast(tensor, src=0)
            shared[number][name] = tensor.cpu()
    return state, shared[0], shared[1]


def load_weights(model: nn.Module, weights: dict[str, Tensor]) -> None:
    """Copy weights by name into a plain module; names and shapes must match exactly.

    Raises:
        KeyError: a parameter is missing from ``weights``.
    """
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(weights[name])
