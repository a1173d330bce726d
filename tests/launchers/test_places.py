"""Rank of a process from its environment, and the settings that follow from it."""

import pytest

from electra.cluster.launchers import job as module
from electra.cluster.launchers.job import IN_JOB, Place, find_place
from tests.workspace import Workspace


@pytest.mark.parametrize(
    ("place", "threads"),
    [
        (Place(rank=3, world_size=16, local_world_size=8), 4),  # two nodes of 8 processes, 32 cores each
        (Place(rank=0, world_size=2, local_world_size=2), 16),
        (Place(rank=0, world_size=64, local_world_size=64), 1),
        (Place(rank=0, world_size=16, local_world_size=8, cores=12), 12),
    ],
)
def test_a_process_has_its_share_of_its_own_machines_cores(
    prepared: Workspace, monkeypatch: pytest.MonkeyPatch, place: Place, threads: int
) -> None:
    monkeypatch.setattr(module, "num_cores", lambda: 32)
    settings = prepared.settings()
    settings = settings.model_copy(update={"cluster": settings.cluster.model_copy(update={"num_threads": "auto"})})
    cluster = place.settings(settings).cluster
    assert (cluster.num_threads, cluster.num_processes) == (threads, place.world_size)
    asked = settings.model_copy(update={"cluster": settings.cluster.model_copy(update={"num_threads": 3})})
    assert place.settings(asked).cluster.num_threads == 3


def test_a_task_of_a_slurm_job_finds_its_place_in_slurms_names(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    assert find_place() is None
    slurm = {"PROCID": 11, "NTASKS": 16, "LOCALID": 3, "NTASKS_PER_NODE": 8, "CPUS_PER_TASK": 12}
    for name, value in slurm.items():
        monkeypatch.setenv(f"SLURM_{name}", str(value))
    assert find_place() is None, "an interactive allocation: not our job"
    monkeypatch.setenv(IN_JOB, "slurm")
    assert find_place() == Place(rank=11, world_size=16, local_world_size=8, cores=12)
