"""The whole flow on a small workspace: real DVC, Prefect's temporary server, stages of one line."""

import base64
import shutil
import subprocess
import sys
import threading
import time
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml
from prefect import flow, get_client
from prefect.blocks.system import Secret
from prefect.client.schemas.filters import FlowRunFilter
from prefect.client.schemas.objects import FlowRun
from prefect.client.schemas.sorting import FlowRunSort
from prefect.concurrency.asyncio import ConcurrencySlotAcquisitionError
from prefect.testing.utilities import prefect_test_harness

import flows.pipeline as pipeline
from flows import cluster
from flows.pipeline import run_stage
from flows.plan import PlannedStage
from flows.stages import InfrastructureFailure, StageFailure, StageRunner
from flows.sweep import sweep
from flows.watch import Devices
from flows.workspace import Workspace, opened

STALE = PlannedStage("x", (), True)
STAGE = """
import sys
import time
from pathlib import Path
out, number = Path(sys.argv[1]), sys.argv[2]
with open("ran.txt", "a") as file:
    file.write(out.name + "\\n")
if number == "13":
    sys.exit(3)
out.write_text(number)
"""
DVC_YAML = """
stages:
  make:
    cmd: python stage.py made ${number}
    deps: [stage.py]
    params: [number]
    outs: [made]
  cell:
    matrix:
      name: [a, b]
    cmd: python stage.py cell-${item.name} 1
    deps: [made]
    outs:
      - cell-${item.name}
  card:
    cmd: python stage.py card.md 2
    deps: [cell-a, cell-b]
    outs: [card.md]
"""


# a task that runs outside a flow says that its log goes nowhere
pytestmark = pytest.mark.filterwarnings("ignore:Logger 'prefect.task_runs'")


@pytest.fixture(scope="module", autouse=True)
def server():
    with prefect_test_harness(server_startup_timeout=120):
        yield


@pytest.fixture(scope="module")
def initialized(tmp_path_factory):
    """A folder after `dvc init`, which takes seconds."""
    folder = tmp_path_factory.mktemp("initialized")
    for arguments in [("init", "--quiet", "--no-scm"), ("config", "core.analytics", "false")]:
        subprocess.run([sys.executable, "-m", "dvc", *arguments], cwd=folder, check=True)
    return folder


@pytest.fixture
def workspace(tmp_path, initialized):
    shutil.copytree(initialized, tmp_path, dirs_exist_ok=True)
    (tmp_path / "stage.py").write_text(STAGE)
    (tmp_path / "dvc.yaml").write_text(DVC_YAML)
    (tmp_path / "params.yaml").write_text("number: 1\n")
    return tmp_path


def take_ran(workspace: Path) -> list[str]:
    """The stages whose command has run since the last call, in order."""
    path = workspace / "ran.txt"
    ran = path.read_text().split() if path.exists() else []
    path.unlink(missing_ok=True)
    return ran


def test_the_flow_runs_what_is_out_of_date_and_ends_with_the_exit_code_of_a_failure(workspace, monkeypatch, capsys):
    pipeline.train_encoder(Workspace(root=workspace), parallel=2)
    first = take_ran(workspace)
    assert (first[0], sorted(first[1:3]), first[3]) == ("made", ["cell-a", "cell-b"], "card.md")

    pipeline.train_encoder(Workspace(root=workspace), parallel=2)
    assert take_ran(workspace) == [], "nothing has changed, nothing may run"
    assert (newest_run().state_name, newest_tasks()) == ("Skipped", {}), "and the server is not asked for every stage"

    (workspace / "params.yaml").write_text("number: 13\n")
    monkeypatch.chdir(workspace)
    assert pipeline.main([]) == 3
    assert "stage make failed with exit code 3" in capsys.readouterr().err
    assert take_ran(workspace) == ["made"], "neither a retry nor a later stage"


def test_a_wrong_setting_is_told_before_dvc_removes_anything(workspace, monkeypatch, capsys):
    """The check is that of the workspace's own code; the stage is never begun."""
    stages = {"make": {"cmd": "electra corpus", "params": ["profile"], "outs": ["made"]}}
    (workspace / "dvc.yaml").write_text(yaml.safe_dump({"stages": stages}))
    (workspace / "params.yaml").write_text("profile: smal\n")
    (workspace / "params").mkdir()
    (workspace / "params/small.yaml").write_text("corpus: {}\n")
    (workspace / "made").write_text("of the last run")
    monkeypatch.chdir(workspace)
    assert pipeline.main([]) == 2
    assert "check failed with exit code 2" in capsys.readouterr().err
    assert "there is no profile 'smal'" in (workspace / "logs/check.log").read_text()
    assert (workspace / "made").read_text() == "of the last run"


