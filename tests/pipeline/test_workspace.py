"""Clone of a run: settings, shared cache and checkpoints, pushed results; and one run per folder."""

import logging
import shutil
import subprocess
import sys
from types import SimpleNamespace
from uuid import UUID

import httpx
import pytest
import yaml
from prefect.exceptions import ObjectNotFound
from prefect.states import Completed, Failed, Running, Scheduled

from electra.config.loading import read_settings
from flows import sweep as sweep_module
from flows.stages import InfrastructureFailure, StageFailure
from flows.sweep import points
from flows.workspace import Workspace, alone, change_settings, opened

GIT = ["git", "-c", "user.name=t", "-c", "user.email=t@localhost"]


def git(folder, *arguments: str) -> str:
    return subprocess.run([*GIT, *arguments], cwd=folder, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def repository(tmp_path):
    """A DVC project with one stage, in git."""
    folder = tmp_path / "repository"
    (folder / "params").mkdir(parents=True)
    (folder / "params.yaml").write_text("profile: a # the switch\npretrain:\n  objective: electra\n")
    for name in "ab":
        (folder / f"params/{name}.yaml").write_text(f"pretrain:\n  seed: 1 # of {name}\n")
    stage = (
        "stages:\n  copy:\n    cmd: cp params.yaml results/copy\n    deps: [params.yaml]\n    outs: [results/copy]\n"
    )
    (folder / "dvc.yaml").write_text(stage)
    (folder / "results").mkdir()
    (folder / "results/keep").touch()
    git(folder, "init", "--quiet", "--initial-branch=main")
    (folder / ".dvc").mkdir()  # what `dvc init` makes, without a second of it
    (folder / ".dvc/config").write_text("[core]\n    analytics = false\n")
    (folder / ".dvc/.gitignore").write_text("/config.local\n/tmp\n/cache\n")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "-m", "start")
    return folder


def test_a_run_in_a_clone_leaves_the_repository_alone_and_publishes_a_branch(repository, tmp_path):
    before = git(repository, "rev-parse", "main")
    workspace = Workspace(
        repository=str(repository), settings={"pretrain.seed": 2}, publish="runs/two", clones=tmp_path / "clones"
    )
    with opened(workspace, "run") as root:
        assert root == tmp_path / "clones/run"
        assert (root / "checkpoints").resolve() == repository / "checkpoints", "so that the next run can resume"
        cache = subprocess.run([sys.executable, "-m", "dvc", "cache", "dir"], cwd=root, capture_output=True, text=True)
        assert cache.stdout.strip() == str(repository / ".dvc/cache")
        (root / "results/scores.json").write_text("{}")
    assert not root.exists()
    assert git(repository, "rev-parse", "main") == before
    assert git(repository, "show", "runs/two:results/scores.json") == "{}"
    assert "seed: 2" in git(repository, "show", "runs/two:params/a.yaml")


def test_the_clone_of_a_failed_run_stays_and_publishes_nothing(repository, tmp_path):
    workspace = Workspace(repository=str(repository), publish="runs/bad", clones=tmp_path / "clones")
    with pytest.raises(StageFailure), opened(workspace, "run"):
        raise StageFailure("x", 3, [])
    assert (tmp_path / "clones/run/dvc.yaml").exists()
    assert "runs/bad" not in git(repository, "branch", "--list", "runs/*")


@pytest.fixture
def unreachable_remote(repository, tmp_path):
    """A DVC remote that `dvc pull` finds empty and `dvc push` cannot write to: a file is where its folder would be."""
    remote = tmp_path / "remote"
    with (repository / ".dvc/config").open("a") as config:
        config.write(f"    remote = far\n['remote \"far\"']\n    url = {remote}\n")
    git(repository, "commit", "--quiet", "--all", "-m", "remote")
    return remote


def test_a_failed_push_does_not_replace_the_failure_of_the_stage(repository, unreachable_remote, tmp_path):
    workspace, said = Workspace(repository=str(repository), clones=tmp_path / "clones"), []
    with pytest.raises(StageFailure) as caught, opened(workspace, "run", said.append) as root:
        made_with_dvc(root, unreachable_remote)
        raise StageFailure("pretrain", 4, ["diverged"])
    assert (caught.value.stage, caught.value.exit_code) == ("pretrain", 4)
    (message,) = said
    assert str(root) in message and "dvc push --run-cache" in message


