"""Constant predictions: their score, and that a model which makes them is reported."""

import json

import pytest

from electra.common.artifacts import write_manifest
from electra.kinds.scores import constant_score, is_constant
from electra.results.evaluate import evaluate_runs
from electra.results.report.facts import read_scores
from electra.tasks.catalogue import TASKS, TaskSpec

POS = TaskSpec("pos", "tagging", ("accuracy",), {}, labels=("A", "N"))
SPAM = TaskSpec("spam", "classification", ("f1", "accuracy"), {}, labels=("ham", "spam"), positive="spam")
WARMTH = TaskSpec("warmth", "regression", ("spearman",), {}, score_range=(-10.0, 30.0))


def rows(*labels):
    return [{"id": str(number), "label": label} for number, label in enumerate(labels)]


def questions(*answers):
    return [{"id": str(n), "answers": [{"text": a, "start": 0}] if a else []} for n, a in enumerate(answers)]


def sentences(*tags):
    return [{"id": str(n), "words": ["w"] * len(some), "tags": list(some)} for n, some in enumerate(tags)]


@pytest.mark.parametrize(
    ("spec", "given", "expected"),
    [
        (TASKS["MRPC"], rows("1", "1", "0", "1"), 0.75),
        (TASKS["MNLI"], rows("neutral", "entailment", "neutral"), 2 / 3),
        (TASKS["SWAG"], rows("3", "3", "0"), 2 / 3),
        (TASKS["CoLA"], rows("1", "1", "0"), 0.0),  # Matthews
        (SPAM, rows("spam", "ham", "ham", "ham"), 0.4),  # the F1 of always spam
        (TASKS["STS-B"], rows(1.0, 5.0), 0.0),
        (TASKS["SQuAD2.0"], questions("a", "", ""), 2 / 3),
        (TASKS["SQuAD1.1"], questions("a", "b"), None),
        (TASKS["CoNLL-2003"], sentences(["O", "B-PER"]), 0.0),
        (POS, sentences(["N", "A", "N"], ["N"]), 0.75),
    ],
)
def test_the_score_of_one_answer_for_every_row(spec, given, expected):
    found = constant_score(spec, given)
    assert found == (None if expected is None else pytest.approx(expected))


@pytest.mark.parametrize(
    ("spec", "same", "other"),
    [
        (TASKS["MRPC"], {"label": "1"}, {"label": "0"}),
        (WARMTH, {"score": 3.0}, {"score": 3.05}),
        (TASKS["SQuAD2.0"], {"text": "x", "null_score": 0.1}, {"text": "x", "null_score": 0.0}),
        (TASKS["SQuAD1.1"], {"text": "x", "null_score": -1.0}, {"text": "y", "null_score": -1.0}),
        (POS, {"tags": ["N", "N"]}, {"tags": ["N", "A"]}),
    ],
)
def test_a_constant_predictor_is_one_without_any_other_answer(spec, same, other):
    assert is_constant(spec, [same] * 5)
    assert not is_constant(spec, [same] * 4 + [other])
    assert not is_constant(spec, [same])


def test_numbers_that_hardly_differ_are_one_answer():
    assert is_constant(WARMTH, [{"score": 3.0}, {"score": 3.03}])  # of a range of 40


def test_a_refusal_counts_whatever_its_best_answer_was():
    refusals = [{"text": text, "null_score": 2.0} for text in "xyz"]
    assert is_constant(TASKS["SQuAD2.0"], refusals)


def write_cell(paths, key, lines):
    folder = paths.finetuned(key)
    folder.mkdir(parents=True)
    (folder / "predictions.jsonl").write_text("".join(json.dumps({"split": "dev", **line}) + "\n" for line in lines))
    (folder / "run.json").write_text('{"train_rows": 64}')
    write_manifest(folder)


def test_the_card_has_the_seeds_whose_cells_answer_every_row_alike(paths, workspace):
    settings = workspace(["CoLA", "SQuAD1.1"])
    known = {task: [json.loads(line) for line in (paths.tasks / task / "dev.jsonl").open()] for task in TASKS
             if (paths.tasks / task).is_dir()}  # fmt: skip
    for seed in (1, 2):
        for init in ("", "-scratch"):
            label = {"label": "1"} if (seed, init) == (2, "") else {}
            write_cell(paths, f"CoLA-{seed}{init}", [{"id": row["id"], "label": row["label"]} | label
                                                     for row in known["CoLA"]])  # fmt: skip
            write_cell(paths, f"SQuAD1.1-{seed}{init}", [{"id": row["id"], "text": row["id"], "null_score": 0.0}
                                                         for row in known["SQuAD1.1"]])  # fmt: skip
    evaluate_runs(settings, paths)
    tasks = read_scores(paths)["tasks"]
    assert tasks["CoLA"]["constant_seeds"] == {"pretrained": [2], "scratch": []}
    assert (tasks["CoLA"]["constant"], tasks["SQuAD1.1"]["constant"]) == (0.0, None)
