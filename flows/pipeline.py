"""Flows that run all stages or a part of them. Each DVC stage is a Prefect task; independent ones run side by side.

``python -m flows.pipeline`` runs all stages and needs no other process: Prefect starts a temporary server for the flow,
or uses the one that ``PREFECT_API_URL`` names. It ends with the failing stage's exit code.
"""

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import Annotated, Any, cast
from uuid import UUID

import yaml
from prefect import flow, get_run_logger
from prefect.artifacts import (
    create_link_artifact,
    create_markdown_artifact,
    create_progress_artifact,
    create_table_artifact,
    update_progress_artifact,
)
from prefect.assets import Asset
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun
from prefect.futures import PrefectConcurrentFuture
from prefect.runtime import flow_run
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect.states import Completed, Failed
from prefect.task_runners import ThreadPoolTaskRunner
from prefect.tasks import MaterializingTask, Task, exponential_backoff
from prefect.utilities.names import generate_slug
from pydantic import Field

from electra.cluster.processes import GRACE, end_with_parent
from electra.cluster.run_facts import run_name
from flows.assets import assets_of, facts_of, sources_of
from flows.events import emit_alarm, emit_changed_texts
from flows.guard import run_guarded
from flows.plan import (
    PlannedStage,
    cells_per_gpu,
    cells_per_machine,
    check_settings,
    dvc,
    kind_of,
    longest_grace,
    make_plan,
    watch_inputs,
)
from flows.side_by_side import Rules, run_side_by_side, shares_cores
from flows.stages import InfrastructureFailure, StageFailure, StageRunner
from flows.watch import Devices
from flows.workspace import Workspace, opened

SECONDS_BETWEEN_REPORTS = 15.0


def is_worth_a_retry(_task: Task[..., Any], _run: TaskRun, state: State[Any]) -> bool:
    """Return whether to retry a failed task (Prefect's ``retry_condition_fn``): only after infrastructure failures."""
    return isinstance(state.data, InfrastructureFailure)


@partial(
    MaterializingTask,  # as `materialize`, which refuses to have no assets; each stage gets its own, if it has one
    assets=(),
    materialized_by="dvc",
    task_run_name="{stage.name}",
    cache_policy=NO_CACHE,  # DVC alone decides what is up to date
    retries=2,
    retry_delay_seconds=exponential_backoff(10),  # 10 and 20 seconds
    retry_jitter_factor=0.3,  # runs that lost the same server do not come back all at once
    retry_condition_fn=is_worth_a_retry,
)
def run_stage(
    stage: PlannedStage,
    runner: StageRunner,
    devices: Devices,
    beside_others: bool = False,
    asset: Asset | None = None,
) -> State[Any]:
    """Run one DVC stage; its newest lines go to the task run's log, its progress to an artifact.

    The runner enforces time limits: Prefect's cannot end a process that a thread waits for. A failed stage is returned
    as a state instead of raised, since Prefect logs a traceback for exceptions.

    Returns:
        Completed, named "Skipped" with DVC's reason if nothing was run; or Failed with the :class:`StageFailure`.
    """
    logger = get_run_logger()
    try:
        with devices.take(stage.limits.gpus_of(devices.count), stage.limits.shares_gpu) as own:
            report = ProgressReport(stage.name)
            skipped = runner.run(
                stage.name, logger.info, report.show, limits=stage.limits, beside_others=beside_others, devices=own
            )
            report.finish()
    except StageFailure as failure:
        logger.error("%s", failure)
        return Failed(message=failure.headline, data=failure)
    if asset:
        asset.add_metadata({"dvc": skipped or "the stage ran", **facts_of(runner.root, stage.name)})
    return Completed(name="Skipped", message=skipped) if skipped else Completed()


class ProgressReport:
    """What Prefect shows of a stage's ``progress.json``: an event for each alarm, and a progress artifact.

    The artifact is updated at most every 15 seconds.
    """

    def __init__(self, stage: str):
        self.stage = stage
        self.num_alarms = 0
        self._artifact: UUID | None = None
        self._last = float("-inf")

    def show(self, progress: dict[str, Any]) -> None:
        """Emit events for new alarms, and update the artifact, from the content of ``progress.json``."""
        alarms = progress.get("alarms", [])
        for alarm in alarms[self.num_alarms :]:
            emit_alarm(alarm)
        self.num_alarms = len(alarms)
        if time.monotonic() - self._last < SECONDS_BETWEEN_REPORTS or not progress.get("num_steps"):
            return
        self._last = time.monotonic()
        self._write(100 * progress.get("step", 0) / progress["num_steps"], describe(progress))

    def finish(self) -> None:
        """Set the artifact to 100% after the stage has succeeded."""
        if self._artifact:
            self._write(100.0, f"{self.stage}: done")

    def _write(self, percent: float, text: str) -> None:
        if self._artifact is None:
            key = "".join(letter if letter.isalnum() else "-" for letter in f"progress-{self.stage}".lower())
            self._artifact = cast(UUID, create_progress_artifact(percent, key=key, description=text))
        else:
            update_progress_artifact(self._artifact, percent, description=text)