def test_a_flow_run_is_named_for_what_it_trains_and_a_clone_by_itself(workspace):
    assert len(pipeline.name_of(Workspace(root=workspace)).split("-")) == 2, "no settings of this project"
    (workspace / "params.yaml").write_text("profile: tiny\npretrain: {objective: bert}\n")
    assert pipeline.name_of({"root": str(workspace)}) == "tiny-bert"
    names = {pipeline.name_of(Workspace(repository=str(workspace))) for _ in range(5)}
    assert len(names) == 5 and "tiny-bert" not in names


def test_a_stage_waits_for_those_that_it_reads_and_for_no_other(workspace):
    """``slow`` ends when ``second`` has run, which reads ``first``; ``late`` reads what failed and is not begun."""
    wait = "import pathlib, sys, time\nend = time.time() + 60\nwhile not pathlib.Path('second').exists():\n"
    (workspace / "slow.py").write_text(f"{wait}    time.sleep(0.05)\n    assert time.time() < end\nsys.exit(3)\n")
    stages = {
        "slow": {"cmd": "python slow.py", "outs": ["slow"]},
        "first": {"cmd": "python stage.py first 1", "outs": ["first"]},
        "second": {"cmd": "python stage.py second 1", "deps": ["first"], "outs": ["second"]},
        "late": {"cmd": "python stage.py late 1", "deps": ["slow", "second"], "outs": ["late"]},
    }
    (workspace / "dvc.yaml").write_text(yaml.safe_dump({"stages": stages}))
    state = pipeline.train_encoder(Workspace(root=workspace), parallel=2, return_state=True)
    failure = state.result(raise_on_failure=False)
    assert (failure.stage, failure.exit_code) == ("slow", 3)
    assert take_ran(workspace) == ["first", "second"]
    assert newest_tasks() == {"slow": "Failed", "first": "Completed", "second": "Completed"}
    with get_client(sync_client=True) as client:
        edges = client._client.get(f"/flow_runs/{newest_run().id}/graph-v2").json()["nodes"]
    names = {node_id: node["label"] for node_id, node in edges}
    parents = {node["label"]: {names[parent["id"]] for parent in node["parents"]} for _, node in edges}
    assert parents == {"slow": set(), "first": set(), "second": {"first"}}, "as Prefect draws the run"


LINEAGE = """
import json, sys
from pathlib import Path
out = Path(sys.argv[1])
out.parent.mkdir(parents=True, exist_ok=True)
out.write_text(sys.argv[2])
alarm = {"step": 10, "name": "plateau", "what": "flat", "advice": "more steps"}
if out.name == "encoder":
    Path("logs/pretrain").mkdir(parents=True)
    Path("logs/pretrain/progress.json").write_text(json.dumps({"step": 10, "num_steps": 20, "alarms": [alarm]}))
"""


def test_data_encoder_and_card_are_assets_with_their_lineage_and_alarms_are_events(workspace):
    """The assets that a stage without one reads are passed on: the card is made from the encoder."""
    (workspace / "stage.py").write_text(LINEAGE)
    stages = {
        "shards": {"cmd": "python stage.py data/shards ${number}", "params": ["number"], "outs": ["data/shards"],
                   "meta": {"asset": "shards"}},
        "pretrain": {"cmd": "python stage.py encoder 1", "deps": ["data/shards"], "outs": ["encoder"],
                     "meta": {"asset": "encoder"}},
        "finetune": {"cmd": "python stage.py cell 1", "deps": ["encoder"], "outs": ["cell"]},
        "report": {"cmd": "python stage.py card.md 1", "deps": ["cell"], "outs": ["card.md"],
                   "meta": {"asset": "score-card"}},
    }  # fmt: skip
    (workspace / "dvc.yaml").write_text(yaml.safe_dump({"stages": stages}))
    assert pipeline.train_encoder(Workspace(root=workspace), return_state=True).is_completed()
    place = f"electra://{workspace.name}"
    made = {event["resource"]["prefect.resource.id"]: event for event in events_of_newest_run("prefect.asset.mat", 3)}
    assert {key: related(event, "asset") for key, event in made.items()} == {
        f"{place}/shards": [],
        f"{place}/encoder": [f"{place}/shards"],
        f"{place}/score-card": [f"{place}/encoder"],
    }
    assert made[f"{place}/shards"]["payload"]["data/shards"]["md5"] and related(made[f"{place}/shards"], "flow-run")
    (alarm,) = events_of_newest_run("electra.", 1)
    expected = {"run": newest_run().name, "step": 10, "alarm": "plateau", "reason": "flat", "advice": "more steps"}
    assert (alarm["event"], alarm["payload"]) == ("electra.pretrain.alarm", expected)
    assert related(alarm, "flow-run") == [f"prefect.flow-run.{newest_run().id}"]

    (workspace / "params.yaml").write_text("number: 2\n")
    flow(lambda: pipeline.bring_up_to_date(Workspace(root=workspace), ["shards"], None, 0), name="data")()
    (changed,) = events_of_newest_run("electra.", 1)
    assert (changed["event"], changed["payload"]["changed"]) == ("electra.texts.changed", ["data/shards"])
    flow(lambda: pipeline.bring_up_to_date(Workspace(root=workspace), ["shards"], None, 0), name="data")()
    assert events_of_newest_run("electra.", 1), "again, as long as nothing was trained on it"


