"""A process' place among those of a run, as its launcher tells it in the environment."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from electra.config import Settings
from electra.errors import ElectraError
from electra.hardware import num_cores
from electra.launchers.job import IN_JOB


@dataclass(frozen=True)
class Place:
    """One process of a run.

    Args:
        rank, world_size: its number, and how many there are.
        local_world_size: how many there are on this machine.
        cores: that are its own, where the launcher says so.
    """

    rank: int
    world_size: int
    local_world_size: int
    cores: int | None = None

    def settings(self, settings: Settings) -> Settings:
        """The settings with the number of processes that were really started, and this one's share of the cores."""
        threads = settings.cluster.num_threads
        if threads == "auto":
            threads = self.cores or max(1, num_cores() // self.local_world_size)
        known = {"num_processes": self.world_size, "num_threads": threads}
        return settings.model_copy(update={"cluster": settings.cluster.model_copy(update=known)})


def find_place() -> Place | None:
    """This process' place, or None where nobody has started it as one of several.

    torchrun and DeepSpeed set RANK and WORLD_SIZE; a Slurm task of our job is given them here from Slurm's own names.
    """
    environment = os.environ
    if environment.get(IN_JOB) == "slurm" and "SLURM_PROCID" in environment:
        per_node = environment.get("SLURM_NTASKS_PER_NODE", environment["SLURM_NTASKS"])
        environment.update(
            RANK=environment["SLURM_PROCID"],
            WORLD_SIZE=environment["SLURM_NTASKS"],
            LOCAL_RANK=environment["SLURM_LOCALID"],
            LOCAL_WORLD_SIZE=per_node,
        )
    if "RANK" not in environment:
        return None
    world_size = int(environment.get("WORLD_SIZE", 1))
    local = int(environment.get("LOCAL_WORLD_SIZE") or environment.get("LOCAL_SIZE") or world_size)
    cores = environment.get("SLURM_CPUS_PER_TASK") if environment.get(IN_JOB) == "slurm" else None
    return Place(int(environment["RANK"]), world_size, local, int(cores) if cores else None)


@contextmanager
def first_failure_told(file: Path) -> Iterator[None]:
    """Write the exit code of a failure to ``file`` unless another process already has."""
    try:
        yield
    except ElectraError as error:
        try:
            with open(file, "x") as out:
                out.write(str(error.exit_code))
        except OSError:
            pass
        raise
