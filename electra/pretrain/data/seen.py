"""How much text a run has seen after each of its steps, and which examples: from the order that the loader computes.

Tokens are those of the examples, [CLS] and [SEP] included and padding left out. Words are the white-space separated
words of the corpus; within a pass over the data they are counted in proportion to its tokens.
"""

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from electra.config import Pretrain
from electra.pretrain.data.dataset import CutExamples
from electra.pretrain.data.masking import examples_at
from electra.text.shards.layout import Shards

_CHUNK = 65_536  # examples at a time


@dataclass(frozen=True)
class Order:
    """What decides which examples a step trains on.

    Attributes:
        num_steps: steps of the whole run.
        short_length: tokens of the pieces in the first ``num_short_steps`` steps (``pretrain.length_curriculum``).
    """

    seed: int
    batch_size: int
    num_steps: int
    num_short_steps: int = 0
    short_length: int | None = None

    @classmethod
    def of(cls, recipe: Pretrain) -> "Order":
        """Return the order of a run with these settings."""
        curriculum = recipe.length_curriculum
        if curriculum is None:
            return cls(recipe.seed, recipe.batch_size, recipe.num_steps)
        short = round(curriculum.share * recipe.num_steps)
        return cls(recipe.seed, recipe.batch_size, recipe.num_steps, short, curriculum.length)

    def facts(self) -> dict[str, Any]:
        return asdict(self)

    def parts(self, shards: Shards, end: int) -> Iterator[tuple[Shards | CutExamples, int, range]]:
        """Yield the examples, the batch size in them, and the steps below ``end``, of each part of the run."""
        if self.short_length is not None and self.num_short_steps:
            cut = CutExamples(shards, self.short_length)
            yield cut, self.batch_size * cut.per_example, range(min(end, self.num_short_steps))
        yield shards, self.batch_size, range(self.num_short_steps, max(end, self.num_short_steps))


@dataclass(frozen=True)
class TextSeen:
    """Text that the weights after a step were trained on, repetitions counted."""

    step: int
    examples: int
    tokens: int
    words: int


class TextCounter:
    """Text seen after the steps of a run.

    Every epoch has all examples once, so the order of the examples is computed only in the epochs in which a step that
    is asked for ends, and where a part of the run begins or ends within an epoch.
    """

    def __init__(self, order: Order, shards: Shards):
        self.order = order
        self._parts: list[_Part] = []
        before = (0.0, 0.0)
        for examples, batch_size, steps in order.parts(shards, order.num_steps):
            if steps:
                part = _Part(examples, order.seed, batch_size, steps, shards.num_words, before)
                self._parts.append(part)
                before = part.seen_before(steps.stop * batch_size)

    def after(self, step: int) -> TextSeen:
        """Return the text seen after a step, counted from 1."""
        part = next(part for part in self._parts if step <= part.steps.stop)
        tokens, words = part.seen_before(step * part.batch_size)
        return TextSeen(step, step * self.order.batch_size, round(tokens), round(words))

    def first_step(self, unit: Literal["tokens", "words"], amount: int) -> int:
        """Return the first step after which at least this much is seen, to the nearest whole number; or the last."""
        column, least = ("tokens", "words").index(unit), amount - 0.5
        ends = [part.seen_before(part.steps.stop * part.batch_size)[column] for part in self._parts]
        return self._parts[min(bisect_left(ends, least), len(ends) - 1)].first_step(column, least)


