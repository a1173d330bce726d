"""``python -m flows.pipeline`` before its flow: decisions made without a server."""

import os
import signal
import subprocess
import sys
import time
from contextlib import nullcontext, suppress
from contextvars import copy_context
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import yaml
from prefect.exceptions import ParameterTypeError
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect.utilities.schema_tools import ValidationError, validate

import flows.pipeline as pipeline
from flows.plan import PlannedStage

ROOT = Path(__file__).resolve().parents[2]
DVC_YAML = """
stages:
  make:
    cmd: echo ${number} > made
    params: [number]
    outs: [made]
  card:
    cmd: cp made card.md
    deps: [made]
    outs: [card.md]
"""


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "dvc.yaml").write_text(DVC_YAML)
    (tmp_path / "params.yaml").write_text("number: 1\n")
    (tmp_path / ".dvc").mkdir()
    (tmp_path / ".dvc/config").write_text("[core]\n    analytics = false\n    no_scm = true\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[list[PlannedStage] | None]:
    """The plans that flows were started with; no flow runs."""
    found: list[list[PlannedStage] | None] = []

    def train_encoder(**_: Any) -> SimpleNamespace:
        found.append(pipeline.PLANNED.get())
        return SimpleNamespace(result=lambda raise_on_failure: None)

    monkeypatch.setattr(pipeline, "train_encoder", train_encoder)
    monkeypatch.setattr(pipeline, "temporary_server", nullcontext)
    return found


def main(url: str | None) -> int:
    with temporary_settings({PREFECT_API_URL: url}):
        return copy_context().run(pipeline.main, [])


def test_no_server_is_started_where_nothing_is_out_of_date(
    workspace: Path, started: list[list[PlannedStage] | None], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(None) == 0
    (plan,) = started
    assert plan and [stage.name for stage in plan if stage.out_of_date] == ["make", "card"], "DVC is asked once"
    subprocess.run([sys.executable, "-m", "dvc", "repro", "--quiet"], cwd=workspace, check=True)
    assert main(None) == 0 and len(started) == 1
    assert capsys.readouterr().out == "2 of 2 stages are up to date: nothing to run\n"
    assert main("http://127.0.0.1:9/api") == 0 and started[1:] == [None], "a server keeps a record of every run"


def test_locks_that_dvc_was_killed_in_writing_are_repaired(
    workspace: Path, started: list[list[PlannedStage] | None]
) -> None:
    (workspace / ".dvc/tmp").mkdir()
    (workspace / ".dvc/tmp/rwlock").write_text("")
    assert main(None) == 0 and started


def test_ctrl_c_ends_the_stages_and_the_run_is_recorded_as_ended(workspace: Path) -> None:
    """The signal reaches every process of the terminal's group; Prefect's server must outlive the flow."""
    stages = {"long": {"cmd": "touch begun && sleep 987654", "outs": ["made"]}}
    (workspace / "dvc.yaml").write_text(yaml.safe_dump({"stages": stages}))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_API_")}
    environment |= {"PYTHONPATH": str(ROOT), "PREFECT_HOME": str(workspace / "prefect")}
    command = [sys.executable, "-m", "flows.pipeline"]
    with open(workspace / "output", "w") as output:
        flow = subprocess.Popen(
            command, env=environment, start_new_session=True, stdout=output, stderr=output,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # ignored where a shell's & runs the tests
        )  # fmt: skip
    try:
        while not (workspace / "begun").exists():
            assert flow.poll() is None, (workspace / "output").read_text()
            time.sleep(0.2)
        os.killpg(flow.pid, signal.SIGINT)
        assert flow.wait(60) == 130
    finally:
        with suppress(ProcessLookupError):
            os.killpg(flow.pid, signal.SIGKILL)
    left = [process for process in psutil.process_iter(["cmdline"]) if "987654" in (process.info["cmdline"] or [])]
    text = (workspace / "output").read_text()
    assert not left and "Finished in state Crashed" in text and "Unable to connect" not in text, text


def test_what_dvc_cannot_read_is_told_without_a_server(
    workspace: Path, started: list[list[PlannedStage] | None], capsys: pytest.CaptureFixture[str]
) -> None:
    (workspace / "dvc.yaml").write_text("stages: {make: 7}\n")
    assert main(None) == 2 and not started
    assert "dvc.yaml" in capsys.readouterr().err


@pytest.mark.parametrize("value", ["-1", "0", "two"])
def test_stages_side_by_side_below_one_are_refused_as_an_argument(
    value: str, workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        pipeline.main(["--parallel", value])
    assert ended.value.code == 2 and f"'{value}' is no whole number of at least 1" in capsys.readouterr().err


@pytest.mark.parametrize("parameters", [{"parallel": 0}, {"parallel": -1}, {"gpus": -1}])
def test_prefect_refuses_the_parameters_of_a_run_below_their_least(parameters: dict[str, int]) -> None:
    """By the schema when a deployment's run is created, as its API does, and when a flow is called."""
    schema = pipeline.train_encoder.parameters.model_dump_for_openapi()
    validate({"parallel": 1, "gpus": 0}, schema, raise_on_error=True)
    with pytest.raises(ValidationError):
        validate(parameters, schema, raise_on_error=True)
    with pytest.raises(ParameterTypeError):
        pipeline.train_encoder.validate_parameters(parameters)
