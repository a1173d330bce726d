"""Scores of any task; the metrics of a kind of task are in its file in ``electra/kinds``.

All are fractions or coefficients; the score card multiplies by 100.
"""

from electra.common.errors import DataError
from electra.kinds import KINDS
from electra.kinds.base import Prediction
from electra.tasks.catalogue import TaskSpec
from electra.tasks.format import Row


def score(spec: TaskSpec, rows: list[Row], predictions: list[Prediction]) -> dict[str, float]:
    """Return all metrics of a task as fractions or coefficients, the headline first.

    An undefined correlation (all predictions are equal) counts as 0.

    Args:
        rows: the labelled rows of one split.
        predictions: one per row in the same order; for tasks without training data, labels may be those of the task
            that the model was fine-tuned on.

    Raises:
        DataError: the predictions are of other rows.
    """
    if [row["id"] for row in rows] != [prediction["id"] for prediction in predictions]:
        raise DataError(
            f"{spec.name}: the predictions are not those of the rows in data/tasks", next_step="run: dvc repro"
        )
    return KINDS[spec.kind].scores(spec, rows, predictions)


def constant_score(spec: TaskSpec, rows: list[Row]) -> float | None:
    """Return the headline metric of the best answer that is the same for every row; None if there is no such answer.

    Args:
        rows: rows of a development split.
    """
    predictions = KINDS[spec.kind].constant(spec, rows)
    return None if predictions is None else score(spec, rows, predictions)[spec.headline]


def is_constant(spec: TaskSpec, predictions: list[Prediction]) -> bool:
    """Return True if there are several predictions and all are the same."""
    return len(predictions) > 1 and KINDS[spec.kind].is_constant(spec, predictions)
