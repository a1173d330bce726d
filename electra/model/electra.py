"""ELECTRA's pair: a small generator and the discriminator, one module with one loss (paper section 3).

Shape legend: B examples, T tokens, K masked slots per example, V vocabulary, D discriminator width, G generator width.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from electra import config
from electra.model.encoder import Encoder, EncoderConfig, initialize
from electra.model.heads import DiscriminatorHead, GeneratorHead


@dataclass
class Batch:
    """Examples with everything random about them already drawn, so that the model itself is deterministic.

    A row has K slots; those beyond the row's number of masked tokens have weight 0 and point at position 0.
    """

    tokens_BT: Tensor  # int64 original ids
    segments_BT: Tensor  # int64 0 | 1
    mask_BT: Tensor  # bool, True at real tokens
    positions_BK: Tensor  # int64, the masked positions
    weights_BK: Tensor  # float32, 1 for a real slot
    shown_BK: Tensor  # bool, True where the generator sees the original instead of [MASK]
    uniforms_BK: Tensor  # float32 in [0, 1): decides which token the generator's distribution yields

    def to(self, device: torch.device | str) -> "Batch":
        return Batch(**{name: value.to(device, non_blocking=True) for name, value in vars(self).items()})


@dataclass
class Outputs:
    """Sums over tokens, never means: the caller divides by the global counts, so the batch's split does not matter."""

    generator_loss_sum: Tensor
    discriminator_loss_sum: Tensor
    generator_logits_BKV: Tensor
    sampled_BK: Tensor  # the generator's tokens
    labels_BT: Tensor  # bool, True where a token was replaced by another one
    discriminator_logits_BT: Tensor


class Electra(nn.Module):
    """Generator and discriminator with shared embeddings.

    Args:
        model: shapes.
        vocab_size: entries of the vocabulary.
        mask_id: id of [MASK].
    """

    def __init__(self, model: config.Model, vocab_size: int, mask_id: int, temperature: float = 1.0):
        super().__init__()
        self.mask_id, self.temperature = mask_id, temperature
        self.discriminator = Encoder(EncoderConfig.discriminator(model, vocab_size))
        self.generator = Encoder(EncoderConfig.generator(model, vocab_size), self.discriminator.embeddings)
        self.discriminator_head = DiscriminatorHead(self.discriminator.config)
        self.generator_head = GeneratorHead(self.generator.config, self.discriminator.embeddings)

    def initialize(self, std: float, seed: int) -> "Electra":
        """Random weights as the original draws them; the same for the same seed."""
        random = torch.Generator().manual_seed(seed)
        initialize(self, std, random)
        nn.init.xavier_uniform_(self.discriminator_head.output.weight, generator=random)
        return self

    def forward(self, batch: Batch) -> Outputs:
        slots_BK = batch.tokens_BT.gather(1, batch.positions_BK)
        real_BK = batch.weights_BK > 0

        # generator: masked language modelling, the head on masked positions only
        hidden_BTG = self.generator(self._masked(batch, slots_BK), batch.segments_BT, batch.mask_BT)
        index_BKG = batch.positions_BK[..., None].expand(-1, -1, hidden_BTG.shape[-1])
        logits_BKV = self.generator_head(hidden_BTG.gather(1, index_BKG)).float()
        losses_BK = F.cross_entropy(logits_BKV.flatten(0, 1), slots_BK.flatten(), reduction="none").view_as(slots_BK)

        # its samples replace the masked tokens; no gradient flows through the choice
        sampled_BK = sample(logits_BKV.detach(), batch.uniforms_BK, self.temperature)
        corrupted_BT = batch.tokens_BT.scatter(1, batch.positions_BK, torch.where(real_BK, sampled_BK, slots_BK))
        labels_BT = corrupted_BT != batch.tokens_BT  # a sample that hits the original counts as real

        # discriminator: replaced token detection, on all tokens
        hidden_BTD = self.discriminator(corrupted_BT, batch.segments_BT, batch.mask_BT)
        logits_BT = self.discriminator_head(hidden_BTD).float()
        losses_BT = F.binary_cross_entropy_with_logits(logits_BT, labels_BT.float(), reduction="none")

        return Outputs(
            generator_loss_sum=(losses_BK * batch.weights_BK).sum(),
            discriminator_loss_sum=(losses_BT * batch.mask_BT).sum(),
            generator_logits_BKV=logits_BKV.detach(),
            sampled_BK=sampled_BK,
            labels_BT=labels_BT,
            discriminator_logits_BT=logits_BT.detach(),
        )

    def _masked(self, batch: Batch, slots_BK: Tensor) -> Tensor:
        """The generator's input: [MASK] at masked positions, but for the slots shown as they are."""
        as_is_BK = batch.shown_BK | (batch.weights_BK == 0)
        return batch.tokens_BT.scatter(1, batch.positions_BK, slots_BK.masked_fill(~as_is_BK, self.mask_id))


def sample(logits_BKV: Tensor, uniforms_BK: Tensor, temperature: float = 1.0) -> Tensor:
    """Draw one token per slot from softmax(logits / temperature): the inverse of its distribution function.

    One uniform per slot instead of Gumbel noise over the vocabulary; the same token on any machine and world size
    up to the rounding of the softmax.
    """
    cumulative_BKV = torch.softmax(logits_BKV / temperature, -1).cumsum(-1)
    targets_BK1 = uniforms_BK[..., None] * cumulative_BKV[..., -1:]
    return torch.searchsorted(cumulative_BKV, targets_BK1, right=True).squeeze(-1).clamp_(max=logits_BKV.shape[-1] - 1)
