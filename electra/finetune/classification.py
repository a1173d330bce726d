"""Classification of a text or a pair of texts (google-research/electra, finetune/classification).

    [CLS] a [SEP]        or        [CLS] a [SEP] b [SEP]

Shape legend: B examples, T tokens, D hidden width, C classes.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from electra.config import Finetune
from electra.finetune.base import Finetuning, Head, Record, rounded, token_at
from electra.finetune.features import Batch, Feature, Vocabulary, truncated_lengths
from electra.finetune.input_format import Layout
from electra.tasks.catalogue import SpanHeadName, TaskSpec
from electra.tasks.format import Row

HEAD_DROPOUT = 0.1


class Classification(Finetuning[Feature]):
    """One label per row."""

    def fields(self, spec: TaskSpec) -> tuple[str, ...]:
        return ("text_a", "text_b") if spec.text_b else ("text_a",)

    def features(self, spec: TaskSpec, rows: list[Row], vocabulary: Vocabulary, options: Finetune) -> Sequence[Feature]:
        return sentence_features(spec, rows, vocabulary, options.max_length)

    def head(self, spec: TaskSpec, hidden_size: int, layout: Layout, span_head: SpanHeadName) -> Head:
        return SentenceHead(hidden_size, len(spec.labels), layout)

    def predictions(
        self, spec: TaskSpec, rows: list[Row], features: Sequence[Feature], decoded: list[list[float]]
    ) -> list[Record]:
        """Return the most probable label and all logits of each row."""
        return [
            {"id": row["id"], "label": spec.labels[logits.index(max(logits))], "logits": [rounded(v) for v in logits]}
            for row, logits in zip(rows, decoded, strict=True)
        ]

    def records(
        self, spec: TaskSpec, rows: list[Row], features: Sequence[Feature], decoded: list[list[float]]
    ) -> list[Record]:
        """Return the most probable label and the probability of every label of each row."""
        return [
            {
                "id": found["id"],
                "label": found["label"],
                "probabilities": dict(zip(spec.labels, probabilities(found["logits"]), strict=True)),
            }
            for found in self.predictions(spec, rows, features, decoded)
        ]


def probabilities(logits: list[float]) -> list[float]:
    """Return the softmax of the logits."""
    shares = [math.exp(logit - max(logits)) for logit in logits]
    return [rounded(share / sum(shares)) for share in shares]


def class_number(spec: TaskSpec, label: str) -> int:
    """Return the target of a label."""
    return spec.labels.index(label)


def sentence_features(
    spec: TaskSpec,
    rows: list[Row],
    vocabulary: Vocabulary,
    max_length: int,
    target: Callable[[TaskSpec, Any], Any] = class_number,
) -> list[Feature]:
    """Return one feature per row, in order; over-long pairs are truncated at the end of the longer text.

    Args:
        target: function of a row's label; not called without one.
    """
    inputs, features = vocabulary.inputs, []
    room = max_length - inputs.num_special(pair=spec.text_b is not None)
    longest = room + 1  # one extra token shows that a text is truncated
    ids_a = vocabulary.encode([row["text_a"] for row in rows], longest)
    ids_b = vocabulary.encode([row["text_b"] for row in rows], longest) if spec.text_b else None
    for number, row in enumerate(rows):
        a, b = ids_a[number], ids_b[number] if ids_b else None
        if b is None:
            first, second = inputs.single(a[:room]), []
        else:
            keep_a, keep_b = truncated_lengths(len(a), len(b), room)
            first, second = inputs.first_part(a[:keep_a]), inputs.second_part(b[:keep_b])
        is_cut = len(a) + len(b or ()) > room
        learned = None if row["label"] is None else target(spec, row["label"])
        features.append(Feature(first + second, len(first), learned, number, is_cut=is_cut))
    return features


class SentenceHead(Head):
    """Dropout and one linear layer on the summary token, [CLS]."""

    reads_summary_only = True

    def __init__(self, hidden_size: int, num_outputs: int, layout: Layout):
        super().__init__()
        self.layout = layout
        self.dropout = nn.Dropout(HEAD_DROPOUT)
        self.output = nn.Linear(hidden_size, num_outputs)

    def forward(self, hidden_BTD: Tensor, batch: Batch) -> Tensor:
        """Return logits [B, C]."""
        return self.output(self.dropout(token_at(self.layout.summary, hidden_BTD, batch)))

    def loss(self, hidden_BTD: Tensor, batch: Batch) -> Tensor:
        assert batch.targets is not None
        return F.cross_entropy(self(hidden_BTD, batch).float(), batch.targets)

    def decode(self, outputs: Tensor, options: Finetune) -> list[list[float]]:
        """Return the logits of each example."""
        return outputs.float().tolist()