def describe(progress: dict[str, Any]) -> str:
    """Return step, losses, speed and time left on one line."""
    parts = [f"step {progress.get('step')} of {progress.get('num_steps')}"]
    parts += [f"{key} {value:.4g}" for key, value in progress.items() if key.endswith("_loss") and value is not None]
    if rate := progress.get("tokens_per_second"):
        parts.append(f"{rate:,} tokens/s")
    if "eta_seconds" in progress:
        parts.append(f"{progress['eta_seconds'] / 3600:.1f} hours left")
    return ", ".join(parts)


DATA = ("validate_corpus", "validate_shards", "validate_tasks")
EVALUATION = ("evaluate", "report")
HERE = Workspace()
# Parameters of flows: Prefect refuses others when a run is created
Slots = Annotated[int, Field(ge=1)]
Gpus = Annotated[int, Field(ge=0)]
GUARDED = "ELECTRA_FLOW_GUARDED"  # set in the process that a guard runs


def name_of_this_run() -> str:
    """Return the name of the current flow run, for Prefect."""
    return name_of(flow_run.parameters.get("workspace", HERE))


def name_of(workspace: Workspace | dict[str, Any]) -> str:
    """Return a run's name: profile, method and changed settings, the same as the folder of its curves.

    Runs in a clone get a random name, which is also the name of the clone's folder.
    """
    workspace = Workspace.model_validate(workspace)
    if workspace.repository is not None:
        return generate_slug(2)
    try:
        common = yaml.safe_load((workspace.root / "params.yaml").read_text(encoding="utf-8"))
        profile, method = common["profile"], common["pretrain"]["objective"]
        if method is None:
            own = (workspace.root / "params" / f"{profile}.yaml").read_text(encoding="utf-8")
            method = yaml.safe_load(own)["pretrain"]["objective"]
        return run_name(profile, method, workspace.root)
    except (OSError, yaml.YAMLError, KeyError, TypeError):
        return generate_slug(2)  # the check reports the problem


@flow(name="train_encoder", flow_run_name=name_of_this_run)
def train_encoder(workspace: Workspace = HERE, parallel: Slots | None = None, gpus: Gpus = 0) -> State[Any]:
    """Run every stage that is out of date: text in, an encoder and its score card out."""
    return bring_up_to_date(workspace, (), parallel, gpus)


@flow(name="prepare_data", flow_run_name=name_of_this_run)
def prepare_data(workspace: Workspace = HERE, parallel: Slots | None = None) -> State[Any]:
    """Build and validate corpus, vocabulary, shards and tasks. Needs no GPU."""
    return bring_up_to_date(workspace, DATA, parallel, 0)


@flow(name="pretrain", flow_run_name=name_of_this_run)
def pretrain(workspace: Workspace = HERE, gpus: Gpus = 0) -> State[Any]:
    """Pre-train the model, and run the stages it depends on."""
    return bring_up_to_date(workspace, ["pretrain"], None, gpus)


@flow(name="evaluate", flow_run_name=name_of_this_run)
def evaluate(workspace: Workspace = HERE, parallel: Slots | None = None, gpus: Gpus = 0) -> State[Any]:
    """Fine-tune, score and write the score card, and run the stages they depend on."""
    return bring_up_to_date(workspace, EVALUATION, parallel, gpus)


def bring_up_to_date(workspace: Workspace, targets: Sequence[str], parallel: int | None, gpus: int) -> State[Any]:
    """Run the stages that are out of date, among the targets and the stages they depend on.

    A stage starts when those it depends on have ended and it has its turn. Each has as many threads as under
    ``dvc repro``: their number changes rounding in third-party encoders (docs/architecture.md).
    When a stage fails, those that run beside it still end, and no later one starts.

    Args:
        workspace: where to run.
        targets: names of stages, with or without the cell of a matrix; all stages if empty.
        parallel: stages side by side; by default :func:`cells_per_gpu` on each GPU, or :func:`cells_per_machine`.
        gpus: how many GPUs the run may use.

    Returns:
        The final state; a failed one carries the :class:`StageFailure` of the first stage that failed.
    """
    logger = get_run_logger()
    if "PREFECT__FLOW_RUN_ID" in os.environ:  # started by a worker: cancelling ends the parent process of this one
        end_with_parent()
    try:
        with opened(workspace, flow_run.name, logger.warning) as root:
            plan = PLANNED.get() or checked_plan(root, targets)
            show_plan(plan)
            lines = [f"{s.name}: {'to run' if s.out_of_date else 'skipped'} ({s.why})" for s in plan]
            logger.info("plan:\n%s", "\n".join(lines))
            if not any(stage.out_of_date for stage in plan):
                emit_changed_texts(root)
                return Completed(name="Skipped", message=f"{len(plan)} of {len(plan)} stages are up to date")
            project = Path(workspace.repository or root.resolve()).name.removesuffix(".git")
            run_stages(root, plan, parallel, Devices(gpus, cells_per_gpu(root, gpus)), assets_of(plan, project))
            emit_changed_texts(root)
            show_results(root, logger.warning)
            if (root / SCORE_CARD).is_file():
                logger.info("score card: %s", root / SCORE_CARD)
    except StageFailure as failure:
        logger.error("%s", failure)
        return Failed(message=failure.headline, data=failure)
    return Completed()


