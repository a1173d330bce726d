"""One split of ``data/shards`` as an array of examples (memory-mapped), and other views of it.

:class:`CutExamples` cuts the examples into shorter ones for the length curriculum; next-sentence examples (BERT)
replace half of the second segments by one from elsewhere, anew in every epoch.
"""

from pathlib import Path

import numpy as np

from electra.common.artifacts import MANIFEST, ShardsManifest, read_manifest
from electra.common.errors import DataError
from electra.pretrain.data.masking import uniforms
from electra.text.shards.layout import write_example


class Shards:
    """All examples of one split, by index, in the order of the corpus.

    Files are memory-mapped: opening costs no memory, and :meth:`gather` reads only the rows of its indices.

    Args:
        folder: the shards' folder with its ``manifest.json``.
        split: ``train`` or ``heldout``.

    Raises:
        DataError: the manifest or a file is missing, or a file's shape contradicts the manifest.
    """

    def __init__(self, folder: Path, split: str):
        facts = read_manifest(folder, ShardsManifest)
        if split not in facts["splits"]:
            raise DataError(f"there is no split {split!r}", where=str(folder / MANIFEST), next_step="dvc repro shards")
        self.max_length: int = facts["max_length"]
        self.vocab_size: int = facts["vocab_size"]
        shards = facts["splits"][split]["shards"]
        self._tokens = [_open(folder / f"{s['name']}.tokens.npy", (s["examples"], self.max_length)) for s in shards]
        self._spans = [_open(folder / f"{s['name']}.spans.npy", (s["examples"], 2)) for s in shards]
        self._starts = np.cumsum(
            [0, *(s["examples"] for s in shards)]
        )  # index of each file's first example, and the end

    def __len__(self) -> int:
        return int(self._starts[-1])

    def gather(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return examples by index, in the order of the indices.

        Args:
            indices: integers in ``0..len(self)-1``, shape [n].

        Returns:
            Token ids [n, max_length] int64, zero-padded; and spans [n, 2] int64: the number of real tokens and the
            length of the first segment with ``[CLS]`` and its ``[SEP]`` (equal when there is one segment).

        Raises:
            IndexError: an index is out of range.
        """
        return self._take(self._tokens, indices, self.max_length), self._take(self._spans, indices, 2)

    def lengths(self, indices: np.ndarray) -> np.ndarray:
        """Return the number of real tokens of each example, [n] int64, without touching the token files."""
        return self._take(self._spans, indices, 2)[:, 0]

    def _take(self, files: list[np.ndarray], indices: np.ndarray, width: int) -> np.ndarray:
        indices = np.asarray(indices, dtype=np.int64)
        if indices.size and (indices.min() < 0 or indices.max() >= len(self)):
            raise IndexError(f"example {indices.min()}..{indices.max()} requested, there are {len(self)}")
        rows = np.empty((len(indices), width), dtype=np.int64)
        owner = np.searchsorted(self._starts, indices, side="right") - 1
        for file in np.unique(owner):
            here = owner == file
            rows[here] = files[file][indices[here] - self._starts[file]]
        return rows


def _open(path: Path, shape: tuple[int, int]) -> np.ndarray:
    remedy = "remove the folder and run: dvc repro shards"
    try:
        array = np.load(path, mmap_mode="r")
    except FileNotFoundError:
        raise DataError("a shard file is missing", where=str(path), next_step=remedy) from None
    except (ValueError, EOFError) as error:
        raise DataError(f"a shard file is damaged: {error}", where=str(path), next_step=remedy) from None
    if array.shape != shape:
        raise DataError(
            f"a shard file holds {array.shape} values, the manifest says {shape}", where=str(path), next_step=remedy
        )
    return array


class CutExamples:
    """Every example as ``max_length // length`` examples of ``length`` tokens, each with [CLS] and [SEP] of its own.

    The interface is that of :class:`Shards`; the index of a piece alone decides which part of which example it is.
    Pieces are full: the text that the extra special tokens leave no space for (9 of 509 tokens at 512 / 128) is not
    read. Where an example is short its last pieces have no text; their length is 0.

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
        """Return token ids [n, length] and spans [n, 2], as :meth:`Shards.gather` does."""
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
        """Return (start, middle, end) of a part of the text; the middle is the example's own where near enough."""
        size = self.max_length - (3 if has_second else 2)
        start, end = part * size, min((part + 1) * size, num_tokens)
        if start >= end:
            return None
        if not has_second or end - start < 2:
            return start, end, end
        middle = (start + end) // 2
        return start, border if abs(border - middle) <= (end - start) // 4 else middle, end


_PURPOSE = 3


def draw_next_sentences(
    shards: Shards | CutExamples,
    tokens: np.ndarray,
    spans: np.ndarray,
    epochs: np.ndarray,
    examples: np.ndarray,
    seed: int,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Replace second segments, each with probability 1/2, by the last segment of a random example.

    A replacement is cut to the space left in the row, its [SEP] kept. An example of one segment stays as it is.

    Args:
        tokens, spans: of the examples, as :meth:`Shards.gather` gives them.
        epochs, examples: [n], of which the draws are a function.

    Returns:
        Tokens [n, T] and spans [n, 2], and labels [n] float32: 1 replaced, 0 the text's own, -1 no second segment.
    """
    draws = uniforms(seed, _PURPOSE, epochs, examples, 2)
    partners = np.minimum((draws[:, 1].astype(np.float64) * len(shards)).astype(np.int64), len(shards) - 1)
    their_tokens, their_spans = shards.gather(partners)
    has_second, they_have = spans[:, 0] > spans[:, 1], their_spans[:, 0] > their_spans[:, 1]
    their_starts = np.where(they_have, their_spans[:, 1], 1)  # of one segment: all after [CLS]
    replaced = (draws[:, 0] < 0.5) & has_second & (partners != examples) & (their_spans[:, 0] > 0)

    tokens, spans, width = tokens.copy(), spans.copy(), tokens.shape[1]
    for row in np.flatnonzero(replaced):
        first = spans[row, 1]
        theirs = their_tokens[row, their_starts[row] : their_spans[row, 0]]
        space = width - first
        if len(theirs) > space:
            theirs = np.append(theirs[: space - 1], theirs[-1])
        end = first + len(theirs)
        tokens[row, first:end], tokens[row, end:] = theirs, 0
        spans[row, 0] = end
    labels = np.where(has_second, replaced.astype(np.float32), np.float32(-1))
    return tokens, spans, labels.astype(np.float32)
