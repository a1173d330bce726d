"""Whole small runs of the modern architecture: the golden curve, resuming, and several processes."""

import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from electra.model.pretrained import load_encoder
from tests.pretrain.test_resume import EVERY_STEP, assert_curves_close, kill_at, weights
from tests.workspace import Workspace

GOLDEN = Path(__file__).parent / "golden_curve_modern.tsv"
MODEL: dict[str, Any] = {
    "architecture": "modern", "intermediate_size": 48, "layer_norm_eps": 1e-5, "local_attention": 8, "global_every": 2,
}  # fmt: skip


@pytest.fixture(scope="module")
def modern(prepared: Workspace, tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """The reference run: one process, fp32, start to end."""
    folder = tmp_path_factory.mktemp("modern") / "workspace"
    shutil.copytree(prepared.root, folder)
    done = Workspace(folder).write(model=MODEL)
    done.pretrain()
    return done


def test_losses_are_the_golden_ones(modern: Workspace) -> None:
    """A change that is not meant to change numbers must not. If it is meant to: copy the new curve, and say why."""
    header, *lines = (line.split("\t") for line in GOLDEN.read_text().splitlines())
    curve = modern.curve()
    assert len(curve) == len(lines) == 24
    for mine, theirs in zip(curve, lines, strict=True):
        for name, value in zip(header, theirs, strict=True):
            if value:
                assert float(mine[name]) == pytest.approx(float(value), rel=2e-3), (mine["step"], name)
    encoder = load_encoder(modern.paths.pretrained, dropout=0.1)
    assert encoder.config.architecture == "modern" and encoder.config.local_attention == 8


def test_killed_run_resumes_to_the_last_bit(modern: Workspace, workspace: Workspace) -> None:
    workspace.write({"cluster": {"checkpoint_minutes": EVERY_STEP}}, model=MODEL)
    kill_at(workspace, 5, signal.SIGKILL)
    assert "resuming electra at step" in workspace.pretrain()
    assert weights(workspace) == weights(modern)


def test_two_processes_under_zero_3_with_packed_rows_learn_the_same_and_resume(
    modern: Workspace, workspace: Workspace
) -> None:
    cluster = {"num_processes": 2, "zero_stage": 3, "activation_checkpointing": "layers", "pack_examples": True}
    workspace.write({"cluster": {**cluster, "checkpoint_minutes": EVERY_STEP}}, model=MODEL)
    kill_at(workspace, 5, signal.SIGKILL)
    output = workspace.pretrain()
    assert "resuming electra at step" in output and "on 2 x cpu" in output and "ZeRO 3" in output
    assert_curves_close(workspace, modern, 1e-4)
