"""Processes and signals: children that end with their parent, SIGTERM and SIGINT, thread limits, dead peers.

DVC dies of SIGTERM without passing it on, and ``kill -9`` cannot be passed on. So a child looks for its parent: when
the parent is gone, it sends itself SIGTERM, and pre-training writes a checkpoint before it ends.

In a collective operation every process waits for the last one. Left alone, that wait ends with the backend's own
time-out and a message that names a socket (gloo), or by abort (NCCL). So a thread of every process writes its step to
the shared store, and a process that waits too long reads there which one it waits for. A process that is
silent, because it or its machine is gone or stopped, is noticed sooner than one that is slow. A signal to end has
its effect in such a wait, too: see :class:`SignalMonitor`.
"""

import ctypes
import os
import re
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
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


# What gloo, NCCL and the store say when the other end is gone or silent.
_LOST = re.compile(r"gloo|nccl|connection (closed|reset|refused)|timed? ?out|broken pipe|TCPStore", re.IGNORECASE)
NEXT_STEP = "look at that machine's log; run the same command to go on from the last checkpoint"


class Peers:
    """Monitor of the other processes of a run.

    Args:
        timeout_seconds: without a step after which this process gives up.
        silence_seconds: without a sign of life from another process after which this one gives up.
    """

    def __init__(self, timeout_seconds: float, silence_seconds: float = 60.0):
        from torch import distributed  # seconds to import, which supervisors and the commands of review need not wait

        self.silence = silence_seconds
        self._seen: dict[int, tuple[str, float]] = {}  # last sign of life of each other process, and when it came
        self.rank, self.world_size = distributed.get_rank(), distributed.get_world_size()
        self.timeout, self.interval = timeout_seconds, min(2.0, timeout_seconds / 4, silence_seconds / 4)
        self._step, self._moved_at, self._pulse = 0, time.monotonic(), 0
        self._main = threading.get_ident()
        self._done = threading.Event()

    def __enter__(self) -> "Peers":
        if self.world_size > 1:
            from torch.distributed import TCPStore

            port = int(os.environ["MASTER_PORT"])
            self._store = TCPStore(
                os.environ["MASTER_ADDR"], port, is_master=False, wait_for_workers=False, timeout=timedelta(seconds=60)
            )
            threading.Thread(target=self._monitor, name="peers", daemon=True).start()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._done.set()
        if error is None and self.world_size > 1:
            with suppress(RuntimeError):  # who ends well is not silent
                self._store.set(f"electra/left/{self.rank}", "")
        if isinstance(error, RuntimeError) and self.world_size > 1 and _LOST.search(str(error)):
            raise InfrastructureError(
                f"process {self.rank} ({socket.gethostname()}) lost touch with the others: {self._suspects()}",
                where=str(error).splitlines()[0][:200],
                next_step=NEXT_STEP,
            ) from error

    def begin_step(self, step: int) -> None:
        """Record that this process waits for the others before ``step``."""
        self._step, self._moved_at = step, time.monotonic()

    def _monitor(self) -> None:
        while not self._done.wait(self.interval):
            self._beat()
            waited = time.monotonic() - self._moved_at
            if waited > self.timeout or (waited > self.interval and self._silent()):
                self._give_up()

    def _silent(self) -> list[int]:
        """Return the processes whose last sign of life came too long ago."""
        now = time.monotonic()
        try:
            pulses = self._pulses()
            for rank in set(range(self.world_size)) - {self.rank}:
                if rank not in self._seen or self._seen[rank][0] != pulses.get(rank, ""):
                    self._seen[rank] = (pulses.get(rank, ""), now)
            silent = [rank for rank, (_, seen_at) in self._seen.items() if now - seen_at > self.silence]
            return [rank for rank in silent if not self._store.check([f"electra/left/{rank}"])]
        except RuntimeError:  # the store is gone: the next operation with the others fails
            return []

    def _beat(self) -> None:
        self._pulse += 1
        with suppress(RuntimeError):  # its process is gone: the next operation with the others fails
            self._store.set(f"electra/pulse/{self.rank}", f"{self._pulse} {self._step} {socket.gethostname()}")

    def _give_up(self) -> None:
        """The main thread waits in a call that nothing can interrupt: end the process from here."""
        try:
            waited = time.monotonic() - self._moved_at
            waiting = f"process {self.rank} ({socket.gethostname()}) waits for {waited:.0f} s at step {self._step}"
            print(
                f"error: {waiting}: {self._suspects()}\n  where: {self.location()}\n  next:  {NEXT_STEP}; "
                "cluster.timeout_minutes and silence_seconds are the limits",
                file=sys.stderr,
                flush=True,
            )
            time.sleep(4 * self.interval)  # the others report first, before they see this one's end
        finally:
            os._exit(InfrastructureError.exit_code)

    def _suspects(self) -> str:
        """Describe the processes that are silent, else those that are behind."""
        try:
            before = self._pulses()
            for _ in range(5):
                time.sleep(self.interval / 2)
                self._beat()  # another one may be looking at this one
            after = self._pulses()
        except RuntimeError:
            return "process 0, or who keeps the store for it, does not answer"
        others = [rank for rank in range(self.world_size) if rank != self.rank]
        if silent := [rank for rank in others if before.get(rank) == after.get(rank)]:
            return "no sign of life from " + ", ".join(_describe(rank, after.get(rank)) for rank in silent)
        if behind := [rank for rank in others if int(after[rank].split()[1]) < self._step]:
            return "still behind: " + ", ".join(_describe(rank, after[rank]) for rank in behind)
        if any(int(after[rank].split()[1]) > self._step for rank in others):
            return "the others are ahead of it and wait for it: it is this process that makes no progress"
        return "all processes are alive and at the same step; each says where it is"

    def _pulses(self) -> dict[int, str]:
        keys = {rank: f"electra/pulse/{rank}" for rank in range(self.world_size)}
        return {rank: self._store.get(key).decode() for rank, key in keys.items() if self._store.check([key])}

    def location(self) -> str:
        """Return where the main thread is: the innermost line of all, and the innermost of this project."""
        frame: FrameType | None = sys._current_frames().get(self._main)
        lines = traceback.extract_stack(frame)
        own = [line for line in lines if "electra" in line.filename]
        return ", in ".join(dict.fromkeys(f"{line.filename}:{line.lineno}" for line in [lines[-1], *own[-1:]]))


