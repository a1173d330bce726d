"""Sweep: run every combination of pre-training method, profile and seed in a clone, and tabulate the scores.

A point of the sweep is an ordinary run of ``train_encoder`` in a clone with other settings. Its results are committed
to a branch of the repository, ``sweep/<name>/<objective>-<profile>-<seed>``: nothing is lost if the sweep itself dies,
and every point can be checked out, compared (``dvc metrics diff``) and run again. Stages that points have in common,
such as the data, run once if the points share DVC's cache.
"""

import itertools
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import httpx
from prefect import flow, get_client, get_run_logger
from prefect.artifacts import create_table_artifact
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.objects import State
from prefect.client.schemas.responses import DeploymentResponse
from prefect.deployments import run_deployment
from prefect.exceptions import ObjectNotFound
from prefect.runtime import flow_run
from prefect.states import Cancelled, Cancelling, Completed, Failed

from electra.common.errors import ConfigError
from flows.pipeline import SCORES, Gpus, train_encoder
from flows.stages import StageFailure
from flows.workspace import Workspace, git_credentials, located

SECONDS_BETWEEN_LOOKS = 15.0
SECONDS_BEFORE_WARNING = 300.0  # that no point has started


@dataclass(frozen=True)
class Point:
    """One combination of settings, and the branch for its results."""

    objective: str
    profile: str
    seed: int
    branch: str

    def workspace(self, base: Workspace) -> Workspace:
        """Return the workspace in which the point runs."""
        settings = {
            **base.settings,
            "profile": self.profile,
            "pretrain.objective": self.objective,
            "pretrain.seed": self.seed,
        }
        return base.model_copy(update={"settings": settings, "publish": self.branch})


def points(name: str, objectives: Sequence[str], profiles: Sequence[str], seeds: Sequence[int]) -> list[Point]:
    """Return all combinations, seeds innermost."""
    return [
        Point(objective, profile, seed, f"sweep/{name}/{objective}-{profile}-{seed}")
        for objective, profile, seed in itertools.product(objectives, profiles, seeds)
    ]


@flow(name="sweep")
def sweep(
    workspace: Workspace,
    name: str,
    objectives: list[str] = ["electra"],  # noqa: B006 - Prefect shows it as the parameter's default; it is only read
    profiles: list[str] = ["books"],  # noqa: B006
    seeds: list[int] = [1],  # noqa: B006
    deployment: str | None = None,
    gpus: Gpus = 0,
) -> State[Any]:
    """Train and score every combination.

    Args:
        workspace: its repository is cloned for each point; ``settings`` apply to all points.
        name: name of the sweep; branches of an earlier sweep of the same name are replaced.
        deployment: deployment of ``train_encoder`` whose runs are the points, side by side; by default points run one
            after the other in this process.
        gpus: number of GPUs of one point; ignored with a deployment, which sets it.
    """
    if workspace.repository is None:
        return Failed(message="a sweep works in clones: give workspace.repository")
    workspace = workspace.model_copy(update={"repository": located(workspace.repository)})
    todo = points(name, objectives, profiles, seeds)
    if deployment:
        try:
            _check_room(deployment)
        except ConfigError as error:
            return Failed(message=str(error))
        failed = _run_deployments(deployment, todo, workspace)
    else:
        failed = [point for point in todo if not _run_here(point, workspace, gpus)]
    rows = [_row(workspace, point) for point in todo if point not in failed]
    if rows:
        create_table_artifact(rows, key="sweep", description=f"Scores of sweep {name}")
    if failed:
        return Failed(message=f"{len(failed)} of {len(todo)} points failed: {', '.join(p.branch for p in failed)}")
    return Completed(message=f"{len(todo)} points; their branches: sweep/{name}/*")


def _run_here(point: Point, base: Workspace, gpus: int) -> bool:
    run = train_encoder.with_options(flow_run_name=point.branch.replace("/", "-"))
    return run(workspace=point.workspace(base), gpus=gpus, return_state=True).is_completed()


