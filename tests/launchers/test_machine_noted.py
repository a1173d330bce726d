"""``results/machine.json`` of pre-training is written by the first process that trains, on its machine."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from electra.cli import stages
from electra.cluster import hardware
from electra.cluster.launchers import job as queue_module
from electra.cluster.launchers import pretraining
from electra.cluster.launchers.job import IN_JOB
from electra.common.errors import ConfigError
from tests.workspace import Workspace

PLACE = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "OMP_NUM_THREADS", IN_JOB)
KUBERNETES = {"image": "i", "volume_claim": "c"}
OF_THE_GPU_NODE = {"pretrain": {"processor": "A CPU", "cores": 96, "device": "cuda", "minutes": 3.0}}
STAND_INS = {
    "sbatch": "echo 7",
    # PENDING, RUNNING, then COMPLETED
    "scontrol": """state=$(head -n 1 {folder}/states); sed -i 1d {folder}/states
echo "JobId=7 JobState=${{state:-COMPLETED}} Reason=None ExitCode=0:0" """,
}


@pytest.fixture
def here(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """Return a workspace in the current folder, on a host without a GPU, in which training takes no time."""
    monkeypatch.chdir(workspace.root)
    monkeypatch.setattr(hardware, "cuda_state", lambda: (False, ""))
    monkeypatch.setattr("electra.pretrain.run.pretrain", lambda settings, paths: None)
    monkeypatch.setattr(pretraining, "start_processes", lambda *arguments, **more: None)
    monkeypatch.setattr(pretraining, "die_with_parent", lambda: None)
    monkeypatch.setattr(queue_module, "SECONDS_BETWEEN_LOOKS", 0.01)
    for name in PLACE:  # set, too, so that what the command sets is undone
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    (workspace.root / "results").mkdir(exist_ok=True)
    return workspace


def noted(workspace: Workspace) -> dict[str, Any]:
    file = workspace.root / "results/machine.json"
    return json.loads(file.read_text()) if file.exists() else {}


@pytest.mark.parametrize("device", ["cuda", "auto"])
def test_host_that_submits_leaves_the_note_of_the_job_and_needs_no_gpu(
    here: Workspace, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, device: str
) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, script in STAND_INS.items():
        (programs / name).write_text("#!/bin/sh\n" + script.format(folder=tmp_path))
        (programs / name).chmod(0o755)
    (tmp_path / "states").write_text("PENDING\nRUNNING\n")
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    here.write({"cluster": {"launcher": "slurm", "num_processes": 2, "device": device}})
    (here.root / "results/machine.json").write_text(json.dumps(OF_THE_GPU_NODE))
    stages.pretrain(render=False)
    assert noted(here) == OF_THE_GPU_NODE


@pytest.mark.parametrize(
    ("cluster", "environment", "is_noted"),
    [
        ({}, {}, True),
        ({"num_processes": 2}, {"RANK": "0", "WORLD_SIZE": "2"}, True),  # of torchrun and DeepSpeed, too
        ({"num_processes": 2}, {"RANK": "1", "WORLD_SIZE": "2"}, False),
        ({"launcher": "slurm", "num_processes": 2}, {IN_JOB: "slurm", "SLURM_PROCID": "0"}, True),
        ({"launcher": "slurm", "num_processes": 2}, {IN_JOB: "slurm", "SLURM_PROCID": "1"}, False),
        # a pod starts its processes, which have ranks, and inherit its environment
        ({"launcher": "kubernetes", "num_processes": 2, "kubernetes": KUBERNETES}, {IN_JOB: "kubernetes"}, False),
        (
            {"launcher": "kubernetes", "num_processes": 2, "kubernetes": KUBERNETES},
            {IN_JOB: "kubernetes", "RANK": "0", "WORLD_SIZE": "2"},
            True,
        ),
    ],
    ids=["local", "process 0", "process 1", "slurm task 0", "slurm task 1", "pod", "process 0 of a pod"],
)
def test_first_process_that_trains_notes_its_machine(
    here: Workspace,
    monkeypatch: pytest.MonkeyPatch,
    cluster: dict[str, Any],
    environment: dict[str, str],
    is_noted: bool,
) -> None:
    slurm = {"SLURM_NTASKS": "2", "SLURM_NTASKS_PER_NODE": "2", "SLURM_LOCALID": "0", "SLURM_CPUS_PER_TASK": "1"}
    for name, value in {**slurm, "NODE_RANK": "0", "RENDEZVOUS": "a:1", **environment}.items():
        monkeypatch.setenv(name, value)
    here.write({"cluster": cluster})
    stages.pretrain(render=False)
    assert ("pretrain" in noted(here)) == is_noted


@pytest.mark.parametrize("error", [ConfigError("there is no CUDA device"), ValueError("no such processor")])
def test_machine_that_cannot_be_noted_does_not_fail_the_stage(
    here: Workspace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception
) -> None:
    def fail(*arguments: object) -> None:
        raise error

    monkeypatch.setattr("electra.cluster.run_facts.note_machine", fail)
    stages.pretrain(render=False)
    assert f"the machine of pretrain is not recorded: {error}" in capsys.readouterr().out
