"""Slowdown of a short pre-training by busy processes, and whether it warns. Busy and idle runs alternate.

    python -m benchmarks.busy_cores --busy 3 --steps 600 --repeats 2

The busy processes only count, at normal priority. If others use the machine too, the idle runs are not idle: the cores
in use are printed with each run.
"""

import argparse
import multiprocessing
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.estimate_hours import SHAPES, workspace
from benchmarks.measure import table
from benchmarks.workspace import run_stage
from electra.cluster.busy_cores import busy_seconds


def count_for_ever() -> None:
    """Keep one core busy."""
    number = 0
    while True:
        number += 1


def timed_run(root: Path, busy: int) -> tuple[float, float, bool]:
    """Return the seconds of `electra pretrain`, the busy cores meanwhile (the run's included), and if it warned."""
    others = [multiprocessing.get_context("spawn").Process(target=count_for_ever, daemon=True) for _ in range(busy)]
    for process in others:
        process.start()
    try:
        for name in ("models", "checkpoints", "results"):
            shutil.rmtree(root / name, ignore_errors=True)
        cores = os.sched_getaffinity(0)
        before, started = busy_seconds(cores), time.monotonic()
        output = run_stage(root, "pretrain")
        seconds = time.monotonic() - started
        used = ((busy_seconds(cores) or 0.0) - (before or 0.0)) / seconds
        return seconds, used, "WARNING other processes use the cores" in output
    finally:
        for process in others:
            process.kill()
            process.join()


def main() -> int:
    """Print a row per run and the ratio of the medians; return 1 if it is above 3 or the warning is missing."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--busy", type=int, default=3, help="processes that count")
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--shape", choices=SHAPES, default="narrow")
    options = parser.parse_args()
    times: dict[int, list[float]] = {0: [], options.busy: []}
    rows, warned = [], []
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "run"
        workspace(root, options.shape, options.steps)
        for _ in range(options.repeats):
            for busy, found in times.items():
                seconds, used, said = timed_run(root, busy)
                found.append(seconds)
                warned.append(said or not busy)
                rows.append([str(busy), f"{seconds:.1f}", f"{used:.1f}", "yes" if said else "no"])
    print(table(["busy processes", "seconds", "cores in use", "warned"], rows))
    ratio = statistics.median(times[options.busy]) / statistics.median(times[0])
    print(f"{ratio:.2f} times as long beside {options.busy} (at most 3); load average {os.getloadavg()[0]:.1f}")
    return int(ratio > 3 or not all(warned))


if __name__ == "__main__":
    sys.exit(main())
