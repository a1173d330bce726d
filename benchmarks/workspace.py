"""Workspace of a benchmark: settings from a profile with changes, and commands in it.

Runs stages as commands (:func:`run_stage`), and functions that end at a deadline or are killed (:class:`Processes`).
"""

import importlib
import json
import math
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, Literal

import yaml

from electra.cluster.processes import free_port
from electra.common.errors import InfrastructureError
from electra.common.paths import Paths
from electra.config import Settings
from electra.config.loading import load_settings

ROOT = Path(__file__).resolve().parents[1]


def write_workspace(
    folder: Path,
    profile: str,
    cluster: dict[str, Any] | None = None,
    cells: Sequence[str] = ("CoLA",),
    **changes: dict[str, Any],
) -> tuple[Settings, Paths]:
    """Write ``params.yaml`` and the profile, with changes of single keys: ``tokenizer={"vocab_file": ...}``.

    Args:
        cells: the tasks of the matrix, each with seed 1.
    """
    values = yaml.safe_load((ROOT / f"params/{profile}.yaml").read_text())
    values["corpus"]["decontamination"] = None  # benchmarks have no evaluation texts
    for section, keys in changes.items():
        values[section] = {**values.get(section, {}), **keys}
    common = {"profile": profile, "cells": {"tasks": list(cells), "seeds": [1]}, "cluster": cluster or {}}
    (folder / "params").mkdir(parents=True, exist_ok=True)
    (folder / "params.yaml").write_text(yaml.safe_dump(common))
    (folder / f"params/{profile}.yaml").write_text(yaml.safe_dump(values))
    return load_settings(folder), Paths(folder)


def files_source(text: Path) -> dict[str, Any]:
    """Return the source of a corpus of one text file, documents separated by blank lines."""
    return {"kind": "files", "name": "text", "paths": [str(text.resolve())]}


def bundled_text(num_documents: int) -> dict[str, Any]:
    """Return settings of ``corpus``: the first paragraphs of the bundled books, each a document."""
    books = {**files_source(ROOT / "data/books/*.txt.xz"), "documents": "line"}
    return {"sources": [books], "max_documents": num_documents, "documents_per_file": 5000, "cleaning": []}


def copy_text(source: Path, target: Path, num_bytes: int) -> int:
    """Copy the beginning of a text up to the end of a line, repeating a text that is too short.

    In each repetition every document's first line gets a number, so that no document occurs twice.

    Returns:
        The number of bytes written.
    """
    written = copy = 0
    with open(target, "wb") as output:
        while written < num_bytes:
            is_first = True
            with open(source, "rb") as lines:
                for line in lines:
                    if is_first and line.strip() and copy:
                        line = b"%d. " % copy + line
                    is_first = not line.strip()
                    written += output.write(line)
                    if written >= num_bytes:
                        return written
            copy += 1
            written += output.write(b"\n")
    return written