def _describe(rank: int, pulse: str | None) -> str:
    if pulse is None:
        return f"process {rank}, which has not reported yet"
    _, step, host = pulse.split(" ", 2)
    return f"process {rank} ({host}, last seen at step {step})"


class SignalMonitor:
    """Ends a process that got a signal to end and whose handler cannot run.

    Python runs a handler between two instructions of the main thread. One that waits inside an operation of NCCL or
    CUDA for a process that never comes executes none. The signal's number reaches a thread all the same, through
    ``signal.set_wakeup_fd``; where the handler has not run after ``patience_seconds``, the thread ends the process.

    Args:
        signals: that the main thread has a handler for.
        patience_seconds: for the handler to run.
        report: returns where the process is, for the message.
    """

    def __init__(self, signals: Sequence[int], patience_seconds: float, report: Callable[[], str] = str):
        self.signals, self.patience, self.report = frozenset(signals), patience_seconds, report
        self._handled = threading.Event()

    def __enter__(self) -> "SignalMonitor":
        self._reader, self._writer = socket.socketpair()
        self._writer.setblocking(False)
        self._before = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        threading.Thread(target=self._listen, name="signals", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._handled.set()
        signal.set_wakeup_fd(self._before)
        self._writer.close()  # the thread reads the end

    def mark_handled(self) -> None:
        """Record that a handler has run: the main thread will end by itself."""
        self._handled.set()

    def _listen(self) -> None:
        with self._reader:
            while number := self._reader.recv(1):
                if number[0] in self.signals and not self._handled.wait(self.patience):
                    self._end(signal.Signals(number[0]).name)

    def _end(self, name: str) -> None:
        try:
            print(
                f"error: {name} came while the process waits for others, at {self.report()}\n"
                "  next:  run the same command to go on from the last checkpoint",
                file=sys.stderr,
                flush=True,
            )
        finally:
            os._exit(InfrastructureError.exit_code)
