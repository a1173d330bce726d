"""Corners of DeepSpeed: the build of its op for CPUs, and any optimizer at any ZeRO stage."""

import os
import signal
from pathlib import Path

import pytest
from deepspeed.accelerator import get_accelerator
from torch.utils.file_baton import FileBaton

from electra.pretrain.zero import load_collectives
from tests.pretrain.test_resume import EVERY_STEP, wait_for_checkpoint, weights
from tests.workspace import Workspace


class Builder:
    """Fake of DeepSpeed's builder of the op, which leaves the same lock file as torch's, and does not wait."""

    NAME = name = "deepspeed_shm_comm"

    def __init__(self, folder: Path):
        self.folder, self.loads = folder / self.name, 0

    def is_compatible(self, verbose: bool = False) -> bool:
        return True

    def load(self, verbose: bool) -> None:
        self.folder.mkdir(exist_ok=True)
        baton = FileBaton(str(self.folder / "lock"))
        assert baton.try_acquire(), "the build would wait without end"
        (self.folder / "op.so").write_text("whole")
        baton.release()
        self.loads += 1


@pytest.fixture
def builder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Builder:
    builder = Builder(tmp_path)
    monkeypatch.setattr(get_accelerator(), "create_op_builder", lambda name: builder)
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    return builder


def test_a_build_that_was_killed_is_removed_and_done_again(
    builder: Builder, capsys: pytest.CaptureFixture[str]
) -> None:
    builder.folder.mkdir()
    for name in ("lock", "half_written.o"):
        (builder.folder / name).touch()
    load_collectives()
    said = capsys.readouterr().out
    assert "was cut short" in said and str(builder.folder) in said
    assert [path.name for path in builder.folder.iterdir()] == ["op.so"] and builder.loads == 1
    assert [path.name for path in builder.folder.parent.iterdir()] == [builder.name], "nothing is left beside it"


def test_a_finished_build_is_used_without_a_word(builder: Builder, capsys: pytest.CaptureFixture[str]) -> None:
    builder.folder.mkdir()
    (builder.folder / "op.o").touch()
    load_collectives()
    assert (builder.folder / "op.o").exists() and not capsys.readouterr().out


# `electra pretrain` with another optimizer: one moment, under a name of its own.
MOMENTUM = """
import torch
from electra import optim

class Momentum(optim.Optimizer):
    moments = ("velocity",)

    def __init__(self, params, lr, betas, eps, **options):
        super().__init__(params, lr, momentum=betas[0], **options)

    def update(self, parameters, group, skip, divisor):
        for parameter in parameters:
            velocity = self.state[parameter]["velocity"]
            velocity.mul_(group["momentum"]).add_(parameter.grad)
            parameter.sub_(velocity, alpha=group["lr"])

optim.OPTIMIZERS["adamw"] = Momentum
import sys
sys.argv = ["electra", "pretrain"]
from electra.__main__ import main
main()
"""


@pytest.mark.parametrize("stage", [0, 2])
def test_another_optimizer_is_trained_saved_and_resumed_to_the_last_bit(workspace: Workspace, stage: int) -> None:
    workspace.write({"cluster": {"zero_stage": stage, "checkpoint_minutes": EVERY_STEP}}, pretrain={"num_steps": 12})
    whole = workspace.copy("whole")
    process = whole.start(MOMENTUM)
    assert process.communicate(timeout=240)[0] and process.returncode == 0, process.communicate()[0]
    process = workspace.start(MOMENTUM)
    wait_for_checkpoint(workspace, process, 5)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=60)
    process = workspace.start(MOMENTUM)
    output, _ = process.communicate(timeout=240)
    assert process.returncode == 0 and "resuming electra at step" in output, output
    assert weights(workspace) == weights(whole)