class _Part:
    """Text seen in one part of a run.

    Args:
        num_words: of all examples.
        before: tokens and words seen before this part.
    """

    def __init__(
        self,
        examples: Shards | CutExamples,
        seed: int,
        batch_size: int,
        steps: range,
        num_words: int,
        before: tuple[float, float],
    ):
        self.examples, self.seed, self.batch_size, self.steps, self.before = examples, seed, batch_size, steps, before
        self.start, self.stop = steps.start * batch_size, steps.stop * batch_size  # positions in the stream of epochs
        self.tokens_per_epoch = _total_tokens(examples)
        self.words_per_token = num_words / max(1, self.tokens_per_epoch)
        self._counted: dict[int, np.ndarray] = {}

    def seen_before(self, position: int) -> tuple[float, float]:
        """Return the tokens and words seen before a position of this part at which a step or an epoch ends."""
        tokens = self._tokens_before(position)
        return self.before[0] + tokens, self.before[1] + tokens * self.words_per_token

    def first_step(self, column: int, least: float) -> int:
        """Return the first step after which at least this much is seen, or the last.

        Args:
            column: 0 for tokens, 1 for words.
        """
        size = len(self.examples)
        first, last = self.start // size, (self.stop - 1) // size
        epoch = bisect_left(
            range(last), least, first, last, key=lambda epoch: self.seen_before((epoch + 1) * size)[column]
        )
        # the steps that end in this epoch, and the one that ends after it
        low = max(epoch * size // self.batch_size, self.steps.start) + 1
        high = min(-(-(epoch + 1) * size // self.batch_size), self.steps.stop)
        return bisect_left(
            range(high), least, low, high, key=lambda step: self.seen_before(step * self.batch_size)[column]
        )

    def _tokens_before(self, position: int) -> float:
        size = len(self.examples)
        first, epoch = self.start // size, position // size
        tokens = 0.0
        if epoch > first:
            begun = self._counts(first)[-1] if self.start % size else self.tokens_per_epoch
            tokens = float(begun) + (epoch - first - 1) * self.tokens_per_epoch
        if position % size:
            from_step = max(epoch * size, self.start) // self.batch_size
            tokens += float(self._counts(epoch)[position // self.batch_size - from_step - 1])
        return tokens

    def _counts(self, epoch: int) -> np.ndarray:
        """Return the tokens seen since the start of this epoch (or part, if later) after each step [steps].

        Of a step that goes on into the next epoch only the examples in this one count.
        """
        if epoch not in self._counted:
            size = len(self.examples)
            start, stop = max(epoch * size, self.start), min((epoch + 1) * size, self.stop)
            from_step = start // self.batch_size
            tokens = np.zeros((stop - 1) // self.batch_size - from_step + 1)
            for chunk in range(start, stop, _CHUNK):
                positions = np.arange(chunk, min(chunk + _CHUNK, stop))
                lengths = self.examples.lengths(examples_at(positions, size, self.seed)[1])
                steps = positions // self.batch_size - from_step
                added = np.bincount(steps - steps[0], lengths)
                tokens[steps[0] : steps[0] + len(added)] += added
            self._counted[epoch] = tokens.cumsum()
        return self._counted[epoch]


def times_seen(order: Order, shards: Shards, step: int) -> np.ndarray:
    """Return how often each training example was read in the first ``step`` steps, [number of examples] int64.

    Under a length curriculum an example counts as often as its most frequent piece.
    """
    total = np.zeros(len(shards), dtype=np.int64)
    for examples, batch_size, steps in order.parts(shards, step):
        counts = np.zeros(len(examples), dtype=np.int64)
        for rows in _rows(order, examples, batch_size, steps):
            counts += np.bincount(rows, minlength=len(examples))
        total += counts.reshape(len(shards), -1).max(1)
    return total


def _rows(order: Order, examples: Shards | CutExamples, batch_size: int, steps: range) -> Iterator[np.ndarray]:
    """Yield the examples of the steps, whole steps at a time."""
    chunk = max(1, _CHUNK // batch_size)
    for first in range(steps.start, steps.stop, chunk):
        positions = np.arange(first * batch_size, min(first + chunk, steps.stop) * batch_size)
        yield examples_at(positions, len(examples), order.seed)[1]


def _total_tokens(examples: Shards | CutExamples) -> int:
    return sum(
        int(examples.lengths(np.arange(start, min(start + _CHUNK, len(examples)))).sum())
        for start in range(0, len(examples), _CHUNK)
    )
