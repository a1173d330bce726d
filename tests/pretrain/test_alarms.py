"""Every alarm fires when it is provoked, and is silent on a healthy run."""

import json
import math

import pytest
import torch

from electra.common.errors import TrainingError
from electra.config import Pretrain
from electra.objectives.electra import Electra
from electra.pretrain.alarms import AlarmMonitor, NonFinite, alarms_of
from electra.pretrain.metrics import HeldoutSums
from tests.model.test_electra import TINY, random_batch
from tests.pretrain.test_resume import weights
from tests.workspace import ROOT, Workspace

HEALTHY = {
    "unigram_entropy": 5.6, "mlm_loss": 5.1, "mlm_accuracy": 0.19, "sampled_accuracy": 0.07, "sampled_entropy": 5.3,
    "disc_loss": 0.26, "fake_rate": 0.14, "fake_rate_entropy": 0.41, "disc_auc": 0.86, "disc_recall": 0.4,
}  # fmt: skip


def recipe(**changes: object) -> Pretrain:
    values = {"num_steps": 100, "batch_size": 8, "learning_rate": 1e-3, "warmup_steps": 4, "eval_every": 10}
    return Pretrain(**{**values, "alarm_after": 20, "alarm_patience": 30, **changes})


def names(results: dict[str, float], **changes: object) -> list[str]:
    return [alarm.name for alarm in alarms_of({**HEALTHY, **results}, recipe(**changes))]


@pytest.mark.parametrize(
    ("results", "alarm"),
    [
        ({"disc_loss": 0.409}, "majority_class_plateau"),
        ({"disc_auc": 0.53}, "majority_class_plateau"),
        ({"disc_loss": 0.395, "disc_recall": 0.02}, "majority_class_plateau"),
        ({"disc_auc": math.nan, "fake_rate": 1.0, "fake_rate_entropy": 0.0, "disc_loss": 0.01}, "one_label"),
        ({"sampled_entropy": 2.0}, "generator_collapse"),
        ({"sampled_accuracy": 0.19}, "generator_collapse"),
        ({"sampled_accuracy": 0.75, "mlm_accuracy": 0.95, "fake_rate": 0.0375}, "generator_too_strong"),
    ],
)
def test_an_alarm_names_what_is_wrong_and_what_to_try(results: dict[str, float], alarm: str) -> None:
    assert names({}) == []
    assert names(results) == [alarm]
    (raised,) = alarms_of({**HEALTHY, **results}, recipe())
    assert "%" in raised.what and ("model." in raised.advice or "pretrain." in raised.advice)


def test_what_a_choice_explains_is_no_alarm() -> None:
    assert names({"sampled_accuracy": 0.19}, temperature=0.1) == []
    assert names({"sampled_entropy": 2.0}, generator="unigram") == []
    assert names({"sampled_accuracy": 0.75, "mlm_accuracy": 0.95}, correct_samples_are_fake=True) == []
    bert = {"unigram_entropy": 5.6, "mlm_loss": 5.59}
    assert [a.name for a in alarms_of(bert, recipe(objective="bert"))] == ["unigram_plateau"]
    assert alarms_of({**bert, "mlm_loss": 4.0}, recipe(objective="bert")) == []


def measured(logits: object) -> dict[str, float]:
    """Results of a real model whose generator's logits are ``logits`` of the original tokens."""
    model = Electra(TINY, vocab_size=50, mask_id=4).initialize(0.3, seed=1).eval()
    batch = random_batch(64, 16, 3, 50)
    model.generator_head.forward = lambda hidden: logits(
        torch.nn.functional.one_hot(batch.original_ids_BK(), 50).float()
    )
    sums = HeldoutSums(list(model.loss_weights), [0, 2, 3, 4], 50)
    with torch.no_grad():
        sums.add(batch, model(batch), model.counts(batch))
    return {"unigram_entropy": 3.8, **sums.results(), "disc_auc": 0.9, "disc_loss": 0.01}


def test_a_generator_that_says_one_word_is_called_collapsed() -> None:
    one_word = torch.nn.functional.one_hot(torch.tensor(7), 50).float() * 30
    found = alarms_of(measured(lambda truth: one_word.expand_as(truth)), recipe())
    assert [alarm.name for alarm in found] == ["generator_collapse"]


def test_a_generator_that_is_always_right_is_called_too_strong() -> None:
    found = alarms_of(measured(lambda truth: truth * 30), recipe())
    assert "generator_too_strong" in [alarm.name for alarm in found]


def test_a_generator_that_guesses_by_frequency_is_fine() -> None:
    assert alarms_of(measured(lambda truth: truth * 0.5), recipe()) == []


def test_alarms_wait_at_first_and_end_the_run_when_they_stay() -> None:
    monitor, bad = AlarmMonitor(recipe()), {**HEALTHY, "disc_auc": 0.5}
    assert monitor.check(10, bad) == [] and monitor.check(20, bad) and monitor.check(40, bad)
    assert monitor.check(45, HEALTHY) == [], "it has recovered: patience starts anew"
    assert monitor.check(50, bad) and monitor.since == {"majority_class_plateau": 50}
    resumed = AlarmMonitor(recipe(), monitor.since)
    with pytest.raises(TrainingError, match="majority_class_plateau since step 50") as raised:
        resumed.check(80, bad)
    assert raised.value.exit_code == 4


