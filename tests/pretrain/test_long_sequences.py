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


LENGTHS = """
from electra.common.paths import Paths
from electra.pretrain import run
from electra.config.loading import load_settings

plain = run.Pretraining.train_step

def train_step(self, step, agreed):
    print("length", *(int(batch.mask_BT.sum(1).max()) for batch in agreed.micro_batches), flush=True)
    return plain(self, step, agreed)

run.Pretraining.train_step = train_step
run.pretrain(load_settings(), Paths())
"""


def test_the_share_of_steps_on_shorter_examples_is_rounded_to_whole_steps(workspace: Workspace) -> None:
    short_first = {"length_curriculum": {"length": 16, "share": 0.35}}  # 1.75 of 5
    workspace.write(pretrain={"num_steps": 5, "eval_every": 5, "warmup_steps": 1, **short_first})
    process = workspace.start(LENGTHS)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0, output
    lengths = [int(line.split()[1]) for line in output.splitlines() if line.startswith("length ")]
    assert [length <= 16 for length in lengths] == [True, True, False, False, False], lengths
