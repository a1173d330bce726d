"""The card reports where pre-training did not help and where a model learned nothing, without embellishment."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from electra.common.paths import Paths
from electra.config import Settings
from electra.hub.export.pretrained import model_card
from electra.results.report.build import build_report
from electra.results.report.content import score_card
from electra.results.report.facts import Facts, gather, plateaus, read_scores
from electra.results.report.remarks import score_remarks

from .example import write_example_results, write_scores


@pytest.fixture
def facts(settings: Settings, tmp_path: Path) -> Facts:
    write_example_results(Paths(tmp_path))
    return gather(settings, Paths(tmp_path))


@pytest.mark.parametrize(
    ("loss", "guess", "auc", "said"),
    [
        (0.188, 0.387, 0.92, "does better than"),
        (0.3675, 0.387, 0.75, "does better than"),  # both at their margins
        (0.368, 0.387, 0.92, "does hardly better than"),  # 4.9% below
        (0.30, 0.387, 0.672, "does hardly better than"),  # of a run that hurt every task
        (0.38, 0.387, 0.9, "is still at"),  # 1.8% below
        (0.30, 0.387, 0.487, "is still at"),
        (0.42, 0.387, 0.92, "is still at"),
    ],
)
def test_a_discriminator_does_better_by_a_margin_in_loss_and_in_auc(
    facts: Facts, loss: float, guess: float, auc: float, said: str
) -> None:
    known = {"disc_loss": loss, "fake_rate_entropy": guess, "disc_auc": auc}
    (line,) = plateaus(replace(facts, pretrain=known))
    assert line.startswith(f"The discriminator {said} guessing by frequency: loss {loss:.3f}, guessing {guess:.3f}")
    assert f"AUC {auc:.3f}" in line
    assert ("a loss 5% below guessing and an AUC of 0.75 would be better" in line) == (said != "does better than")


@pytest.mark.parametrize(("loss", "said"), [(5.3, "does better"), (5.7, "does hardly better"), (5.9, "is still at")])
def test_a_generator_is_judged_by_its_loss_alone(facts: Facts, loss: float, said: str) -> None:
    (line,) = plateaus(replace(facts, pretrain={"mlm_loss": loss, "unigram_entropy": 5.9}))
    assert line.startswith(f"The generator {said}") and "AUC" not in line


def scored(facts: Facts, mean_gain: float = 5.0, **tasks: dict[str, Any]) -> Facts:
    """The example's facts with these tasks: a pair of scores each, and further entries."""
    entries = {name: {"gain": entry["pretrained"] - entry["scratch"], **entry} for name, entry in tasks.items()}
    return replace(facts, scores={"seeds": 3, "mean": {"gain": mean_gain}, "tasks": entries})


def test_tasks_on_which_pre_training_hurt_are_named(facts: Facts) -> None:
    fine = {"pretrained": 80.0, "scratch": 80.04}  # equal as the card shows them
    worse = {"pretrained": 64.5, "scratch": 66.75}
    assert score_remarks(scored(facts, A=fine)) == []
    assert score_remarks(scored(facts, mean_gain=-0.04, A=fine)) == []
    assert score_remarks(scored(facts, A=fine, B=worse)) == [
        "Pre-trained is below random weights on 1 of 2 tasks: B (-2.2)."
    ]
    (line,) = score_remarks(scored(facts, mean_gain=-2.25, B=worse))
    assert line.endswith("The mean is too: -2.2. This pre-training did not help.")


def test_gains_that_may_be_chance_are_named_and_have_no_colour(settings: Settings, tmp_path: Path) -> None:
    paths = Paths(tmp_path)
    write_example_results(paths)
    scores = read_scores(paths)
    assert scores
    gains = {
        "MRPC": {"gain": 10.0, "pretrained_sd": 1.0, "scratch_sd": 4.9},
        "STS-B": {"gain": 10.0, "pretrained_sd": 5.0, "scratch_sd": 1.0},
        "CoLA": {"gain": -2.0, "pretrained_sd": 0.5, "scratch_sd": 0.9},
        "SQuAD1.1": {"gain": 4.0, "pretrained_sd": None, "scratch_sd": None},
    }
    for task, known in gains.items():
        scores["tasks"][task] |= known
    scores["mean"]["gain"] = 0.04
    write_scores(paths, scores)
    build_report(settings, paths)
    text, page = (paths.results / "report.md").read_text(), (paths.results / "report.html").read_text()
    assert "\n- A gain below twice the standard deviation over seeds may be chance: STS-B (+10.0).\n" in text
    coloured = dict(zip(scores["tasks"], re.findall(r'<div class="gain (\w*)">', page), strict=True))
    assert coloured == {"MRPC": "good", "STS-B": "", "CoLA": "bad", "SQuAD1.1": ""}
    assert '<b class="">+0.0</b>' in page


