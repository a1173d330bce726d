"""Multiple choice: one input per choice, and the model says which fits best.

[CLS] text [SEP] choice [SEP]        once for each choice
"""

from dataclasses import dataclass

from electra.finetune.features import Feature, Vocabulary, truncated_lengths
from electra.finetune.rows import Row
from electra.finetune.tasks import TaskSpec


@dataclass
class ChoiceFeature(Feature):
    """A row; its token ids are those of its longest choice, by which batches are made.

    Attributes:
        choices: one feature per choice, in the row's order.
    """

    choices: list[Feature]


def choice_features(spec: TaskSpec, rows: list[Row], vocabulary: Vocabulary, max_length: int) -> list[ChoiceFeature]:
    """One feature per row, in order; pairs that are too long lose tokens at the end of the longer text."""
    texts = vocabulary.encode([row["text_a"] for row in rows])
    endings = iter(vocabulary.encode([choice for row in rows for choice in row["choices"]]))
    inputs, features = vocabulary.inputs, []
    room = max_length - inputs.num_special(pair=True)
    for number, (row, text) in enumerate(zip(rows, texts, strict=True)):
        choices = []
        for _ in row["choices"]:
            ending = next(endings)
            keep_a, keep_b = truncated_lengths(len(text), len(ending), room)
            first, second = inputs.first_part(text[:keep_a]), inputs.second_part(ending[:keep_b])
            choices.append(Feature(first + second, len(first), None, number))
        longest = max(choices, key=lambda choice: len(choice.token_ids))
        target = None if row["label"] is None else spec.labels.index(row["label"])
        features.append(ChoiceFeature(longest.token_ids, longest.first_length, target, number, choices))
    return features
