"""Inputs of the model, for all kinds of task: the tokenizer, features, and their batches.

The first segment of an input, with its special tokens, has segment id 0, the second has 1.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Encoding, Tokenizer
from torch import Tensor

from electra.common.artifacts import read_json
from electra.common.errors import DataError
from electra.common.lines import batches
from electra.common.parsing import read_tokenizer
from electra.common.paths import Paths
from electra.common.subwords import kind_of
from electra.finetune.input_format import InputFormat
from electra.model.attention import example_ends
from electra.tasks.format import Row

_CHUNK = 10_000  # texts per tokenizer call


@dataclass
class Feature:
    """One model input.

    Attributes:
        token_ids: token ids with special tokens, without padding.
        first_length: tokens of the first segment, including its special tokens.
        target: class number, score in 0..1, (start, end, impossible) of a span, or a class number per token; None if
            unlabelled.
        row: number of the row it was made from.
        is_cut: True if its texts (for span tasks: its question) were truncated to the model's input length.
    """

    token_ids: Sequence[int]
    first_length: int
    target: Any
    row: int
    is_cut: bool = field(default=False, kw_only=True)

    @property
    def inputs(self) -> "Sequence[Feature]":
        """Rows of the batch that it becomes: itself, or one per choice."""
        return [self]


@dataclass(frozen=True)
class Vocabulary:
    """A tokenizer together with the input format of its model.

    Texts that look like special tokens, such as "[SEP]", are tokenised as text, as in google-research/electra.
    """

    tokenizer: Tokenizer
    inputs: InputFormat

    def __post_init__(self) -> None:
        self.tokenizer.encode_special_tokens = True  # set on the object: tokenizer.json does not store it

    @classmethod
    def load(cls, paths: Paths) -> "Vocabulary":
        """Read ``data/tokenizer/tokenizer.json``."""
        return cls.read(paths.tokenizer / "tokenizer.json")

    @classmethod
    def read(cls, path: Path, inputs: InputFormat | None = None) -> "Vocabulary":
        """Read a ``tokenizer.json``; the input format defaults to BERT's.

        Raises:
            DataError: the file is missing or is not a tokenizer.
        """
        read_json(path)  # gives missing and broken files the usual error message
        tokenizer = read_tokenizer(path)
        tokenizer.no_padding()
        tokenizer.no_truncation()
        if inputs is not None:
            return cls(tokenizer, inputs)
        pad, cls_id, sep = (tokenizer.token_to_id(token) for token in ("[PAD]", "[CLS]", "[SEP]"))
        if pad is None or cls_id is None or sep is None:
            raise DataError("the vocabulary lacks [PAD], [CLS] or [SEP]", where=str(path))
        return cls(tokenizer, InputFormat.bert(cls_id, sep, pad))

    @property
    def pad(self) -> int:
        return self.inputs.pad

    @property
    def size(self) -> int:
        return self.tokenizer.get_vocab_size()

    def has_tokenizer_of(self, other: "Vocabulary") -> bool:
        """Return True if both tokenizers are the same; equal sizes do not show that equal ids mean the same."""
        return bool(self.tokenizer.to_str() == other.tokenizer.to_str())

    @cached_property
    def spells_spaces(self) -> bool:
        """Return True if words need the space before them: byte-level BPE that adds none to a word alone."""
        return kind_of(self.tokenizer) == "bpe" and (
            self.tokenizer.encode("a", add_special_tokens=False).ids
            != self.tokenizer.encode(" a", add_special_tokens=False).ids
        )

    @cached_property
    def unknown(self) -> list[int]:
        """Ids used for a word without tokens: the unknown token, or the ids of the text "[UNK]" if there is none."""
        names = (getattr(self.tokenizer.model, "unk_token", None), "[UNK]", "<unk>")
        found = [self.tokenizer.token_to_id(name) for name in names if name]
        known = [number for number in found if number is not None]
        return known[:1] or self.tokenizer.encode("[UNK]", add_special_tokens=False).ids

    @cached_property
    def _special_pieces(self) -> set[int]:
        """Special tokens that the tokenizer's model itself finds in texts (SentencePiece)."""
        added = self.tokenizer.get_added_tokens_decoder()
        special = {number: token.content for number, token in added.items() if token.special}
        return {
            number
            for number, text in special.items()
            if number not in self.unknown and number in self.tokenizer.encode(text, add_special_tokens=False).ids
        }

    def ids_of(self, encoding: Encoding) -> list[int]:
        """Return the ids of an encoded text; special tokens found in the text are replaced by the unknown token."""
        if not self._special_pieces:
            return encoding.ids
        return [self.unknown[0] if number in self._special_pieces else number for number in encoding.ids]

    def encode(self, texts: list[str], longest: int | None = None) -> list[list[int]]:
        """Return the token ids of each text, without special tokens.

        Args:
            longest: maximum number of tokens per text; None keeps all.
        """
        ids: list[list[int]] = []
        for chunk in batches(texts, _CHUNK, len):
            found = self.tokenizer.encode_batch(chunk, add_special_tokens=False)
            ids.extend(self.ids_of(encoding)[:longest] for encoding in found)
        return ids


def rows_cut(features: Iterable[Feature]) -> int:
    """Return the number of truncated rows."""
    return len({feature.row for feature in features if feature.is_cut})


