"""Input and output of a pre-training method.

Shape legend: B examples, T tokens, K masked slots per example.
"""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from electra.model.encoder import CuSeqlens


@dataclass
class Batch:
    """Examples with everything random about them already drawn, so that the methods themselves are deterministic.

    A row has K slots; those beyond the row's number of masked tokens have weight 0 and point at position 0.
    """

    tokens_BT: Tensor  # int64 original ids
    segments_BT: Tensor  # int64 0 | 1
    mask_BT: Tensor  # bool, True at real tokens
    positions_BK: Tensor  # int64, the masked positions
    weights_BK: Tensor  # float32, 1 for a real slot
    shown_BK: Tensor  # bool, True where the original is shown instead of [MASK]
    uniforms_BK: Tensor  # float32 in [0, 1): decides which token a distribution yields
    random_BK: Tensor | None = None  # bool, True where a random token is shown instead of [MASK] (BERT)
    candidate_BT: Tensor | None = None  # bool, True at tokens that could be masked
    next_B: Tensor | None = None  # float32, 1: the second segment is a random one, 0: it follows, -1: there is none
    example_BT: Tensor | None = None  # int64, of rows that hold several examples: each token's, from 1; 0 at padding
    ends_N: Tensor | None = None  # int32, where examples end in the flattened rows: for attention on CUDA

    def to(self, device: torch.device | str) -> "Batch":
        moved: dict[str, Any] = {k: v if v is None else v.to(device, non_blocking=True) for k, v in vars(self).items()}
        return Batch(**moved)

    @property
    def attended_BT(self) -> Tensor | CuSeqlens:
        """Attention mask of the encoders: real tokens or, in packed rows, the example of each token."""
        mask_BT = self.mask_BT if self.example_BT is None else self.example_BT
        return mask_BT if self.ends_N is None else CuSeqlens(self.ends_N, mask_BT)

    def originals_BK(self) -> Tensor:
        """The tokens at the masked positions."""
        return self.tokens_BT.gather(1, self.positions_BK)

    def is_masked_BT(self) -> Tensor:
        """True at masked positions, shown or not."""
        return torch.zeros_like(self.mask_BT).scatter(1, self.positions_BK, self.weights_BK > 0)


@dataclass
class Outputs:
    """Losses as sums, never means: the caller divides by the global counts, so the batch's split does not matter."""

    loss_sums: dict[str, Tensor]  # by the term's name; see Objective.counts for what each is summed over
    correct_sums: dict[str, Tensor] = field(default_factory=dict)  # right first guesses; in evaluation only
    sampled_BK: Tensor | None = None  # the generator's tokens
    labels_BT: Tensor | None = None  # bool, True where the discriminator should say replaced
    discriminator_logits_BT: Tensor | None = None  # above zero: replaced
    judged_BT: Tensor | None = None  # bool, True where the discriminator's loss counts


def total(values_BN: Tensor) -> Tensor:
    """Sum over a batch, a scalar: rows first, since the bits of a whole sum depend on the number of threads."""
    return values_BN.sum(-1).sum()
