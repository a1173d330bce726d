"""How masked positions are filled: with [MASK], and with tokens drawn from a distribution.

Shape legend: as in batch.py; V vocabulary.
"""

import torch
from torch import Tensor

from electra.model.batch import Batch


def masked_input(batch: Batch, mask_id: int, vocab_size: int) -> Tensor:
    """Token ids [B, T] with [MASK] at masked positions, but for the slots shown as they are or as a random token."""
    originals_BK = batch.originals_BK()
    as_is_BK = batch.shown_BK | (batch.weights_BK == 0)
    tokens_BK = originals_BK.masked_fill(~as_is_BK, mask_id)
    if batch.random_BK is not None:
        drawn_BK = (batch.uniforms_BK * vocab_size).long().clamp_(max=vocab_size - 1)
        tokens_BK = torch.where(batch.random_BK & (batch.weights_BK > 0), drawn_BK, tokens_BK)
    return batch.tokens_BT.scatter(1, batch.positions_BK, tokens_BK)


def put_samples(batch: Batch, sampled_BK: Tensor) -> Tensor:
    """Token ids [B, T] with the samples at their positions.

    Slots that share a position, which only ``fidelity: original`` draws, leave the integer mean of their ids there, as
    the original's scatter_update does.
    """
    real_BK = (batch.weights_BK > 0).long()
    sums_BT = torch.zeros_like(batch.tokens_BT).scatter_add(1, batch.positions_BK, sampled_BK * real_BK)
    draws_BT = torch.zeros_like(batch.tokens_BT).scatter_add(1, batch.positions_BK, real_BK)
    return torch.where(draws_BT > 0, sums_BT // draws_BT.clamp(min=1), batch.tokens_BT)


def sample(logits_BKV: Tensor, uniforms_BK: Tensor, temperature: float = 1.0) -> Tensor:
    """Draw one token per slot from softmax(logits / temperature): the inverse of its distribution function.

    One uniform per slot instead of Gumbel noise over the vocabulary; the same token on any machine and world size
    up to the rounding of the softmax.
    """
    cumulative_BKV = torch.softmax(logits_BKV / temperature, -1).cumsum(-1)
    targets_BK1 = uniforms_BK[..., None] * cumulative_BKV[..., -1:]
    return torch.searchsorted(cumulative_BKV, targets_BK1, right=True).squeeze(-1).clamp_(max=logits_BKV.shape[-1] - 1)
