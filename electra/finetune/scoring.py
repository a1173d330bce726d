"""Predictions of one cell against the reference labels."""

import math
from typing import Any

from electra.errors import DataError
from electra.finetune import metrics
from electra.finetune.entity_metrics import entity_scores, word_accuracy
from electra.finetune.rows import Row
from electra.finetune.squad_metrics import squad_v1, squad_v2
from electra.finetune.tasks import TaskSpec


def score(spec: TaskSpec, rows: list[Row], predictions: list[dict[str, Any]]) -> dict[str, float]:
    """All metrics of a task as fractions or coefficients, the headline first.

    A correlation that is not defined, since all predictions are one number, counts as 0.

    Args:
        rows: the labelled rows of one split.
        predictions: one per row in the same order: ``label`` for classification and multiple choice, ``score`` for
            regression, ``tags`` for tagging, ``text`` and ``null_score`` for spans.

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
        found = {"spearman": metrics.spearman(gold, predicted), "pearson": metrics.pearson(gold, predicted)}
        return {name: 0.0 if math.isnan(found[name]) else found[name] for name in spec.metrics}
    labels = [prediction["label"] for prediction in predictions]
    found = {"accuracy": metrics.accuracy(gold, labels)}
    if "matthews" in spec.metrics:
        found["matthews"] = metrics.matthews(gold, labels)
    if "f1" in spec.metrics:
        found["f1"] = metrics.f1(gold, labels, positive=spec.positive)
    if "macro_f1" in spec.metrics:
        found["macro_f1"] = metrics.macro_f1(gold, labels)
    return {name: found[name] for name in spec.metrics}


def _span_scores(spec: TaskSpec, rows: list[Row], predictions: list[dict[str, Any]]) -> dict[str, float]:
    # MRQA counts answers that do not occur in the context too.
    golds = [row.get("references") or [answer["text"] for answer in row["answers"]] for row in rows]
    texts = [prediction["text"] for prediction in predictions]
    if spec.has_unanswerable:
        return squad_v2(golds, texts, [prediction["null_score"] for prediction in predictions])
    return squad_v1(golds, texts)
