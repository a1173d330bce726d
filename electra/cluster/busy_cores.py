"""Threads that share cores with other processes: shorter spinning, and warnings.

PyTorch uses libgomp's threads, which spin at the end of every operation, some milliseconds at most, until the slowest
thread is done. This is fastest on idle cores. If another process uses one of the cores, the slowest thread is one that
waits for a core while the others spin on it: training is twenty times slower beside one busy process on two cores.
``OMP_WAIT_POLICY=passive`` turns spinning off permanently, which halves the speed of a small model on idle cores.
Therefore this module shortens spinning only while other processes use the cores, and the run's log reports it.
Results do not change: the number of threads and their work stay the same.
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
LOOKS_BEFORE_WARNING = 30
SHORT_FROM, LONG_AGAIN = 0.4, 0.25  # hysteresis: cores that the threads lack
MIN_SHARE = 1 / 3  # share of the time that a run's threads could use
SECONDS_BETWEEN_WARNINGS = 600.0
_CHOSEN_BY_USER = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")


class ShortWaits:
    """Switch for libgomp's short spinning: 100 iterations instead of 300,000.

    libgomp shortens spinning itself while it manages more threads than there are cores (``gomp_managed_threads`` and
    ``gomp_throttled_spin_count_var`` in its sources). Switching on starts a second, sleeping team of threads to reach
    that number; the team ends with the thread that holds it.
    """

    def __init__(self) -> None:
        self._over: threading.Event | None = None

    @property
    def are_on(self) -> bool:
        return self._over is not None

    def switch(self, on: bool) -> None:
        """Switch short spinning on or off; no effect with another OpenMP runtime or a wait policy set by the user."""
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
    """Return the libgomp that PyTorch has loaded, or None."""
    try:
        library = ctypes.CDLL("libgomp.so.1", mode=os.RTLD_NOW | os.RTLD_NOLOAD)
        return library if hasattr(library, "GOMP_parallel") else None
    except (OSError, AttributeError):  # not loaded; RTLD_NOLOAD does not exist on this system
        return None


def _hold_team(library: ctypes.CDLL, over: threading.Event, ready: threading.Event) -> None:
    nothing_to_do = ctypes.cast(library.omp_get_thread_num, ctypes.c_void_p)
    threads = library.omp_get_num_procs() + 1
    library.GOMP_parallel(nothing_to_do, None, ctypes.c_uint(threads), ctypes.c_uint(0))
    ready.set()
    over.wait()


class CoreWatch:
    """Monitor of how much of this machine's cores other processes use, in a thread that nearly always sleeps.

    Args:
        num_threads: number of threads of this process' operations.
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
        """Update the share of the cores from the times since the last call.

        Args:
            now, busy, own: cumulative seconds of the clock, of work on all cores, and of this process' work on them.
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
        """Return a warning if others left this run less than a third of its time for half a minute; else None.

        At most one every ``SECONDS_BETWEEN_WARNINGS``.
        """
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
            "separate cores"
        )


def busy_seconds(cores: Collection[int], file: Path = Path("/proc/stat")) -> float | None:
    """Return how many seconds these cores have worked so far, for any process or other machine on the same host.

    None if the system does not report it.
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
    """Return this process' monitor, started at the first call, with its number of threads updated."""
    global _watch
    if _watch is None:
        _watch = CoreWatch(num_threads, os.sched_getaffinity(0)).start()
    _watch.num_threads = num_threads
    return _watch