def test_a_model_that_gives_every_row_one_answer_is_named(facts: Facts) -> None:
    mrpc = {
        "pretrained": 87.8,
        "scratch": 70.0,
        "constant": 87.8,
        "constant_seeds": {"pretrained": [1, 2, 3], "scratch": []},
    }
    assert score_remarks(scored(facts, MRPC=mrpc)) == [
        "The same answer for every row, so nothing was learned: MRPC, pre-trained (3 of 3 seeds).",
        "No better than one answer for every row: MRPC, pre-trained (87.8, one answer 87.8); "
        "MRPC, from scratch (70.0, one answer 87.8).",
    ]


def test_a_score_below_that_of_the_most_frequent_answer_is_named_though_the_answers_differ(facts: Facts) -> None:
    rte = {"pretrained": 60.0, "scratch": 52.0, "constant": 52.7, "constant_seeds": {"pretrained": [], "scratch": []}}
    squad = {"pretrained": 60.0, "scratch": 52.0, "constant": None, "constant_seeds": {"pretrained": [], "scratch": []}}
    (line,) = score_remarks(scored(facts, RTE=rte, SQuAD=squad))
    assert "RTE, from scratch (52.0, one answer 52.7)" in line and "pre-trained" not in line and "SQuAD" not in line


def test_other_starts_that_learned_nothing_are_named(facts: Facts) -> None:
    rte = {"pretrained": 60.0, "scratch": 52.0, "encoders": {"x-large": {"constant_seeds": [2]}},
           "milestones": {"25": {"constant_seeds": [1]}}, "intermediate": {"MNLI": {"constant_seeds": []}}}  # fmt: skip
    (line,) = score_remarks(scored(facts, RTE=rte))
    assert line.endswith("RTE, after 25% (1 of 3 seeds); RTE, x-large (1 of 3 seeds).")


def test_the_remarks_stand_on_every_card(
    settings: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = Paths(tmp_path)
    write_example_results(paths)
    scores = read_scores(paths)
    assert scores
    scores["tasks"]["MRPC"] |= {"constant": 82.0, "constant_seeds": {"pretrained": [1], "scratch": []}}
    write_scores(paths, scores)
    build_report(settings, paths)
    page = (paths.results / "report.html").read_text()
    for text in ((paths.results / "report.md").read_text(), page, model_card(settings, paths)):
        assert "Pre-trained is below random weights on 1 of 4 tasks: CoLA (-1.5)." in text
        assert "MRPC, pre-trained (1 of 1 seed)" in text and "MRPC, pre-trained (81.4, one answer 82.0)" in text
    printed = " ".join(capsys.readouterr().out.split())
    assert "below random weights on 1 of 4 tasks" in printed


def test_small_and_one_sided_development_sets_are_warnings(facts: Facts) -> None:
    even = {"pretrained": 80.0, "scratch": 70.0, "metric": "accuracy", "constant": 60.0, "dev_rows": 200}
    small, one_sided = {**even, "dev_rows": 40}, {**even, "constant": 93.0, "pretrained": 95.0}
    assert score_remarks(scored(facts, even=even)) == []
    (line,) = score_remarks(scored(facts, even=even, small=small))
    assert line == "Small development sets, so that scores vary by chance: small (40 rows, one row is 2.5 points)."
    told = score_remarks(scored(facts, one_sided=one_sided))
    (said,) = [line for line in told if line.startswith("Accuracy hides the rare labels")]
    assert said.endswith("in a classification macro_f1 or matthews would not: one_sided (93% have one label).")


@pytest.mark.parametrize(("share", "told"), [(0.0199, False), (0.0101, False), (0.33, True), (0.004, True)])
def test_a_held_out_share_far_from_what_was_asked_is_a_warning(facts: Facts, share: float, told: bool) -> None:
    found = replace(
        scored(facts, fine={"pretrained": 80.0, "scratch": 70.0}),
        validation={"corpus": {"statistics": {"held_out_share": share}}},
    )
    asked = facts.settings.corpus.held_out_fraction
    assert 0.01 <= asked <= 0.02
    assert (
        f"{share:.1%} is held out for the learning curve, and {asked:.1%} was asked for"
        in " ".join(score_remarks(found))
    ) == told


def test_the_card_has_a_column_for_the_most_frequent_answer(facts: Facts) -> None:
    entry = {"pretrained": 80.0, "scratch": 70.0, "metric": "accuracy", "constant": 61.25, "dev_rows": 500}
    found = scored(facts, fine=entry, spans={**entry, "constant": None, "pretrained_sd": 1.25})
    found.scores["mean"] = {"pretrained": 80.0, "scratch": 70.0, "gain": 10.0}  # type: ignore[index]
    card = score_card(found)
    place = card.columns.index("one answer")
    assert [row[place] for row in card.rows] == ["61.2", "", ""] and card.rows[1][2] == "80.0 ± 1.2"
    assert {len(row) for row in card.rows} == {len(card.columns)}
