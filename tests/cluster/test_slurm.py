"""``launcher: slurm`` against a real controller and daemon: jobs run, are cancelled, resumed and submitted again."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.loopback_slurm import CannotStart, LoopbackSlurm
from tests.pretrain.test_resume import EVERY_STEP, wait_for_checkpoint, weights
from tests.workspace import ROOT, Workspace

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]
CLUSTER = {"launcher": "slurm", "num_processes": 2, "checkpoint_minutes": EVERY_STEP, "grace_seconds": 30}


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoopbackSlurm]:
    try:
        with LoopbackSlurm(tmp_path_factory.mktemp("slurm")) as running:
            yield running
    except CannotStart as reason:
        pytest.skip(f"no Slurm here: {reason}")


def head(workspace: Workspace, slurm: LoopbackSlurm) -> subprocess.Popen[str]:
    """``electra pretrain`` as on a node that can submit jobs."""
    environment = {**os.environ, **slurm.environment, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-m", "electra", "pretrain"],
        cwd=workspace.root,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def end_of(process: subprocess.Popen[str]) -> tuple[int, str]:
    output, _ = process.communicate(timeout=240)
    return process.returncode, output


def jobs(slurm: LoopbackSlurm) -> list[str]:
    return slurm.run("squeue", "--noheader", "--format", "%i").stdout.split()


def reference(workspace: Workspace) -> Workspace:
    """The same run by two processes of the local launcher."""
    other = workspace.copy("local")
    other.write({"cluster": {"num_processes": 2}})
    other.pretrain()
    return other


def test_job_runs_is_cancelled_and_resumed(workspace: Workspace, slurm: LoopbackSlurm) -> None:
    local = reference(workspace)
    workspace.write({"cluster": CLUSTER})
    process = head(workspace, slurm)
    wait_for_checkpoint(workspace, process, 5)
    process.send_signal(signal.SIGTERM)
    code, output = end_of(process)
    assert code == 5, output
    assert "asking slurm job" in output and "the job is cancelled" in output and "Traceback" not in output, output
    assert "a checkpoint is saved" in output, "the tasks' own words are passed on"
    assert not jobs(slurm), "nothing is left in the queue"

    code, output = end_of(head(workspace, slurm))
    assert code == 0, output
    assert "resuming electra at step" in output and "on 2 x cpu" in output
    assert weights(workspace) == weights(local), "two tasks learn what two local processes learn, to the last bit"
    assert workspace.curve() == local.curve()


def test_killed_head_leaves_a_job_that_the_next_run_waits_for(workspace: Workspace, slurm: LoopbackSlurm) -> None:
    workspace.write({"cluster": CLUSTER}, pretrain={"num_steps": 400, "eval_every": 200})
    process = head(workspace, slurm)
    wait_for_checkpoint(workspace, process, 5)
    process.kill()
    process.wait()
    assert len(jobs(slurm)) == 1
    code, output = end_of(head(workspace, slurm))
    assert code == 0, output
    assert "going on to wait for slurm job" in output and "submitted slurm job" not in output


def test_job_that_meets_its_time_limit_is_submitted_again(workspace: Workspace, slurm: LoopbackSlurm) -> None:
    """The warning signal is sent by hand: Slurm's own time limits are counted in minutes."""
    workspace.write({"cluster": CLUSTER})
    process = head(workspace, slurm)
    wait_for_checkpoint(workspace, process, 3)
    (job,) = jobs(slurm)
    slurm.run("scancel", "--signal=USR1", job)
    code, output = end_of(process)
    assert code == 0, output
    assert "submitting it again" in output and "resuming electra at step" in output


def test_job_that_slurm_puts_back_into_the_queue_is_waited_for(workspace: Workspace, slurm: LoopbackSlurm) -> None:
    """What preemption and lost nodes do to a job."""
    workspace.write({"cluster": CLUSTER})
    process = head(workspace, slurm)
    wait_for_checkpoint(workspace, process, 3)
    (job,) = jobs(slurm)
    assert slurm.run("scontrol", "requeue", job).returncode == 0
    deadline = time.monotonic() + 60
    while slurm.run("squeue", "--noheader", "--jobs", job, "--format", "%T").stdout.strip() != "PENDING":
        assert time.monotonic() < deadline
        time.sleep(0.5)
    slurm.run("scontrol", "update", f"JobId={job}", "StartTime=now")  # it would wait for two minutes
    code, output = end_of(process)
    assert code == 0, output
    assert output.count("submitted slurm job") == 1


def test_exit_code_of_the_training_is_that_of_the_command(workspace: Workspace, slurm: LoopbackSlurm) -> None:
    workspace.write({"cluster": CLUSTER}, model={"initializer_range": 1e25}, pretrain={"num_steps": 6, "eval_every": 6})
    code, output = end_of(head(workspace, slurm))
    assert code == 4, output
    assert "no longer finite" in output and "submitting it again" not in output


def test_script_that_slurm_refuses_ends_with_its_words(workspace: Workspace, slurm: LoopbackSlurm) -> None:
    workspace.write({"cluster": {**CLUSTER, "slurm": {"partition": "nowhere"}}})
    code, output = end_of(head(workspace, slurm))
    assert code == 5, output
    assert "invalid partition" in output and Path(workspace.root / "logs/pretrain/job/job.sh").is_file()
