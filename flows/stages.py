"""Run one DVC stage as a child process: output, progress, failures and termination.

A flow decides when and where a stage runs, and whether to retry it. DVC decides whether it must run at all:
``dvc repro -s`` does nothing if the stage is up to date.
"""

import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from electra.cluster.processes import GRACE
from flows.guard import end_tree, guarded
from flows.watch import Limits, Watch

LOCKED = re.compile(r"Unable to acquire lock|is busy, it is being blocked", re.IGNORECASE)
NETWORK = re.compile(r"ConnectionError|Connection reset|Temporary failure in name resolution|Read timed out")
SKIPPED = re.compile(r"^Stage '.*' (?:didn't change|is cached)\b.*", re.MULTILINE)
EXITED = re.compile(r"failed to run: .*, exited with (-?\d+)")
# DVC's messages around the stage's output: kept in logs/<stage>.log, left out of the run's log.
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
DEFAULT_LIMITS = Limits()
SECONDS_BETWEEN_LINES = 10.0
SECONDS_BETWEEN_LOOKS = 1.0


class StageFailure(Exception):
    """Failure of a stage that a retry does not fix: configuration, data, divergence, a bug.

    Args:
        tail: last lines of the output.
        log: file with the whole output, where there is one.
    """

    def __init__(self, stage: str, exit_code: int, tail: Iterable[str], log: str = ""):
        self.stage, self.exit_code = stage, exit_code
        self.headline = f"stage {stage} failed with exit code {exit_code}" + (
            f"; its whole output: {log}" if log else ""
        )
        super().__init__("\n".join([self.headline, *tail]))


class InfrastructureFailure(StageFailure):
    """Failure of a stage by a lock, the network, a full disk or a killed process: a retry may succeed."""

    def __init__(self, stage: str, tail: Iterable[str], log: str = ""):
        super().__init__(stage, 5, tail, log)


def _log_of(stage: str) -> str:
    return f"logs/{stage}.log"


def classify(stage: str, lines: list[str]) -> StageFailure:
    """Return the failure described by the output of a failed ``dvc repro -s``.

    ``dvc`` itself always ends with 255; the exit code of the stage's command is in its last message. Codes are
    those of :mod:`electra.common.errors`; above 128 and below 0 a signal ended the command (such as out of memory).
    """
    tail, text, log = lines[-15:], "\n".join(lines), _log_of(stage)
    found = EXITED.search(text)
    if found is None:
        return InfrastructureFailure(stage, tail, log) if LOCKED.search(text) else StageFailure(stage, 1, tail, log)
    code = int(found[1])
    if code in (2, 3, 4):
        return StageFailure(stage, code, tail, log)
    if code == 5 or code < 0 or code > 128 or NETWORK.search(text):
        return InfrastructureFailure(stage, tail, log)
    return StageFailure(stage, code, tail, log)


def dvc_repro(stage: str) -> list[str]:
    """Return the command that runs one stage if it is out of date, without its dependencies; waits for DVC's locks."""
    return guarded([sys.executable, "-m", "dvc", "--wait-for-lock", "repro", "--single-item", stage])


def nothing(_: object) -> None:
    """Ignore a value; the default callback for progress."""


