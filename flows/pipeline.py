"""The pipeline as a Prefect flow: every DVC stage a task, in graph order, fine-tuning cells side by side.

``python -m flows.pipeline`` runs it with nothing else started: Prefect brings a server of its own for as long as the
flow runs, or uses the one that ``PREFECT_API_URL`` names. It ends with the failing stage's exit code.
"""

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from prefect import flow, get_run_logger, task
from prefect.artifacts import create_markdown_artifact
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun
from prefect.states import Completed, Failed
from prefect.task_runners import ThreadPoolTaskRunner
from prefect.tasks import Task

from flows.plan import PlannedStage, batches, make_plan
from flows.stages import InfrastructureFailure, StageFailure, StageRunner

SCORE_CARD = Path("results/report.md")


def is_worth_a_retry(_task: Task[..., Any], _run: TaskRun, state: State[Any]) -> bool:
    """Prefect's question after a failed task: only infrastructure may behave otherwise the next time."""
    return isinstance(state.data, InfrastructureFailure)


@task(
    task_run_name="{stage}",
    cache_policy=NO_CACHE,  # DVC alone decides what is up to date
    retries=2,
    retry_delay_seconds=10,
    retry_condition_fn=is_worth_a_retry,
)
def run_stage(stage: str, runner: StageRunner, num_threads: int | None = None) -> State[Any]:
    """Run one DVC stage; its newest lines go to the task run's log.

    A stage that fails is an expected end: it is returned as a state, since Prefect logs a traceback of what is raised.
    """
    logger = get_run_logger()
    try:
        runner.run(stage, logger.info, num_threads)
    except StageFailure as failure:
        logger.error("%s", failure)
        return Failed(message=failure.headline, data=failure)
    return Completed()


@flow(name="train-encoder")
def train_encoder(root: Path = Path("."), parallel: int | None = None) -> State[Any]:
    """Run every stage that is out of date.

    A single stage uses the whole machine and runs alone; cells of a matrix run side by side, each with its share of
    the cores. When a stage fails, those that run beside it still end, and no later one starts.

    Args:
        root: the folder that holds ``dvc.yaml``.
        parallel: cells side by side; by default one per core.

    Returns:
        The final state; a failed one carries the :class:`StageFailure` of the first stage that failed.
    """
    logger = get_run_logger()
    cores = os.cpu_count() or 1
    parallel = parallel or cores
    runner = StageRunner(root)
    try:
        plan = make_plan(root)
    except StageFailure as failure:
        logger.error("%s", failure)
        return Failed(message=failure.headline, data=failure)
    for stage in plan:
        logger.info("%s: %s", stage.name, "to run" if stage.out_of_date else "up to date, skipped")
    pool: ThreadPoolTaskRunner[Any] = ThreadPoolTaskRunner(max_workers=parallel)
    with pool:
        try:
            for batch in batches([stage for stage in plan if stage.out_of_date]):
                num_threads = max(1, cores // min(len(batch), parallel)) if len(batch) > 1 else None
                if failed := _run_batch(batch, pool, runner, num_threads):
                    return Failed(message=failed.headline, data=failed)
        except BaseException:  # also Ctrl-C and the termination signal: nothing that was started may live on
            runner.stop()
            raise
    card = root / SCORE_CARD
    if card.is_file():
        create_markdown_artifact(card.read_text(encoding="utf-8"), key="score-card", description="Score card")
        logger.info("score card: %s", card)
    return Completed()


def _run_batch(
    batch: list[PlannedStage], pool: ThreadPoolTaskRunner[Any], runner: StageRunner, num_threads: int | None
) -> StageFailure | None:
    """Run stages side by side and wait for all of them; the first failure, if there is one."""
    futures = []
    for stage in batch:
        kind = stage.name.partition("@")[0]
        parameters = {"stage": stage.name, "runner": runner, "num_threads": num_threads}
        futures.append(pool.submit(run_stage.with_options(name=kind, tags=[kind]), parameters=parameters))
    results = [future.result(raise_on_failure=False) for future in futures]
    for result in results:
        if isinstance(result, StageFailure):
            return result
        if isinstance(result, BaseException):
            raise result
    return None


def main(arguments: list[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m flows.pipeline", description="Run every stage that is out of date")
    parser.add_argument("--parallel", type=int, help="fine-tuning cells side by side (default: one per core)")
    options = parser.parse_args(arguments)
    try:
        result = train_encoder(parallel=options.parallel, return_state=True).result(raise_on_failure=False)
    except KeyboardInterrupt:
        print("interrupted: run the same command again to go on", file=sys.stderr)
        return 130
    if isinstance(result, StageFailure):
        print(f"error: {result.headline}", file=sys.stderr)
        return result.exit_code
    if isinstance(result, BaseException):
        raise result
    return 0


if __name__ == "__main__":
    sys.exit(main())
