"""Regression: one number for a text or a pair of texts, learned on the scale 0..1 of the task's range.

Inputs and the layers of the head are those of :mod:`electra.finetune.classification`, with one output.

Shape legend: B examples, T tokens, D hidden width.
"""

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor

from electra.config import Finetune
from electra.finetune.base import Head, Record, rounded
from electra.finetune.classification import Classification, SentenceHead, sentence_features
from electra.finetune.features import Batch, Feature, Vocabulary
from electra.finetune.input_format import Layout
from electra.tasks.catalogue import SpanHeadName, TaskSpec
from electra.tasks.format import Row


class Regression(Classification):
    """One score per row."""

    def features(self, spec: TaskSpec, rows: list[Row], vocabulary: Vocabulary, options: Finetune) -> Sequence[Feature]:
        return sentence_features(spec, rows, vocabulary, options.max_length, scaled)

    def head(self, spec: TaskSpec, hidden_size: int, layout: Layout, span_head: SpanHeadName) -> Head:
        return ScoreHead(hidden_size, 1, layout)

    def predictions(
        self, spec: TaskSpec, rows: list[Row], features: Sequence[Feature], decoded: list[list[float]]
    ) -> list[Record]:
        """Return the score of each row, in units of the task's range."""
        low, high = spec.score_range
        return [
            {"id": row["id"], "score": rounded(low + share * (high - low))}
            for row, (share,) in zip(rows, decoded, strict=True)
        ]

    records = predictions


def scaled(spec: TaskSpec, score: float) -> float:
    """Return the target of a score: 0 at the lowest, 1 at the highest of the task's range."""
    low, high = spec.score_range
    return (score - low) / (high - low)


class ScoreHead(SentenceHead):
    """One number [B, 1], learned by the mean squared error."""

    def loss(self, hidden_BTD: Tensor, batch: Batch) -> Tensor:
        assert batch.targets is not None
        return F.mse_loss(self(hidden_BTD, batch).float().squeeze(-1), batch.targets.float())
