"""Running one DVC stage as a child process: its output, its failures, its end.

A flow decides when and where a stage runs, and whether it is tried again. Whether it must run at all is DVC's decision:
``dvc repro -s`` does nothing when the stage is up to date.
"""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

LOCKED = re.compile(r"Unable to acquire lock|is busy, it is being blocked", re.IGNORECASE)
NETWORK = re.compile(r"ConnectionError|Connection reset|Temporary failure in name resolution|Read timed out")
EXITED = re.compile(r"failed to run: .*, exited with (-?\d+)")
# What DVC says around the stage's own output: kept in logs/<stage>.log, left out of the run's log.
DVC_CHATTER = (
    "Running stage",
    "> ",
    "Updating lock file",
    "Generating lock file",
    "To track the changes",
    "git add",
    "To enable auto staging",
    "dvc config core.autostage",
    "Use `dvc push`",
)
SECONDS_BETWEEN_LINES = 10.0
SECONDS_TO_END = 30.0


class StageFailure(Exception):
    """A stage failed for a reason that running it again does not mend: configuration, data, divergence, a defect."""

    def __init__(self, stage: str, exit_code: int, tail: Iterable[str]):
        self.stage, self.exit_code = stage, exit_code
        self.headline = f"stage {stage} failed with exit code {exit_code}; its whole output: logs/{stage}.log"
        super().__init__("\n".join([self.headline, *tail]))


class InfrastructureFailure(StageFailure):
    """A lock, the network, a full disk or a killed process: the same stage may succeed when it is tried again."""

    def __init__(self, stage: str, tail: Iterable[str]):
        super().__init__(stage, 5, tail)


def classify(stage: str, lines: list[str]) -> StageFailure:
    """The failure that the output of a failed ``dvc repro -s`` speaks of.

    ``dvc`` itself always ends with 255; the exit code of the stage's command stands in its last message. Codes are
    those of :mod:`electra.errors`; above 128 and below 0 the command was ended by a signal (such as out of memory).
    """
    tail, text = lines[-15:], "\n".join(lines)
    found = EXITED.search(text)
    if found is None:
        return InfrastructureFailure(stage, tail) if LOCKED.search(text) else StageFailure(stage, 1, tail)
    code = int(found[1])
    if code in (2, 3, 4):
        return StageFailure(stage, code, tail)
    if code == 5 or code < 0 or code > 128 or NETWORK.search(text):
        return InfrastructureFailure(stage, tail)
    return StageFailure(stage, code, tail)


def dvc_repro(stage: str) -> list[str]:
    """Run one stage if it is out of date, without a look at those before it, and wait for DVC's locks."""
    return [sys.executable, "-m", "dvc", "--wait-for-lock", "repro", "--single-item", stage]


@dataclass
class StageRunner:
    """Runs stages of one workspace; several threads may share one runner.

    Args:
        root: the folder that holds ``dvc.yaml``.
        command: what runs a stage, given its name; the default is :func:`dvc_repro`.
    """

    root: Path = Path(".")
    command: Callable[[str], list[str]] = dvc_repro
    _children: set[subprocess.Popen] = field(default_factory=set)
    _stopping: threading.Event = field(default_factory=threading.Event)

    def run(self, stage: str, say: Callable[[str], object], num_threads: int | None = None) -> None:
        """Run one stage to its end.

        The whole output goes to ``logs/<stage>.log``; ``say`` gets its newest line every ten seconds and the last ones.

        Args:
            stage: name as ``dvc stage list`` shows it, such as ``finetune@CoLA-1``.
            say: takes one line for the run's log.
            num_threads: cores this stage may use, where several run side by side.

        Raises:
            InfrastructureFailure: it may succeed when it is tried again.
            StageFailure: it will not.
        """
        log = self.root / "logs" / f"{stage}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        # In this process' group and session: whatever ends the flow's group ends the stage too.
        child = subprocess.Popen(
            self.command(stage),
            cwd=self.root,
            env=stage_environment(num_threads),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        self._children.add(child)
        try:
            if self._stopping.is_set():  # stopped between the decision to start and the start
                end_tree(child.pid)
            with open(log, "w", encoding="utf-8") as file:
                lines = _follow(child, file.write, say)
            code = child.wait()
        finally:
            self._children.discard(child)
        if self._stopping.is_set():
            raise StageFailure(stage, 128 + signal.SIGTERM, ["stopped"])
        if code < 0:
            raise InfrastructureFailure(stage, [*lines[-15:], f"dvc was ended by signal {-code}"])
        if code > 0:
            raise classify(stage, lines)

    def stop(self) -> None:
        """End all stages that run, and everything they started; stages that are asked for later end at once."""
        self._stopping.set()
        for child in list(self._children):
            end_tree(child.pid)


def stage_environment(num_threads: int | None) -> dict[str, str]:
    """This process' environment, with this interpreter's commands first on PATH and a limit on threads."""
    environment = dict(os.environ)
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environment.get("PATH", os.defpath)])
    environment["PYTHONUNBUFFERED"] = "1"
    if num_threads is not None:
        environment["OMP_NUM_THREADS"] = str(num_threads)
    return environment


def end_tree(pid: int) -> None:
    """Terminate a process and all its descendants; kill what is left after 30 seconds.

    Descendants are collected first: DVC dies of SIGTERM without passing it on, and its training would live on.
    """
    try:
        top = psutil.Process(pid)
        tree = [*top.children(recursive=True), top]
    except psutil.NoSuchProcess:
        return
    for process in tree:
        with suppress(psutil.NoSuchProcess):
            process.terminate()
    _, alive = psutil.wait_procs(tree, timeout=SECONDS_TO_END)
    for process in alive:
        with suppress(psutil.NoSuchProcess):
            process.kill()


def _follow(child: subprocess.Popen, write: Callable[[str], object], say: Callable[[str], object]) -> list[str]:
    """Read a child's output to its end; all of it is written, a line now and then is said."""
    lines: deque[str] = deque(maxlen=200)
    unsaid: list[str] = []
    last = float("-inf")
    assert child.stdout is not None
    for line in child.stdout:  # universal newlines: each state of a progress bar is a line
        write(line)
        line = line.rstrip()
        lines.append(line)
        if line and not line.lstrip().startswith(DVC_CHATTER):
            unsaid.append(line)
        if unsaid and time.monotonic() - last >= SECONDS_BETWEEN_LINES:
            say(unsaid[-1])
            unsaid.clear()
            last = time.monotonic()
    for line in unsaid[-3:]:
        say(line)
    return list(lines)
