"""Metrics against scikit-learn and scipy, degenerate inputs included; SQuAD's against hand-made cases."""

import math

import numpy as np
import pytest
from scipy import stats
from sklearn import metrics as sk

from electra.finetune import metrics
from electra.finetune.squad_metrics import best_threshold, exact_match, normalize, squad_v1, squad_v2, token_f1

RANDOM = np.random.default_rng(0)
LABELS = [
    (RANDOM.integers(0, 2, 200), RANDOM.integers(0, 2, 200)),
    (RANDOM.integers(0, 3, 200), RANDOM.integers(0, 3, 200)),
    (np.array([0, 1, 0, 1]), np.array([1, 1, 1, 1])),
    (np.array([0, 0, 0]), np.array([0, 0, 0])),
    (np.array([1, 1, 1]), np.array([0, 0, 0])),
    (np.array([0, 1, 1]), np.array([0, 1, 1])),
]
NUMBERS = [
    (RANDOM.normal(size=100), RANDOM.normal(size=100)),
    (RANDOM.integers(0, 5, 100) / 2, RANDOM.integers(0, 3, 100)),
    (np.arange(5.0), np.array([1e-9, 2e-9, 3e-9, 5e-9, 4e-9])),
    (np.arange(4.0), -np.arange(4.0)),
]


@pytest.mark.parametrize(("gold", "predicted"), LABELS)
@pytest.mark.filterwarnings("ignore")
def test_class_metrics_agree_with_scikit_learn(gold, predicted):
    assert metrics.accuracy(gold, predicted) == pytest.approx(sk.accuracy_score(gold, predicted), abs=1e-12)
    assert metrics.matthews(gold, predicted) == pytest.approx(sk.matthews_corrcoef(gold, predicted), abs=1e-12)
    expected = sk.f1_score(gold == 1, predicted == 1, zero_division=0)
    assert metrics.f1(gold, predicted) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(("gold", "predicted"), NUMBERS)
def test_correlations_agree_with_scipy_and_average_ties(gold, predicted):
    assert metrics.pearson(gold, predicted) == pytest.approx(stats.pearsonr(gold, predicted)[0], abs=1e-12)
    assert metrics.spearman(gold, predicted) == pytest.approx(stats.spearmanr(gold, predicted)[0], abs=1e-12)
    np.testing.assert_array_equal(metrics.ranks(predicted), stats.rankdata(predicted))


def test_the_correlation_with_a_constant_is_not_a_number():
    assert math.isnan(metrics.pearson([1, 2, 3], [2, 2, 2]))
    assert math.isnan(metrics.spearman([1, 2, 3], [0.1, 0.1, 0.1]))


def test_class_metrics_take_words():
    assert metrics.matthews(["a", "b", "b"], ["a", "b", "b"]) == 1
    assert metrics.f1(["1", "0", "1"], ["1", "1", "0"], positive="1") == 0.5


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The Cat", "cat"),
        ("a cat,  an\tapple", "cat apple"),
        ("the", ""),
        ("the-end", "theend"),
        ("Theatre", "theatre"),
        ("U.S.", "us"),
        ("“Quoted”", "“quoted”"),
        ("Café — No. 5", "café — no 5"),
        ("", ""),
    ],
)
def test_answers_are_normalised_by_the_official_rules(text, expected):
    assert normalize(text) == expected


@pytest.mark.parametrize(
    ("gold", "predicted", "exact", "f1_v1", "f1_v2"),
    [
        ("the big cat", "Big cat!", 1, 1, 1),
        ("big cat", "cat", 0, 2 / 3, 2 / 3),
        ("cat cat", "cat", 0, 2 / 3, 2 / 3),
        ("dog", "cat", 0, 0, 0),
        ("", "cat", 0, 0, 0),
        ("the", "a", 1, 0, 1),
        ("", "", 1, 0, 1),
    ],
)
def test_exact_match_and_f1_of_one_answer(gold, predicted, exact, f1_v1, f1_v2):
    assert exact_match(gold, predicted) == exact
    assert token_f1(gold, predicted, empty_matches=False) == pytest.approx(f1_v1)
    assert token_f1(gold, predicted, empty_matches=True) == pytest.approx(f1_v2)


def test_version_one_takes_the_best_reference():
    assert squad_v1([["dog", "big cat"], ["x"]], ["cat", "x"]) == pytest.approx({"f1": (2 / 3 + 1) / 2, "exact": 0.5})


def test_version_two_counts_withheld_answers_and_tunes_the_threshold():
    golds = [["cat"], ["dog"], [], []]
    scores = squad_v2(golds, ["cat", "dog", "cat", "dog"], [-1.0, 1.0, 2.0, -2.0])
    # At 0: cat is right, dog is withheld, one question is rightly left, one wrongly answered.
    assert scores["f1"] == scores["exact"] == 0.5
    # At 1.0 both answers are given, and one of the two unanswerable ones.
    assert scores["best_f1"] == scores["best_exact"] == 0.75
    assert scores["best_f1_threshold"] == 1.0


def test_the_best_threshold_is_the_best_of_all():
    random = np.random.default_rng(1)
    scores, nulls = random.random(50), random.normal(size=50)
    answerable = random.random(50) < 0.5
    best, threshold = best_threshold(list(scores), list(answerable), list(nulls), ["x"] * 50)

    def value(t):
        return np.mean(np.where(nulls <= t, np.where(answerable, scores, 0), ~answerable))

    assert best == pytest.approx(max(value(t) for t in [-np.inf, *nulls]))
    assert best == pytest.approx(value(threshold))


def test_withholding_everything_is_possible():
    assert squad_v2([[], []], ["x", "y"], [-5.0, -5.0])["best_f1"] == 1.0
