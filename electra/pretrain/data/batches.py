"""From shards to the batches of one process: step s of a run always trains on the same examples, masks and samples."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
import torch

from electra import config
from electra.common.subwords import WordStarts
from electra.config.methods import METHODS
from electra.objectives.base import Batch, objective_class
from electra.pretrain.data.dataset import CutExamples, draw_next_sentences
from electra.pretrain.data.masking import Masking, MaskingRule, draw_masking, examples_at, is_candidate
from electra.pretrain.data.packing import StaticShapes, packed
from electra.text.shards.layout import Shards


@dataclass(frozen=True)
class DataParallel:
    """Part of every global batch that this process works on: rank and number of the data-parallel processes."""

    dp_rank: int
    dp_size: int
    micro_batch_size: int
    pack_examples: bool = False
    shapes: StaticShapes | None = None  # as they come, or few of them: on CUDA

    def shaped(self, batch: Batch, num_rows: int, width: int) -> Batch:
        """The micro-batch for the device, packed where asked for."""
        return batch if self.shapes is None else self.shapes.apply(batch, num_rows, width)


def masking_rule(pretrain: config.Pretrain, fidelity: str) -> MaskingRule:
    """Return the method's masking: its own (BERT's 80/10/10), or the recipe's."""
    as_mask, as_random = objective_class(pretrain.objective).masking or (pretrain.mask_token_probability, 0.0)
    return MaskingRule(pretrain.mask_probability, as_mask, as_random, with_replacement=fidelity == "original")


class ExampleDrawer:
    """Examples by index as masked batches.

    Args:
        shards: the examples of one split, or pieces of them.
        special_ids: ids that are never masked.
        pretrain: masking probabilities, the method and the seed.
        fidelity: ``original`` draws masked positions with replacement.
        word_starts: finds the tokens that begin a word, to mask whole words; None: single tokens.
    """

    def __init__(
        self,
        shards: Shards | CutExamples,
        special_ids: list[int],
        pretrain: config.Pretrain,
        fidelity: str = "corrected",
        word_starts: WordStarts | None = None,
    ):
        self.shards, self.pretrain = shards, pretrain
        self.per_example = shards.per_example if isinstance(shards, CutExamples) else 1
        self.special_ids = np.array(special_ids)
        self.rule, self.word_starts = masking_rule(pretrain, fidelity), word_starts

    def batch(self, epochs: np.ndarray, examples: np.ndarray, *, show_all_masks: bool = False) -> Batch:
        """The batch of these examples, drawn for these epochs ([n] each).

        Args:
            show_all_masks: every masked position is [MASK], for validation: a token that the generator can see is no
                test of it.
        """
        tokens, spans = self.shards.gather(examples)
        if self.per_example > 1:  # pieces without text are left out; one stays, so that there is a batch
            kept = spans[:, 0] > 0
            kept[0] |= not kept.any()
            epochs, examples, tokens, spans = epochs[kept], examples[kept], tokens[kept], spans[kept]
        next_labels = None
        if METHODS[self.pretrain.objective].next_sentences:
            tokens, spans, next_labels = draw_next_sentences(
                self.shards, tokens, spans, epochs, examples, self.pretrain.seed
            )
        masking = draw_masking(
            tokens,
            spans[:, 0],
            epochs,
            examples,
            special_ids=self.special_ids,
            rule=replace(self.rule, as_mask=1.0, as_random=0.0) if show_all_masks else self.rule,
            seed=self.pretrain.seed,
            begins=None if self.word_starts is None else self.word_starts(tokens),
        )
        candidate = is_candidate(tokens, spans[:, 0], self.special_ids)
        return to_batch(tokens, spans, masking, candidate, next_labels)


def to_batch(
    tokens: np.ndarray, spans: np.ndarray, masking: Masking, candidate: np.ndarray, next_labels: np.ndarray | None
) -> Batch:
    """Arrays of n examples as tensors; columns that are padding in every row are cut off in steps of 8."""
    width = min(tokens.shape[1], max(1, -(-int(spans[:, 0].max()) // 8)) * 8)
    places = np.arange(width)
    real = places < spans[:, :1]
    return Batch(
        input_ids_BT=torch.from_numpy(tokens[:, :width]),
        segments_BT=torch.from_numpy((real & (places >= spans[:, 1:])).astype(np.int64)),
        mask_BT=torch.from_numpy(real),
        mask_positions_BK=torch.from_numpy(masking.positions),
        mask_weights_BK=torch.from_numpy(masking.weights),
        shown_BK=torch.from_numpy(masking.shown),
        uniforms_BK=torch.from_numpy(masking.uniforms),
        random_BK=torch.from_numpy(masking.random),
        candidate_BT=torch.from_numpy(candidate[:, :width]),
        next_B=None if next_labels is None else torch.from_numpy(next_labels),
    )


def training_steps(
    drawer: ExampleDrawer,
    data_parallel: DataParallel,
    first_step: int,
    num_steps: int,
    *,
    short: ExampleDrawer | None = None,
    num_short_steps: int = 0,
) -> Iterator[list[Batch]]:
    """The micro-batches of each step for this process, one step drawn ahead in a thread.

    Row r of step s is position s * batch_size + r of the endless shuffled stream, so a run resumed at any step, or
    with another number of processes, sees the same global batches.

    Args:
        short: of pieces, for the first ``num_short_steps``: as many more of them make up a batch as they are shorter.
    """

    def draw(step: int) -> list[Batch]:
        now = short if short is not None and step < num_short_steps else drawer
        batch_size = now.pretrain.batch_size * now.per_example
        size = data_parallel.micro_batch_size * now.per_example
        positions = np.arange(step * batch_size, (step + 1) * batch_size)
        epochs, examples = examples_at(positions, len(now.shards), now.pretrain.seed)
        batches = [
            now.batch(epochs[start : start + size], examples[start : start + size])
            for start in range(data_parallel.dp_rank * size, batch_size, data_parallel.dp_size * size)
        ]
        width = now.shards.max_length
        if data_parallel.pack_examples:
            batches = [packed(batch, width) for batch in batches]
        return [data_parallel.shaped(batch, size, width) for batch in batches]

    with ThreadPoolExecutor(max_workers=1) as thread:
        upcoming = thread.submit(draw, first_step)
        for step in range(first_step, num_steps):
            ready = upcoming.result()
            if step + 1 < num_steps:
                upcoming = thread.submit(draw, step + 1)
            yield ready


def heldout_batches(
    drawer: ExampleDrawer, data_parallel: DataParallel, num_examples: int
) -> Iterator[tuple[Batch, bool]]:
    """The first ``num_examples`` held-out examples, split over processes, with the same masks at every validation.

    Yields:
        A batch, and whether it counts. All processes have the same number of batches, because ZeRO 3 gathers weights
        from all of them in every forward pass; a process without examples left gets a batch that does not count.
    """
    all_examples = np.arange(min(num_examples, len(drawer.shards)))
    chosen = all_examples[data_parallel.dp_rank :: data_parallel.dp_size]
    most = -(-len(all_examples) // data_parallel.dp_size)  # examples of the first process
    for start in range(0, most, data_parallel.micro_batch_size):
        own = chosen[start : start + data_parallel.micro_batch_size]
        examples = own if len(own) else all_examples[:1]
        batch = drawer.batch(np.zeros_like(examples), examples, show_all_masks=True)
        yield data_parallel.shaped(batch, data_parallel.micro_batch_size, drawer.shards.max_length), len(own) > 0
