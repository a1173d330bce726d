"""Metrics of all tasks, in numpy. All are fractions or coefficients; the score card multiplies by 100.

They agree with scikit-learn, scipy and conlleval, including on degenerate inputs. Correlations with a constant are
nan, as in those libraries; :func:`score` replaces them with 0.

Exact match and F1 of SQuAD 1.1 and 2.0 follow the official evaluation scripts: both compare texts after lowercasing,
dropping ASCII punctuation and the articles a, an, the, and joining white space; a question with several reference
answers counts with its best match.
"""

import math
import re
import string
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from electra.common.errors import DataError
from electra.tasks.catalogue import TaskSpec
from electra.tasks.format import Row, entities

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalize(text: str) -> str:
    """Normalise an answer for comparison. Punctuation goes first: "the-end" becomes one word that keeps its article."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split())


def exact_match(gold: str, predicted: str) -> float:
    return float(normalize(gold) == normalize(predicted))


def token_f1(gold: str, predicted: str, *, empty_matches: bool) -> float:
    """Return the F1 of the two bags of words.

    Args:
        empty_matches: True if two texts without words match, as in SQuAD 2.0's script (an empty answer is valid there)
            but not in SQuAD 1.1's.
    """
    gold_words, words = normalize(gold).split(), normalize(predicted).split()
    if empty_matches and not (gold_words and words):
        return float(gold_words == words)
    same = sum((Counter(gold_words) & Counter(words)).values())
    return 2 * same / (len(gold_words) + len(words)) if same else 0.0


def squad_v1(golds: Sequence[Sequence[str]], predictions: Sequence[str]) -> dict[str, float]:
    """Return the mean over questions of the best match among the reference answers."""
    pairs = list(zip(golds, predictions, strict=True))
    return {
        "f1": _mean([max(token_f1(g, p, empty_matches=False) for g in gold) for gold, p in pairs]),
        "exact": _mean([max(exact_match(g, p) for g in gold) for gold, p in pairs]),
    }


def squad_v2(
    golds: Sequence[Sequence[str]], predictions: Sequence[str], null_scores: Sequence[float], threshold: float = 0.0
) -> dict[str, float]:
    """Return the metrics of SQuAD 2.0. An empty list of references marks a question as unanswerable.

    Args:
        predictions: the best span of each question, even if the question is predicted to be unanswerable.
        null_scores: score of "no answer" per question; above ``threshold`` no answer is given.

    Returns:
        f1 and exact at ``threshold``; both restricted to answerable questions (HasAns_f1, HasAns_exact) and to
        unanswerable ones (NoAns_f1, NoAns_exact), if there are any; best_f1 and best_exact at the best threshold for
        these questions (best_f1_threshold, best_exact_threshold), which is tuned on the same data it is evaluated on.
    """
    scores = [_question_scores(gold, p) for gold, p in zip(golds, predictions, strict=True)]
    f1s, exacts = [s.f1 for s in scores], [s.exact for s in scores]
    answerable = [s.answerable for s in scores]
    given = [score <= threshold for score in null_scores]
    best_f1, best_f1_threshold = best_threshold(f1s, answerable, null_scores, predictions)
    best_exact, best_exact_threshold = best_threshold(exacts, answerable, null_scores, predictions)
    kept = {
        "f1": [s if g else float(not a) for s, g, a in zip(f1s, given, answerable, strict=True)],
        "exact": [s if g else float(not a) for s, g, a in zip(exacts, given, answerable, strict=True)],
    }
    parts = {
        f"{part}_{name}": _mean([value for value, a in zip(values, answerable, strict=True) if a == has_answer])
        for part, has_answer in (("HasAns", True), ("NoAns", False))
        if has_answer in answerable
        for name, values in kept.items()
    }
    return {
        **{name: _mean(values) for name, values in kept.items()},
        **parts,
        "best_f1": best_f1,
        "best_exact": best_exact,
        "best_f1_threshold": best_f1_threshold,
        "best_exact_threshold": best_exact_threshold,
    }


@dataclass
class _Scores:
    f1: float
    exact: float
    answerable: bool


def _question_scores(gold: Sequence[str], predicted: str) -> _Scores:
    # References without words after normalisation do not count; without any reference left, the empty text is correct.
    references = [text for text in gold if normalize(text)] or [""]
    return _Scores(
        f1=max(token_f1(text, predicted, empty_matches=True) for text in references),
        exact=max(exact_match(text, predicted) for text in references),
        answerable=bool(gold),
    )


def best_threshold(
    scores: Sequence[float], answerable: Sequence[bool], null_scores: Sequence[float], predictions: Sequence[str]
) -> tuple[float, float]:
    """Return the highest mean over all thresholds, and its threshold: answers are given where null_score <= threshold.

    Starts without any answer and adds answers in order of rising null score, like the official script (which also adds
    questions with equal null scores one by one).
    """
    current = best = float(sum(not a for a in answerable))
    threshold = 0.0
    for i in sorted(range(len(scores)), key=lambda i: null_scores[i]):
        if answerable[i]:
            current += scores[i]
        elif predictions[i]:
            current -= 1
        if current > best:
            best, threshold = current, null_scores[i]
    return best / len(scores), threshold


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def accuracy(gold: ArrayLike, predicted: ArrayLike) -> float:
    """Return the share of equal entries."""
    return float(np.mean(np.asarray(gold) == np.asarray(predicted)))


def f1(gold: ArrayLike, predicted: ArrayLike, positive: object = 1) -> float:
    """Return the harmonic mean of precision and recall of the positive class; 0 if the class does not occur."""
    is_gold, is_predicted = np.asarray(gold) == positive, np.asarray(predicted) == positive
    denominator = int(is_gold.sum() + is_predicted.sum())
    return 2 * int((is_gold & is_predicted).sum()) / denominator if denominator else 0.0


def macro_f1(gold: ArrayLike, predicted: ArrayLike) -> float:
    """Return the unweighted mean of F1 over all classes in gold or predicted."""
    classes = np.unique(np.concatenate([gold, predicted]))
    return float(np.mean([f1(gold, predicted, positive=label) for label in classes]))


def matthews(gold: ArrayLike, predicted: ArrayLike) -> float:
    """Return Matthews' correlation coefficient for any number of classes (Gorodkin 2004); 0 if one side is constant."""
    classes, codes = np.unique(np.concatenate([gold, predicted]), return_inverse=True)
    gold_codes, predicted_codes = np.split(codes, 2)
    n = len(gold_codes)
    gold_counts = np.bincount(gold_codes, minlength=len(classes)).astype(float)
    predicted_counts = np.bincount(predicted_codes, minlength=len(classes)).astype(float)
    covariance = float((gold_codes == predicted_codes).sum()) * n - gold_counts @ predicted_counts
    gold_variance = n**2 - gold_counts @ gold_counts
    predicted_variance = n**2 - predicted_counts @ predicted_counts
    if gold_variance == 0 or predicted_variance == 0:
        return 0.0
    return float(covariance / np.sqrt(gold_variance * predicted_variance))