def _check_room(deployment: str) -> None:
    """Check that the work pool of the deployment has a slot beside the one that this run may hold.

    Raises:
        ConfigError: the pool is this run's own and takes one run at a time: the points would wait forever.
    """
    if flow_run.id is None:
        return
    with get_client(sync_client=True) as client:
        own = client.read_flow_run(UUID(flow_run.id)).work_pool_name  # None for a run without a worker
        if own is None or own != _read_deployment(client, deployment).work_pool_name:
            return
        limit = client.read_work_pool(own).concurrency_limit
    if limit is not None and limit <= 1:
        raise ConfigError(
            f"the points would wait forever: this sweep holds the only slot of the work pool of {deployment}",
            where=f"work pool {own}, concurrency limit {limit}",
            next_step="leave `deployment` out: points run one after the other in the sweep's process; or name a "
            "deployment of another work pool; or, for the process pool: electra cluster init --runs 2",
        )


def _read_deployment(client: SyncPrefectClient, deployment: str) -> DeploymentResponse:
    """Return a deployment by its name or id, as ``run_deployment`` takes both."""
    try:
        return client.read_deployment(UUID(deployment))
    except ValueError:
        return client.read_deployment_by_name(deployment)


def _run_deployments(deployment: str, todo: list[Point], base: Workspace) -> list[Point]:
    """Run the points as runs of a deployment, wait for all, and return the failed points.

    A warning is logged once if no point has started after :data:`SECONDS_BEFORE_WARNING`.
    If this flow is ended, running points are cancelled.
    """
    running: dict[UUID, Point] = {}
    failed = []
    with get_client(sync_client=True) as client:
        try:
            for point in todo:
                where = point.workspace(base).model_dump(mode="json")
                run: Any = run_deployment(deployment, parameters={"workspace": where}, timeout=0)
                running[run.id] = point
            begun, all_wait = time.monotonic(), True
            while running:
                time.sleep(SECONDS_BETWEEN_LOOKS)
                for run_id, point in list(running.items()):
                    try:
                        state = client.read_flow_run(run_id).state
                    except ObjectNotFound:  # the run was deleted: it has no results, the other points go on
                        state = Cancelled()
                    except httpx.HTTPError as error:  # such as a server that restarts
                        get_run_logger().warning("%s: no answer from the server: %r", point.branch, error)
                        continue
                    all_wait = all_wait and state is not None and state.is_scheduled()
                    if state and state.is_final():
                        del running[run_id]
                        get_run_logger().info("%s: %s", point.branch, state.name)
                        if not state.is_completed():
                            failed.append(point)
                if all_wait and time.monotonic() - begun > SECONDS_BEFORE_WARNING:
                    all_wait = False  # told once
                    get_run_logger().warning(
                        "no point has started after %.0f minutes: is there a worker for %s, and a free slot in its "
                        "pool? prefect work-pool ls, prefect flow-run ls; the sweep goes on waiting",
                        SECONDS_BEFORE_WARNING / 60,
                        deployment,
                    )
        finally:
            for run_id in running:
                with suppress(ObjectNotFound, httpx.HTTPError):  # the others are cancelled all the same
                    client.set_flow_run_state(run_id, Cancelling(message="the sweep has ended"), force=False)
    return failed


def _row(workspace: Workspace, point: Point) -> dict[str, Any]:
    """Return a point's mean scores, read from its branch."""
    row: dict[str, Any] = {"objective": point.objective, "profile": point.profile, "seed": point.seed}
    scores = json.loads(_file_of(workspace, point.branch, str(SCORES)))
    return {**row, **scores["mean"], "branch": point.branch}


def _file_of(workspace: Workspace, branch: str, path: str) -> str:
    """Return the content of a file on a branch, without a checkout.

    Raises:
        StageFailure: the branch or the file does not exist.
    """
    environment = {**os.environ, "GIT_TERMINAL_PROMPT": "0", **git_credentials(workspace)}
    repository = str(workspace.repository)
    with tempfile.TemporaryDirectory() as folder:
        fetch = ["git", "clone", "--quiet", "--bare", "--depth", "1", "--branch", branch, "--", repository, folder]
        for command in (fetch, ["git", "-C", folder, "show", f"HEAD:{path}"]):
            done = subprocess.run(command, env=environment, capture_output=True, text=True)
            if done.returncode:
                raise StageFailure("sweep", 5, [" ".join(command), *done.stderr.splitlines()[-5:]])
    return done.stdout