def test_a_failed_push_is_the_result_of_a_run_that_succeeded(repository, unreachable_remote, tmp_path):
    workspace, said = Workspace(repository=str(repository), clones=tmp_path / "clones"), []
    with pytest.raises(StageFailure, match="dvc push"), opened(workspace, "run", said.append) as root:
        made_with_dvc(root, unreachable_remote)
    assert root.exists() and said == []


def made_with_dvc(root, remote) -> None:
    """Run the stage, so that there is something to push, and break the remote."""
    subprocess.run([sys.executable, "-m", "dvc", "repro", "--quiet"], cwd=root, check=True)
    shutil.rmtree(remote, ignore_errors=True)
    remote.touch()


@pytest.mark.parametrize(
    ("publish", "message"),
    [
        ("main", "main holds the code"),
        ("side", "side holds the code"),
        ("sweep/two methods/electra-books-1", "not a valid name of a branch"),
    ],
)
def test_a_branch_that_cannot_take_the_results_is_refused_before_the_run(repository, tmp_path, publish, message):
    git(repository, "branch", "side")
    workspace = Workspace(repository=str(repository), revision="side", publish=publish, clones=tmp_path / "clones")
    with pytest.raises(StageFailure, match=message), opened(workspace, "run"):
        pytest.fail("the run has started")


@pytest.mark.parametrize("exists", [True, False])
def test_what_others_push_to_the_branch_during_the_run_is_not_replaced(repository, tmp_path, exists):
    if exists:
        git(repository, "branch", "runs/one")
    workspace = Workspace(repository=str(repository), publish="runs/one", clones=tmp_path / "clones")
    with pytest.raises(StageFailure, match="rejected"), opened(workspace, "run"):
        other = git(repository, "commit-tree", "-p", "main", "-m", "of a colleague", "main^{tree}").strip()
        git(repository, "branch", "--force", "runs/one", other)
    assert git(repository, "rev-parse", "runs/one").strip() == other
    assert (tmp_path / "clones/run").exists(), "the results are not lost either"


def test_the_branch_of_an_earlier_run_is_replaced_and_has_the_list_of_inputs(repository, tmp_path):
    workspace = Workspace(repository=str(repository), publish="runs/one", clones=tmp_path / "clones")
    for text in ("# first\n", "# second\n"):
        with opened(workspace, "run") as root:
            (root / "dvc.yaml").write_text(text)
    assert git(repository, "show", "runs/one:dvc.yaml") == "# second\n"


@pytest.mark.parametrize("has_shared_folder", [True, False])
def test_a_clone_with_the_only_copy_of_the_models_is_kept(repository, tmp_path, has_shared_folder):
    shared, said = tmp_path / "shared" if has_shared_folder else None, []
    url = repository.as_uri()  # as on another host: the repository's own cache is not reused
    with opened(Workspace(repository=url, shared=shared, clones=tmp_path / "clones"), "run", said.append) as root:
        pass
    assert root.exists() != has_shared_folder
    assert [str(root) in message for message in said] == ([] if has_shared_folder else [True])


def test_an_unknown_branch_is_a_users_mistake(repository, tmp_path):
    workspace = Workspace(repository=str(repository), revision="nowhere", clones=tmp_path / "clones")
    with pytest.raises(StageFailure, match="nowhere"), opened(workspace, "run"):
        pass