def pearson(gold: ArrayLike, predicted: ArrayLike) -> float:
    """Return the linear correlation; nan if one side is constant."""
    x, y = np.asarray(gold, dtype=float), np.asarray(predicted, dtype=float)
    if (x == x[0]).all() or (y == y[0]).all():
        return float("nan")
    x, y = x - x.mean(), y - y.mean()
    # Normalising first prevents under- and overflow of tiny and huge values in the product.
    return float(np.clip((x / np.linalg.norm(x)) @ (y / np.linalg.norm(y)), -1.0, 1.0))


def spearman(gold: ArrayLike, predicted: ArrayLike) -> float:
    """Return the linear correlation of the ranks; ties share their mean rank; nan if one side is constant."""
    return pearson(ranks(gold), ranks(predicted))


def ranks(values: ArrayLike) -> NDArray[np.float64]:
    """Return ranks from 1; ties share their mean rank."""
    _, inverse, counts = np.unique(np.asarray(values), return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[inverse]


def entity_scores(golds: Sequence[Sequence[str]], predictions: Sequence[Sequence[str]]) -> dict[str, float]:
    """Return entity F1, precision and recall over all sentences; an entity is correct if both ends and its type are.

    Ratios without a denominator are 0, as in ``conlleval``: precision without a predicted entity, recall without a
    reference entity.

    Args:
        golds: tags per sentence, in any scheme of :mod:`electra.tasks.format`.
        predictions: tags of the same lengths; their scheme may differ.
    """
    num_gold = num_predicted = num_correct = 0
    for gold, predicted in zip(golds, predictions, strict=True):
        if len(gold) != len(predicted):
            raise ValueError(f"{len(predicted)} predicted tags for {len(gold)} words")
        reference, found = set(entities(gold)), set(entities(predicted))
        num_gold += len(reference)
        num_predicted += len(found)
        num_correct += len(reference & found)
    return {
        "f1": 2 * num_correct / (num_gold + num_predicted) if num_correct else 0.0,
        "precision": num_correct / num_predicted if num_predicted else 0.0,
        "recall": num_correct / num_gold if num_gold else 0.0,
    }


def word_accuracy(golds: Sequence[Sequence[str]], predictions: Sequence[Sequence[str]]) -> float:
    """Return the share of words with the correct tag."""
    pairs = [
        pair for gold, predicted in zip(golds, predictions, strict=True) for pair in zip(gold, predicted, strict=True)
    ]
    return sum(gold == predicted for gold, predicted in pairs) / len(pairs)


def score(spec: TaskSpec, rows: list[Row], predictions: list[dict[str, Any]]) -> dict[str, float]:
    """Return all metrics of a task as fractions or coefficients, the headline first.

    An undefined correlation (all predictions are equal) counts as 0.

    Args:
        rows: the labelled rows of one split.
        predictions: one per row in the same order: ``label`` for classification and multiple choice (for tasks without
            training data: a label of the task the model was fine-tuned on), ``score`` for regression, ``tags`` for
            tagging, ``text`` and ``null_score`` for spans.

    Raises:
        DataError: the predictions are of other rows.
    """
    if [row["id"] for row in rows] != [prediction["id"] for prediction in predictions]:
        raise DataError(
            f"{spec.name}: the predictions are not those of the rows in data/tasks", next_step="run: dvc repro"
        )
    if spec.kind == "span":
        found = _span_scores(spec, rows, predictions)
        return {spec.headline: found[spec.headline], **found}
    if spec.kind == "tagging":
        tags, predicted_tags = [row["tags"] for row in rows], [prediction["tags"] for prediction in predictions]
        if spec.has_entities:
            return entity_scores(tags, predicted_tags)
        return {"accuracy": word_accuracy(tags, predicted_tags)}
    gold = [row["label"] for row in rows]
    if spec.kind == "regression":
        predicted = [prediction["score"] for prediction in predictions]
        found = {"spearman": spearman(gold, predicted), "pearson": pearson(gold, predicted)}
        return {name: 0.0 if math.isnan(found[name]) else found[name] for name in spec.metrics}
    labels = [spec.label_map.get(prediction["label"], prediction["label"]) for prediction in predictions]
    found = {"accuracy": accuracy(gold, labels)}
    if "matthews" in spec.metrics:
        found["matthews"] = matthews(gold, labels)
    if "f1" in spec.metrics:
        found["f1"] = f1(gold, labels, positive=spec.positive)
    if "macro_f1" in spec.metrics:
        found["macro_f1"] = macro_f1(gold, labels)
    return {name: found[name] for name in spec.metrics}


def _span_scores(spec: TaskSpec, rows: list[Row], predictions: list[dict[str, Any]]) -> dict[str, float]:
    # MRQA also counts reference answers that do not occur in the context.
    golds = [row.get("references") or [answer["text"] for answer in row["answers"]] for row in rows]
    texts = [prediction["text"] for prediction in predictions]
    if spec.has_unanswerable:
        return squad_v2(golds, texts, [prediction["null_score"] for prediction in predictions])
    return squad_v1(golds, texts)


_SPREAD = 0.001  # of the score range: a smaller spread counts as constant


def constant_score(spec: TaskSpec, rows: list[Row]) -> float | None:
    """Return the headline metric of the best answer that is the same for every row.

    This is the most frequent label (or tag, if every word has one), no entity, no answer to any question, or any one
    number, whose correlation counts as 0. None if there is no such answer, since each question has its own.

    Args:
        rows: rows of a development split.
    """
    if spec.kind == "span":
        if not spec.has_unanswerable:
            return None
        same: dict[str, Any] = {"text": "", "null_score": 1.0}
        return score(spec, rows, [{"id": row["id"], **same} for row in rows])[spec.headline]
    if spec.kind == "regression":
        return 0.0
    if spec.kind == "tagging":
        tag = "O" if spec.has_entities else _most_frequent(tag for row in rows for tag in row["tags"])
        predictions = [{"id": row["id"], "tags": [tag] * len(row["words"])} for row in rows]
    else:
        label = _most_frequent(row["label"] for row in rows)
        predictions = [{"id": row["id"], "label": label} for row in rows]
    return score(spec, rows, predictions)[spec.headline]


def is_constant(spec: TaskSpec, predictions: list[dict[str, Any]]) -> bool:
    """Return True if there are several predictions and all are the same; see :func:`constant_score`."""
    if len(predictions) < 2:
        return False
    if spec.kind == "regression":
        values = [prediction["score"] for prediction in predictions]
        low, high = spec.score_range
        return max(values) - min(values) <= _SPREAD * (high - low)
    if spec.kind == "tagging":
        return len({tag for prediction in predictions for tag in prediction["tags"]}) <= 1
    if spec.kind == "span":
        return len({p["text"] if p.get("null_score", 0.0) <= 0 else "" for p in predictions}) == 1
    return len({prediction["label"] for prediction in predictions}) == 1


def _most_frequent(values: Any) -> str:
    """Return the most frequent value; the first in alphabetical order on a tie."""
    counts = Counter(values)
    return min(counts, key=lambda value: (-counts[value], value))