def stage(folder: Path, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    """Start one command of the project in a workspace."""
    return subprocess.Popen(
        [sys.executable, "-m", "electra", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def run_stage(folder: Path, *arguments: str) -> str:
    """Run one command to its end and return its output.

    Raises:
        InfrastructureError: the command failed.
    """
    process = stage(folder, *arguments)
    output, _ = process.communicate()
    if process.returncode:
        raise InfrastructureError(f"electra {' '.join(arguments)} ended with {process.returncode}:\n{output[-2000:]}")
    return output


Curve = dict[int, dict[str, float]]  # losses by step


class OutOfTime(Exception):
    """Raised when a part's time is over."""


class Broken(Exception):
    """Raised when a command does not end as expected."""


@dataclass
class Child:
    """A process, the file with its output, and the time of its end."""

    process: Any
    log: Path
    ended_at: float = math.nan

    @property
    def code(self) -> int:
        return self.process.exitcode

    @property
    def output(self) -> str:
        return self.log.read_text(errors="replace")

    def why(self) -> str:
        """Return in one line how the process ended."""
        lines = [line.strip() for line in self.output.splitlines() if line.strip()]
        told = next((line for line in lines if line.startswith("error:")), lines[-1] if lines else "it said nothing")
        how = signal.Signals(-self.code).name if self.code < 0 else f"exit code {self.code}"
        return f"{how}: {told[:300]}"


# All modules that training and fine-tuning import; the last two: DeepSpeed, with ZeRO.
IMPORTED_ONCE = (
    "electra.cluster.launchers.pretraining",
    "electra.pretrain.run",
    "electra.finetune.run",
    "transformers.models.electra.modeling_electra",
    "torch.utils.tensorboard",
    "deepspeed.runtime.zero.stage3",
    "deepspeed.runtime.zero.muon.muon_optimizer",
)


@dataclass
class Processes:
    """Runner of functions in child processes with a common deadline; their output goes to files.

    Args:
        root: folder for the output.
        how: start method; ``fork`` saves the imports, and is for a process without threads and CUDA.
        deadline: time of ``time.monotonic`` at which they are killed.
    """

    root: Path
    how: Literal["fork", "spawn"] = "spawn"
    deadline: float = field(default_factory=lambda: time.monotonic() + 86_400)
    number: Any = field(default_factory=count)

    def import_once(self) -> None:
        """Import the modules that every process needs, before the first fork."""
        if self.how == "fork":
            for module in IMPORTED_ONCE:
                importlib.import_module(module)

    def left(self) -> float:
        """Return the seconds until the part's time is over.

        Raises:
            OutOfTime: the time is over.
        """
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise OutOfTime
        return left

    def start(self, target: Callable[..., None], *arguments: Any, folder: Path | None = None, **env: str) -> Child:
        """Start a module-level function in a new process."""
        name = f"{next(self.number)}-{target.__name__}.log"
        log = self.root / "output" / name
        log.parent.mkdir(parents=True, exist_ok=True)
        log.touch()
        context: Any = multiprocessing.get_context(self.how)
        process = context.Process(target=_enter, args=(log, folder or self.root, env, target, arguments), daemon=True)
        process.start()
        return Child(process, log)

    def wait(self, children: Sequence[Child]) -> list[Child]:
        """Wait until all processes have ended; kill them when the time is over."""
        running = list(children)
        try:
            while running:
                ready = wait([child.process.sentinel for child in running], self.left())
                for child in [child for child in running if child.process.sentinel in ready]:
                    child.ended_at = time.time()
                    child.process.join()
                    running.remove(child)
        finally:
            for child in running:
                child.process.kill()
        return list(children)

    def call(self, target: Callable[..., None], *arguments: Any, ranks: int = 1) -> dict[str, Any]:
        """Call a module-level function that writes its result to a file in a new process, and return the result.

        Raises:
            Broken: the function failed.
        """
        file = self.root / f"found-{next(self.number)}.json"
        children = self.wait([self.start(target, file, *arguments, **place) for place in places(ranks)])
        if any(child.code for child in children):
            raise Broken(first_failure(children).why())
        return json.loads(file.read_text())


def first_failure(children: Sequence[Child]) -> Child:
    """Return the failed process that ended first: the others may only report that it is gone."""
    return min((child for child in children if child.code), key=lambda child: child.ended_at)


def places(ranks: int) -> list[dict[str, str]]:
    """Return torchrun's environment variables for each of several processes; none for a single process."""
    if ranks == 1:
        return [{}]
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    size = {"WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks)}
    return [{"RANK": str(rank), "LOCAL_RANK": str(rank), **size, **meeting} for rank in range(ranks)]


def read_curve(paths: Paths) -> Curve:
    """Return the losses in ``results/pretrain.tsv`` by step, in nats."""
    header, *lines = (line.split("\t") for line in (paths.results / "pretrain.tsv").read_text().splitlines())
    rows = [dict(zip(header, line, strict=True)) for line in lines]
    return {
        int(row["step"]): {name: float(value) for name, value in row.items() if name.endswith("_loss") and value}
        for row in rows
    }


def apart(one: Curve, other: Curve) -> tuple[float, str]:
    """Return the largest difference of two curves' losses in nats, and where it is; infinite if a loss is missing."""
    largest = (0.0, "")
    for step in sorted(one.keys() | other.keys()):
        mine, its = one.get(step, {}), other.get(step, {})
        for name in sorted(mine.keys() | its.keys()):
            difference = abs(mine.get(name, math.inf) - its.get(name, math.inf))
            difference = math.inf if math.isnan(difference) else difference
            if difference > largest[0]:
                largest = (difference, f"{name} at step {step}")
    return largest


def _enter(log: Path, folder: Path, env: dict[str, str], target: Callable[..., None], arguments: Sequence[Any]) -> None:
    with open(log, "ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    os.environ.update(env)
    os.chdir(folder)
    target(*arguments)


def build_op() -> None:
    """Compile DeepSpeed's op for collectives on a CPU, once per environment, to keep this minute out of the runs."""
    from electra.pretrain.engine import prepare_environment
    from electra.pretrain.zero import load_collectives

    prepare_environment("cpu")
    load_collectives()


def electra(*arguments: str) -> None:
    """Run a command of the project through its entry point."""
    from electra.__main__ import main

    sys.argv = ["electra", *arguments]
    main()


@dataclass(frozen=True)
class Blow:
    """Signal that a process sends itself before a step, once a checkpoint is written.

    Attributes:
        rank: rank of the process; None for all.
        note: file for the time of the signal.
    """

    step: int
    number: int
    rank: int | None = None
    note: Path | None = None


def pretrain(blow: Blow | None = None) -> None:
    """Run ``electra pretrain``, or one of its processes."""
    from electra.pretrain import run

    set_step = run.set_step

    def then(engine: Any, step: int, rate: float) -> None:
        if blow and step == blow.step and blow.rank in (None, int(os.environ.get("RANK", "0"))):
            deadline = time.monotonic() + 60
            while not list(Path("checkpoints").glob("*/latest")) and time.monotonic() < deadline:
                time.sleep(0.01)
            if blow.note:
                blow.note.write_text(str(time.time()))
            os.kill(os.getpid(), blow.number)
        set_step(engine, step, rate)

    run.set_step = then
    electra("pretrain")
