"""Processes that do not outlive the one that started them, and what SIGTERM means for a command."""

import ctypes
import multiprocessing
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from electra.errors import InfrastructureError

LAUNCHER_PID = "ELECTRA_LAUNCHER_PID"  # environment of the processes that a launcher of this machine starts
_PR_SET_PDEATHSIG = 1  # <sys/prctl.h>


def die_with_parent() -> None:
    """Ask the system (Linux) to kill this process when the one that started it dies, however that dies.

    Launchers and pools of processes leave their children behind when they are killed: these go on with work that
    nobody waits for, and hold locks and memory.
    """
    import psutil

    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        launcher = os.environ.get(LAUNCHER_PID)
        if launcher and int(launcher) not in (ancestor.pid for ancestor in psutil.Process().parents()):
            os.kill(os.getpid(), signal.SIGKILL)  # it died before the system knew


def end_children() -> None:
    """Kill the processes that :mod:`multiprocessing` has started here: what they do is thrown away anyway."""
    for child in multiprocessing.active_children():
        child.kill()


@contextmanager
def exit_on_sigterm() -> Iterator[None]:
    """Turn SIGTERM into an orderly end of the block: half-written folders are removed and the exit code is 5.

    Pre-training replaces this while it trains, to save a checkpoint first.
    """

    def end(number: int, _: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # whoever sends it twice is in a hurry
        print(
            "error: ended by SIGTERM; finished artefacts are as they were\n  next:  run the same command again",
            file=sys.stderr,
            flush=True,
        )
        # no ElectraError: libraries catch Exception, and would go on
        raise SystemExit(InfrastructureError.exit_code)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
