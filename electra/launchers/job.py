"""A job to launch, the interface of all launchers, and where a job's processes run."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from electra.common.errors import ConfigError, DataError, ElectraError, InfrastructureError, TrainingError
from electra.config import Cluster, Settings
from electra.system.hardware import num_cores

COMMAND = ("-m", "electra", "pretrain")  # of this very Python, in the workspace
IN_JOB = "ELECTRA_JOB"  # environment of a process inside a job: it joins the others instead of submitting again


@dataclass(frozen=True)
class Job:
    """One pre-training to be run.

    Args:
        fingerprint: of its settings, data and tokenizer: the name of its checkpoints.
        root: the workspace, which all nodes share.
        cluster: the machine's settings.
        num_processes: of all nodes together.
    """

    fingerprint: str
    root: Path
    cluster: Cluster
    num_processes: int

    @property
    def name(self) -> str:
        """Name of the job in queues."""
        return f"electra-pretrain-{self.fingerprint}"

    @property
    def processes_per_node(self) -> int:
        return self.num_processes // self.cluster.num_nodes

    @property
    def gpus_per_node(self) -> int:
        """To ask a queue for: one per process, unless the run is on the CPU."""
        return 0 if self.cluster.device == "cpu" else self.processes_per_node

    @property
    def checkpoints(self) -> Path:
        return self.root / "checkpoints" / self.fingerprint

    @property
    def folder(self) -> Path:
        """Scripts and output of what was submitted."""
        return self.root / "logs/pretrain/job"

    @property
    def progress_file(self) -> Path:
        return self.root / "logs/pretrain/progress.json"

    def newest_step(self) -> int:
        """Of the run's checkpoints, as a measure of how far it got; 0 without one."""
        try:
            return int((self.checkpoints / "latest").read_text().strip().removeprefix("step_"))
        except (OSError, ValueError):
            return 0


class Launcher(Protocol):
    """Starts pre-training somewhere and waits for its end."""

    def render(self, job: Job) -> str:
        """Describe what :meth:`run` would start or submit: a command line, a script, manifests."""
        ...

    def run(self, job: Job) -> None:
        """Start or submit, wait, pass the output on; end everything when this process is told to end.

        Raises:
            ElectraError: training ended otherwise than well; its class is that of the process that failed first.
        """
        ...


def error_of_code(exit_code: int) -> type[ElectraError]:
    """The kind of failure that a process' exit code stands for; signals and unknown codes are infrastructure's."""
    by_code: dict[int, type[ElectraError]] = {
        error.exit_code: error for error in (ConfigError, DataError, TrainingError)
    }
    return by_code.get(exit_code, InfrastructureError)


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
    """This process' place, or None where it was not started as one of several.

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
