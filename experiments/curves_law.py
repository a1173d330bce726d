"""A law of the held-out loss by size, text and tokens, of scores by loss, fitted to finished runs; and its table.

A row is a finished run of ``experiments.curves``: ``run``, ``body_parameters``, ``text_tokens``, ``loss`` (nats per
masked token of held-out text) and ``tasks`` (task to scores by fine-tuning seed, percent).
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.optimize import least_squares

Row = dict[str, Any]
LEAST_RUNS = 9  # more than the law has parameters


@dataclass(frozen=True)
class Law:
    """Loss = floor + (size_scale / size)^size_power + (tokens_scale / tokens)^tokens_power (Hoffmann et al., 2022).

    Text that is read again is worth less than new text: tokens are counted by :meth:`worth`.

    Attributes:
        floor: the loss that remains, in nats.
        size_scale, size_power: of the number of weights in the layers' matrices.
        tokens_scale, tokens_power: of the tokens of pre-training.
        passes: how fast the worth of further passes falls (Muennighoff et al., 2023, equation 5).
        scores: task to intercept, slope by loss and slope by the natural logarithm of the size, percent.
        loss_spread: standard deviation of the runs' losses from the law, in percent of the loss.
        score_spreads: the same for the scores of each task, in points.
    """

    floor: float
    size_scale: float
    size_power: float
    tokens_scale: float
    tokens_power: float
    passes: float
    scores: dict[str, tuple[float, float, float]]
    loss_spread: float
    score_spreads: dict[str, float]

    def worth(self, tokens: float, text_tokens: float) -> float:
        """Return how many tokens of new text teach as much as these tokens of a text that may be read repeatedly."""
        return worth(tokens, text_tokens, self.passes)

    def loss(self, size: float, tokens: float, text_tokens: float) -> float:
        """Return the held-out loss to expect, nats per masked token."""
        of_size = (self.size_scale / size) ** self.size_power
        return self.floor + of_size + (self.tokens_scale / self.worth(tokens, text_tokens)) ** self.tokens_power

    def score(self, task: str, size: float, loss: float) -> float:
        """Return the score to expect of an encoder with this loss, percent."""
        intercept, by_loss, by_size = self.scores[task]
        return intercept + by_loss * loss + by_size * math.log(size)


def worth(tokens: float, text_tokens: float, passes: float) -> float:
    """Return the tokens of new text that equal ``tokens`` read from a text of ``text_tokens``."""
    if tokens <= text_tokens:
        return tokens
    repetitions = tokens / text_tokens - 1
    return text_tokens * (1 + passes * (1 - math.exp(-repetitions / passes)))


def fitted(rows: Sequence[Row]) -> Law | None:
    """Return the law of the rows that do not check it; None while there are too few.

    Of runs that tried learning rates the best of each point counts.
    """
    rows = [row for row in best_of_points(rows) if not row["check"]]
    if len(rows) < LEAST_RUNS:
        return None
    found = np.array([row["loss"] for row in rows])

    def law_of(values: np.ndarray) -> Law:
        floor, size_scale, size_power, tokens_scale, tokens_power, passes = np.exp(values).tolist()
        return Law(floor, size_scale, size_power, tokens_scale, tokens_power, passes, {}, 0.0, {})

    def distances(values: np.ndarray) -> np.ndarray:
        law = law_of(values)
        expected = [law.loss(row["body_parameters"], row["run"]["tokens"], row["text_tokens"]) for row in rows]
        return np.log(np.array(expected)) - np.log(found)

    starts = [[math.log(v) for v in (floor, 1e4, 0.3, 1e5, power, 5.0)] for floor in (1.0, 2.5) for power in (0.2, 0.5)]
    bounds = (np.log([0.01, 1.0, 0.05, 1.0, 0.05, 0.5]), np.log([20.0, 1e9, 2.0, 1e9, 2.0, 100.0]))
    fits = [least_squares(distances, start, bounds=bounds) for start in starts]
    best = min(fits, key=lambda fit: float(fit.cost))
    law = law_of(best.x)
    scores, spreads = dict[str, tuple[float, float, float]](), dict[str, float]()
    for task in rows[0]["tasks"]:
        sizes = [math.log(row["body_parameters"]) for row in rows]
        factors = np.column_stack([np.ones(len(rows)), found, sizes])
        values = np.array([statistics.fmean(row["tasks"][task]) for row in rows])
        slopes, *_ = np.linalg.lstsq(factors, values)
        intercept, by_loss, by_size = slopes.tolist()
        scores[task] = (intercept, by_loss, by_size)
        spreads[task] = float(np.std(values - factors @ slopes))
    return replace(law, scores=scores, loss_spread=100 * float(np.std(best.fun)), score_spreads=spreads)


def best_of_points(rows: Sequence[Row]) -> list[Row]:
    """Return the row with the lowest loss of each shape, text and number of tokens."""
    found: dict[tuple[str, int, int], Row] = {}
    for row in sorted(rows, key=lambda row: float(row["loss"])):
        found.setdefault(_point(row), row)
    return [found[point] for point in sorted(found)]


def _point(row: Row) -> tuple[str, int, int]:
    return row["run"]["shape"], row["run"]["tokens"], row["run"]["megabytes"]


def table(rows: Sequence[Row], law: Law | None) -> str:
    """Return a Markdown table of the runs with what the law says of each; those that check it are marked."""
    tasks = list(rows[0]["tasks"]) if rows else []
    heading = ["shape", "tokens", "text", "passes", "held-out loss", "by the law"]
    heading += [name for task in tasks for name in (task, "by the law")]
    lines = [f"| {' | '.join(heading)} |", "|---|" + "--:|" * (len(heading) - 1)]
    for row in best_of_points(rows):
        run, size, loss = row["run"], row["body_parameters"], row["loss"]
        expected = law.loss(size, run["tokens"], row["text_tokens"]) if law else None
        cells = [f"{run['shape']}{' (not fitted)' if row['check'] else ''}", f"{run['tokens'] / 1e6:g}M"]
        cells += [f"{run['megabytes']} MB", f"{run['tokens'] / row['text_tokens']:.1f}", f"{loss:.2f}"]
        cells.append("" if expected is None else f"{expected:.2f}")
        for task in tasks:
            cells.append(f"{statistics.fmean(row['tasks'][task]):.1f}")
            cells.append("" if law is None or expected is None else f"{law.score(task, size, expected):.1f}")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)