# Plan made by the command before its flow, so that DVC reads the graph once. DVC skips stages run elsewhere meanwhile.
PLANNED: ContextVar[list[PlannedStage] | None] = ContextVar("PLANNED", default=None)


def checked_plan(root: Path, targets: Sequence[str]) -> list[PlannedStage]:
    """Check the settings, update the inputs that DVC tracks, and return the plan.

    Raises:
        StageFailure: settings, inputs or ``dvc.yaml`` are invalid.
    """
    check_settings(root)
    watch_inputs(root)
    return make_plan(root, targets)


def plan_of_this_folder() -> list[PlannedStage] | None:
    """Return the plan of the current folder; None without ``dvc.yaml``, an error that the flow reports."""
    if not Path("dvc.yaml").is_file():
        return None
    with opened(HERE, "") as root:
        return checked_plan(root, ())


def run_stages(
    root: Path, plan: list[PlannedStage], parallel: int | None, devices: Devices, assets: dict[str, Asset]
) -> None:
    """Run the stages of a plan that are out of date, each as a task, which materializes the stage's asset if any.

    Raises:
        StageFailure: the failure of the first stage that failed.
    """
    slots = parallel or devices.count * devices.cells_per_gpu or cells_per_machine(root)
    rules = Rules(slots, shares_cores(root), has_gpus=devices.count > 0)
    runner = StageRunner(root)
    pool: ThreadPoolTaskRunner[Any] = ThreadPoolTaskRunner(max_workers=slots)
    tasks: dict[str, PrefectConcurrentFuture[Any]] = {}

    def start(stage: PlannedStage) -> Future[State[Any]]:
        kind, asset = kind_of(stage.name), assets.get(stage.name)
        one = run_stage.with_options(
            name=kind,
            tags=[kind],
            assets=[asset] if asset else [],
            asset_deps=list(sources_of(stage, plan, assets)),
        )
        parameters = {"stage": stage, "runner": runner, "devices": devices, "asset": asset}
        parameters["beside_others"] = not rules.is_alone(stage)
        upstream = [tasks[name] for name in stage.upstream if name in tasks]  # have ended: Prefect shows the edges
        tasks[stage.name] = pool.submit(one, parameters=parameters, wait_for=upstream)
        return tasks[stage.name].wrapped_future

    with pool:
        try:
            ended = list(run_side_by_side(plan, rules, start, lambda state: not state.is_completed()))
        except BaseException:  # also Ctrl-C and SIGTERM: every started process must end
            runner.stop()
            raise
    for _, state in ended:
        if not state.is_completed():
            failure = state.result(raise_on_failure=False)
            raise failure if isinstance(failure, BaseException) else RuntimeError(state.message)


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit code.

    Without a configured server, one is started for the run, unless every stage is up to date.
    """
    parser = argparse.ArgumentParser(prog="python -m flows.pipeline", description="Run every stage that is out of date")
    parser.add_argument(
        "--parallel",
        type=_slots,
        help="stages side by side (default: two, or more where cluster.num_threads leaves cores)",
    )
    options = parser.parse_args(arguments)
    try:
        plan = plan_of_this_folder() if PREFECT_API_URL.value() is None else None
        if plan and not any(stage.out_of_date for stage in plan):
            print(f"{len(plan)} of {len(plan)} stages are up to date: nothing to run")
            return 0
        PLANNED.set(plan)
        with temporary_server() if PREFECT_API_URL.value() is None else nullcontext():
            result = train_encoder(parallel=options.parallel, return_state=True).result(raise_on_failure=False)
    except StageFailure as failure:
        print(f"error: {failure}", file=sys.stderr)
        return failure.exit_code
    except KeyboardInterrupt:
        print("interrupted: run the same command again to go on", file=sys.stderr)
        return 130
    if isinstance(result, StageFailure):
        print(f"error: {result.headline}", file=sys.stderr)
        return result.exit_code
    if isinstance(result, BaseException):
        raise result
    return 0


def _slots(text: str) -> int:
    """Return the value of ``--parallel``.

    Raises:
        ArgumentTypeError: it is no whole number of at least 1; the command ends with exit code 2.
    """
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number of at least 1")
    return int(text)


@contextmanager
def temporary_server() -> Iterator[None]:
    """Start Prefect's temporary server, which ends with this process.

    Ctrl-C reaches all processes of the terminal but the server: the flow still reports its end there, and Prefect would
    try for minutes to reach a server that is gone.
    """
    from prefect.server.api.server import SubprocessASGIServer

    server = SubprocessASGIServer()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # inherited by the server's process
    try:
        server.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    with temporary_settings({PREFECT_API_URL: server.api_url}):
        yield


def run_alone() -> int:
    """Run the command under a guard, so that Prefect's temporary server ends with it."""
    if GUARDED in os.environ:
        return main()
    os.environ[GUARDED] = "1"
    if Path("dvc.yaml").is_file():
        os.environ[GRACE] = str(longest_grace())
    return run_guarded([sys.executable, "-m", "flows.pipeline", *sys.argv[1:]])


