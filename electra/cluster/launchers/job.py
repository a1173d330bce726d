"""A job to launch, the interface of all launchers, the ranks of its processes, and its life cycle in a cluster's queue.

This module submits a job to a queue, waits for it, prints its output, cancels it on request, and submits it again if
the cluster ended it. If the waiting process dies, the job goes on, and the next run of the same command waits for it
instead of submitting a second one (``checkpoints/<fingerprint>/job.json``).
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from electra.cluster.hardware import num_cores
from electra.cluster.processes import EndRequest
from electra.common.artifacts import read_json, write_json
from electra.common.errors import ConfigError, DataError, ElectraError, InfrastructureError, TrainingError
from electra.config import Cluster, Settings

COMMAND = ("-m", "electra", "pretrain")  # arguments of the current interpreter, run in the workspace
IN_JOB = "ELECTRA_JOB"  # environment variable set inside a job: a process joins the others instead of submitting again


@dataclass(frozen=True)
class Job:
    """One pre-training run.

    Args:
        fingerprint: hash of its settings, data and tokenizer, the name of its folder of checkpoints.
        root: the workspace, which all nodes share.
        cluster: the machine's settings.
        num_processes: number of processes on all nodes together.
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
        """GPUs to request per node: one per process, or none for a run on CPUs."""
        return 0 if self.cluster.device == "cpu" else self.processes_per_node

    @property
    def checkpoints(self) -> Path:
        return self.root / "checkpoints" / self.fingerprint

    @property
    def folder(self) -> Path:
        """Folder of the submitted scripts and their output."""
        return self.root / "logs/pretrain/job"

    @property
    def progress_file(self) -> Path:
        return self.root / "logs/pretrain/progress.json"

    def newest_step(self) -> int:
        """Return the step of the run's newest checkpoint, 0 if there is none."""
        try:
            return int((self.checkpoints / "latest").read_text().strip().removeprefix("step_"))
        except (OSError, ValueError):
            return 0


class Launcher(Protocol):
    """Interface of a launcher, which starts pre-training and waits for its end."""

    def render(self, job: Job) -> str:
        """Return what :meth:`run` would start or submit: a command line, a script, or manifests."""
        ...

    def run(self, job: Job) -> None:
        """Start or submit the job, wait for it and print its output; end it when this process is asked to end.

        Raises:
            ElectraError: training failed; the class is that of the process that failed first.
        """
        ...


def error_of_code(exit_code: int) -> type[ElectraError]:
    """Return the error class of a process' exit code; signals and unknown codes are InfrastructureError."""
    by_code: dict[int, type[ElectraError]] = {
        error.exit_code: error for error in (ConfigError, DataError, TrainingError)
    }
    return by_code.get(exit_code, InfrastructureError)


