"""A whole small run: its curve, its files, and how it fails."""

import json
from pathlib import Path

import pytest

from electra.cluster.hardware import resolve_machine
from electra.config import Cluster
from electra.pretrain.checkpoint import Checkpoints, fingerprint, seconds_between_checkpoints
from tests.workspace import Workspace

GOLDEN = Path(__file__).parent / "golden_curve.tsv"


def test_losses_are_the_golden_ones(uninterrupted: Workspace) -> None:
    """A change that is not meant to change numbers must not. If it is meant to: copy the new curve, and say why."""
    lines = GOLDEN.read_text().splitlines()
    header = lines[0].split("\t")
    golden = [dict(zip(header, line.split("\t"), strict=True)) for line in lines[1:]]
    curve = uninterrupted.curve()
    assert [row["step"] for row in curve] == [row["step"] for row in golden]
    for mine, theirs in zip(curve, golden, strict=True):
        for name in header:
            if theirs[name]:
                assert float(mine[name]) == pytest.approx(float(theirs[name]), rel=2e-3), (mine["step"], name)


def test_results_and_progress_are_written(uninterrupted: Workspace) -> None:
    facts = json.loads((uninterrupted.root / "results/pretrain.json").read_text())
    assert facts["step"] == 24 and facts["examples_seen"] == 24 * 8
    assert {"mlm_loss", "unigram_entropy", "disc_loss", "fake_rate_entropy", "disc_auc", "disc_recall"} <= set(facts)
    progress = json.loads((uninterrupted.root / "logs/pretrain/progress.json").read_text())
    assert progress["step"] == progress["num_steps"] == 24
    assert progress["tokens_per_second"] > 0 and 0 < progress["share_of_peak"] < 1
    assert list((uninterrupted.root / "logs/pretrain/tensorboard/test-electra").glob("events*"))


def test_cluster_section_is_not_in_the_fingerprint(workspace: Workspace) -> None:
    before = fingerprint(workspace.settings(), workspace.paths)
    workspace.write({"cluster": {"zero_stage": 2, "num_processes": 2}})
    assert fingerprint(workspace.settings(), workspace.paths) == before
    workspace.write(pretrain={"learning_rate": 2e-3})
    assert fingerprint(workspace.settings(), workspace.paths) != before


def test_second_process_on_the_same_run_is_refused(tmp_path: Path) -> None:
    from electra.common.errors import InfrastructureError

    first, second = Checkpoints(tmp_path, keep=1), Checkpoints(tmp_path, keep=1)
    with first.only_writer(), pytest.raises(InfrastructureError, match="another process"), second.only_writer():
        pass


# `electra pretrain` with weights so large that no gradient is finite; the schema refuses such a setting.
DIVERGING = """
import sys
import electra.config.loading as loading
load = loading.load_settings
def diverging(*root):
    settings = load(*root)
    return settings.model_copy(update={"model": settings.model.model_copy(update={"initializer_range": 1e25})})
loading.load_settings = diverging
sys.argv = ["electra", "pretrain"]
from electra.__main__ import main
main()
"""


def test_diverged_run_ends_with_exit_code_4(workspace: Workspace) -> None:
    workspace.write(pretrain={"num_steps": 6, "eval_every": 6})
    process = workspace.start(DIVERGING)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 4, output
    assert "no longer finite" in output and "learning_rate" in output and "Traceback" not in output


# `electra pretrain` that prints, before an engine is built, what is left of the one before; it goes back after step 2
COUNTING_ENGINES = """
import sys, weakref
from electra.pretrain import run
build, has_diverged, before, went_back = run.build_engine, run.Pretraining.has_diverged, [], []
def counting(*given):
    print("left of the engine before:", sum(part() is not None for part in before), "of", len(before), flush=True)
    engine, optimizer = build(*given)
    before[:] = map(weakref.ref, (engine, engine.module, optimizer, next(engine.module.parameters())))
    return engine, optimizer
def diverged(self, done):
    if done != 2 or went_back:
        return has_diverged(self, done)
    went_back.append(done)
    return True
run.build_engine, run.Pretraining.has_diverged = counting, diverged
sys.argv = ["electra", "pretrain"]
from electra.__main__ import main
main()
"""


@pytest.mark.parametrize("stage", [0, 2])
def test_an_engine_is_gone_before_the_next_one_is_built(workspace: Workspace, stage: int) -> None:
    """After going back, and when the second phase begins."""
    two_phases = {"objective": "mlm_then_rtd", "num_steps": 6, "eval_every": 6, "two_stage_switch": 0.5}
    workspace.write({"cluster": {"zero_stage": stage}}, pretrain={**two_phases, "warmup_steps": 1})
    process = workspace.start(COUNTING_ENGINES)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0, output
    found = [line.split(": ")[1] for line in output.splitlines() if line.startswith("left of the engine before")]
    assert found == ["0 of 0", "0 of 4", "0 of 4"], output


# `electra pretrain` on a terminal; something happens at step 3
ON_A_TERMINAL = """
import io, os, signal, sys
from electra.common.errors import TrainingError
from electra.pretrain import run
class Terminal(io.TextIOWrapper):
    def isatty(self):
        return True
train_step = run.Pretraining.train_step
def interrupted(self, step, agreed):
    if step == 3:
        {happens}
    return train_step(self, step, agreed)
run.Pretraining.train_step = interrupted
os.environ["TERM"] = "xterm"
sys.stderr = Terminal(open(2, "wb", closefd=False))
sys.argv = ["electra", "pretrain"]
from electra.__main__ import main
main()
"""


@pytest.mark.parametrize(
    ("happens", "code"), [("os.kill(os.getpid(), signal.SIGTERM)", 5), ("raise TrainingError('it diverges')", 4)]
)
def test_a_run_that_fails_gives_the_terminal_back(workspace: Workspace, happens: str, code: int) -> None:
    process = workspace.start(ON_A_TERMINAL.format(happens=happens))
    output, _ = process.communicate(timeout=120)
    assert process.returncode == code, output
    hidden, shown = "\x1b[?25l", "\x1b[?25h"  # the cursor
    assert hidden in output and output.rindex(shown) > output.rindex(hidden)


def test_batch_that_does_not_split_is_refused(workspace: Workspace) -> None:
    from electra.common.errors import ConfigError

    settings = workspace.write({"cluster": {"num_processes": 3}}).settings()
    with pytest.raises(ConfigError, match="does not split"):
        resolve_machine(settings.cluster, settings.pretrain.batch_size)


def test_checkpoints_cost_at_most_a_fiftieth_of_the_time() -> None:
    cluster = Cluster(checkpoint_minutes=5)
    assert seconds_between_checkpoints(cluster, waited=0.3) == 300
    assert seconds_between_checkpoints(cluster, waited=12) == 600
