"""Milestones, other encoders and other tasks' encoders on the card; thresholds that are tuned on dev say so."""

from pathlib import Path

import pytest

from electra.common.errors import DataError
from electra.common.paths import Paths
from electra.config import Settings
from electra.results.report.build import build_report
from electra.results.report.content import encoders, intermediate, milestones
from electra.results.report.facts import gather, read_scores

from .example import write_example_results, write_scores


@pytest.fixture
def results(tmp_path: Path) -> Paths:
    paths = Paths(tmp_path)
    write_example_results(paths)
    return paths


def with_starts(paths: Paths) -> None:
    """Every task from half of the training and from another encoder; CoLA also from STS-B's encoder."""
    scores = read_scores(paths)
    assert scores
    for number, entry in enumerate(scores["tasks"].values()):
        entry["milestones"] = {"50": {"median": 40.0 + number, "sd": None}, "6.25": {"median": 20.0, "sd": None}}
        entry["encoders"] = {"other-base": {"median": 60.25 + number, "sd": 1.5}}
    scores["tasks"]["CoLA"]["intermediate"] = {"STS-B": {"median": 2.5, "sd": 0.5}}
    scores |= {
        "milestones": {"50": {"mean": 41.5}, "6.25": {"mean": 20.0}},
        "encoders": {"other-base": {"mean": 61.75}},
    }
    write_scores(paths, scores)


def test_each_start_has_its_table_with_the_run_beside_it(settings: Settings, results: Paths) -> None:
    with_starts(results)
    facts = gather(settings, results)
    assert milestones(facts).columns == ["pre-training", "mean", "MRPC", "STS-B", "CoLA", "SQuAD1.1"]
    assert milestones(facts).rows == [
        ["6.25%", "20.0", *["20.0"] * 4],
        ["50%", "41.5", "40.0", "41.0", "42.0", "43.0"],
        ["100%", "54.5", "81.4", "77.2", "-1.5", "61.0"],
    ]
    ours, theirs = encoders(facts).rows
    assert ours == ["this run", "54.5", "81.4", "77.2", "-1.5", "61.0"]
    assert theirs[:3] == ["other-base", "61.8", "60.2 ± 1.5"]
    assert intermediate(facts).rows == [["CoLA", "STS-B", "-1.5", "2.5 ± 0.5", "+4.0"]]


def test_cards_without_other_starts_have_no_table_of_them(settings: Settings, results: Paths) -> None:
    facts = gather(settings, results)
    assert not (milestones(facts).rows or encoders(facts).rows or intermediate(facts).rows)
    build_report(settings, results)
    text = (results.results / "report.md").read_text()
    assert "Milestones" not in text and "Other encoders" not in text and "another task first" not in text


@pytest.mark.parametrize("name", ["report.md", "report.html"])
def test_the_report_says_median_and_where_thresholds_come_from(settings: Settings, results: Paths, name: str) -> None:
    with_starts(results)
    scores = read_scores(results)
    assert scores
    tuned = {"best_f1": {"pretrained": 62.0, "scratch": 30.0}, "best_f1_threshold": {"pretrained": -2.75, "scratch": 0}}
    tuned |= {"HasAns_f1": {"pretrained": 61.0, "scratch": 31.0}, "NoAns_exact": {"pretrained": 9.0, "scratch": 0}}
    scores["tasks"]["SQuAD1.1"]["other_metrics"] = tuned
    write_scores(results, scores)
    many = settings.model_copy(update={"cells": settings.cells.model_copy(update={"seeds": [1, 2, 3]})})
    build_report(many, results)
    text = (results.results / name).read_text()
    assert text.count("median of 3 seeds ± standard deviation") >= 3
    assert "F1, no-answer threshold tuned on dev" in text and "the threshold tuned on dev for F1" in text
    assert "F1, questions with an answer" in text and "exact match, questions without an answer" in text
    assert "best f1" not in text and "best_f1" not in text


def test_a_card_with_a_missing_file_is_refused(settings: Settings, results: Paths) -> None:
    results.scores("squad").unlink()
    with pytest.raises(DataError, match=r"squad\.json does not exist"):
        build_report(settings, results)
