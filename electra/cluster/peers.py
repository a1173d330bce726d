"""The other processes of a distributed run: noticed when they are silent; signals have their effect during a wait.

In a collective operation every process waits for the last one. Left alone, that wait ends with the backend's own
time-out and a message that names a socket (gloo), or by abort (NCCL). So a thread of every process writes its step to
the shared store, and a process that waits too long reads there which one it waits for. A process that is
silent, because it or its machine is gone or stopped, is noticed sooner than one that is slow. A signal to end has
its effect in such a wait, too: see :class:`SignalMonitor`.
"""

import os
import re
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from types import FrameType

from electra.common.errors import InfrastructureError

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
