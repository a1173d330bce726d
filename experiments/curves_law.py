"""A law of the held-out loss by size, text and tokens, of scores by loss, fitted to finished runs; and its table.

A row is a finished run of ``experiments.curves``: ``run``, ``part`` (of the plan), ``body_parameters``,
``text_tokens``, ``loss`` (nats per masked token of held-out text) and ``tasks`` (task to scores by fine-tuning seed,
percent).
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.optimize import least_squares

from electra.cluster.estimate.expected import Law

Row = dict[str, Any]
LEAST_RUNS = 9  # more than the law has parameters


def fitted(rows: Sequence[Row]) -> Law | None:
    """Return the law of the plan's ``runs``; None while there are too few."""
    rows = [row for row in rows if row["part"] == "runs"]
    if len(rows) < LEAST_RUNS:
        return None
    found = np.array([row["loss"] for row in rows])
    sizes, tokens = [row["body_parameters"] for row in rows], [row["run"]["tokens"] for row in rows]
    measured = (min(sizes), max(sizes)), (min(tokens), max(tokens))

    def law_of(values: np.ndarray) -> Law:
        floor, size_scale, size_power, tokens_scale, tokens_power, passes = np.exp(values).tolist()
        return Law(floor, size_scale, size_power, tokens_scale, tokens_power, passes, {}, 0.0, {}, *measured)

    def distances(values: np.ndarray) -> np.ndarray:
        law = law_of(values)
        expected = [law.loss(row["body_parameters"], row["run"]["tokens"], row["text_tokens"]) for row in rows]
        return np.log(np.array(expected)) - np.log(found)

    starts = [[math.log(v) for v in (floor, 1e4, 0.3, 1e5, power, 5.0)] for floor in (1.6, 2.5) for power in (0.2, 0.5)]
    # the floor is not determined by runs of this size; 1.5 nats is near what large models reach
    bounds = (np.log([1.5, 1.0, 0.05, 1.0, 0.05, 0.5]), np.log([20.0, 1e12, 2.0, 1e15, 2.0, 100.0]))
    fits = [least_squares(distances, start, bounds=bounds) for start in starts]
    best = min(fits, key=lambda fit: float(fit.cost))
    law = Law(*map(_rounded, np.exp(best.x)), {}, 0.0, {}, *measured)
    scores, spreads = dict[str, tuple[float, float, float]](), dict[str, float]()
    for task in rows[0]["tasks"]:
        factors = np.column_stack([np.ones(len(rows)), found, np.log(sizes)])
        values = np.array([statistics.fmean(row["tasks"][task]) for row in rows])
        slopes, *_ = np.linalg.lstsq(factors, values)
        intercept, by_loss, by_size = map(_rounded, slopes)
        scores[task] = (intercept, by_loss, by_size)
        spreads[task] = _rounded(np.std(values - factors @ slopes))
    return replace(law, scores=scores, loss_spread=_rounded(100 * np.std(best.fun)), score_spreads=spreads)


def _rounded(value: float) -> float:
    """Return four significant digits, more than the runs determine."""
    return float(f"{value:.4g}")


def table(rows: Sequence[Row], law: Law | None) -> str:
    """Return a Markdown table of the runs with what the law says of each; those that check it are marked."""
    tasks = list(rows[0]["tasks"]) if rows else []
    heading = ["shape", "tokens", "text", "passes", "held-out loss", "by the law"]
    heading += [name for task in tasks for name in (task, "by the law")]
    lines = [f"| {' | '.join(heading)} |", "|---|" + "--:|" * (len(heading) - 1)]
    for row in sorted(rows, key=_point):
        run, size, loss = row["run"], row["body_parameters"], row["loss"]
        of_law = law if row["part"] != "other_blocks" else None
        expected = of_law.loss(size, run["tokens"], row["text_tokens"]) if of_law else None
        cells = [f"{run['shape']}{' (not fitted)' if row['part'] == 'checks' else ''}", f"{run['tokens'] / 1e6:g}M"]
        cells += [f"{run['megabytes']} MB", f"{run['tokens'] / row['text_tokens']:.1f}", f"{loss:.2f}"]
        cells.append("" if expected is None else f"{expected:.2f}")
        for task in tasks:
            cells.append(f"{statistics.fmean(row['tasks'][task]):.1f}")
            cells.append("" if of_law is None or expected is None else f"{of_law.score(task, size, expected):.1f}")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def texts_table(rows: Sequence[Row]) -> str:
    """Return a Markdown table of held-out loss and chunks by text size, a line per shape and number of tokens.

    Runs of other blocks than the one that ``electra init`` writes are left out.
    """
    found = {_point(row): row for row in rows if row["part"] != "other_blocks"}
    sizes = sorted({megabytes for _, _, megabytes in found})

    def cell(row: Row | None) -> str:
        return f"{row['loss']:.2f}, {statistics.fmean(row['tasks']['chunks']):.1f}" if row else ""

    lines = [
        f"| encoder | tokens | {' | '.join(f'{size} MB' for size in sizes)} |",
        "|---|" + "--:|" * (1 + len(sizes)),
    ]
    for shape, tokens in sorted({point[:2] for point in found}):
        cells = [cell(found.get((shape, tokens, size))) for size in sizes]
        lines.append(f"| {shape} | {tokens / 1e6:g}M | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def rates_table(losses: Sequence[Row]) -> str:
    """Return a Markdown table of held-out losses by learning rate, of all points at which several were tried."""
    points: dict[tuple[str, int, int], dict[float, float]] = {}
    for row in losses:
        points.setdefault(_point(row), {})[row["run"]["rate"]] = row["loss"]
    tried = {point: found for point, found in sorted(points.items()) if len(found) > 1}
    rates = sorted({rate for found in tried.values() for rate in found})
    lines = [
        f"| shape | tokens | text | {' | '.join(f'{rate:g}' for rate in rates)} |",
        "|---|" + "--:|" * (2 + len(rates)),
    ]
    for (shape, tokens, megabytes), found in tried.items():
        best = min(found.values())
        cells = [f"{found[rate]:.2f}" if rate in found else "" for rate in rates]
        cells = [f"**{cell}**" if found.get(rate) == best else cell for rate, cell in zip(rates, cells, strict=True)]
        lines.append(f"| {shape} | {tokens / 1e6:g}M | {megabytes} MB | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _point(row: Row) -> tuple[str, int, int]:
    return row["run"]["shape"], row["run"]["tokens"], row["run"]["megabytes"]