def test_nothing_is_judged_during_warm_up() -> None:
    bad = {**HEALTHY, "disc_auc": 0.5}
    monitor = AlarmMonitor(recipe(warmup_steps=50))
    assert monitor.check(20, bad) == monitor.check(49, bad) == [] and monitor.since == {}
    assert monitor.check(50, bad) and monitor.since == {"majority_class_plateau": 50}


def test_the_second_phase_has_a_start_and_a_warm_up_of_its_own() -> None:
    """Its discriminator begins at the level of guessing, however long the first phase was."""
    bad, phases = {**HEALTHY, "disc_auc": 0.5}, [range(200), range(200, 400)]
    monitor = AlarmMonitor(recipe(num_steps=400), {"majority_class_plateau": 190}, phases)
    assert monitor.check(210, bad) == [] and monitor.since == {}
    assert monitor.check(220, bad) and monitor.since == {"majority_class_plateau": 220}


def test_the_committed_run_raises_no_alarm() -> None:
    results = json.loads((ROOT / "results/pretrain.json").read_text())
    assert results["alarms"] == 0
    assert alarms_of(results, recipe()) == []


def test_the_golden_run_is_silent(uninterrupted: Workspace) -> None:
    assert json.loads((uninterrupted.root / "results/pretrain.json").read_text())["alarms"] == 0
    progress = json.loads((uninterrupted.root / "logs/pretrain/progress.json").read_text())
    assert progress["skipped_steps"] == 0
    assert {"gradient_norm/total", "gradient_norm/generator", "gradient_norm/discriminator", "clip_rate"} <= set(
        progress
    )
    assert progress["gradient_norm/shared_embeddings"] < progress["gradient_norm/total"]


def test_a_run_that_stays_on_the_plateau_ends_with_exit_code_4(workspace: Workspace) -> None:
    workspace.write(
        pretrain={"learning_rate": 1e-9, "num_steps": 60, "eval_every": 4, "alarm_after": 4, "alarm_patience": 8}
    )
    process = workspace.start()
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 4, output
    assert "ALARM majority_class_plateau" in output, "it is said before the run is given up"
    assert "calls nearly every token original" in output and "try " in output and "Traceback" not in output
    assert not workspace.paths.pretrained.exists()


def test_a_second_bad_step_goes_back_and_a_third_time_ends() -> None:
    monitor = NonFinite()
    assert [
        monitor.must_roll_back(0, 1),
        monitor.must_roll_back(1, 2),
        monitor.must_roll_back(0, 3),
        monitor.must_roll_back(1, 4),
    ] == [False] * 4
    assert monitor.must_roll_back(1, 5), "two in succession"
    with pytest.raises(TrainingError, match="no longer finite") as raised:
        monitor.must_roll_back(3, 6)
    assert raised.value.exit_code == 4 and monitor.num_skipped == 6


POISON = """
import torch
from electra.common.paths import Paths
from electra.pretrain import run
from electra.config.loading import load_settings

plain, calls = run.Pretraining.losses, 0

def losses(self, outputs, counts):
    global calls
    calls += 1
    if calls in {POISONED}:
        counts = counts * float("nan")
    return plain(self, outputs, counts)

run.Pretraining.losses = losses
run.pretrain(load_settings(), Paths())
"""


def run_poisoned(workspace: Workspace, calls: set[int]) -> str:
    """Train with NaN losses at these micro-batches, counted from 1 and over roll-backs."""
    process = workspace.start(POISON.replace("{POISONED}", repr(calls)))
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0, output
    return output


@pytest.mark.parametrize("stage", [0, 2])
def test_one_bad_batch_is_skipped_with_a_record(workspace: Workspace, stage: int) -> None:
    workspace.write({"cluster": {"zero_stage": stage}})
    output = run_poisoned(workspace, {6})
    assert "step 6  a batch whose gradients are not finite was skipped" in output and "going back" not in output
    progress = json.loads((workspace.root / "logs/pretrain/progress.json").read_text())
    assert progress["skipped_steps"] == 1 and progress["step"] == 24
    facts = json.loads((workspace.root / "results/pretrain.json").read_text())
    assert facts["mlm_loss"] < 7 and facts["disc_loss"] < 1, "the weights have stayed finite"


def test_bad_batches_in_succession_go_back_to_the_checkpoint(workspace: Workspace, uninterrupted: Workspace) -> None:
    """The fault is gone the second time (a cosmic ray, say): the run then ends as if nothing had happened."""
    workspace.write({"cluster": {"checkpoint_minutes": 1e-6}})
    output = run_poisoned(workspace, {9, 10})
    assert "going back to the last checkpoint" in output
    assert weights(workspace) == weights(uninterrupted)
