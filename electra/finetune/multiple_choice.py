"""Choice among several continuations or answers, such as SWAG.

    [CLS] text [SEP] choice [SEP]        for every choice

Shape legend: B inputs of a batch, T tokens, D hidden width, C choices.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from electra.config import Finetune
from electra.finetune.base import Head, Record
from electra.finetune.classification import Classification, SentenceHead, class_number
from electra.finetune.features import Batch, Feature, Vocabulary, truncated_lengths
from electra.finetune.input_format import Layout
from electra.tasks.catalogue import SpanHeadName, TaskSpec
from electra.tasks.format import Row


class MultipleChoice(Classification):
    """The number of the right choice of each row; predicted as in a classification."""

    window = 1024

    def fields(self, spec: TaskSpec) -> tuple[str, ...]:
        return ("text_a", *(f"choices.{number}" for number in range(len(spec.labels))))

    def row(self, spec: TaskSpec, given: Row) -> Row:
        _, *names = self.fields(spec)
        return {**super().row(spec, given), "choices": [given[name] for name in names]}

    def inputs_per_row(self, spec: TaskSpec) -> int:
        return len(spec.labels)

    def features(self, spec: TaskSpec, rows: list[Row], vocabulary: Vocabulary, options: Finetune) -> Sequence[Feature]:
        return choice_features(spec, rows, vocabulary, options.max_length)

    def head(self, spec: TaskSpec, hidden_size: int, layout: Layout, span_head: SpanHeadName) -> Head:
        return ChoiceHead(hidden_size, len(spec.labels), layout)

    def records(
        self, spec: TaskSpec, rows: list[Row], features: Sequence[Feature], decoded: list[list[float]]
    ) -> list[Record]:
        """Return number, text and probabilities of the most probable choice of each row."""
        found = super().records(spec, rows, features, decoded)
        return [
            {
                "id": record["id"],
                "label": record["label"],
                "choice": row["choices"][spec.labels.index(record["label"])],
                "probabilities": record["probabilities"],
            }
            for row, record in zip(rows, found, strict=True)
        ]

    def demo_inputs(self, spec: TaskSpec, text: str, second: str) -> list[str]:
        return [text, *(line.strip() for line in second.splitlines() if line.strip())]

    def demo_help(self, spec: TaskSpec) -> str:
        return f"a text, and {len(spec.labels)} endings as second text, one a line"


@dataclass
class ChoiceFeature(Feature):
    """A multiple-choice row; its own token ids are those of the longest choice, used to sort rows by length.

    Attributes:
        choices: one feature per choice, in the row's order.
    """

    choices: list[Feature]

    @property
    def inputs(self) -> list[Feature]:
        return self.choices


def choice_features(spec: TaskSpec, rows: list[Row], vocabulary: Vocabulary, max_length: int) -> list[ChoiceFeature]:
    """Return one feature per row, in order; over-long pairs are truncated at the end of the longer text."""
    inputs, features = vocabulary.inputs, []
    room = max_length - inputs.num_special(pair=True)
    longest = room + 1  # one extra token shows that a text is truncated
    texts = vocabulary.encode([row["text_a"] for row in rows], longest)
    endings = iter(vocabulary.encode([choice for row in rows for choice in row["choices"]], longest))
    for number, (row, text) in enumerate(zip(rows, texts, strict=True)):
        choices = []
        for _ in row["choices"]:
            ending = next(endings)
            keep_a, keep_b = truncated_lengths(len(text), len(ending), room)
            first, second = inputs.first_part(text[:keep_a]), inputs.second_part(ending[:keep_b])
            is_cut = len(text) + len(ending) > room
            choices.append(Feature(first + second, len(first), None, number, is_cut=is_cut))
        widest = max(choices, key=lambda choice: len(choice.token_ids))
        target = None if row["label"] is None else class_number(spec, row["label"])
        features.append(
            ChoiceFeature(
                widest.token_ids,
                widest.first_length,
                target,
                number,
                choices,
                is_cut=any(choice.is_cut for choice in choices),
            )
        )
    return features


class ChoiceHead(SentenceHead):
    """One logit per choice from its [CLS]; the choices of an example are consecutive in the batch."""

    def __init__(self, hidden_size: int, num_choices: int, layout: Layout):
        super().__init__(hidden_size, 1, layout)
        self.num_choices = num_choices

    def forward(self, hidden_BTD: Tensor, batch: Batch) -> Tensor:
        """Return logits [B / C, C], comparable within a row."""
        return super().forward(hidden_BTD, batch).view(-1, self.num_choices)
