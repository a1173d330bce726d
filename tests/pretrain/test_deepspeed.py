"""DeepSpeed's configuration: printed, written beside the run, added to, and ZeRO-Offload."""

import json
import signal
from typing import Any

import pytest
from pydantic import ValidationError

from electra.config import Cluster
from electra.pretrain.engine import describe_deepspeed
from tests.pretrain.test_resume import EVERY_STEP, assert_curves_close, kill_at
from tests.workspace import Workspace


@pytest.mark.parametrize(
    ("stage", "offload", "processes"),
    [(1, "optimizer", 1), (2, "optimizer", 2), (3, "optimizer", 1), (3, "parameters", 2)],
)
def test_an_offloaded_run_learns_the_same_and_resumes(
    workspace: Workspace, uninterrupted: Workspace, stage: int, offload: str, processes: int
) -> None:
    cluster = {"zero_stage": stage, "offload": offload, "num_processes": processes, "checkpoint_minutes": EVERY_STEP}
    workspace.write({"cluster": cluster})
    code, output = kill_at(workspace, 4, signal.SIGTERM)
    assert code == 5, output
    assert "resuming electra at step" in workspace.pretrain()
    assert_curves_close(workspace, uninterrupted, 1e-4)
    written = json.loads((workspace.root / "logs/pretrain/deepspeed.json").read_text())["zero_optimization"]
    assert written["offload_optimizer"]["device"] == "cpu"
    assert ("offload_param" in written) == (offload == "parameters")


def test_added_entries_are_printed_written_and_used(workspace: Workspace) -> None:
    added: dict[str, Any] = {
        "steps_per_print": 2, "memory_breakdown": True, "dump_state": True, "comms_logger": {"enabled": True},
        "zero_optimization": {"reduce_bucket_size": 1000},
    }  # fmt: skip
    few = {"num_steps": 4, "warmup_steps": 1, "eval_every": 4}  # a memory breakdown takes a second a step
    workspace.write({"cluster": {"zero_stage": 2, "deepspeed": {"config": added}}}, pretrain=few)
    printed = json.loads(describe_deepspeed(workspace.settings()))
    assert printed["comms_logger"]["enabled"] and printed["zero_optimization"]["reduce_bucket_size"] == 1000
    assert printed["zero_optimization"]["stage"] == 2, "derived entries of the same table stay"
    workspace.pretrain()
    assert json.loads((workspace.root / "logs/pretrain/deepspeed.json").read_text()) == printed


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"gradient_clipping": 1.0}, "config.gradient_clipping is decided by pretrain.max_grad_norm"),
        ({"train_batch_size": 8}, "config.train_batch_size is decided by pretrain.batch_size"),
        ({"bf16": {"enabled": True}}, "config.bf16 is decided by cluster.precision"),
        ({"zero_optimization": {"stage": 1}}, "config.zero_optimization.stage is decided by cluster.zero_stage"),
        ({"zero_optimization": 2}, "config.zero_optimization is a table"),
        ({"comms_loger": {}}, "config has no entry comms_loger"),
    ],
)
def test_entries_that_the_project_decides_or_deepspeed_does_not_know_are_errors(
    config: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValidationError, match=message):
        Cluster(deepspeed={"config": config})  # type: ignore[arg-type]


def test_an_entry_that_deepspeed_refuses_is_an_error_of_the_settings(workspace: Workspace) -> None:
    workspace.write({"cluster": {"deepspeed": {"config": {"zero_optimization": {"no_such_key": 1}}}}})
    process = workspace.start()
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 2 and "no_such_key" in output and "Traceback" not in output


@pytest.mark.parametrize(("stage", "offload"), [(0, "optimizer"), (2, "parameters")])
def test_offload_needs_a_zero_stage_that_has_it(stage: int, offload: str) -> None:
    with pytest.raises(ValidationError, match="needs zero_stage"):
        Cluster(zero_stage=stage, offload=offload)  # type: ignore[arg-type]