SCORE_CARD = Path("results/report.md")
PAGE = Path("results/report.html")
SCORES = Path("results/scores.json")
TASK_SCORES = [Path(f"results/{family}.json") for family in ("glue", "squad", "tagging", "other")]
VALIDATION = Path("results/validation")
MAX_BYTES = 200_000  # limit for one artifact, which is a row of the server's database


def show_plan(plan: list[PlannedStage]) -> None:
    """Create an artifact that shows which stages may have to run, and why."""
    rows = [f"| {stage.name} | {'run' if stage.out_of_date else 'skip'} | {_cell(stage.why)} |" for stage in plan]
    num_due = sum(stage.out_of_date for stage in plan)
    head = [f"{num_due} of {len(plan)} stages may have to run", "", "| stage | plan | why |", "|---|---|---|"]
    _markdown([*head, *rows], "plan", "What would run, and why")


def show_results(root: Path, warn: Callable[[str], object]) -> None:
    """Create artifacts with a run's results. All stages have succeeded, so an error here is only a warning."""
    try:
        _show_results(root)
    except Exception as error:
        warn(f"the run has succeeded, but not all of its results can be shown: {error!r}")


def _show_results(root: Path) -> None:
    """Create artifacts: score card, scores, data report, metrics against the last commit, link to the page."""
    if (root / SCORE_CARD).is_file():
        _markdown([(root / SCORE_CARD).read_text(encoding="utf-8")], "score-card", "Score card")
    if rows := score_rows(root):
        create_table_artifact(rows, key="scores", description="Scores by task and start")
    if lines := data_report(root):
        _markdown(lines, "data-report", "What was found in the data")
    if (root / ".git").exists() and (difference := dvc(root, "metrics", "diff", "--md").strip()):
        _markdown([difference], "metrics-diff", "Metrics against the last commit")
    if (root / PAGE).is_file():
        page = (root / PAGE).resolve()
        create_link_artifact(page.as_uri(), link_text=str(PAGE), key="report", description="The whole report")


def score_rows(root: Path) -> list[dict[str, Any]]:
    """Return one row per task, from the files of scores."""
    columns = ["metric", "pretrained", "scratch", "gain"]
    return [
        {"task": name, **{column: found.get(column) for column in columns}}
        for path in (root / file for file in TASK_SCORES)
        if path.is_file()
        for name, found in json.loads(path.read_text(encoding="utf-8")).items()
    ]


def data_report(root: Path) -> list[str]:
    """Return the validation results in ``results/validation/*.json`` as Markdown tables with one row per check."""
    lines: list[str] = []
    for path in sorted((root / VALIDATION).glob("*.json")):
        report = json.loads(path.read_text(encoding="utf-8"))
        lines += ["", f"## {path.stem}", "", "| check | severity | outcome | observed |", "|---|---|---|---|"]
        for check in report["checks"]:
            outcome = "passed" if check["success"] else "FAILED"
            observed = check["observed"]
            if isinstance(observed, dict):
                observed = ", ".join(f"{key} {value}" for key, value in observed.items())
            lines.append(f"| {_cell(check['check'])} | {check['severity']} | {outcome} | {_cell(str(observed))} |")
    return lines


def _cell(text: str) -> str:
    text = text.replace("|", "\\|")
    return text if len(text) < 200 else text[:200] + " ..."


def _markdown(lines: list[str], key: str, description: str) -> None:
    text = "\n".join(lines)
    if len(text.encode()) > MAX_BYTES:
        text = text.encode()[:MAX_BYTES].decode(errors="ignore") + "\n\n(cut)"
    create_markdown_artifact(text, key=key, description=description)


if __name__ == "__main__":
    sys.exit(run_alone())
