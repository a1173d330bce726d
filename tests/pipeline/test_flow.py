"""The flow as a whole, on a small workspace of its own: real DVC, Prefect's temporary server, stages of one line."""

import subprocess
import sys
from pathlib import Path

import pytest
from prefect.testing.utilities import prefect_test_harness

import flows.pipeline as pipeline
from flows.gpus import Devices
from flows.plan import PlannedStage
from flows.stages import InfrastructureFailure, StageFailure, StageRunner
from flows.tasks import run_stage
from flows.workspace import Workspace

STALE = PlannedStage("x", (), True)
STAGE = """
import sys
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


@pytest.fixture
def workspace(tmp_path):
    (tmp_path / "stage.py").write_text(STAGE)
    (tmp_path / "dvc.yaml").write_text(DVC_YAML)
    (tmp_path / "params.yaml").write_text("number: 1\n")
    for arguments in [("init", "--quiet", "--no-scm"), ("config", "core.analytics", "false")]:
        subprocess.run([sys.executable, "-m", "dvc", *arguments], cwd=tmp_path, check=True)
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

    (workspace / "params.yaml").write_text("number: 13\n")
    monkeypatch.chdir(workspace)
    assert pipeline.main([]) == 3
    assert "stage make failed with exit code 3" in capsys.readouterr().err
    assert take_ran(workspace) == ["made"], "neither a retry nor a later stage"


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