def events_of_newest_run(prefix: str, number: int) -> list[dict]:
    """Events of the newest flow run; the server stores them a moment after they were sent."""
    body = {"event": {"prefix": [prefix]}, "occurred": {"since": "2020-01-01T00:00:00Z"}}
    body["any_resource"] = {"id": [f"prefect.flow-run.{newest_run().id}"]}
    with get_client(sync_client=True) as client:
        for _ in range(100):
            events = client._client.post("/events/filter", json={"filter": body}).json()["events"]
            if len(events) >= number:
                break
            time.sleep(0.2)
    return events


def related(event: dict, role: str) -> list[str]:
    """The ids of an event's related resources with this role."""
    return [found["prefect.resource.id"] for found in event["related"] if found["prefect.resource.role"] == role]


def newest_run() -> FlowRun:
    with get_client(sync_client=True) as client:
        return client.read_flow_runs(sort=FlowRunSort.EXPECTED_START_TIME_DESC, limit=1)[0]


def newest_tasks() -> dict[str, str]:
    """The tasks of the newest flow run, each with the name of its state."""
    with get_client(sync_client=True) as client:
        tasks = client.read_task_runs(flow_run_filter=FlowRunFilter(id={"any_": [newest_run().id]}))
    return {task.name: task.state.name for task in tasks if task.state}


def test_a_run_up_to_a_stage_runs_no_later_one(workspace):
    flow(lambda: pipeline.bring_up_to_date(Workspace(root=workspace), ["make"], None, 0), name="made")()
    assert take_ran(workspace) == ["made"]


def test_a_run_that_asks_for_gpus_fails_at_once_where_the_server_has_no_limit(workspace):
    text = (
        (workspace / "dvc.yaml")
        .read_text()
        .replace("    deps: [stage.py]", "    meta: {gpus: 1}\n    deps: [stage.py]")
    )
    (workspace / "dvc.yaml").write_text(text)
    state = pipeline.train_encoder(Workspace(root=workspace), gpus=1, return_state=True)
    assert state.is_failed()
    assert take_ran(workspace) == []
    with pytest.raises(ConcurrencySlotAcquisitionError), Devices(1, cells_per_gpu=2).take(1, shared=True):
        pytest.fail("there is no slot")


def test_a_server_is_prepared_once_and_stays_as_it_is(capsys):
    cluster.init(gpus=2, runs=1)
    assert "electra-process (process): created" in capsys.readouterr().out
    cluster.init(gpus=2, runs=1)
    again = capsys.readouterr().out
    assert "electra-process (process): unchanged" in again and "electra-kubernetes (kubernetes): unchanged" in again
    cluster.init(gpus=4, runs=3)
    assert "electra-process (process): updated" in capsys.readouterr().out
    with get_client(sync_client=True) as client:
        assert client.read_global_concurrency_limit_by_name("gpu").limit == 4
        assert len(client.read_automations_by_name("Crash zombie flows")) == 1
        devices = Devices(1, cells_per_gpu=2)
        with devices.take(1, shared=True), devices.take(1, shared=True):
            assert client.read_global_concurrency_limit_by_name("gpu").active_slots == 1
        assert client.read_global_concurrency_limit_by_name("gpu").active_slots == 0


