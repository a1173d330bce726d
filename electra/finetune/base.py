"""Base classes of the kinds of task: what a kind's file tells of its features, head, loss, decoding and output."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Generic, TypeVar

import torch
from torch import Tensor, nn

from electra.config import Finetune
from electra.finetune.features import Batch, Feature, Vocabulary
from electra.finetune.input_format import Layout, Position
from electra.tasks.catalogue import SpanHeadName, TaskSpec
from electra.tasks.format import Row

Record = dict[str, Any]


class Head(nn.Module, ABC):
    """Layers on an encoder, their loss, and the decoding of their outputs.

    Attributes:
        reads_summary_only: True if the head reads no token but the summary token.
    """

    reads_summary_only: ClassVar[bool] = False

    @abstractmethod
    def loss(self, hidden_BTD: Tensor, batch: Batch) -> Tensor:
        """Return the mean loss over a labelled batch, a scalar."""

    @abstractmethod
    def decode(self, outputs: Any, options: Finetune) -> list[Any]:
        """Return one value per example from the outputs of ``forward``."""


AnyFeature = TypeVar("AnyFeature", bound=Feature)


class Finetuning(ABC, Generic[AnyFeature]):
    """Fine-tuning and prediction of one kind of task.

    Attributes:
        unlabelled: values of a row's labels if it has none.
        takes_words: True if an input of ``electra predict`` is a list of words instead of a text.
        window: rows that ``electra predict`` keeps in memory and sorts by length together.
        cut_part: what is said of rows that are truncated, in the printed line.
    """

    unlabelled: ClassVar[Row] = {"label": None}
    takes_words: ClassVar[bool] = False
    window: ClassVar[int] = 4096
    cut_part: ClassVar[str] = "are longer than the whole"

    @abstractmethod
    def features(
        self, spec: TaskSpec, rows: list[Row], vocabulary: Vocabulary, options: Finetune
    ) -> Sequence[AnyFeature]:
        """Return the model's inputs for the rows, in order."""

    @abstractmethod
    def head(self, spec: TaskSpec, hidden_size: int, layout: Layout, span_head: SpanHeadName) -> Head:
        """Return a new head."""

    @abstractmethod
    def predictions(
        self, spec: TaskSpec, rows: list[Row], features: Sequence[AnyFeature], decoded: list[Any]
    ) -> list[Record]:
        """Return one line of ``predictions.jsonl`` per row.

        Args:
            decoded: the head's decoded outputs, one per feature.
        """

    def records(
        self, spec: TaskSpec, rows: list[Row], features: Sequence[AnyFeature], decoded: list[Any]
    ) -> list[Record]:
        """Return one output of ``electra predict`` per row."""
        return self.predictions(spec, rows, features, decoded)

    def max_length(self, options: Finetune) -> int:
        """Return the maximum number of tokens of an input."""
        return options.max_length

    def inputs_per_row(self, spec: TaskSpec) -> int:
        """Return how many inputs of a batch a row becomes."""
        return 1

    def unlearnable(self, rows: list[Row], features: Sequence[AnyFeature]) -> dict[str, int]:
        """Return counts of what no model can learn from these features, for ``run.json``."""
        return {}

    @abstractmethod
    def fields(self, spec: TaskSpec) -> tuple[str, ...]:
        """Return the inputs of a row of ``electra predict``; ``choices.0`` is the first of a list ``choices``."""

    def row(self, spec: TaskSpec, given: Row) -> Row:
        """Return a row without labels from the ``id`` and the fields of an input."""
        return {**given, **self.unlabelled}

    def demo_inputs(self, spec: TaskSpec, text: str, second: str) -> list[str]:
        """Return the fields from the two texts of the demo's page."""
        return [text] if len(self.fields(spec)) == 1 else [text, second]

    def demo_help(self, spec: TaskSpec) -> str:
        """Return which texts the demo's page needs."""
        return "two texts" if len(self.fields(spec)) == 2 else "a text"


def token_at(position: Position, values_BTD: Tensor, batch: Batch) -> Tensor:
    """Return the values [B, D] at each example's first token, or at its last real token."""
    if position == "first":
        return values_BTD[:, 0]
    last_B = batch.mask_BT.sum(1) - 1
    return values_BTD[torch.arange(len(last_B), device=last_B.device), last_B]


def initialize_head(head: nn.Module, generator: torch.Generator) -> None:
    """Initialise weights Glorot-uniform and biases with zeros: TensorFlow's default, which the original uses."""
    for module in head.modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight, generator=generator)
            nn.init.zeros_(module.bias)


def rounded(value: float) -> float:
    """Return the value with six digits, as it is written to files."""
    return float(f"{value:.6g}")
