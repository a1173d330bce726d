"""Many flow runs one after the other: no leaked process, file handle or disk beyond the bounds below.

``python -m tests.cluster.soak [--runs 50]``. Runs go through server, deployment and worker; all stages run every time.
"""

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.cluster.cheap import make, set_number
from tests.cluster.prefect_site import ROOT, Site, site, wait_until, worker

# A server keeps a row of every run, task and log line; a workspace keeps every result in its cache, a log per stage.
MAX_HANDLES = 10  # more than after the first runs, of server and worker each
MAX_KILOBYTES_PER_RUN = 1000
MAX_MEMORY_GROWTH = 1.5  # of server and worker each
WARM_UP = 3
SECONDS_TO_END = 30


@dataclass(frozen=True)
class Use:
    """Resources of a site at one moment: processes, handles and memory [MiB] of server and worker, bytes on disk."""

    processes: int
    handles: dict[str, int]
    memory: dict[str, float]
    disk: int
    temporary: int

    def __str__(self) -> str:
        memory = {name: round(mebibytes) for name, mebibytes in self.memory.items()}
        return (
            f"{self.processes} processes, handles {self.handles}, MiB {memory}, {self.disk / 1e6:.1f} MB on disk, "
            f"{self.temporary} entries in the temporary folder"
        )


def measure(place: Site, at: dict[str, psutil.Process], workspace: Path) -> Use:
    own = [process for root in at.values() for process in [root, *root.children(recursive=True)]]
    handles, memory = {}, {}
    for name, process in at.items():
        family = [process, *process.children(recursive=True)]
        handles[name] = sum(member.num_fds() for member in family)
        memory[name] = sum(member.memory_info().rss for member in family) / 2**20
    disk = sum(file.stat().st_size for root in (place.folder, workspace) for file in root.rglob("*") if file.is_file())
    return Use(len(own), handles, memory, disk, len(list(place.temporary.iterdir())))


def soak(place: Site, workspace: Path, runs: int, before_each: Callable[[int], object]) -> tuple[Use, Use]:
    """Do the runs; returns what was in use after the first few and after all."""
    with worker(place, workspace) as process:
        server = next(p for p in psutil.process_iter() if place_of(p) == str(place.port))
        at = {"server": server, "worker": psutil.Process(process.pid)}
        for number in range(1, runs + 1):
            before_each(number)
            set_number(workspace, number)
            run_id = place.start_run("train_encoder/process", workspace={"root": str(workspace)}, parallel=2)
            assert place.wait_for_run(run_id) == "COMPLETED", f"run {number}"
            wait_until(lambda: not runs_of(at["worker"]), SECONDS_TO_END, f"the process of run {number} to end")
            if number == WARM_UP:
                first = measure(place, at, workspace)
            if number == WARM_UP or number % 10 == 0:
                print(f"after run {number}: {measure(place, at, workspace)}", flush=True)
        return first, measure(place, at, workspace)


def runs_of(worker: psutil.Process) -> list[psutil.Process]:
    """The processes of flow runs: a run is over before its process is."""
    found = []
    for process in worker.children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if "prefect.engine" in process.cmdline():
                found.append(process)
    return found


def place_of(process: psutil.Process) -> str | None:
    """The port of a Prefect server's first process."""
    try:
        line = process.cmdline()
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return None
    return line[line.index("--port") + 1] if "server" in line and "--port" in line else None


def judge(first: Use, last: Use, runs: int) -> None:
    """Print what grew, and fail where it is more than the bounds."""
    kilobytes = (last.disk - first.disk) / 1000 / (runs - WARM_UP)
    print(f"processes: {first.processes} -> {last.processes}")
    for name in first.handles:
        print(f"{name}: handles {first.handles[name]} -> {last.handles[name]}, ", end="")
        print(f"memory {first.memory[name]:.0f} -> {last.memory[name]:.0f} MiB")
        assert last.handles[name] <= first.handles[name] + MAX_HANDLES
        assert last.memory[name] <= first.memory[name] * MAX_MEMORY_GROWTH
    print(f"disk: {kilobytes:.0f} kB per run; entries of the temporary folder: {first.temporary} -> {last.temporary}")
    assert last.processes <= first.processes
    assert kilobytes <= MAX_KILOBYTES_PER_RUN


def main(before_each: Callable[[int], object] = lambda _: None) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=50)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="electra-soak-"))
    start = time.monotonic()
    with site(folder / "site") as place:
        place.run("electra", "cluster", "init", cwd=ROOT)
        place.run("prefect", "--no-prompt", "deploy", "--all", cwd=ROOT)
        workspace = make(place, folder / "workspace")
        first, last = soak(place, workspace, options.runs, before_each)
    print(f"{options.runs} runs in {time.monotonic() - start:.0f} s")
    judge(first, last, options.runs)
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
