"""Whole runs with packed rows and with shorter examples first."""

import signal

from tests.pretrain.test_resume import EVERY_STEP, assert_curves_close, kill_at, weights
from tests.workspace import Workspace

CURRICULUM = {"length_curriculum": {"length": 16, "share": 0.5}}


def test_a_run_on_packed_rows_learns_what_one_on_padded_rows_learns(
    workspace: Workspace, uninterrupted: Workspace
) -> None:
    workspace.write({"cluster": {"pack_examples": True}}).pretrain()
    assert_curves_close(workspace, uninterrupted, 1e-5)


def test_a_run_with_shorter_examples_first_resumes_in_either_part_to_the_last_bit(workspace: Workspace) -> None:
    workspace.write(pretrain=CURRICULUM)
    whole = workspace.copy("whole")
    whole.pretrain()
    workspace.write({"cluster": {"checkpoint_minutes": EVERY_STEP}}, pretrain=CURRICULUM)
    for step in (5, 15):  # the first 12 of 24 steps are short
        kill_at(workspace, step, signal.SIGKILL)
    workspace.pretrain()
    assert weights(workspace) == weights(whole)
    assert workspace.curve() == whole.curve()
