"""Jobs of a cluster's queue: submit, wait, pass the output on, cancel, and submit again what the cluster ended.

The process that waits may die: the job does not, and the next run of the same command waits for it instead of
submitting a second one (``checkpoints/<fingerprint>/job.json``).
"""

import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal, Protocol

from electra.common.artifacts import read_json, write_json
from electra.common.errors import DataError, InfrastructureError
from electra.launchers.job import Job, error_of_code
from electra.system.processes import EndRequest

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