@dataclass
class StageRunner:
    """Runner of the stages of one workspace; several threads may share one runner.

    Args:
        root: the folder that holds ``dvc.yaml``.
        command: returns the command line for a stage's name; the default is :func:`dvc_repro`.
    """

    root: Path = Path(".")
    command: Callable[[str], list[str]] = dvc_repro
    _children: dict[subprocess.Popen, Limits] = field(default_factory=dict)
    _stopping: threading.Event = field(default_factory=threading.Event)

    def run(
        self,
        stage: str,
        say: Callable[[str], object],
        show: Callable[[dict[str, Any]], object] = nothing,
        *,
        limits: Limits = DEFAULT_LIMITS,
        beside_others: bool = False,
        devices: list[str] | None = None,
    ) -> str | None:
        """Run one stage to its end.

        The whole output goes to ``logs/<stage>.log``; ``say`` gets the newest line every ten seconds, and the last
        three lines at the end.

        Args:
            stage: name as ``dvc stage list`` shows it, such as ``finetune@CoLA-1``.
            say: called with one line for the run's log.
            show: called with the content of ``logs/<stage>/progress.json`` whenever that changes.
            limits: time limits and grace period of the stage.
            beside_others: other stages use the same cores: waiting threads of this stage sleep instead of spinning.
            devices: GPUs this stage may use; None leaves CUDA_VISIBLE_DEVICES unchanged.

        Returns:
            DVC's reason for not running the command (nothing has changed, or the result is cached); None if it ran.

        Raises:
            InfrastructureFailure: the stage failed, and a retry may succeed.
            StageFailure: the stage failed, and a retry would not help.
        """
        written = _log_of(stage)
        log = self.root / written
        log.parent.mkdir(parents=True, exist_ok=True)
        watch = Watch(self.root / "logs" / stage / "progress.json", limits)
        # In this process' group and session: a signal to the flow's group also ends the stage.
        child = subprocess.Popen(
            self.command(stage),
            cwd=self.root,
            env=stage_environment(self.root, beside_others, devices) | {GRACE: str(limits.grace_seconds)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        self._children[child] = limits
        try:
            if self._stopping.is_set():  # stopped between the decision to start and the start
                end_tree(child.pid, limits.grace_seconds)
            with open(log, "w", encoding="utf-8", buffering=1) as file:  # line-buffered, for `tail -f`
                lines, complaint = _follow(child, file.write, say, show, watch)
            code = child.wait()
        finally:
            del self._children[child]
        if self._stopping.is_set():
            raise StageFailure(stage, 128 + signal.SIGTERM, ["stopped"], written)
        if complaint:
            raise InfrastructureFailure(stage, [*lines[-15:], complaint], written)
        if code < 0 or code > 128 and code != 255:
            number = -code if code < 0 else code - 128
            raise InfrastructureFailure(stage, [*lines[-15:], f"dvc was ended by signal {number}"], written)
        if code > 0:
            raise classify(stage, lines)
        skipped = SKIPPED.search("\n".join(lines))
        return skipped[0] if skipped else None

    def stop(self) -> None:
        """End all running stages and their processes; stages started later end at once."""
        self._stopping.set()
        enders = [
            threading.Thread(target=end_tree, args=(child.pid, limits.grace_seconds))
            for child, limits in list(self._children.items())
        ]
        for ender in enders:
            ender.start()
        for ender in enders:
            ender.join()


def stage_environment(root: Path, beside_others: bool = False, devices: list[str] | None = None) -> dict[str, str]:
    """Return this process' environment, changed for a command that runs in a workspace.

    This interpreter's commands come first on PATH, and the workspace's code comes before the installed package: the
    code that runs must be the code that DVC tracks as a dependency.
    """
    environment = dict(os.environ)
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environment.get("PATH", os.defpath)])
    paths = [str(root.resolve()), *filter(None, [environment.get("PYTHONPATH")])]
    environment["PYTHONPATH"] = os.pathsep.join(paths)
    environment["PYTHONUNBUFFERED"] = "1"
    if beside_others:
        environment.setdefault("OMP_WAIT_POLICY", "passive")
    if devices is not None:
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(devices)
    return environment


def _follow(
    child: subprocess.Popen,
    write: Callable[[str], object],
    say: Callable[[str], object],
    show: Callable[[dict[str, Any]], object],
    watch: Watch,
) -> tuple[list[str], str | None]:
    """Read a child's output to its end: write all of it, and pass a line to ``say`` every ten seconds.

    Returns:
        The last lines, and the reason if the child was ended for hanging.
    """
    lines: deque[str] = deque(maxlen=200)
    unsaid: list[str] = []
    last = float("-inf")
    complaint = None
    waiting = _lines_of(child)
    ended = False
    while not ended:
        try:
            line = waiting.get(timeout=SECONDS_BETWEEN_LOOKS)
        except queue.Empty:
            line = ""
        ended = line is None
        if line:
            write(line)
            line = line.rstrip()
            lines.append(line)
            if line and not line.lstrip().startswith(DVC_CHATTER):
                unsaid.append(line)
        if unsaid and time.monotonic() - last >= SECONDS_BETWEEN_LINES:
            say(unsaid[-1])
            unsaid.clear()
            last = time.monotonic()
        if report := watch.progress():
            show(report)
        if complaint is None and (complaint := watch.complaint()):
            end_tree(child.pid, watch.limits.grace_seconds)
    for line in unsaid[-3:]:
        say(line)
    return list(lines), complaint


def _lines_of(child: subprocess.Popen) -> "queue.SimpleQueue[str | None]":
    """Return a queue of a child's output lines, with None at the end.

    A thread reads the output, so that the caller can check progress between lines.
    """
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()

    def read() -> None:
        assert child.stdout is not None
        with child.stdout:
            for line in child.stdout:  # universal newlines: each state of a progress bar is a line
                lines.put(line)
        lines.put(None)

    threading.Thread(target=read, name="output", daemon=True).start()
    return lines
