"""The generator: masked inputs, its proposals at the masked positions, and what it shares (paper section 3).

Shape legend: B examples, T tokens, K masked slots per example, V vocabulary, G generator width."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from electra import config
from electra.model.batch import Batch
from electra.model.embeddings import DisentangledEmbeddings
from electra.model.encoder import Encoder
from electra.model.heads import VocabularyHead
from electra.model.kernels import functions as fused
from electra.model.objective import Objective
from electra.model.shape import EncoderConfig


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


@dataclass
class Proposals:
    """Output of the generator for a batch."""

    logits_BKV: Tensor
    losses_BK: Tensor  # of masked language modelling, nats; 0 at slots without weight
    sampled_BK: Tensor  # no gradient flows through the choice
    corrupted_BT: Tensor  # the tokens with the samples in their places
    hidden_BKG: Tensor | None  # the generator's states at the masked positions; None where it has none


def build_encoders(model: config.Model, vocab_size: int) -> tuple[Encoder, Encoder]:
    """The main encoder and the generator, sharing what ``model.embedding_sharing`` says."""
    shape, small = EncoderConfig.discriminator(model, vocab_size), EncoderConfig.generator(model, vocab_size)
    if model.embedding_sharing == "gradient_disentangled":
        generator = Encoder(small)
        return Encoder(shape, DisentangledEmbeddings(shape, generator.plain_embeddings)), generator
    main = Encoder(shape)
    if model.embedding_sharing == "all":
        return main, main
    return main, Encoder(small, main.plain_embeddings if model.embedding_sharing == "embeddings" else None)


class WithGenerator(Objective):
    """A method whose input is corrupted by a generator: a small masked language model, or fixed frequencies."""

    generator: Encoder | None
    generator_head: VocabularyHead | None
    frequencies_V: Tensor  # log frequencies, of a generator that is not trained

    def __init__(self, vocab_size: int, mask_id: int, method: config.Method):
        super().__init__(method)
        self.vocab_size, self.mask_id = vocab_size, mask_id

    def add_generator(self, generator: Encoder) -> None:
        """Take the generator; its output matrix is always its own input table."""
        self.generator = self.generator_head = None
        if self.method.generator == "transformer":
            self.generator = generator
            self.generator_head = VocabularyHead(
                generator.config, generator.plain_embeddings, projection=generator.projection
            )
        else:
            self.register_buffer("frequencies_V", torch.zeros(self.vocab_size), persistent=False)

    def set_frequencies(self, counts_V: Tensor) -> None:
        """Tell a unigram generator how often each token occurs; those that never do are not proposed."""
        if self.method.generator == "unigram":
            self.frequencies_V.copy_(counts_V.double().log())

    @property
    def generator_terms(self) -> dict[str, float]:
        return {"mlm": self.method.generator_weight} if self.generator is not None else {}

    def propose(self, batch: Batch) -> Proposals:
        """Masked language modelling on the masked positions, and one sample at each."""
        originals_BK = batch.originals_BK()
        hidden_BKG = None
        if self.generator is None or self.generator_head is None:
            logits_BKV = self.frequencies_V.expand(*originals_BK.shape, -1)
        else:
            shown_BT = masked_input(batch, self.mask_id, self.vocab_size)
            hidden_BTG = self.generator(shown_BT, batch.segments_BT, batch.attended_BT)
            hidden_BKG = at_positions(hidden_BTG, batch.positions_BK)
            logits_BKV = self.generator_head(hidden_BKG)
        losses_BK, sampled_BK = self._losses_and_samples(logits_BKV, originals_BK, batch.uniforms_BK)
        return Proposals(
            logits_BKV, losses_BK * batch.weights_BK, sampled_BK, put_samples(batch, sampled_BK), hidden_BKG
        )

    def _losses_and_samples(
        self, logits_BKV: Tensor, originals_BK: Tensor, uniforms_BK: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Losses [B, K] of the originals, nats, and one token [B, K] drawn by each uniform."""
        if self.method.temperature == 1 and not self.method.disallow_correct and fused.can_fuse(logits_BKV):
            losses_N, sampled_N = fused.losses_and_samples(
                logits_BKV.flatten(0, 1), originals_BK.flatten(), uniforms_BK.flatten()
            )
            return losses_N.view_as(originals_BK), sampled_N.view_as(originals_BK)
        logits_BKV = logits_BKV.float()
        distribution_BKV = logits_BKV.detach()
        if self.method.disallow_correct:
            distribution_BKV = distribution_BKV.scatter(-1, originals_BK[..., None], float("-inf"))
        sampled_BK = sample(distribution_BKV, uniforms_BK, self.method.temperature)
        return token_losses(logits_BKV, originals_BK), sampled_BK


def at_positions(hidden_BTD: Tensor, positions_BK: Tensor) -> Tensor:
    """States [B, K, D] at the masked positions."""
    return hidden_BTD.gather(1, positions_BK[..., None].expand(-1, -1, hidden_BTD.shape[-1]))


def token_losses(logits_BNV: Tensor, tokens_BN: Tensor) -> Tensor:
    """Cross entropy [B, N], nats."""
    return F.cross_entropy(logits_BNV.flatten(0, 1), tokens_BN.flatten(), reduction="none").view_as(tokens_BN)


def num_correct(logits_BNV: Tensor, tokens_BN: Tensor, weights_BN: Tensor) -> Tensor:
    """How often the most likely token is the right one."""
    return ((logits_BNV.argmax(-1) == tokens_BN) & (weights_BN > 0)).sum()
