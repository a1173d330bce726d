"""Features to padded batches. Examples of like length share a batch, so that little is computed on padding."""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from electra.finetune.choices import ChoiceFeature
from electra.finetune.features import Feature

IGNORED = -100  # a target that no loss counts
_POOL = 16  # batches sorted by length together: little padding, yet batches still mix
_MULTIPLE = 8  # of every batch's width: a kernel is made for each width, so few of them; and what matrix units like


@dataclass
class Batch:
    """Padded inputs. B examples, T tokens; for multiple choice, B counts choices.

    Attributes:
        first_B: tokens of the first segment.
        targets: what the head's loss takes, one per example and, for tagging, per token; None where unlabelled.
    """

    tokens_BT: Tensor  # int64
    segments_BT: Tensor  # int64
    mask_BT: Tensor  # bool, True at real tokens
    first_B: Tensor  # int64
    targets: Tensor | None

    def to(self, device: torch.device) -> "Batch":
        moved: dict[str, Any] = {
            name: None if value is None else value.to(device) for name, value in vars(self).items()
        }
        return dataclasses.replace(self, **moved)


def collate(features: list[Feature], pad: int, longest: int = 0) -> Batch:
    """Pad to the longest of the features; each choice of a multiple-choice feature is an input of its own.

    Args:
        longest: tokens of the longest feature in the whole set; batches are padded up to a multiple of 8, if that is
            not beyond it (an encoder has a place for every token of it, perhaps for no more).
    """
    inputs = [part for f in features for part in (f.choices if isinstance(f, ChoiceFeature) else [f])]
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
    """One target per example; lists of targets per token are padded."""
    if isinstance(targets[0], list):
        targets = [[*target, *[IGNORED] * (length - len(target))] for target in targets]
    return torch.tensor(targets)


def training_order(lengths: list[int], batch_size: int, random: np.random.Generator) -> list[list[int]]:
    """Batches of one epoch: a random order, sorted by length within pools, the batches shuffled again."""
    order = random.permutation(len(lengths))
    keys = np.asarray(lengths)
    batches = []
    for begin in range(0, len(order), _POOL * batch_size):
        pool = order[begin : begin + _POOL * batch_size]
        pool = pool[np.argsort(keys[pool], kind="stable")]
        batches += [pool[start : start + batch_size].tolist() for start in range(0, len(pool), batch_size)]
    return [batches[i] for i in random.permutation(len(batches))]


def endless_batches(lengths: list[int], batch_size: int, seed: int) -> Iterator[list[int]]:
    """Epoch after epoch of index lists; a pure function of the seed."""
    random = np.random.default_rng(seed)
    while True:
        yield from training_order(lengths, batch_size, random)


def sorted_batches(lengths: list[int], batch_size: int) -> list[list[int]]:
    """All examples once, longest first: a batch that does not fit into memory fails at the start."""
    order = np.argsort(-np.asarray(lengths), kind="stable")
    return [order[start : start + batch_size].tolist() for start in range(0, len(order), batch_size)]