def both_orders(rows: list[Row]) -> list[Row]:
    """Return the rows followed by copies with both texts swapped."""
    return [*rows, *({**row, "text_a": row["text_b"], "text_b": row["text_a"]} for row in rows)]


def truncated_lengths(a: int, b: int, limit: int) -> tuple[int, int]:
    """Return the lengths after truncating the longer of two texts (the second on a tie) until both fit."""
    if a + b <= limit:
        return a, b
    short, half = min(a, b), limit // 2
    if short <= half:  # the shorter text is kept whole
        return (short, limit - short) if a <= b else (limit - short, short)
    return limit - half, half


IGNORED = -100  # target that losses ignore
_POOL = 16  # batches whose rows are sorted by length together: little padding, still a random mix
_MULTIPLE = 8  # batch widths are multiples of it: few distinct shapes to compile, and aligned for tensor cores


@dataclass
class Batch:
    """Padded inputs. B examples, T tokens; for multiple choice, B counts choices.

    Attributes:
        first_B: number of tokens in the first segment.
        targets: targets for the head's loss: one per example or, for tagging, per token; None if unlabelled.
    """

    tokens_BT: Tensor  # int64
    segments_BT: Tensor  # int64
    mask_BT: Tensor  # bool, True at real tokens
    first_B: Tensor  # int64
    targets: Tensor | None
    ends_N: Tensor | None = None  # int32, ends of examples in the flattened rows, for attention on CUDA

    def to(self, device: torch.device) -> "Batch":
        if device.type == "cpu":
            return self
        return self.for_cuda(pinned=True)._moved(device)

    def for_cuda(self, pinned: bool) -> "Batch":
        """Return the batch with the ends of its examples; with ``pinned``, in pinned memory for asynchronous copies."""
        ready = dataclasses.replace(self, ends_N=example_ends(self.mask_BT, 2 * len(self.mask_BT)))
        if not pinned:
            return ready
        fields: dict[str, Any] = {name: v if v is None else v.pin_memory() for name, v in vars(ready).items()}
        return Batch(**fields)

    def _moved(self, device: torch.device) -> "Batch":
        fields: dict[str, Any] = {
            name: v if v is None else v.to(device, non_blocking=True) for name, v in vars(self).items()
        }
        return Batch(**fields)


def collate(features: list[Feature], pad: int, longest: int = 0) -> Batch:
    """Pad features to the longest one; each choice of a multiple-choice feature becomes one input.

    Args:
        longest: tokens of the longest feature in the whole set. Batches are padded to a multiple of 8 but not beyond
            this length, since the encoder may have no further positions.
    """
    inputs = [part for feature in features for part in feature.inputs]
    lengths_B = np.array([len(feature.token_ids) for feature in inputs])
    width = int(lengths_B.max())
    width = max(width, min(-(-width // _MULTIPLE) * _MULTIPLE, longest))
    tokens_BT = np.full((len(inputs), width), pad, dtype=np.int64)
    for row_T, feature in zip(tokens_BT, inputs, strict=True):
        row_T[: len(feature.token_ids)] = feature.token_ids
    first_B = np.array([feature.first_length for feature in inputs])
    positions_T = np.arange(tokens_BT.shape[1])
    mask_BT = positions_T < lengths_B[:, None]
    segments_BT = (mask_BT & (positions_T >= first_B[:, None])).astype(np.int64)
    targets = None
    if features[0].target is not None:
        targets = _targets([feature.target for feature in features], tokens_BT.shape[1])
    return Batch(
        tokens_BT=torch.from_numpy(tokens_BT),
        segments_BT=torch.from_numpy(segments_BT),
        mask_BT=torch.from_numpy(mask_BT),
        first_B=torch.from_numpy(first_B),
        targets=targets,
    )


def _targets(targets: list[Any], length: int) -> Tensor:
    """Return one target per example as a tensor; per-token targets are padded with ``IGNORED``."""
    if isinstance(targets[0], list):
        targets = [[*target, *[IGNORED] * (length - len(target))] for target in targets]
    return torch.tensor(targets)


def training_order(lengths: list[int], batch_size: int, random: np.random.Generator) -> list[list[int]]:
    """Return the batches of one epoch: shuffled, sorted by length within pools, then the batches shuffled."""
    order = random.permutation(len(lengths))
    keys = np.asarray(lengths)
    batches = []
    for begin in range(0, len(order), _POOL * batch_size):
        pool = order[begin : begin + _POOL * batch_size]
        pool = pool[np.argsort(keys[pool], kind="stable")]
        batches += [pool[start : start + batch_size].tolist() for start in range(0, len(pool), batch_size)]
    return [batches[i] for i in random.permutation(len(batches))]


def endless_batches(lengths: list[int], batch_size: int, seed: int) -> Iterator[list[int]]:
    """Yield lists of indices, epoch after epoch; determined by the seed alone."""
    random = np.random.default_rng(seed)
    while True:
        yield from training_order(lengths, batch_size, random)


def sorted_batches(lengths: list[int], batch_size: int) -> list[list[int]]:
    """Return batches over all examples, longest first: if memory is too small, the first batch fails."""
    order = np.argsort(-np.asarray(lengths), kind="stable")
    return [order[start : start + batch_size].tolist() for start in range(0, len(order), batch_size)]
