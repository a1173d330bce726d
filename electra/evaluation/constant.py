"""The same answer for every row: what it scores, and whether a model gives it."""

from collections import Counter
from typing import Any

from electra.evaluation.metrics import score
from electra.tasks.catalogue import TaskSpec
from electra.tasks.rows import Row

_SPREAD = 0.001  # of a score's range: less tells no row from another


def constant_score(spec: TaskSpec, rows: list[Row]) -> float | None:
    """The headline metric of the best-known answer that is the same for every row.

    The most frequent label, or tag of words that all have one; no entity; no answer to any question; any one number,
    whose correlation counts as 0. None where there is no such answer: each question has its own.

    Args:
        rows: of a development split.
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
    """Return whether all predictions are one answer, of several rows; see :func:`constant_score`."""
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
    """The first in the alphabet of those that are equally frequent."""
    counts = Counter(values)
    return min(counts, key=lambda value: (-counts[value], value))
