"""Examples cut into shorter ones, for the first part of a run (``pretrain.length_curriculum``)."""

import numpy as np

from electra.shards.dataset import Shards
from electra.shards.examples import write_example


class Pieces:
    """Every example as ``max_length // length`` examples of ``length`` tokens, each with [CLS] and [SEP] of its own.

    Seen like :class:`Shards`; which example and which part of it a piece is follows from its index alone. Pieces are
    full: the text that the extra special tokens leave no room for (9 of 509 tokens at 512 / 128) is not read. Where an
    example is short its last pieces have no text; their length is 0.

    Args:
        shards: the examples.
        length: tokens of a piece; divides the examples' length.
    """

    def __init__(self, shards: Shards, length: int):
        self.shards, self.max_length = shards, length
        self.vocab_size = shards.vocab_size
        self.per_example = shards.max_length // length

    def __len__(self) -> int:
        return len(self.shards) * self.per_example

    def gather(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Token ids [n, length] and spans [n, 2], as :meth:`Shards.gather` gives them."""
        examples, parts = np.divmod(np.asarray(indices, dtype=np.int64), self.per_example)
        whole, spans = self.shards.gather(examples)
        pieces, piece_spans = np.zeros((len(whole), self.max_length), dtype=np.int64), np.zeros_like(spans)
        for row, (tokens, (length, first), part) in enumerate(zip(whole, spans, parts, strict=True)):
            text = np.concatenate([tokens[1 : first - 1], tokens[first : max(first, length - 1)]])
            if cut := self._cut(len(text), first - 2, part, has_second=length > first):
                special = {"cls_id": tokens[0], "sep_id": tokens[length - 1]}
                piece_spans[row] = write_example(pieces[row], text, cut, **special)
        return pieces, piece_spans

    def _cut(self, num_tokens: int, border: int, part: int, *, has_second: bool) -> tuple[int, int, int] | None:
        """(start, middle, end) of a part of the text; the middle is the example's own where it lies near enough."""
        room = self.max_length - (3 if has_second else 2)
        start, end = part * room, min((part + 1) * room, num_tokens)
        if start >= end:
            return None
        if not has_second or end - start < 2:
            return start, end, end
        middle = (start + end) // 2
        return start, border if abs(border - middle) <= (end - start) // 4 else middle, end
