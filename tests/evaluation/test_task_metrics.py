"""Metrics against scikit-learn and scipy, degenerate inputs included; SQuAD's against hand-made cases."""

import math

import numpy as np
import pytest
from scipy import stats
from sklearn import metrics as sk

from electra.kinds.classification import accuracy, f1, macro_f1, matthews
from electra.kinds.regression import pearson, ranks, spearman
from electra.kinds.span import best_threshold, exact_match, normalize, squad_v1, squad_v2, token_f1

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
    assert accuracy(gold, predicted) == pytest.approx(sk.accuracy_score(gold, predicted), abs=1e-12)
    assert matthews(gold, predicted) == pytest.approx(sk.matthews_corrcoef(gold, predicted), abs=1e-12)
    expected = sk.f1_score(gold == 1, predicted == 1, zero_division=0)
    assert f1(gold, predicted) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(("gold", "predicted"), NUMBERS)
def test_correlations_agree_with_scipy_and_average_ties(gold, predicted):
    assert pearson(gold, predicted) == pytest.approx(stats.pearsonr(gold, predicted)[0], abs=1e-12)
    assert spearman(gold, predicted) == pytest.approx(stats.spearmanr(gold, predicted)[0], abs=1e-12)
    np.testing.assert_array_equal(ranks(predicted), stats.rankdata(predicted))


def draw(case: int) -> tuple[np.ndarray, np.ndarray]:
    """Random labels of 1 to 4 classes, of 2 to 60 rows; every fourth predicts one class only."""
    random = np.random.default_rng(case)
    rows, classes = random.integers(2, 61), random.integers(1, 5)
    gold = random.integers(0, classes, rows)
    predicted = np.where(random.random(rows) < random.random(), gold, random.integers(0, classes, rows))
    return gold, np.full(rows, random.integers(0, 4)) if case % 4 == 0 else predicted


@pytest.mark.filterwarnings("ignore")
def test_class_metrics_agree_with_scikit_learn_on_many_draws():
    for case in range(120):
        gold, predicted = draw(case)
        found = [
            accuracy(gold, predicted),
            matthews(gold, predicted),
            f1(gold, predicted),
            macro_f1(gold, predicted),
        ]
        expected = [
            sk.accuracy_score(gold, predicted),
            sk.matthews_corrcoef(gold, predicted),
            sk.f1_score(gold == 1, predicted == 1, zero_division=0),
            sk.f1_score(gold, predicted, average="macro", zero_division=0),
        ]
        assert found == pytest.approx(expected, abs=1e-12), case


@pytest.mark.filterwarnings("ignore")
def test_correlations_agree_with_scipy_on_many_draws():
    for case in range(120):
        random = np.random.default_rng(case)
        rows = int(random.integers(3, 80))
        gold = random.integers(0, random.integers(1, 12), rows) / 2  # many ties, now and then one number only
        predicted = gold * random.normal() + random.normal(size=rows) * 10.0 ** random.integers(-6, 3)
        predicted = np.round(predicted, 1) if case % 3 == 0 else predicted
        found = [pearson(gold, predicted), spearman(gold, predicted)]
        expected = [float(stats.pearsonr(gold, predicted)[0]), float(stats.spearmanr(gold, predicted)[0])]
        assert found == pytest.approx(expected, abs=1e-12, nan_ok=True), case


def test_the_correlation_with_a_constant_is_not_a_number():
    assert math.isnan(pearson([1, 2, 3], [2, 2, 2]))
    assert math.isnan(spearman([1, 2, 3], [0.1, 0.1, 0.1]))