def test_a_point_of_a_sweep_is_a_branch_with_its_scores(workspace):
    (workspace / "params.yaml").write_text("profile: test\npretrain: {objective: electra, seed: 1}\n")
    (workspace / "stage.py").write_text("print(open('params.yaml').read())")
    score = 'mkdir -p results && echo \'{"mean": {"gain": 1.5}, "tasks": {}}\' > results/scores.json'
    outs = [{"results/scores.json": {"cache": False}}]
    stage = {"cmd": score, "params": ["pretrain.objective", "pretrain.seed"], "outs": outs}
    (workspace / "dvc.yaml").write_text(yaml.safe_dump({"stages": {"score": stage}}))
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@localhost"]
    for arguments in (
        ["init", "-q"],
        ["add", "params.yaml", "dvc.yaml", ".dvc/config"],
        ["commit", "-q", "-m", "start"],
    ):
        subprocess.run([*git, *arguments], cwd=workspace, check=True)
    where = Workspace(repository=str(workspace), clones=workspace / "clones")
    assert sweep(where, "s", ["bert"], ["test"], [7], return_state=True).is_completed()
    params = subprocess.run(["git", "show", "sweep/s/bert-test-7:params.yaml"], cwd=workspace, capture_output=True)
    assert yaml.safe_load(params.stdout)["pretrain"] == {"objective": "bert", "seed": 7}


def test_a_private_repository_is_cloned_with_the_token_of_a_secret_block(workspace):
    """The server answers 401 without the token; the token is in no file of the clone."""
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@localhost"]
    for arguments in (["init", "-q"], ["add", "--all"], ["commit", "-q", "-m", "start"]):
        subprocess.run([*git, *arguments], cwd=workspace, check=True)
    subprocess.run([*git, "clone", "-q", "--bare", ".", "bare.git"], cwd=workspace, check=True)
    subprocess.run([*git, "update-server-info"], cwd=workspace / "bare.git", check=True)
    expected = "Basic " + base64.b64encode(b"x-access-token:s3cret").decode()

    class Handler(SimpleHTTPRequestHandler):
        def __init__(self, *arguments):
            super().__init__(*arguments, directory=workspace)

        def do_GET(self):
            if self.headers["Authorization"] == expected:
                super().do_GET()
            else:
                self.send_error(401)

        def log_message(self, *_):
            pass

    Secret(value="s3cret").save("git-token")
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        where = Workspace(repository=f"http://127.0.0.1:{server.server_port}/bare.git", clones=workspace / "clones")
        for token, message in ((None, "could not read Username"), ("nosuch", "token: .*nosuch")):
            with (
                pytest.raises(StageFailure, match=message),
                opened(where.model_copy(update={"token": token}), "refused"),
            ):
                pass
        with opened(where.model_copy(update={"token": "git-token"}), "private") as root:
            files = [path.read_bytes() for path in root.rglob("*") if path.is_file()]
        server.shutdown()
    assert (root.name, len(files) > 5) == ("private", True)
    assert not [content for content in files if expected.split()[1].encode() in content or b"s3cret" in content]


def flaky(failures: int, kind: type[StageFailure], *arguments):
    """A runner that fails some times and then succeeds, and counts."""

    class Flaky(StageRunner):
        calls = 0

        def run(self, stage, say, show, **where):
            self.calls += 1
            if self.calls <= failures:
                raise kind(stage, *arguments)

    return Flaky()


def test_a_lock_is_tried_again():
    runner = flaky(1, InfrastructureFailure, ["Unable to acquire lock"])
    state = run_stage.with_options(retry_delay_seconds=0)(STALE, runner, Devices(0), return_state=True)
    assert state.is_completed()
    assert runner.calls == 2


def test_refused_data_is_not_tried_again():
    runner = flaky(1, StageFailure, 3, ["row 7 has label 9"])
    state = run_stage.with_options(retry_delay_seconds=0)(STALE, runner, Devices(0), return_state=True)
    assert state.is_failed()
    assert runner.calls == 1


@pytest.mark.parametrize(("num_threads", "cells"), [("auto", 2), (8, 8), (64, 2)])
def test_cells_side_by_side_have_room_for_their_threads(tmp_path, monkeypatch, num_threads, cells):
    monkeypatch.setattr(pipeline.os, "cpu_count", lambda: 64)
    (tmp_path / "params.yaml").write_text(f"cluster: {{num_threads: {num_threads}}}")
    assert pipeline.cells_per_machine(tmp_path) == cells
