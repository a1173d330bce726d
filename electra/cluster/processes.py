"""Processes and signals: children that end with their parent, SIGTERM and SIGINT, thread limits.

DVC dies of SIGTERM without passing it on, and ``kill -9`` cannot be passed on. So a child looks for its parent: when
the parent is gone, it sends itself SIGTERM, and pre-training writes a checkpoint before it ends.
"""

import ctypes
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from electra.common.errors import InfrastructureError

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
    import multiprocessing

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


SHELLS = {"sh", "bash", "dash", "fish", "ksh", "zsh"}
NAME = "lifeline"
SECONDS_BETWEEN_LOOKS = 1.0
GRACE = "ELECTRA_STAGE_GRACE_SECONDS"  # environment: what the flow gives a stage, where that is another time


def seconds_to_end() -> float:
    """From SIGTERM to SIGKILL: so long a process has to write its checkpoint."""
    return float(os.environ.get(GRACE, 25.0))


def end_with_parent() -> None:
    """Monitor, in a thread, the process that this one works for; when it is gone, SIGTERM, and SIGKILL later.

    A second call does nothing.

    A shell between the two (``sh -c`` of a stage's command) waits for its child only: the link from the shell to
    its parent is monitored as well.
    """
    if not any(thread.name == NAME for thread in threading.enumerate()):
        threading.Thread(target=_monitor_parent, args=(_links(),), name=NAME, daemon=True).start()


def _links() -> list[tuple[int, int]]:
    """(process, its parent) from this one up to the first that is no shell."""
    import psutil

    links = []
    process = psutil.Process()
    while (parent := process.parent()) is not None:
        links.append((process.pid, parent.pid))
        if parent.name() not in SHELLS:
            break
        process = parent
    return links


def _monitor_parent(links: list[tuple[int, int]]) -> None:
    while all(_parent_of(child) == parent for child, parent in links):
        time.sleep(SECONDS_BETWEEN_LOOKS)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(seconds_to_end())
    os.kill(os.getpid(), signal.SIGKILL)


def _parent_of(pid: int) -> int | None:
    """None where the process has ended. A process whose parent has ended gets another one at once."""
    import psutil

    if pid == os.getpid():
        return os.getppid()
    try:
        return psutil.Process(pid).ppid()
    except psutil.NoSuchProcess:
        return None


ENDING = (signal.SIGTERM, signal.SIGINT)


class EndRequest:
    """Context in which signals to end are noted instead of ending the process.

    Args:
        signals: which ones; SIGTERM and SIGINT by default.
        on_signal: called in the main thread when one has come.
    """

    def __init__(self, signals: tuple[signal.Signals, ...] = ENDING, on_signal: Callable[[], object] | None = None):
        self._signals, self._on_signal = signals, on_signal

    def __enter__(self) -> "EndRequest":
        self.name: str | None = None
        self._event = threading.Event()
        self._before = {number: signal.signal(number, self._note) for number in self._signals}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def __bool__(self) -> bool:
        """Return whether one has come."""
        return self._event.is_set()

    def wait(self, seconds: float) -> bool:
        """Wait until one comes, or for so long. Returns whether one has come."""
        return self._event.wait(seconds)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.name = signal.Signals(number).name
        self._event.set()
        if self._on_signal:
            self._on_signal()


def limit_threads(num_threads: int) -> None:
    """Threads of the tokenizer in this process; takes effect before its first use."""
    os.environ["TOKENIZERS_PARALLELISM"] = "true" if num_threads > 1 else "false"
    os.environ["RAYON_NUM_THREADS"] = str(num_threads)


def free_port() -> int:
    """A TCP port of the loopback interface that nothing listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
