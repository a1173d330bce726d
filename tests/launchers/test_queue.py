"""Waiting for jobs of a queue: which ends are final, which are submitted again, and what a signal does."""

import os
import signal
import threading
from pathlib import Path

import pytest

from electra.cluster.launchers import job as queue_module
from electra.cluster.launchers.job import Job, Status, run_to_end
from electra.cluster.launchers.slurm import FIRST_FAILURE, SlurmLauncher
from electra.common.errors import ConfigError, ElectraError, InfrastructureError, TrainingError
from electra.config import Cluster

SUCCEEDED = Status("succeeded")
RUNNING = Status("running")


class NoOutput:
    def pass_on(self, status: Status) -> None: ...
    def close(self) -> None: ...


class FakeQueue:
    """Jobs whose statuses are written down before; each submission also moves the run's newest checkpoint."""

    kind = "slurm"

    def __init__(self, *jobs: list[Status], steps: tuple[int, ...] = ()):
        self.jobs, self.steps = list(jobs), list(steps)
        self.submitted, self.asked, self.killed = 0, 0, 0

    def submit(self, job: Job) -> str:
        self.submitted += 1
        if self.steps:
            job.checkpoints.mkdir(parents=True, exist_ok=True)
            (job.checkpoints / "latest").write_text(f"step_{self.steps.pop(0):09d}\n")
        return str(self.submitted)

    def status(self, job: Job, name: str) -> Status:
        statuses = self.jobs[int(name) - 1]
        return statuses.pop(0) if len(statuses) > 1 else statuses[0]

    def output(self, job: Job, name: str) -> NoOutput:
        return NoOutput()

    def end(self, job: Job, name: str) -> None:
        self.asked += 1
        self.jobs[int(name) - 1] = [RUNNING, Status("failed", "FAILED, exit code 5", 5)]

    def kill(self, job: Job, name: str) -> None:
        self.killed += 1
        self.jobs[int(name) - 1] = [Status("gone")]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_module, "SECONDS_BETWEEN_LOOKS", 0.01)


def job(root: Path, **cluster: object) -> Job:
    return Job("0123456789ab", root, Cluster.model_validate(cluster), 2)


def failed(code: int, **more: object) -> Status:
    return Status("failed", f"exit code {code}", code, **more)  # type: ignore[arg-type]


def test_job_that_succeeds_is_submitted_once(tmp_path: Path) -> None:
    queue = FakeQueue([Status("waiting", "PENDING"), RUNNING, Status("unknown", "no answer"), SUCCEEDED])
    run_to_end(queue, job(tmp_path))
    assert queue.submitted == 1
    assert "slurm job 1: PENDING" in job(tmp_path).progress_file.read_text(), "a job that waits does not look hung"


@pytest.mark.parametrize(("code", "kind"), [(2, ConfigError), (4, TrainingError)])
def test_job_that_would_fail_again_is_not_submitted_again(tmp_path: Path, code: int, kind: type[Exception]) -> None:
    queue = FakeQueue([failed(code)], steps=(7,))
    with pytest.raises(kind):
        run_to_end(queue, job(tmp_path))
    assert queue.submitted == 1


def test_job_that_got_further_is_submitted_again_and_one_that_did_not_is_not(tmp_path: Path) -> None:
    queue = FakeQueue([failed(5)], [failed(5)], [failed(5)], steps=(10, 20, 20))
    with pytest.raises(InfrastructureError, match="exit code 5"):
        run_to_end(queue, job(tmp_path))
    assert queue.submitted == 3


def test_preempted_job_is_submitted_again_though_it_had_no_time_to_get_further(tmp_path: Path) -> None:
    queue = FakeQueue([failed(0, is_clusters_doing=True)], [SUCCEEDED])
    run_to_end(queue, job(tmp_path))
    assert queue.submitted == 2


def test_job_that_is_cancelled_in_the_queue_is_not_submitted_again(tmp_path: Path) -> None:
    queue = FakeQueue([RUNNING, failed(5, is_cancelled=True)], [SUCCEEDED], steps=(10, 20))
    with pytest.raises(ElectraError, match="cancelled in the queue.*after step 10") as raised:
        run_to_end(queue, job(tmp_path))
    assert queue.submitted == 1 and raised.value.exit_code == 1, "a flow would try exit code 5 again"


def test_job_that_this_process_cancels_is_reported_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = FakeQueue([RUNNING])
    monkeypatch.setattr(queue, "end", lambda job, name: queue.jobs.__setitem__(0, [failed(5, is_cancelled=True)]))
    threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGTERM)).start()
    with pytest.raises(InfrastructureError, match="SIGTERM: the job is cancelled"):
        run_to_end(queue, job(tmp_path))


def test_resubmissions_are_counted(tmp_path: Path) -> None:
    queue = FakeQueue([failed(5)], [failed(5)], steps=(10, 20))
    with pytest.raises(InfrastructureError):
        run_to_end(queue, job(tmp_path, resubmissions=1))
    assert queue.submitted == 2


