"""Classification of a text or a pair of texts: rows, metrics, and how predictions are written.

The metrics agree with scikit-learn, including on degenerate inputs.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from electra.kinds.base import Prediction, Rule, TaskKind, most_frequent
from electra.tasks.catalogue import TaskSpec
from electra.tasks.format import Row


class Classification(TaskKind):
    """One label per row."""

    keys = {"id": str, "text_a": str, "text_b": (str, type(None)), "label": (str, type(None))}
    example_keys = ("text_a", "text_b")
    checked = ("label", "label_missing")
    has_classes = True
    transformers_class = "ForSequenceClassification"
    pipeline = "text-classification"
    problem_type: ClassVar[str | None] = "single_label_classification"

    def columns(self, spec: TaskSpec, record: Row, labelled: bool) -> dict[str, Any]:
        return {
            "begins": record["text_a"][:40],
            "label": record["label"] if labelled else None,
            "label_missing": labelled and record["label"] is None,
            "text_missing": not all(text and text.strip() for text in self.texts(spec, record)),
        }

    def texts(self, spec: TaskSpec, record: Row) -> list[str]:
        """Return the texts of a record, none of which may be empty."""
        return [record["text_a"]] if spec.text_b is None else [record["text_a"], record["text_b"]]

    def rules(self, spec: TaskSpec) -> list[Rule]:
        return [
            Rule("label", f"labels are {', '.join(spec.labels)}", values=spec.labels),
            Rule("label_missing", "train and dev are labelled", values=(False,)),
        ]

    def scores(self, spec: TaskSpec, rows: list[Row], predictions: list[Prediction]) -> dict[str, float]:
        gold, labels = [row["label"] for row in rows], _labels(spec, predictions)
        metrics = {"accuracy": accuracy, "matthews": matthews, "macro_f1": macro_f1}
        return {
            name: f1(gold, labels, positive=spec.positive) if name == "f1" else metrics[name](gold, labels)
            for name in spec.metrics
        }

    def constant(self, spec: TaskSpec, rows: list[Row]) -> list[Prediction]:
        """Predict the most frequent label; for F1 the positive one, since any other has none."""
        label = spec.positive if spec.headline == "f1" else most_frequent(row["label"] for row in rows)
        return [{"id": row["id"], "label": label} for row in rows]

    def is_constant(self, spec: TaskSpec, predictions: list[Prediction]) -> bool:
        return len({prediction["label"] for prediction in predictions}) == 1

    def correct(self, spec: TaskSpec, rows: list[Row], predictions: list[Prediction]) -> list[float] | None:
        labels = _labels(spec, predictions)
        return [float(label == row["label"]) for label, row in zip(labels, rows, strict=True)]

    def row_scores(
        self, spec: TaskSpec, metric: str, rows: list[Row], predictions: list[Prediction]
    ) -> list[float] | None:
        return self.correct(spec, rows, predictions) if metric == "accuracy" else None

    def positive_pair(
        self, spec: TaskSpec, row: Row, labels: Sequence[str], min_score: float
    ) -> tuple[str, str] | None:
        return (row["text_a"], row["text_b"]) if spec.text_b and row["label"] in labels else None


def _labels(spec: TaskSpec, predictions: list[Prediction]) -> list[Any]:
    """Return the predicted labels as labels of this task, if the model is another task's."""
    return [spec.label_map.get(prediction["label"], prediction["label"]) for prediction in predictions]


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
