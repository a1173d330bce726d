"""Our scores are shown beside published ones only if both are from the same data."""

import statistics

import pytest
import yaml

from electra.common.paths import Paths
from electra.config import Settings
from electra.results.report.beside import FILE, GLUE_TASKS, beside_published, published_scores
from electra.results.report.build import build_report
from electra.results.report.content import averages
from electra.results.report.facts import gather, read_scores

from .example import official, write_example_results, write_scores


@pytest.fixture
def results(tmp_path) -> Paths:
    paths = Paths(tmp_path)
    write_example_results(paths)
    return paths


def scores_of(paths: Paths) -> dict:
    scores = read_scores(paths)
    assert scores
    return scores


def test_every_published_figure_has_a_source_and_is_a_percentage():
    content = yaml.safe_load(FILE.read_text())
    for model in content["models"]:
        assert model["source"] in content["sources"], model["name"]
        assert set(model) <= {"name", "source", "where", "set", "glue", "glue_mean", "squad", "tagging"}
    of_test_sets = {model["name"] for model in content["models"] if model.get("set") == "test"}
    names = [model.name for model in published_scores()]
    assert len(set(names)) == len(names)
    for model in published_scores():
        figures = [
            *(figure for task, figure in model.glue.items() if task != "CoLA" or model.name not in of_test_sets),
            *model.tagging.values(),
            *(v for found in model.squad.values() for v in found.values()),
        ]
        assert figures or model.glue_mean, model.name
        assert all(50 < figure < 100 for figure in figures)
        assert 0 <= model.glue.get("CoLA", 0) < 100  # a correlation: 0 for one answer to every row
        assert set(model.glue) in (set(), set(GLUE_TASKS))
        assert all(found.keys() <= {"exact", "f1"} for found in model.squad.values())
        assert all(found["exact"] < found["f1"] for found in model.squad.values() if len(found) == 2)


def test_published_means_are_those_of_the_published_tasks():
    checked = [model for model in published_scores() if model.glue and model.glue_mean]
    assert len(checked) >= 6
    for model in checked:
        assert statistics.fmean(model.glue.values()) == pytest.approx(model.glue_mean, abs=0.06), model.name


@pytest.mark.parametrize("name", ["report.md", "report.html"])
def test_tasks_of_other_rows_get_a_reason_instead_of_a_table(settings: Settings, results: Paths, name: str):
    build_report(settings, results)
    text = (results.results / name).read_text()
    assert "Beside published results" in text
    assert "cannot be compared with published ones" in text
    assert "RoBERTa" not in text


def test_means_are_over_the_tasks_that_both_have(settings: Settings, results: Paths):
    write_scores(results, official(scores_of(results), ["MRPC", "SQuAD1.1"]))
    section = beside_published(gather(settings, results))
    rows = {row[0]: dict(zip(section.columns, row, strict=True)) for row in section.rows}
    ours = rows["this run"]
    assert (ours["MRPC"], ours["SQuAD1.1 EM"], ours["SQuAD1.1 F1"]) == ("81.4", "50.0", "61.0")
    assert ours["mean over them"] == ours["mean of this run"] == "71.2" and ours["source"] == "one seed"
    roberta = rows["RoBERTa-Large, 100K steps"]
    assert (roberta["tasks in common"], roberta["mean over them"], roberta["mean of this run"]) == ("2", "92.7", "71.2")
    assert roberta["SQuAD1.1 EM"] == "-"
    span = rows["SpanBERT"]  # SQuAD only
    assert (span["MRPC"], span["tasks in common"], span["mean of this run"]) == ("-", "1", "61.0")
    assert "table 4" in span["source"]
    assert "ELMo" not in rows and "GLUE mean" not in section.columns  # its only figure is over tasks we lack
    assert "STS-B" not in section.columns
    assert section.note.endswith("published figures: STS-B, CoLA.")


PART = "trained on a part of their rows (finetune.max_train_examples)"


def test_the_reason_for_no_published_rows_is_that_of_the_tasks(settings: Settings, results: Paths):
    scores = scores_of(results)
    scores["data"] = "files with the row counts of the official releases (development sets)"
    for task in ("MRPC", "STS-B", "CoLA"):
        scores["tasks"][task] |= {"official_rows": False, "not_official": PART}
    scores["tasks"]["SQuAD1.1"] |= {"official_rows": False, "not_official": "not on the official rows"}
    write_scores(results, scores)
    section = beside_published(gather(settings, results))
    assert not section.rows
    assert section.note == (
        f"None. CoLA, MRPC, STS-B: {PART}; SQuAD1.1: not on the official rows. Such scores cannot be compared with "
        "published ones."
    )


