"""Start and end logits of a question's windows to one answer.

Shape legend: B windows, T tokens, L longest answer.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from electra.finetune.rows import Row
from electra.finetune.windows import Window


@dataclass
class BestSpan:
    """The best answer inside one window; start and end are token positions, inclusive."""

    start: int
    end: int
    score: float  # log probability
    null_score: float


def best_spans(start_BT: Tensor, end_BT: Tensor, impossible_B: Tensor | None, max_answer_length: int) -> list[BestSpan]:
    """The most probable span of at most ``max_answer_length`` tokens of each window, found exactly.

    Log probabilities are over the window's tokens and [CLS], so a window that holds its answer to be elsewhere scores
    low and windows can be compared.
    """
    start_BT, end_BT = start_BT.log_softmax(-1), end_BT.log_softmax(-1)
    T = start_BT.shape[1]
    scores = []
    for length in range(min(max_answer_length, T - 1)):
        score_BT = torch.full_like(start_BT, float("-inf"))
        score_BT[:, 1 : T - length] = start_BT[:, 1 : T - length] + end_BT[:, 1 + length :]
        scores.append(score_BT)
    scores_BLT = torch.stack(scores, 1)
    best_B = scores_BLT.flatten(1).argmax(1)
    starts_B, ends_B = best_B % T, best_B % T + best_B // T
    best_scores_B = scores_BLT.flatten(1).gather(1, best_B[:, None]).squeeze(1)
    nulls_B = impossible_B if impossible_B is not None else torch.zeros_like(best_scores_B)
    columns = (values.tolist() for values in (starts_B, ends_B, best_scores_B, nulls_B))
    return [BestSpan(*values) for values in zip(*columns, strict=True)]


@dataclass
class Answer:
    """A row's best answer.

    Attributes:
        start: first character in the context.
        score: log probability within its window.
        null_score: how much the row is held to have no answer; above 0 none is given.
    """

    text: str
    start: int
    score: float
    null_score: float


def answers(rows: list[Row], windows: list[Window], spans: list[BestSpan]) -> list[dict[str, object]]:
    """The best answer of each row: the fields that its score is computed from."""
    best = best_answers(rows, windows, spans)
    return [{"id": row["id"], "text": a.text, "null_score": a.null_score} for row, a in zip(rows, best, strict=True)]


def best_answers(rows: list[Row], windows: list[Window], spans: list[BestSpan]) -> list[Answer]:
    """The best span over all windows of each row, as text; a row is held unanswerable only if all its windows are."""
    best: dict[int, tuple[Window, BestSpan]] = {}
    nulls: dict[int, float] = {}
    for window, span in zip(windows, spans, strict=True):
        nulls[window.row] = min(span.null_score, nulls.get(window.row, float("inf")))
        if window.row not in best or span.score > best[window.row][1].score:
            best[window.row] = window, span
    found = []
    for number, row in enumerate(rows):
        window, span = best[number]
        # A context without a single token has no span, nor has a beam in which no start has an end.
        is_found = window.offsets and span.start
        start, end = window.characters(row["context"], span.start, span.end) if is_found else (0, 0)
        found.append(Answer(row["context"][start:end], start, span.score, nulls[number]))
    return found
