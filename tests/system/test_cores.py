"""Cores shared with others: threads stop spinning, resume it later, and a run with few cores warns."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from electra.cluster.busy_cores import (
    LOOKS_BEFORE_WARNING,
    SECONDS_BETWEEN_WARNINGS,
    CoreWatch,
    ShortWaits,
    busy_seconds,
)
from electra.cluster.hardware import num_cores
from tests.workspace import ROOT

STAT = """cpu  1000 0 0 0 0 0 0 0 0 0
cpu0 100 20 30 5000 700 4 5 6 0 0
cpu1 200 0 0 5000 700 0 0 0 0 0
cpu12 400 0 0 0 0 0 0 0 0 0
intr 12 0
"""


class Waits(ShortWaits):
    """Recorder of the requested waits."""

    asked = False

    @property
    def are_on(self) -> bool:
        return self.asked

    def switch(self, on: bool) -> None:
        self.asked = on


def watch_of(num_threads: int, cores: int = 2) -> CoreWatch:
    watch = CoreWatch(num_threads, range(cores))
    watch.waits = Waits()
    return watch


def look(watch: CoreWatch, others: float, own: float = 1.0, times: int = 1) -> None:
    """Looks, two seconds apart, at other processes and our own that use so many cores."""
    now, busy, ours = watch._seen or (0.0, 0.0, 0.0)
    if watch._seen is None:
        watch.look(now, busy, ours)
    for number in range(1, times + 1):
        watch.look(now + 2 * number, busy + 2 * number * (own + others), ours + 2 * number * own)


def test_busy_time_is_that_of_the_process_own_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sysconf", lambda name: 100)
    (tmp_path / "stat").write_text(STAT)
    assert busy_seconds([0], tmp_path / "stat") == pytest.approx(1.65), "not idle, not waiting for disks; stolen counts"
    assert busy_seconds({0, 1}, tmp_path / "stat") == pytest.approx(3.65)
    assert busy_seconds([7], tmp_path / "stat") is None
    assert busy_seconds([0], tmp_path / "absent") is None


@pytest.mark.parametrize(
    ("num_threads", "cores", "others", "short"),
    [
        (2, 2, 0.0, False), (2, 2, 0.2, False), (2, 2, 0.6, True), (2, 2, 1.4, True),
        (1, 2, 2.0, False),  # nobody to wait for
        (4, 8, 4.0, False), (4, 8, 4.6, True),  # there is room, or not
    ],
)  # fmt: skip
def test_waits_are_short_where_the_threads_lack_cores(num_threads: int, cores: int, others: float, short: bool) -> None:
    watch = watch_of(num_threads, cores)
    look(watch, others)
    assert watch.waits.are_on == short
    assert watch.used_by_others == pytest.approx(others)


def test_waits_are_long_again_when_the_others_are_gone_and_do_not_flicker() -> None:
    watch = watch_of(2)
    for others, short in ((0.3, False), (0.6, True), (0.3, True), (0.1, False), (0.3, False)):
        look(watch, others)
        assert watch.waits.are_on == short, others


def test_a_run_that_gets_less_than_a_third_says_so_now_and_then() -> None:
    watch = watch_of(2)
    look(watch, 1.6, times=LOOKS_BEFORE_WARNING - 1)
    assert watch.warning(now=0.0) is None, "a moment is no complaint"
    look(watch, 1.6)
    said = watch.warning(now=100.0)
    assert said and "other processes use the cores: 1.6 of 2" in said and "load average" in said and "20%" in said
    assert watch.warning(now=100 + SECONDS_BETWEEN_WARNINGS / 2) is None
    assert watch.warning(now=101 + SECONDS_BETWEEN_WARNINGS)


@pytest.mark.parametrize(("num_threads", "others"), [(2, 0.0), (2, 1.2), (1, 1.0)])
def test_a_run_that_gets_a_third_is_silent(num_threads: int, others: float) -> None:
    watch = watch_of(num_threads)
    look(watch, others, times=LOOKS_BEFORE_WARNING)
    assert watch.warning(now=0.0) is None


SPINNING = """
import ctypes, sys, time
from electra.cluster.busy_cores import ShortWaits

gomp = ctypes.CDLL(sys.argv[1])
nothing = ctypes.cast(gomp.omp_get_thread_num, ctypes.c_void_p)

def cpu_seconds():
    gomp.GOMP_parallel(nothing, None, ctypes.c_uint(2), ctypes.c_uint(0))
    before = time.process_time()
    for _ in range(20):
        gomp.GOMP_parallel(nothing, None, ctypes.c_uint(2), ctypes.c_uint(0))
        time.sleep(0.02)  # the second thread waits for more to do
    return time.process_time() - before

waits, seconds = ShortWaits(), [cpu_seconds()]
for on in (True, False):
    waits.switch(on)
    time.sleep(0.1)  # a team that ends takes a moment
    seconds.append(cpu_seconds())
print(*seconds)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="libgomp is the OpenMP runtime of PyTorch on Linux")
@pytest.mark.skipif(num_cores() < 2, reason="two threads on one core never spin for long")
def test_short_waits_spare_the_processor_and_end() -> None:
    """In a process of its own without PyTorch: how threads wait is read from the environment when libgomp is loaded."""
    (folder,) = importlib.util.find_spec("torch").submodule_search_locations
    library = Path(folder) / "lib/libgomp.so.1"
    if not library.is_file():
        pytest.skip(f"PyTorch comes without its own OpenMP runtime here: no {library}")
    command = [sys.executable, "-c", SPINNING, str(library)]
    done = subprocess.run(command, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True)
    long, short, long_again = map(float, done.stdout.split())
    assert short < long / 3 and short < long_again / 3, done.stdout


def test_how_the_user_lets_threads_wait_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_WAIT_POLICY", "active")
    waits = ShortWaits()
    waits.switch(True)
    assert not waits.are_on