@dataclass(frozen=True)
class Place:
    """Rank of one process of a run.

    Args:
        rank, world_size: number of this process, and number of processes.
        local_world_size: number of processes on this machine.
        cores: number of cores the launcher reserved for this process; None if unknown.
    """

    rank: int
    world_size: int
    local_world_size: int
    cores: int | None = None

    def settings(self, settings: Settings) -> Settings:
        """Return the settings with the actual number of processes and this process' share of the cores."""
        threads = settings.cluster.num_threads
        if threads == "auto":
            threads = self.cores or max(1, num_cores() // self.local_world_size)
        known = {"num_processes": self.world_size, "num_threads": threads}
        return settings.model_copy(update={"cluster": settings.cluster.model_copy(update=known)})


def find_place() -> Place | None:
    """Return the rank of this process, or None if no launcher started it.

    torchrun and DeepSpeed set RANK and WORLD_SIZE; for a Slurm task they are set here from Slurm's variables.
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
LOST_AFTER_SECONDS = 600.0  # a queue that does not respond for this long counts as lost


@dataclass(frozen=True)
class Status:
    """State of a job in a queue.

    Args:
        phase: ``gone``: the queue does not know the job (any more); ``unknown``: the queue does not respond.
        what: the queue's description of the state, for messages.
        exit_code: exit code of the training, if the queue reports it.
        is_clusters_doing: the cluster ended the job: preemption, a lost node or the time limit.
        is_cancelled: a user or an administrator ended the job in the queue.
        wrong_setting: the setting for which the job can never start; the queue still has the job.
    """

    phase: Literal["waiting", "running", "succeeded", "failed", "gone", "unknown"]
    what: str = ""
    exit_code: int | None = None
    is_clusters_doing: bool = False
    is_cancelled: bool = False
    wrong_setting: str = ""

    @property
    def is_over(self) -> bool:
        return self.phase in ("succeeded", "failed", "gone")


class Output(Protocol):
    """Reader that follows the output of a job."""

    def pass_on(self, status: Status) -> None:
        """Print new output."""
        ...

    def close(self) -> None:
        """Print the rest of the output."""
        ...


class Queue(Protocol):
    """Interface of a cluster's queue."""

    kind: str

    def submit(self, job: Job) -> str:
        """Submit the job and return its name in the queue.

        Raises:
            InfrastructureError: the queue refuses the job.
        """
        ...

    def status(self, job: Job, name: str) -> Status: ...

    def output(self, job: Job, name: str) -> Output: ...

    def end(self, job: Job, name: str) -> None:
        """Ask the job to write a checkpoint and end."""
        ...

    def kill(self, job: Job, name: str) -> None:
        """End the job at once."""
        ...


def run_to_end(queue: Queue, job: Job) -> None:
    """Submit jobs until pre-training has ended, and wait for each.

    Raises:
        ElectraError: the job failed; the class follows from the training's exit code. Or it was cancelled in the queue.
        ConfigError: the job can never start with these settings; it is removed from the queue.
        InfrastructureError: this process was asked to end, and has ended the job; or the cluster ended the job and it
            may not be submitted again (``cluster.resubmissions`` are used up, or it made no progress).
    """
    with EndRequest() as end:
        for left in range(job.cluster.resubmissions, -1, -1):
            before = job.newest_step()
            name = _running(queue, job, end) or _submit(queue, job)
            status = _wait(queue, job, name, end)
            if status.wrong_setting:
                queue.kill(job, name)
            (job.checkpoints / "job.json").unlink(missing_ok=True)
            if status.phase == "succeeded":
                return
            if end:
                raise InfrastructureError(
                    f"{end.name}: the job is cancelled ({status.what}); its newest checkpoint is of step "
                    f"{job.newest_step()}",
                    next_step="run the same command to go on",
                )
            if status.is_cancelled:  # somebody wants it to end; flows do not try exit code 1 again
                raise ElectraError(
                    f"job {queue.kind} was cancelled in the queue ({status.what}) after step {job.newest_step()}",
                    next_step="run the same command to go on",
                )
            if status.wrong_setting:
                raise ConfigError(
                    f"job {queue.kind} cannot start: {status.what}",
                    where=status.wrong_setting,
                    next_step="correct the setting or what it names, then run the same command again",
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
    write_json(job.checkpoints / "job.json", {"launcher": queue.kind, "name": name, "root": str(job.root)})
    print(f"submitted {queue.kind} job {name}; its files: {job.folder}", flush=True)
    return name


def _running(queue: Queue, job: Job, end: EndRequest) -> str | None:
    """Return the name of an earlier run's job that is still waiting or running, or None.

    Raises:
        InfrastructureError: the queue does not say whether it runs, or it works in another folder.
    """
    try:
        known = read_json(job.checkpoints / "job.json")
    except DataError:
        return None
    if known["launcher"] != queue.kind:
        return None
    deadline = time.monotonic() + LOST_AFTER_SECONDS
    # "unknown" must not count as "ended": the next job would run beside this one, or replace it
    while (status := queue.status(job, known["name"])).phase == "unknown":
        if end or time.monotonic() > deadline:
            raise InfrastructureError(
                f"{queue.kind} job {known['name']} of an earlier run may still run, and the queue does not respond: "
                f"{status.what}",
                next_step="run it again",
            )
        end.wait(SECONDS_BETWEEN_LOOKS)
    if status.is_over:
        return None
    root = known.get("root", str(job.root))  # none in files of earlier versions
    if root != str(job.root):  # clones may share their checkpoints: the job writes its outputs in the other one
        raise InfrastructureError(
            f"{queue.kind} job {known['name']} of the same settings works in {root}: its results will be there",
            next_step="wait for it or cancel it, then run the same command again",
        )
    print(f"going on to wait for {queue.kind} job {known['name']}, which an earlier run submitted", flush=True)
    return known["name"]


def _wait(queue: Queue, job: Job, name: str, end: EndRequest) -> Status:
    output, shown, answered, deadline = queue.output(job, name), "", time.monotonic(), None
    reported = -SECONDS_BETWEEN_REPORTS
    try:
        while True:
            status = queue.status(job, name)
            now = time.monotonic()
            if status.phase == "unknown" and now - answered > LOST_AFTER_SECONDS:
                raise InfrastructureError(f"the queue does not respond: {status.what}", next_step="run it again")
            if status.phase != "unknown":
                answered = now
            if status.phase == "waiting" and status.what != shown:
                shown = status.what
                print(f"{queue.kind} job {name} waits: {shown}", flush=True)
            if status.phase == "waiting" and now - reported > SECONDS_BETWEEN_REPORTS:
                # flows/watch.py ends a stage as hung if this file does not change
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
