"""A DVC stage as a Prefect task: what is tried again, what is shown while it runs, and how it ends."""

import time
from typing import Any, cast
from uuid import UUID

from prefect import get_run_logger, task
from prefect.artifacts import create_progress_artifact, update_progress_artifact
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun
from prefect.states import Completed, Failed
from prefect.tasks import Task

from flows.gpus import Devices
from flows.plan import PlannedStage
from flows.stages import InfrastructureFailure, StageFailure, StageRunner

SECONDS_BETWEEN_REPORTS = 15.0


def is_worth_a_retry(_task: Task[..., Any], _run: TaskRun, state: State[Any]) -> bool:
    """Prefect's question after a failed task: only infrastructure may behave otherwise the next time."""
    return isinstance(state.data, InfrastructureFailure)


@task(
    task_run_name="{stage.name}",
    cache_policy=NO_CACHE,  # DVC alone decides what is up to date
    retries=2,
    retry_delay_seconds=10,
    retry_condition_fn=is_worth_a_retry,
)
def run_stage(stage: PlannedStage, runner: StageRunner, devices: Devices, beside_others: bool = False) -> State[Any]:
    """Run one DVC stage; its newest lines go to the task run's log, its progress to an artifact.

    Time limits are the runner's: Prefect's own cannot end what a thread waits for. A stage that fails is an expected
    end: it is returned as a state, since Prefect logs a traceback of what is raised.

    Returns:
        Completed; named "Skipped" with DVC's reason where nothing was run, or Failed with the :class:`StageFailure`.
    """
    if not stage.out_of_date:
        return Completed(name="Skipped", message=stage.why)
    logger = get_run_logger()
    try:
        with devices.take(stage.limits.gpus_of(devices.count)) as own:
            report = ProgressReport(stage.name)
            spared = runner.run(
                stage.name, logger.info, report.show, limits=stage.limits, beside_others=beside_others, devices=own
            )
            report.finish()
    except StageFailure as failure:
        logger.error("%s", failure)
        return Failed(message=failure.headline, data=failure)
    return Completed(name="Skipped", message=spared) if spared else Completed()


class ProgressReport:
    """A stage's ``progress.json`` as a progress artifact, renewed every 15 seconds."""

    def __init__(self, stage: str):
        self.stage = stage
        self._artifact: UUID | None = None
        self._last = float("-inf")

    def show(self, progress: dict[str, Any]) -> None:
        """Take what the stage has written."""
        if time.monotonic() - self._last < SECONDS_BETWEEN_REPORTS or not progress.get("num_steps"):
            return
        self._last = time.monotonic()
        self._write(100 * progress.get("step", 0) / progress["num_steps"], describe(progress))

    def finish(self) -> None:
        """The stage has succeeded."""
        if self._artifact:
            self._write(100.0, f"{self.stage}: done")

    def _write(self, percent: float, text: str) -> None:
        if self._artifact is None:
            key = "".join(letter if letter.isalnum() else "-" for letter in f"progress-{self.stage}".lower())
            self._artifact = cast(UUID, create_progress_artifact(percent, key=key, description=text))
        else:
            update_progress_artifact(self._artifact, percent, description=text)


def describe(progress: dict[str, Any]) -> str:
    """Step, losses, speed and time left, on one line."""
    parts = [f"step {progress.get('step')} of {progress.get('num_steps')}"]
    parts += [f"{key} {value:.4g}" for key, value in progress.items() if key.endswith("_loss") and value is not None]
    if rate := progress.get("tokens_per_second"):
        parts.append(f"{rate:,} tokens/s")
    if "eta_seconds" in progress:
        parts.append(f"{progress['eta_seconds'] / 3600:.1f} hours left")
    return ", ".join(parts)
