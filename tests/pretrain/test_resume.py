"""Interruptions, processes and ZeRO stages do not change what is learned."""

import json
import os
import signal
import time
from pathlib import Path

import pytest
from safetensors.numpy import load_file

from tests.workspace import Command, Workspace

EVERY_STEP = 1e-6  # minutes


def wait_for_checkpoint(workspace: Workspace, process: Command, at_least: int) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        steps = [int(path.name.removeprefix("step_")) for path in workspace.root.glob("checkpoints/*/step_*")]
        if any(step >= at_least for step in steps):
            return
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.01)
    raise AssertionError("no checkpoint in time")


def kill_at(workspace: Workspace, step: int, number: signal.Signals) -> tuple[int, str]:
    process = workspace.start()
    wait_for_checkpoint(workspace, process, step)
    os.killpg(process.pid, number)
    output, _ = process.communicate(timeout=60)
    return process.returncode, output


def weights(workspace: Workspace) -> bytes:
    return (workspace.paths.pretrained / "model.safetensors").read_bytes()


def assert_curves_close(one: Workspace, other: Workspace, tolerance: float) -> None:
    assert [row["step"] for row in one.curve()] == [row["step"] for row in other.curve()]
    for mine, theirs in zip(one.curve(), other.curve(), strict=True):
        for name, value in mine.items():
            if value:
                assert float(value) == pytest.approx(float(theirs[name]), rel=tolerance, abs=tolerance), (
                    mine["step"],
                    name,
                )


def test_killed_run_resumes_to_the_last_bit(workspace: Workspace, uninterrupted: Workspace) -> None:
    workspace.write({"cluster": {"checkpoint_minutes": EVERY_STEP}})
    code, _ = kill_at(workspace, 7, signal.SIGKILL)
    assert code == -signal.SIGKILL
    assert not (workspace.root / "results/pretrain.json").exists()
    output = workspace.pretrain()
    assert "resuming electra at step" in output
    assert weights(workspace) == weights(uninterrupted)
    assert workspace.curve() == uninterrupted.curve()
    assert not list(workspace.root.glob("checkpoints/*/step_*")), "checkpoints go once the stage has succeeded"


def test_terminated_run_saves_first_and_says_how_to_go_on(workspace: Workspace, uninterrupted: Workspace) -> None:
    workspace.write({"cluster": {"checkpoint_minutes": EVERY_STEP}})
    code, output = kill_at(workspace, 3, signal.SIGTERM)
    assert code == 5, output
    assert "a checkpoint is saved" in output and "Traceback" not in output
    workspace.pretrain()
    assert weights(workspace) == weights(uninterrupted)


def test_damaged_checkpoint_is_passed_over(workspace: Workspace, uninterrupted: Workspace) -> None:
    workspace.write({"cluster": {"checkpoint_minutes": EVERY_STEP}})
    kill_at(workspace, 5, signal.SIGKILL)
    newest = max(workspace.root.glob("checkpoints/*/step_*"))
    damaged = newest / "weights.safetensors"
    content = bytearray(damaged.read_bytes())
    content[-1] ^= 1
    damaged.write_bytes(content)
    output = workspace.pretrain()
    assert f"checkpoint {newest.name} is damaged" in output
    assert weights(workspace) == weights(uninterrupted)


def test_changed_learning_rate_starts_at_step_0(workspace: Workspace) -> None:
    workspace.write({"cluster": {"checkpoint_minutes": EVERY_STEP}}, pretrain={"num_steps": 6})
    kill_at(workspace, 3, signal.SIGKILL)
    workspace.write({"cluster": {"checkpoint_minutes": EVERY_STEP}}, pretrain={"learning_rate": 2e-3, "num_steps": 6})
    output = workspace.pretrain()
    assert "starting electra: 6 steps" in output and "resuming" not in output


def test_one_process_then_two_then_one_learn_what_one_learns(workspace: Workspace, uninterrupted: Workspace) -> None:
    for processes, step in ((1, 4), (2, 10)):
        workspace.write({"cluster": {"num_processes": processes, "checkpoint_minutes": EVERY_STEP}})
        kill_at(workspace, step, signal.SIGKILL)
    workspace.write({"cluster": {"num_processes": 1}})
    output = workspace.pretrain()
    resumed_at = int(output.split("resuming electra at step ")[1].split(":")[0])
    assert 10 <= resumed_at < 24 and "on 1 x cpu" in output
    assert_curves_close(workspace, uninterrupted, 1e-5)


def test_dropout_of_a_micro_batch_is_the_same_on_one_process_and_on_two(workspace: Workspace) -> None:
    """The gradients of two micro-batches have the same sum in either order, so all is equal to the last bit."""
    other = workspace.copy("two-processes")
    for processes, place in ((1, workspace), (2, other)):
        cluster = {"num_processes": processes, "micro_batch_size": 4}
        place.write({"cluster": cluster}, model={"dropout": 0.1, "attention_dropout": 0.1}).pretrain()
    assert weights(workspace) == weights(other)
    assert_curves_close(workspace, other, 1e-5)


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_zero_stage_accumulation_and_activation_checkpointing_change_nothing_and_resume(
    workspace: Workspace, uninterrupted: Workspace, stage: int
) -> None:
    cluster = {"zero_stage": stage, "micro_batch_size": 4, "checkpoint_minutes": EVERY_STEP}
    workspace.write({"cluster": cluster})
    kill_at(workspace, 5, signal.SIGKILL)
    workspace.write({"cluster": {**cluster, "activation_checkpointing": "layers"}})
    output = workspace.pretrain()
    assert f"ZeRO {stage}, micro-batch 4 x 2" in output
    assert_curves_close(workspace, uninterrupted, 1e-5)
    ours, theirs = (
        json.loads((w.root / "logs/pretrain/progress.json").read_text()) for w in (workspace, uninterrupted)
    )
    norms = [name for name in theirs if name.startswith("gradient_norm/")]
    assert len(norms) == 4
    assert [ours[name] for name in norms] == pytest.approx([theirs[name] for name in norms], rel=1e-3)


def test_weights_are_complete_and_finite(uninterrupted: Workspace) -> None:
    tensors = load_file(Path(uninterrupted.paths.pretrained / "model.safetensors"))
    assert "discriminator.embeddings.word.weight" in tensors
    assert not any(name.startswith("generator.embeddings") for name in tensors), "shared tables are stored once"
    assert all(abs(tensor).max() < 1e3 for tensor in tensors.values())
