"""Supervisor that ends a command with all its processes: ``python -m flows.guard COMMAND...``

DVC ended by a signal leaves its stage running, and a process killed with SIGKILL cannot forward signals. The guard is a
process between a flow and its command. It ends the command on SIGTERM, or when the flow has ended; it adopts processes
that the command leaves behind and ends them too; and if the guard itself is killed, the system ends the command.
"""

import ctypes
import os
import signal
import subprocess
import sys
from contextlib import suppress
from types import FrameType

import psutil

from electra.cluster.processes import end_with_parent, seconds_to_end

SHARE_OF_THE_COMMAND = 0.8  # of the grace period; the rest is for processes that the command leaves behind
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36  # <sys/prctl.h>


def guarded(command: list[str]) -> list[str]:
    """Return the command line that starts a command under a guard."""
    return [sys.executable, "-m", "flows.guard", *command]


def end_tree(pid: int, seconds: float, including_itself: bool = True) -> None:
    """Terminate a process and all its descendants; after ``seconds``, kill those still running.

    Descendants are collected first: the children of an ended process cannot be found any more.
    """
    try:
        top = psutil.Process(pid)
        tree = [*top.children(recursive=True), *([top] if including_itself else [])]
    except psutil.NoSuchProcess:
        return
    for process in tree:
        with suppress(psutil.NoSuchProcess):
            process.terminate()
    _, alive = psutil.wait_procs(tree, timeout=seconds)
    for process in alive:
        with suppress(psutil.NoSuchProcess):
            process.kill()


def run_guarded(command: list[str], is_service: bool = False) -> int:
    """Run a command to its end and leave no process behind; return its exit code, 128 + n if signal n ended it.

    Args:
        is_service: the command goes on when the process that started the guard has ended. On SIGTERM its descendants
            are terminated together with it, since it would wait for them. If the guard is killed, so is the command.
    """
    libc = ctypes.CDLL(None) if sys.platform == "linux" else None
    if libc:
        libc.prctl(_PR_SET_CHILD_SUBREAPER, 1)

    def end_with_guard() -> None:  # runs in the child before exec; safe, as this process still has a single thread
        if libc:
            libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL if is_service else signal.SIGTERM)

    asked: list[int] = []

    def ask(number: int, frame: FrameType | None) -> None:
        asked.append(number)

    signal.signal(signal.SIGTERM, ask)
    child = subprocess.Popen(command, preexec_fn=end_with_guard)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the terminal's whole group: the command decides
    if not is_service:
        end_with_parent()
    while not asked and child.poll() is None:
        _wait(child, 0.5)
    if asked and not is_service:  # the command first, so that it can end its processes in the right order
        child.terminate()
        _wait(child, SHARE_OF_THE_COMMAND * seconds_to_end())
    # processes that the command left behind, and the command itself if it still runs
    end_tree(os.getpid(), seconds_to_end(), including_itself=False)
    code = child.wait()
    return code if code >= 0 else 128 - code


def _wait(child: subprocess.Popen, seconds: float) -> None:
    """Wait until the command ends, at most ``seconds``."""
    with suppress(subprocess.TimeoutExpired):
        child.wait(timeout=seconds)


if __name__ == "__main__":
    sys.exit(run_guarded(sys.argv[1:]))
