"""Metrics of all tasks, in numpy. All are fractions or coefficients; the score card multiplies by 100.

They agree with scikit-learn, scipy and conlleval, including on degenerate inputs. Correlations of a constant are nan
there and here; :func:`score` says what becomes of it."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from electra.common.errors import DataError
from electra.evaluation.squad_metrics import squad_v1, squad_v2
from electra.tasks.catalogue import TaskSpec
from electra.tasks.rows import Row
from electra.tasks.tag_schemes import entities


def accuracy(gold: ArrayLike, predicted: ArrayLike) -> float:
    """Share of equal entries."""
    return float(np.mean(np.asarray(gold) == np.asarray(predicted)))


def f1(gold: ArrayLike, predicted: ArrayLike, positive: object = 1) -> float:
    """Harmonic mean of precision and recall of the positive class; 0 where it is neither in gold nor predicted."""
    is_gold, is_predicted = np.asarray(gold) == positive, np.asarray(predicted) == positive
    denominator = int(is_gold.sum() + is_predicted.sum())
    return 2 * int((is_gold & is_predicted).sum()) / denominator if denominator else 0.0


def macro_f1(gold: ArrayLike, predicted: ArrayLike) -> float:
    """Mean of the F1 of every class that is in gold or predicted, each counting the same."""
    classes = np.unique(np.concatenate([gold, predicted]))
    return float(np.mean([f1(gold, predicted, positive=label) for label in classes]))


def matthews(gold: ArrayLike, predicted: ArrayLike) -> float:
    """Matthews' correlation coefficient for any number of classes (Gorodkin 2004); 0 where one side is constant."""
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
    """Linear correlation; nan where one side is constant."""
    x, y = np.asarray(gold, dtype=float), np.asarray(predicted, dtype=float)
    if (x == x[0]).all() or (y == y[0]).all():
        return float("nan")
    x, y = x - x.mean(), y - y.mean()
    # Normalising first keeps tiny and huge values from under- or overflowing in the product.
    return float(np.clip((x / np.linalg.norm(x)) @ (y / np.linalg.norm(y)), -1.0, 1.0))


def spearman(gold: ArrayLike, predicted: ArrayLike) -> float:
    """Linear correlation of the ranks; ties share their mean rank; nan where one side is constant."""
    return pearson(ranks(gold), ranks(predicted))


def ranks(values: ArrayLike) -> NDArray[np.float64]:
    """Ranks from 1; ties share their mean rank."""
    _, inverse, counts = np.unique(np.asarray(values), return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[inverse]


def entity_scores(golds: Sequence[Sequence[str]], predictions: Sequence[Sequence[str]]) -> dict[str, float]:
    """Fractions over all entities of all sentences; an entity is right where both ends and the type are.

    What has no denominator is 0, as in ``conlleval``: precision without a predicted entity, recall without a
    reference entity.

    Args:
        golds: tags per sentence, in any scheme of :mod:`electra.tasks.tag_schemes`.
        predictions: the same, of the same lengths; the scheme may be another.
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
    """Share of words with the right tag."""
    pairs = [
        pair for gold, predicted in zip(golds, predictions, strict=True) for pair in zip(gold, predicted, strict=True)
    ]
    return sum(gold == predicted for gold, predicted in pairs) / len(pairs)


def score(spec: TaskSpec, rows: list[Row], predictions: list[dict[str, Any]]) -> dict[str, float]:
    """All metrics of a task as fractions or coefficients, the headline first.

    A correlation that is not defined, since all predictions are one number, counts as 0.

    Args:
        rows: the labelled rows of one split.
        predictions: one per row in the same order: ``label`` for classification and multiple choice (of a task that is
            evaluated only: a label of the task its model was fine-tuned on), ``score`` for regression, ``tags`` for
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
    # MRQA counts answers that do not occur in the context too.
    golds = [row.get("references") or [answer["text"] for answer in row["answers"]] for row in rows]
    texts = [prediction["text"] for prediction in predictions]
    if spec.has_unanswerable:
        return squad_v2(golds, texts, [prediction["null_score"] for prediction in predictions])
    return squad_v1(golds, texts)