def test_class_metrics_take_words():
    assert matthews(["a", "b", "b"], ["a", "b", "b"]) == 1
    assert f1(["1", "0", "1"], ["1", "1", "0"], positive="1") == 0.5


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
        ("  \n\t ", ""),
        ("...!?", ""),
        ("A AN THE a an the", ""),
        ("an apple a day", "apple day"),
        ("Plan A", "plan"),  # a letter that looks like an article
        ("A.", ""),  # punctuation goes first
        ("'the' cat", "cat"),
        ("an-other", "another"),  # the hyphen goes first, and with it the article's end
        ("the—end", "—end"),  # a dash is no ASCII punctuation; the article still ends before it
        ("theatre another atlas", "theatre another atlas"),
        ("thé à la carte", "thé à la carte"),
        ("the\u0301", "\u0301"),  # e with a combining accent: a mark is no letter to the article's rule
        ("the\u00a0cat\u2003sat", "cat sat"),  # all of Unicode's white space
        ("the\u200bcat", "\u200bcat"),  # a zero-width space is none
        ("$1,000.50", "100050"),
        ("100%", "100"),
        ("snake_case", "snakecase"),
        ("ÀÉÎ ÑÇ", "àéî ñç"),
        ("İstanbul", "i\u0307stanbul"),
        ("STRASSE Straße", "strasse straße"),  # lowercased, not case-folded
        ("日本、東京。", "日本、東京。"),  # other scripts' punctuation stays
        ("the 日本", "日本"),
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
        ("...", "", 1, 0, 1),
        ("cat", "", 0, 0, 0),
        ("cat", "the", 0, 0, 0),
        ("a cat sat", "cat, sat the", 1, 1, 1),
        ("sat cat", "cat sat", 0, 1, 1),
        ("cat cat dog", "cat dog dog", 0, 2 / 3, 2 / 3),
        ("Café", "cafe", 0, 0, 0),
        ("Cafe\u0301", "Café", 0, 0, 0),  # no Unicode normalisation
        ("10", "ten", 0, 0, 0),
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


def test_version_two_scores_questions_with_and_without_an_answer_apart():
    golds = [["cat"], ["dog"], ["big cat"], []]
    scores = squad_v2(golds, ["cat", "dog", "cat", "dog"], [-1.0, 1.0, -1.0, 2.0])
    assert scores["HasAns_exact"] == pytest.approx(1 / 3) and scores["NoAns_exact"] == 1  # dog is withheld
    assert scores["HasAns_f1"] == pytest.approx((1 + 0 + 2 / 3) / 3) and scores["NoAns_f1"] == 1
    assert not {"NoAns_f1", "NoAns_exact"} & squad_v2([["cat"]], ["cat"], [0.0]).keys()
    assert not {"HasAns_f1", "HasAns_exact"} & squad_v2([[]], ["cat"], [0.0]).keys()


def test_the_best_threshold_is_the_best_of_all():
    random = np.random.default_rng(1)
    scores, nulls = random.random(50), random.normal(size=50)
    answerable = random.random(50) < 0.5
    best, threshold = best_threshold(list(scores), list(answerable), list(nulls), ["x"] * 50)

    def value(t):
        return np.mean(np.where(nulls <= t, np.where(answerable, scores, 0), ~answerable))

    assert best == pytest.approx(max(value(t) for t in [-np.inf, *nulls]))
    assert best == pytest.approx(value(threshold))


def test_questions_without_an_answer_are_right_only_where_none_is_given():
    for text, null_score, right in [("cat", 1.0, 1), ("cat", -1.0, 0), ("", -1.0, 1), ("the", -1.0, 1)]:
        scores = squad_v2([[]], [text], [null_score])
        assert scores["exact"] == scores["f1"] == right, (text, null_score)
    assert squad_v2([["cat"]], [""], [-1.0])["f1"] == 0
    assert squad_v2([["the", "cat"]], ["a"], [-1.0])["f1"] == 0, "a reference of articles only does not count"
    assert squad_v2([["the"]], [""], [-1.0])["f1"] == 1, "where there is no other, it is an empty one"


def test_an_answer_is_given_at_the_threshold_itself():
    """evaluate-v2.0.py withholds above the threshold only."""
    for threshold in (0.0, 1.5):
        assert squad_v2([["cat"]], ["cat"], [threshold], threshold)["exact"] == 1
        assert squad_v2([[]], ["cat"], [threshold], threshold)["exact"] == 0


def test_an_empty_answer_to_an_unanswerable_question_costs_nothing_at_any_threshold():
    scores = squad_v2([[], ["cat"]], ["", "cat"], [-1.0, 1.0])
    assert scores["best_f1"] == scores["best_exact"] == 1 and scores["best_f1_threshold"] == 1.0


def test_a_question_whose_references_are_all_empty_words_is_answerable():
    """evaluate-v2.0.py takes it as one with an answer, and its answer as empty."""
    withheld, given = (squad_v2([["the"]], ["a"], [score]) for score in (1.0, -1.0))
    assert withheld["f1"] == withheld["exact"] == 0
    assert given["f1"] == given["exact"] == 1
    assert withheld["best_f1"] == 1 and withheld["best_f1_threshold"] == 1.0


def test_withholding_everything_is_possible():
    assert squad_v2([[], []], ["x", "y"], [-5.0, -5.0])["best_f1"] == 1.0
