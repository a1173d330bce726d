"""Running one stage: failures that are retried, destination of the output, and that no process is left."""

import sys
import threading
import time

import psutil
import pytest

from flows.stages import InfrastructureFailure, StageFailure, StageRunner, classify


def exited(code: int) -> list[str]:
    return ["Running stage 'x':", f"ERROR: failed to reproduce 'x': failed to run: electra x, exited with {code}"]


@pytest.mark.parametrize("code", [1, 2, 3, 4])
def test_a_users_mistake_or_a_defect_is_not_worth_a_retry(code):
    failure = classify("x", exited(code))
    assert not isinstance(failure, InfrastructureFailure)
    assert failure.exit_code == code


@pytest.mark.parametrize(
    "lines",
    [
        exited(5),
        exited(-9),
        exited(137),
        ["requests.exceptions.ConnectionError: Max retries exceeded", *exited(1)],
        ["ERROR: failed to reproduce 'x': Unable to acquire lock. Most likely another DVC process is running"],
        ["ERROR: failed to reproduce 'x': 'data' is busy, it is being blocked by:", "  (PID 7): dvc repro"],
    ],
    ids=["exit 5", "killed", "killed below a shell", "network", "repository lock", "path lock"],
)
def test_infrastructure_is_worth_a_retry(lines):
    failure = classify("x", lines)
    assert isinstance(failure, InfrastructureFailure)
    assert failure.exit_code == 5


def test_failed_data_that_mentions_the_network_is_still_failed_data():
    lines = ["row 3 of reviews.tsv: 'ConnectionError'", *exited(3)]
    assert classify("x", lines).exit_code == 3


def runs(code: str):
    """A runner whose stages are a piece of Python instead of DVC."""
    return lambda stage: [sys.executable, "-c", code]


def test_all_output_is_kept_and_the_end_of_it_is_said(tmp_path):
    said: list[str] = []
    code = "print('Running stage'); [print('line', i) for i in range(100)]; print('> electra x')"
    StageRunner(tmp_path, runs(code)).run("x", said.append)
    assert len((tmp_path / "logs/x.log").read_text().splitlines()) == 102
    assert said == ["line 0", "line 97", "line 98", "line 99"]


def test_the_log_can_be_read_while_the_stage_runs(tmp_path):
    seen: list[str] = []
    code = "import time; print('first', flush=True); time.sleep(0.5); print('second')"
    log = tmp_path / "logs/x.log"
    StageRunner(tmp_path, runs(code)).run("x", lambda line: seen.append(log.read_text()))
    assert seen[0] == "first\n"


def test_stages_side_by_side_have_the_threads_that_they_have_alone(tmp_path, monkeypatch):
    """On a CPU the number of threads decides the order of sums in encoders of other makes."""
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    said: list[str] = []
    code = "import os; print(os.environ.get('OMP_NUM_THREADS'), os.environ.get('OMP_WAIT_POLICY'))"
    for num_threads in (None, "3"):
        monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
        if num_threads:
            monkeypatch.setenv("OMP_NUM_THREADS", num_threads)
        for beside_others in (False, True):
            StageRunner(tmp_path, runs(code)).run("x", said.append, beside_others=beside_others)
    assert said == ["None None", "None passive", "3 None", "3 passive"]


def test_stop_ends_the_stage_and_everything_it_started(tmp_path):
    code = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "print(child.pid, flush=True); time.sleep(600)"
    )
    said: list[str] = []
    started = threading.Event()
    runner = StageRunner(tmp_path, runs(code))
    failures: list[BaseException] = []

    def run() -> None:
        try:
            runner.run("x", lambda line: (said.append(line), started.set()))
        except StageFailure as failure:
            failures.append(failure)

    thread = threading.Thread(target=run)
    thread.start()
    assert started.wait(60)
    runner.stop()
    thread.join(60)
    assert not thread.is_alive()
    grandchild = int(said[0])
    deadline = time.monotonic() + 30
    while psutil.pid_exists(grandchild) and psutil.Process(grandchild).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline, "the stage's child lives on"
        time.sleep(0.05)
    assert not isinstance(failures[0], InfrastructureFailure), "a stopped stage must not be tried again"
