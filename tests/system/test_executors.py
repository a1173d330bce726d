"""Mapping jobs over processes of this machine: order, bounds, failures, and that no process is left."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from electra.cluster.executors import job_folder, open_workers, whole_file
from electra.common.errors import DataError, InfrastructureError
from electra.config import Cluster
from tests.reliability.jobs import die, refuse, slow_square
from tests.workspace import ROOT

TWO = Cluster(num_workers=2)


def test_results_come_in_the_order_of_the_jobs_and_few_jobs_are_taken_ahead(tmp_path: Path) -> None:
    taken = 0

    def jobs() -> Iterator[tuple[int, Path]]:
        nonlocal taken
        for taken in range(1, 11):
            yield taken - 1, tmp_path / "log"

    with open_workers(TWO, 10, tmp_path, "x") as workers:
        for number, result in enumerate(workers.map(slow_square, jobs())):
            assert result == number * number
            assert taken <= number + 4, "at most twice as many jobs as workers are in flight"
    assert taken == 10


def test_a_single_job_needs_no_other_process_and_is_done_when_asked_for(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with open_workers(TWO, 1, tmp_path, "x") as workers:
        results = workers.map(slow_square, [(3, log)])
        assert workers.in_process and not log.exists()
        assert list(results) == [9]


def test_the_error_of_a_job_is_what_it_is_without_workers(tmp_path: Path) -> None:
    messages = []
    for num_workers in (1, 2):
        cluster = Cluster(num_workers=num_workers)
        with open_workers(cluster, 2, tmp_path, "x") as workers, pytest.raises(DataError) as error:
            list(workers.map(refuse, [(tmp_path / f"log{num_workers}",)]))
        messages.append((str(error.value), error.value.where, error.value.next_step))
        assert (tmp_path / f"log{num_workers}").read_text() == "called\n"
    assert messages[0] == messages[1]


def test_a_worker_that_dies_is_an_error_that_speaks_of_memory_and_not_a_hang(tmp_path: Path) -> None:
    with (
        open_workers(TWO, 3, tmp_path, "shards.x") as workers,
        pytest.raises(InfrastructureError) as error,
    ):
        list(workers.map(die, [(1,), (2,), (3,)]))
    assert error.value.exit_code == 5
    assert "memory" in str(error.value) and "shards.x" in str(error.value)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_workers_die_with_the_command(tmp_path: Path, number: signal.Signals) -> None:
    program = (
        "import sys; from pathlib import Path\n"
        "from electra.config import Cluster\n"
        "from electra.cluster.executors import open_workers\n"
        "from electra.cluster.processes import exit_on_sigterm\n"
        "from tests.reliability.jobs import sleep_for_long\n"
        "if __name__ == '__main__':\n"
        "    folder = Path(sys.argv[1])\n"
        "    with exit_on_sigterm(), open_workers(Cluster(num_workers=2), 2, folder, 'x') as workers:\n"
        "        list(workers.map(sleep_for_long, [(folder / 'a',), (folder / 'b',)]))\n"
    )
    (tmp_path / "program.py").write_text(program)
    command = [sys.executable, str(tmp_path / "program.py"), str(tmp_path)]
    process = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    logs = [tmp_path / "a", tmp_path / "b"]
    while not all(log.exists() and log.read_text() for log in logs):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(number)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == (-9 if number == signal.SIGKILL else 5)
    assert "Traceback" not in errors
    for log in logs:
        while psutil.pid_exists(pid := int(log.read_text())) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
            assert time.monotonic() < deadline, "a worker lives on"
            time.sleep(0.02)


def test_files_of_jobs_are_gone_from_the_folder_even_when_a_lost_worker_still_writes(tmp_path: Path) -> None:
    folder = tmp_path / "artefact"
    folder.mkdir()
    with job_folder(folder) as scratch, open(scratch / "late", "w") as late:
        with whole_file(folder / "result") as beside:
            beside.write_text("whole")
            assert not (folder / "result").exists()
        with pytest.raises(ZeroDivisionError), whole_file(folder / "other") as beside:
            beside.write_text("half")
            raise ZeroDivisionError
        late.write("too late")
    with pytest.raises(FileNotFoundError):
        (scratch / "new").touch()
    assert [path.name for path in tmp_path.rglob("*")] == ["artefact", "result"]
