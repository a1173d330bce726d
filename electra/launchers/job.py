"""A job to launch, the interface of all launchers, where its processes run, and its life in a cluster's queue.

In a queue a job is submitted, waited for, its output passed on, cancelled, and submitted again where the cluster ended
it. The process that waits may die: the job does not, and the next run of the same command waits for it instead of
submitting a second one (``checkpoints/<fingerprint>/job.json``).
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from electra.common.artifacts import read_json, write_json
from electra.common.errors import ConfigError, DataError, ElectraError, InfrastructureError, TrainingError
from electra.config import Cluster, Settings
from electra.system.hardware import num_cores
from electra.system.processes import EndRequest

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


SECONDS_BETWEEN_LOOKS = 2.0
SECONDS_BETWEEN_REPORTS = 30.0
LOST_AFTER_SECONDS = 600.0  # a queue that does not answer for so long


@dataclass(frozen=True)
class Status:
    """State of a job in a queue.

    Args:
        phase: ``gone``: the queue knows no such job (any more); ``unknown``: the queue does not answer.
        what: its own words, for messages.
        exit_code: of the training, where the queue tells it.
        is_clusters_doing: ended by preemption, a lost node or the time limit.
    """

    phase: Literal["waiting", "running", "succeeded", "failed", "gone", "unknown"]
    what: str = ""
    exit_code: int | None = None
    is_clusters_doing: bool = False

    @property
    def is_over(self) -> bool:
        return self.phase in ("succeeded", "failed", "gone")


class Output(Protocol):
    """Follow the output of a job."""

    def pass_on(self, status: Status) -> None:
        """Print what is new."""
        ...

    def close(self) -> None:
        """Print the rest."""
        ...


class Queue(Protocol):
    """A cluster's queue."""

    kind: str

    def submit(self, job: Job) -> str:
        """Hand the job in. Returns the name the queue knows it by.

        Raises:
            InfrastructureError: the queue refuses it.
        """
        ...

    def status(self, job: Job, name: str) -> Status: ...

    def output(self, job: Job, name: str) -> Output: ...

    def end(self, job: Job, name: str) -> None:
        """Ask the job to write a checkpoint and end."""
        ...

    def kill(self, job: Job, name: str) -> None:
        """End it at once."""
        ...


def run_to_end(queue: Queue, job: Job) -> None:
    """Wait for the pre-training's end, through as many jobs as it takes.

    Raises:
        ElectraError: the job failed; its class is that of the training's exit code.
        InfrastructureError: this process was told to end, and has ended the job; or the cluster ended it and it may
            not be submitted again (``cluster.resubmissions``, or it got no further than the one before).
    """
    with EndRequest() as end:
        for left in range(job.cluster.resubmissions, -1, -1):
            before = job.newest_step()
            status = _wait(queue, job, _running(queue, job) or _submit(queue, job), end)
            (job.checkpoints / "job.json").unlink(missing_ok=True)
            if status.phase == "succeeded":
                return
            if end:
                raise InfrastructureError(
                    f"{end.name}: the job is cancelled ({status.what}); its newest checkpoint is of step "
                    f"{job.newest_step()}",
                    next_step="run the same command to go on",
                )
            failure = error_of_code(status.exit_code or 0)
            got_further = job.newest_step() > before
            if failure is not InfrastructureError or not left or not (got_further or status.is_clusters_doing):
                raise failure(
                    f"job {queue.kind}: {status.what}",
                    where=str(job.folder),
                    next_step="it says why above; run the same command to go on from the last checkpoint",
                )
            print(f"job ended ({status.what}) after step {job.newest_step()}: submitting it again", flush=True)


def _submit(queue: Queue, job: Job) -> str:
    name = queue.submit(job)
    write_json(job.checkpoints / "job.json", {"launcher": queue.kind, "name": name})
    print(f"submitted {queue.kind} job {name}; its files: {job.folder}", flush=True)
    return name


def _running(queue: Queue, job: Job) -> str | None:
    """The job of an earlier run that waits or runs still."""
    with suppress(DataError):
        known = read_json(job.checkpoints / "job.json")
        if known["launcher"] == queue.kind and queue.status(job, known["name"]).phase in ("waiting", "running"):
            print(f"going on to wait for {queue.kind} job {known['name']}, which an earlier run submitted", flush=True)
            return known["name"]
    return None


def _wait(queue: Queue, job: Job, name: str, end: EndRequest) -> Status:
    output, told, answered, deadline = queue.output(job, name), "", time.monotonic(), None
    reported = -SECONDS_BETWEEN_REPORTS
    try:
        while True:
            status = queue.status(job, name)
            now = time.monotonic()
            if status.phase == "unknown" and now - answered > LOST_AFTER_SECONDS:
                raise InfrastructureError(f"the queue does not answer: {status.what}", next_step="run it again")
            if status.phase != "unknown":
                answered = now
            if status.phase == "waiting" and status.what != told:
                told = status.what
                print(f"{queue.kind} job {name} waits: {told}", flush=True)
            if status.phase == "waiting" and now - reported > SECONDS_BETWEEN_REPORTS:
                # who takes a silent stage for one that hangs looks at this file
                reported = now
                waits = {"stage": "pretrain", "waits": f"{queue.kind} job {name}: {status.what}"}
                write_json(job.progress_file, {**waits, "time": round(time.time())})
            output.pass_on(status)
            if status.is_over:
                return status
            if end and deadline is None:
                print(f"{end.name}: asking {queue.kind} job {name} to write a checkpoint and end", flush=True)
                queue.end(job, name)
                deadline = now + job.cluster.grace_seconds
            if deadline is not None and now > deadline:
                queue.kill(job, name)
                deadline = now + job.cluster.grace_seconds
            if deadline is None:
                end.wait(SECONDS_BETWEEN_LOOKS)
            else:
                time.sleep(SECONDS_BETWEEN_LOOKS)
    finally:
        output.close()