@pytest.mark.parametrize("met", [RUNNING, Status("waiting", "PENDING, Resources")])
def test_job_of_an_earlier_run_is_waited_for(tmp_path: Path, capsys: pytest.CaptureFixture[str], met: Status) -> None:
    one = FakeQueue([met])
    queue_module._submit(one, job(tmp_path))
    one.jobs = [[met, RUNNING, SUCCEEDED]]
    run_to_end(one, job(tmp_path))
    assert one.submitted == 1 and "which an earlier run submitted" in capsys.readouterr().out
    assert not (tmp_path / "checkpoints/0123456789ab/job.json").exists()


def test_job_of_an_earlier_run_is_waited_for_though_the_queue_does_not_answer_at_once(tmp_path: Path) -> None:
    queue = FakeQueue([RUNNING])
    queue_module._submit(queue, job(tmp_path))
    queue.jobs = [[Status("unknown", "scontrol does not respond"), RUNNING, SUCCEEDED]]
    run_to_end(queue, job(tmp_path))
    assert queue.submitted == 1


def test_no_job_is_submitted_while_an_earlier_one_may_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_module, "LOST_AFTER_SECONDS", 0.05)
    queue = FakeQueue([Status("unknown", "slurmctld is down")])
    queue_module._submit(queue, job(tmp_path))
    with pytest.raises(InfrastructureError, match="job 1 of an earlier run may still run.*slurmctld is down"):
        run_to_end(queue, job(tmp_path))
    assert queue.submitted == 1
    assert (tmp_path / "checkpoints/0123456789ab/job.json").exists(), "the next run asks for the same job"


def test_job_that_works_in_another_clone_is_not_waited_for(tmp_path: Path) -> None:
    one, other = job(tmp_path / "one"), job(tmp_path / "other")
    for clone in (one, other):
        clone.root.mkdir()
        (clone.root / "checkpoints").symlink_to(tmp_path / "shared")
    one.checkpoints.resolve().mkdir(parents=True)
    queue = FakeQueue([RUNNING, SUCCEEDED])
    queue_module._submit(queue, one)
    with pytest.raises(InfrastructureError, match=f"slurm job 1 of the same settings works in {one.root}"):
        run_to_end(queue, other)
    assert queue.submitted == 1
    assert (one.checkpoints / "job.json").exists(), "the other run still waits for its job"


def test_signal_asks_the_job_to_end_and_waits_for_its_checkpoint(tmp_path: Path) -> None:
    queue = FakeQueue([RUNNING])
    threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGTERM)).start()
    with pytest.raises(InfrastructureError, match="SIGTERM: the job is cancelled"):
        run_to_end(queue, job(tmp_path))
    assert queue.asked == 1 and queue.killed == 0
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL, "the handler is given back"


def test_job_that_does_not_end_in_time_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = FakeQueue([RUNNING])
    monkeypatch.setattr(queue, "end", lambda job, name: None)
    threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(InfrastructureError, match="SIGINT"):
        run_to_end(queue, job(tmp_path, grace_seconds=1))
    assert queue.killed == 1


def test_queue_that_does_not_answer_for_long_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_module, "LOST_AFTER_SECONDS", 0.05)
    with pytest.raises(InfrastructureError, match="does not respond"):
        run_to_end(FakeQueue([Status("unknown", "slurmctld is down")]), job(tmp_path))


@pytest.mark.parametrize(
    ("state", "first_failure", "code", "is_clusters_doing"),
    [
        (
            "State=FAILED ExitCode=137:0",
            "4\n",
            4,
            False,
        ),  # srun's code is the highest, of a process ended by the others
        ("State=FAILED ExitCode=2:0", None, 2, False),
        ("State=FAILED ExitCode=2:0", "", 2, False),  # killed while it was written
        ("State=PREEMPTED ExitCode=0:15", "5\n", 5, True),
        ("State=CANCELLED ExitCode=0:15", None, 0, False),
    ],
)
def test_slurm_job_that_failed_has_the_code_of_the_process_that_failed_first(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    state: str,
    first_failure: str | None,
    code: int,
    is_clusters_doing: bool,
) -> None:
    scontrol = tmp_path / "bin/scontrol"
    scontrol.parent.mkdir()
    scontrol.write_text(f"#!/bin/sh\necho 'JobId=7 Job{state} Reason=None'\n")
    scontrol.chmod(0o755)
    monkeypatch.setenv("PATH", f"{scontrol.parent}:{os.environ['PATH']}")
    failed_job = job(tmp_path)
    if first_failure is not None:
        failed_job.folder.mkdir(parents=True)
        (failed_job.folder / FIRST_FAILURE).write_text(first_failure)
    status = SlurmLauncher().status(failed_job, "7")
    assert (status.phase, status.exit_code, status.is_clusters_doing) == ("failed", code, is_clusters_doing)
    assert status.is_cancelled == ("CANCELLED" in state)