def test_a_second_run_in_one_folder_is_refused_and_the_first_is_named(tmp_path):
    hold = (
        "import sys, time; from pathlib import Path; from flows.workspace import alone\n"
        "with alone(Path(sys.argv[1])): print('held', flush=True); time.sleep(600)"
    )
    first = subprocess.Popen([sys.executable, "-c", hold, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    try:
        assert first.stdout.readline() == "held\n"
        with pytest.raises(InfrastructureFailure, match=f"process {first.pid}.*wait for it"), alone(tmp_path):
            pass
    finally:
        first.kill()
        first.wait()
        first.stdout.close()
    with alone(tmp_path):
        pass


def test_a_second_run_of_one_name_is_refused_and_leaves_the_clone_of_the_first(repository, tmp_path):
    workspace = Workspace(repository=str(repository), publish="runs/one", clones=tmp_path / "clones")
    with opened(workspace, "run") as root:
        (root / "results/scores.json").write_text("{}")
        with pytest.raises(InfrastructureFailure, match="another flow run.*works in.*run"), opened(workspace, "run"):
            pass
    assert git(repository, "show", "runs/one:results/scores.json") == "{}"
    assert not list((tmp_path / "clones").iterdir()), "the lock is removed as well"


def test_settings_go_where_they_stand_and_comments_stay(repository):
    change_settings(repository, {"pretrain.seed": 5, "pretrain.objective": "bert", "profile": "b"})
    assert "profile: b # the switch" in (repository / "params.yaml").read_text()
    assert yaml.safe_load((repository / "params.yaml").read_text())["pretrain"] == {"objective": "bert"}
    assert (repository / "params/b.yaml").read_text() == "pretrain:\n  seed: 5 # of b\n"
    assert "seed: 1" in (repository / "params/a.yaml").read_text()


@pytest.mark.parametrize(("common", "changed"), [(None, "params/a.yaml"), ("electra", "params.yaml")])
def test_a_method_is_changed_where_it_counts(tmp_path, common, changed):
    (tmp_path / "params").mkdir()
    (tmp_path / "params.yaml").write_text(yaml.safe_dump({"profile": "a", "pretrain": {"objective": common}}))
    (tmp_path / "params/a.yaml").write_text(yaml.safe_dump({"pretrain": {"objective": "bert"}}))
    change_settings(tmp_path, {"pretrain.objective": "electric"})
    assert yaml.safe_load((tmp_path / changed).read_text())["pretrain"]["objective"] == "electric"
    assert read_settings(tmp_path)["pretrain"]["objective"] == "electric"


def test_settings_without_a_clone_are_refused(tmp_path):
    with pytest.raises(StageFailure, match="need a clone"), opened(Workspace(settings={"profile": "b"}), "run"):
        pass


def test_a_repository_that_was_never_set_is_refused():
    unset = Workspace(repository="")  # what prefect-kubernetes.yaml makes of a variable that is not there
    with pytest.raises(StageFailure, match="set electra_repository"), opened(unset, "run"):
        pass


def test_a_sweep_has_a_branch_per_combination():
    todo = points("s", ["electra", "bert"], ["books"], [1, 2])
    assert [point.branch for point in todo] == [
        "sweep/s/electra-books-1",
        "sweep/s/electra-books-2",
        "sweep/s/bert-books-1",
        "sweep/s/bert-books-2",
    ]
    where = todo[3].workspace(Workspace(repository="r", settings={"fidelity": "original"}))
    assert where.settings == {
        "fidelity": "original",
        "profile": "books",
        "pretrain.objective": "bert",
        "pretrain.seed": 2,
    }


class FakeServer:
    """Prefect's server and its client: run n answers with the n-th list of states, or raises them."""

    def __init__(self, *runs: list, pools: dict[str, int | None] | None = None):
        self.runs, self.started, self.cancelled = runs, 0, []
        self.pools = pools or {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return False

    def start(self, deployment, **_):
        self.started += 1
        return SimpleNamespace(id=self.started - 1)

    def read_flow_run(self, run_id):
        states = self.runs[run_id]
        state = states.pop(0) if len(states) > 1 else states[0]
        if isinstance(state, BaseException):
            raise state
        return SimpleNamespace(state=state)

    def read_deployment_by_name(self, name):
        return SimpleNamespace(work_pool_name=name.partition("/")[2])

    def read_deployment(self, deployment_id):
        return SimpleNamespace(work_pool_name="own")

    def read_work_pool(self, name):
        return SimpleNamespace(concurrency_limit=self.pools[name])

    def set_flow_run_state(self, run_id, state, force):
        if isinstance(self.runs[run_id][0], ObjectNotFound):
            raise self.runs[run_id][0]
        self.cancelled.append(run_id)


DELETED = ObjectNotFound(Exception("404"))


@pytest.fixture
def run_points(monkeypatch):
    """Run the points of a sweep as runs of a deployment of a fake server; return the names of the failed points."""

    def run(server: FakeServer) -> list[str]:
        monkeypatch.setattr(sweep_module, "get_client", lambda sync_client: server)
        monkeypatch.setattr(sweep_module, "run_deployment", server.start)
        monkeypatch.setattr(sweep_module, "get_run_logger", logging.getLogger)
        monkeypatch.setattr(sweep_module, "SECONDS_BETWEEN_LOOKS", 0)
        todo = points("s", ["electra"], ["books"], list(range(len(server.runs))))
        failed = sweep_module._run_deployments("train_encoder/process", todo, Workspace(repository="r"))
        return [point.branch for point in failed]

    return run


def test_a_point_that_is_deleted_fails_and_the_others_go_on(run_points):
    server = FakeServer([Running(), Completed()], [Running(), DELETED], [Running(), Running(), Completed()])
    assert run_points(server) == ["sweep/s/electra-books-1"]
    assert server.cancelled == []


def test_a_sweep_goes_on_when_the_server_does_not_answer_for_a_while(run_points):
    server = FakeServer([httpx.ConnectError("connection refused"), Completed()], [Running(), Completed()])
    assert run_points(server) == [] and server.cancelled == []


def test_a_sweep_that_ends_cancels_all_its_points_though_one_is_deleted(run_points):
    server = FakeServer([KeyboardInterrupt()], [DELETED], [Running()])
    with pytest.raises(KeyboardInterrupt):
        run_points(server)
    assert server.cancelled == [0, 2]


@pytest.fixture
def sweep_in_pool(monkeypatch):
    """Start a sweep as a run of the work pool `own` of a fake server; return its final state."""

    def start(server: FakeServer, deployment: str, pool: str | None = "own"):
        own = SimpleNamespace(work_pool_name=pool)
        server.read_flow_run = lambda run_id, read=server.read_flow_run: own if run_id == SWEEP else read(run_id)
        for name, value in {
            "get_client": lambda sync_client: server,
            "run_deployment": server.start,
            "get_run_logger": logging.getLogger,
            "SECONDS_BETWEEN_LOOKS": 0,
            "flow_run": SimpleNamespace(id=str(SWEEP)),
        }.items():
            monkeypatch.setattr(sweep_module, name, value)
        return sweep_module.sweep.fn(Workspace(repository="r"), "s", deployment=deployment)

    return start


SWEEP = UUID(int=7)


@pytest.mark.parametrize("deployment", ["train_encoder/own", str(UUID(int=3))], ids=["by name", "by id"])
def test_a_sweep_whose_points_would_wait_for_its_own_slot_is_refused(sweep_in_pool, deployment):
    server = FakeServer([Failed()], pools={"own": 1})
    state = sweep_in_pool(server, deployment)
    assert server.started == 0 and state.is_failed()
    for part in ("this sweep holds the only slot", "work pool own, concurrency limit 1", "leave `deployment` out"):
        assert part in state.message


@pytest.mark.parametrize(
    ("deployment", "pool", "limit"),
    [("train_encoder/own", "own", 2), ("train_encoder/own", "own", None), ("train_encoder/other", "own", 1),
     ("train_encoder/own", None, 1)],
    ids=["room", "no limit", "another pool", "started without a worker"],
)  # fmt: skip
def test_a_sweep_whose_points_find_a_slot_starts(sweep_in_pool, deployment, pool, limit):
    server = FakeServer([Failed()], pools={"own": limit, "other": 1})
    assert sweep_in_pool(server, deployment, pool).message == "1 of 1 points failed: sweep/s/electra-books-1"
    assert server.started == 1


@pytest.mark.parametrize(("states", "warnings"), [((Scheduled(), Scheduled()), 1), ((Scheduled(), Running()), 0)])
def test_a_sweep_of_which_no_point_starts_warns_once(run_points, monkeypatch, caplog, states, warnings):
    monkeypatch.setattr(sweep_module, "SECONDS_BEFORE_WARNING", 0)
    assert run_points(FakeServer(*([state, state, state, Completed()] for state in states))) == []
    assert caplog.text.count("no point has started") == warnings
