"""Cores that other processes use as well: a run's threads then wait for each other without spinning, and it says so.

PyTorch's threads are those of libgomp, which spin at the end of every operation, some milliseconds at most, until the
slowest of them is done. On cores of their own nothing is faster. On a core that another process uses too, the slowest
is one that has no core at the moment, and the others spin its turn away: training is twenty times slower beside one
busy process on two cores. ``OMP_WAIT_POLICY=passive`` forbids spinning for good, which halves the speed of a small
model on idle cores. So spinning is cut short here while others use the cores, and only then.

Results do not change: threads have the same number and the same work.
"""

import ctypes
import os
import threading
import time
from collections import deque
from collections.abc import Collection
from pathlib import Path

SECONDS_BETWEEN_LOOKS = 1.0
FIRST_LOOK = 0.3
SHORT_FROM, LONG_AGAIN = 0.4, 0.25  # of a core that the threads lack
LOOKS_BEFORE_WARNING = 30
MIN_SHARE = 1 / 3  # of the time that a run's threads could use
SECONDS_BETWEEN_WARNINGS = 600.0
_CHOSEN_BY_USER = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")


class ShortWaits:
    """libgomp's short waits, on and off: 100 turns of its loop instead of 300,000.

    libgomp takes them by itself as long as it manages more threads than there are cores (``gomp_managed_threads`` and
    ``gomp_throttled_spin_count_var`` in its sources). A second, sleeping team makes it so, and ends with its thread.
    """

    def __init__(self) -> None:
        self._over: threading.Event | None = None

    @property
    def are_on(self) -> bool:
        return self._over is not None

    def switch(self, on: bool) -> None:
        """Nothing happens where another OpenMP runtime is used, or the user has chosen how threads wait."""
        if on == self.are_on or any(name in os.environ for name in _CHOSEN_BY_USER):
            return
        if self._over is not None:
            self._over.set()
            self._over = None
        elif library := _libgomp():
            self._over, ready = threading.Event(), threading.Event()
            threading.Thread(target=_hold_team, args=(library, self._over, ready), daemon=True).start()
            ready.wait()


def _libgomp() -> ctypes.CDLL | None:
    """The runtime that PyTorch has loaded."""
    try:
        library = ctypes.CDLL("libgomp.so.1", mode=os.RTLD_NOW | os.RTLD_NOLOAD)
        return library if hasattr(library, "GOMP_parallel") else None
    except (OSError, AttributeError):  # not there; not a system that can be asked
        return None


def _hold_team(library: ctypes.CDLL, over: threading.Event, ready: threading.Event) -> None:
    nothing_to_do = ctypes.cast(library.omp_get_thread_num, ctypes.c_void_p)
    threads = library.omp_get_num_procs() + 1
    library.GOMP_parallel(nothing_to_do, None, ctypes.c_uint(threads), ctypes.c_uint(0))
    ready.set()
    over.wait()


class CoreWatch:
    """Watches what other processes leave of this machine's cores, in a thread that is asleep nearly always.

    Args:
        num_threads: of this process' operations.
        cores: numbers of the cores that this process may use.
    """

    def __init__(self, num_threads: int, cores: Collection[int]):
        self.num_threads, self.cores = num_threads, frozenset(cores)
        self.waits = ShortWaits()
        self.shares: deque[float] = deque(maxlen=LOOKS_BEFORE_WARNING)
        self.used_by_others = 0.0  # cores
        self._warned = float("-inf")
        self._seen: tuple[float, float, float] | None = None

    def start(self) -> "CoreWatch":
        threading.Thread(target=self._run, daemon=True, name="core-watch").start()
        return self

    def _run(self) -> None:
        while (busy := busy_seconds(self.cores)) is not None:
            self.look(time.monotonic(), busy, time.process_time())
            time.sleep(SECONDS_BETWEEN_LOOKS if self.shares else FIRST_LOOK)

    def look(self, now: float, busy: float, own: float) -> None:
        """Take note of the time since the last look.

        Args:
            now, busy, own: seconds so far: of the clock, of all cores at work, of this process on them.
        """
        seen, self._seen = self._seen, (now, busy, own)
        if seen is None or now <= seen[0]:
            return
        elapsed, worked, by_us = (mine - before for mine, before in zip(self._seen, seen, strict=True))
        self.used_by_others = min(max(0.0, (worked - by_us) / elapsed), len(self.cores))
        left = len(self.cores) - self.used_by_others
        self.shares.append(min(1.0, left / self.num_threads))
        lacking = self.num_threads - left if self.num_threads > 1 else 0.0
        self.waits.switch(lacking > (LONG_AGAIN if self.waits.are_on else SHORT_FROM))

    def warning(self, now: float | None = None) -> str | None:
        """Why this run is slow, where others have left it less than a third for half a minute; now and then only."""
        now = time.monotonic() if now is None else now
        if len(self.shares) < LOOKS_BEFORE_WARNING or now - self._warned < SECONDS_BETWEEN_WARNINGS:
            return None
        share = sum(self.shares) / len(self.shares)
        if share >= MIN_SHARE:
            return None
        self._warned = now
        return (
            f"WARNING other processes use the cores: {self.used_by_others:.1f} of {len(self.cores)} (load average "
            f"{os.getloadavg()[0]:.1f}). This run gets {share:.0%} of the time that its {self.num_threads} threads "
            "could use, and is as much slower; results are not affected. End the other processes, or give this one "
            "cores of its own"
        )


def busy_seconds(cores: Collection[int], file: Path = Path("/proc/stat")) -> float | None:
    """Seconds that these cores have worked so far, for whatever process or for other machines on the same host.

    None where the system does not tell.
    """
    try:
        lines = [line.split() for line in file.read_text().splitlines()]
        ticks = os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError):
        return None
    times = [[int(value) for value in values[:8]] for name, *values in lines if name in {f"cpu{n}" for n in cores}]
    # user, nice, system, idle, iowait, irq, softirq, steal
    return sum(sum(values) - values[3] - values[4] for values in times) / ticks if times else None


_watch: CoreWatch | None = None


def watch_cores(num_threads: int) -> CoreWatch:
    """The watch of this process, started at the first call; other threads may have become its number since."""
    global _watch
    if _watch is None:
        _watch = CoreWatch(num_threads, os.sched_getaffinity(0)).start()
    _watch.num_threads = num_threads
    return _watch
