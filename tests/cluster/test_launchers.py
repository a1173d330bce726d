"""Every way to start two processes learns the same, to the last bit."""

import os
import subprocess
import sys

import psutil
import pytest

from electra.cluster.processes import free_port
from electra.cluster.run_facts import machine_file
from tests.pretrain.test_resume import EVERY_STEP, wait_for_checkpoint, weights
from tests.workspace import ROOT, Workspace

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def reference(prepared: Workspace) -> Workspace:
    local = prepared.copy("reference")
    local.write({"cluster": {"num_processes": 2}}).pretrain()
    return local


def start(workspace: Workspace, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "electra", "pretrain"],
        cwd=workspace.root,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def assert_all_well(*nodes: subprocess.Popen[str]) -> None:
    outputs = [node.communicate(timeout=240)[0] for node in nodes]
    assert [node.returncode for node in nodes] == [0] * len(nodes), "\n".join(outputs)
    assert any("on 2 x cpu" in output for output in outputs)


def test_deepspeed_on_this_machine(workspace: Workspace, reference: Workspace) -> None:
    workspace.write({"cluster": {"launcher": "deepspeed", "num_processes": 2}})
    assert_all_well(start(workspace))
    assert weights(workspace) == weights(reference)
    assert machine_file(workspace.paths).exists() and machine_file(reference.paths).exists()


def test_torchrun_with_a_command_on_each_of_two_nodes(workspace: Workspace, reference: Workspace) -> None:
    """Both nodes are this machine; the second has no checkpoints folder of its own."""
    endpoint = {"endpoint": f"127.0.0.1:{free_port()}"}
    cluster = {"launcher": "torchrun", "num_nodes": 2, "num_processes": 2, "torchrun": endpoint}
    second = workspace.write({"cluster": cluster}).copy("second")
    assert_all_well(start(workspace), start(second))
    assert sorted(w.paths.pretrained.exists() for w in (workspace, second)) == [False, True]
    first, other = (workspace, second) if workspace.paths.pretrained.exists() else (second, workspace)
    assert weights(first) == weights(reference)
    assert machine_file(first.paths).exists() and not machine_file(other.paths).exists()


def test_pods_of_an_indexed_job(workspace: Workspace, reference: Workspace) -> None:
    """What the pods run, with the environment that the rendered Job gives them."""
    settings = {"image": "i", "volume_claim": "c"}
    cluster = {"launcher": "kubernetes", "num_nodes": 2, "num_processes": 2, "kubernetes": settings}
    workspace.write({"cluster": cluster})
    meeting = {"ELECTRA_JOB": "kubernetes", "RENDEZVOUS": f"127.0.0.1:{free_port()}"}
    assert_all_well(*(start(workspace, NODE_RANK=str(rank), **meeting) for rank in range(2)))
    assert weights(workspace) == weights(reference)
    assert machine_file(workspace.paths).exists()


def test_failure_of_one_process_is_the_exit_code_under_deepspeed(workspace: Workspace) -> None:
    cluster = {"launcher": "deepspeed", "num_processes": 2}
    workspace.write({"cluster": cluster}, model={"initializer_range": 1e25}, pretrain={"num_steps": 6, "eval_every": 6})
    process = start(workspace)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 4, output
    assert "no longer finite" in output and "Traceback" not in output


def test_process_that_never_comes_is_missed_in_time(workspace: Workspace) -> None:
    workspace.write({"cluster": {"num_processes": 2, "timeout_minutes": 0.1}})
    place = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1"}
    process = start(workspace, **place, MASTER_PORT=str(free_port()))
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 5, output
    assert "did not meet all 2 processes" in output and "Traceback" not in output, output


def test_stopped_process_ends_the_run_in_time_and_is_named(workspace: Workspace) -> None:
    """A machine that hangs: SIGSTOP to the second of two processes."""
    cluster = {"num_processes": 2, "timeout_minutes": 0.1, "grace_seconds": 2, "checkpoint_minutes": EVERY_STEP}
    workspace.write({"cluster": cluster}, pretrain={"num_steps": 20000, "eval_every": 10000})
    process = start(workspace)
    wait_for_checkpoint(workspace, process, 5)
    second = next(c for c in psutil.Process(process.pid).children(recursive=True) if c.environ().get("RANK") == "1")
    second.suspend()
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 5, output
    assert "no sign of life from process 1 (" in output and "Traceback" not in output, output
    assert not second.is_running(), "nobody is left"
