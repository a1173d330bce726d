"""A command whose processes end together: ``python -m flows.guard COMMAND...``

DVC dies of a signal and leaves its stage running, and a process that is killed with -9 can pass nothing on. The guard
stands between a flow and its command: it ends the command when it is asked to, or when the flow is gone; it adopts
whatever the command leaves behind and ends that too; and if the guard itself is killed, the system ends the command.
"""

import ctypes
import os
import signal
import subprocess
import sys
from contextlib import suppress
from types import FrameType

import psutil

from electra.system.processes import end_with_parent, seconds_to_end

SHARE_OF_THE_COMMAND = 0.8  # of the time to end; the rest is for what it leaves behind
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36  # <sys/prctl.h>


def guarded(command: list[str]) -> list[str]:
    """The command, to be started under a guard."""
    return [sys.executable, "-m", "flows.guard", *command]


def end_tree(pid: int, seconds: float, including_itself: bool = True) -> None:
    """Terminate a process and all its descendants; kill what is left so many seconds later.

    Descendants are collected first: once a process has ended, its children cannot be found through it.
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
    """Run a command to its end and leave no process behind; returns its exit code, 128 + n where signal n ended it.

    Args:
        is_service: it belongs to no other process: it goes on when the one that started it is gone. Asked to end, it
            would wait for all that it has started: that is asked with it, and goes with it if the guard is killed.
    """
    libc = ctypes.CDLL(None) if sys.platform == "linux" else None
    if libc:
        libc.prctl(_PR_SET_CHILD_SUBREAPER, 1)

    def end_with_guard() -> None:  # in the child, before it becomes the command; this process has one thread as yet
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
    if asked and not is_service:  # the command first: it knows best in what order to end what it has started
        child.terminate()
        _wait(child, SHARE_OF_THE_COMMAND * seconds_to_end())
    # what the command left behind, and itself if it does not obey
    end_tree(os.getpid(), seconds_to_end(), including_itself=False)
    code = child.wait()
    return code if code >= 0 else 128 - code


def _wait(child: subprocess.Popen, seconds: float) -> None:
    """So long, or until the command ends."""
    with suppress(subprocess.TimeoutExpired):
        child.wait(timeout=seconds)


if __name__ == "__main__":
    sys.exit(run_guarded(sys.argv[1:]))