def test_tasks_left_out_of_the_table_have_their_reasons(settings: Settings, results: Paths):
    scores = official(scores_of(results), ["MRPC"])
    for task in ("STS-B", "CoLA"):
        scores["tasks"][task]["not_official"] = PART
    scores["tasks"]["SWAG"] = {**scores["tasks"]["CoLA"]}
    write_scores(results, scores)
    note = beside_published(gather(settings, results)).note
    assert f"Left out, since {PART}: STS-B, CoLA." in note
    assert "Left out, since not on the official rows or without published figures: SWAG, SQuAD1.1." in note


def test_tasks_without_any_published_figure_are_not_called_other_data(settings: Settings, results: Paths):
    scores = scores_of(results)
    scores["tasks"] = {"SWAG": scores["tasks"]["MRPC"]}
    write_scores(results, scores)
    assert beside_published(gather(settings, results)).note == (
        "None: the publications of this table have no development-set figures of SWAG."
    )


def test_entities_of_conll_2003_stand_beside_figures_of_the_same_development_set(settings: Settings, results: Paths):
    scores = scores_of(results)
    entry = {**scores["tasks"]["MRPC"], "metric": "f1", "pretrained": 80.0, "scratch": 60.0}
    scores["tasks"] = {"CoNLL-2003": entry}
    write_scores(results, official(scores, ["CoNLL-2003"]))
    section = beside_published(gather(settings, results))
    rows = {row[0]: dict(zip(section.columns, row, strict=True)) for row in section.rows}
    assert rows["this run"]["CoNLL-2003"] == "80.0"
    base = rows["BERT-Base, cased, fine-tuned with the context of the document"]
    assert (base["CoNLL-2003"], base["mean of this run"]) == ("96.4", "80.0")  # of testa; testb has 92.4
    assert "table 7" in base["source"]
    assert len(rows) == 4  # with random weights and BERT-Large; no row without the task
    scores["tasks"]["CoNLL-2003"] |= {"official_rows": False, "not_official": PART}
    write_scores(results, scores)
    assert beside_published(gather(settings, results)).note.startswith(f"None. CoNLL-2003: {PART}.")


def test_rows_of_test_sets_say_so(settings: Settings, results: Paths):
    write_scores(results, official(scores_of(results), ["CoLA", "MRPC"]))
    section = beside_published(gather(settings, results))
    rows = {row[0]: dict(zip(section.columns, row, strict=True)) for row in section.rows}
    tiny = rows["BERT-Tiny (2 layers of 128)"]
    assert (tiny["CoLA"], tiny["MRPC"], tiny["tasks in common"]) == ("0.0", "71.1", "2")
    assert tiny["source"].endswith("best of 20 settings of fine-tuning, test sets")
    assert "test sets" not in rows["ELECTRA-Base as released"]["source"]
    assert section.note.startswith("Percent, of the development sets where the source does not say test sets.")


def test_a_published_mean_counts_as_eight_tasks_and_other_starts_are_rows(settings: Settings, results: Paths):
    scores = scores_of(results)
    entry = scores["tasks"]["MRPC"]
    entry |= {"pretrained": 80.0, "scratch": 60.0, "milestones": {"25": {"median": 70.0, "sd": None}}}
    entry["encoders"] = {"other-base": {"median": 75.0, "sd": None}}
    scores["tasks"] = {task: {**entry} for task in GLUE_TASKS}
    scores["milestones"] = {"25": {"mean": 70.0}}
    scores["encoders"] = {"other-base": {"mean": 75.0}}
    write_scores(results, official(scores, list(GLUE_TASKS)))
    section = beside_published(gather(settings, results))
    rows = {row[0]: dict(zip(section.columns, row, strict=True)) for row in section.rows}
    small = rows["ELECTRA-Small, 25% trained"]
    assert (small["CoLA"], small["GLUE mean"]) == ("-", "77.7")
    assert (small["tasks in common"], small["mean over them"], small["mean of this run"]) == ("8", "77.7", "80.0")
    assert rows["this run, 25% of pre-training"]["GLUE mean"] == "70.0"
    assert rows["other-base, in this harness"]["GLUE mean"] == "75.0"
    assert rows["ELECTRA-Small on OpenWebText"]["GLUE mean"] == "80.4"
    assert rows["crammed BERT, 24 hours of one A6000"]["GLUE mean"] == "80.4"


def test_the_card_says_how_each_average_counts(settings: Settings, results: Paths):
    assert not averages(gather(settings, results)).rows
    scores = scores_of(results)
    scores["averages"] = {"glue_paper": {"what": "mean of 8", "pretrained": 79.94, "scratch": 50.0, "gain": 29.9}}
    write_scores(results, scores)
    build_report(settings, results)
    assert "| GLUE, paper | mean of 8 | 79.9 | 50.0 |" in (results.results / "report.md").read_text()
