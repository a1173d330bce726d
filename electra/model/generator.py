"""The generator: masked inputs, its proposals at the masked positions, and what it shares (paper section 3).

Shape legend: B examples, T tokens, K masked slots per example, V vocabulary, G generator width."""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from electra import config
from electra.model.encoder import Encoder
from electra.model.heads import VocabularyHead
from electra.model.kernels import functions as fused
from electra.model.layers import DisentangledEmbeddings
from electra.model.objective import Batch, Objective
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
    cumulative_BKV = running_sums(torch.softmax(logits_BKV / temperature, -1))
    targets_BK1 = uniforms_BK[..., None] * cumulative_BKV[..., -1:]
    return torch.searchsorted(cumulative_BKV, targets_BK1, right=True).squeeze(-1).clamp_(max=logits_BKV.shape[-1] - 1)


BLOCK = 256  # numbers that one product adds up


def running_sums(values: Tensor) -> Tensor:
    """``values.cumsum(-1)``; with deterministic algorithms on CUDA as matrix products, since its kernel has none."""
    if not values.is_cuda or not torch.are_deterministic_algorithms_enabled():
        return values.cumsum(-1)
    return sums_of_blocks(values)


def sums_of_blocks(values: Tensor) -> Tensor:
    """``values.cumsum(-1)`` by products with triangular matrices of ones: within blocks, then of the blocks' sums."""
    size = values.shape[-1]
    blocks = F.pad(values, (0, -size % BLOCK)).unflatten(-1, (-1, BLOCK))
    with torch.autocast(values.device.type, enabled=False):
        within = blocks @ blocks.new_ones(BLOCK, BLOCK).triu()
        before = within[..., -1] @ blocks.new_ones(blocks.shape[-2], blocks.shape[-2]).triu(1)
    return (within + before[..., None]).flatten(-2)[..., :size]


@dataclass
class Proposals:
    """Output of the generator for a batch."""

    logits_BKV: Tensor | None  # None where they are computed in chunks
    losses_BK: Tensor  # of masked language modelling, nats; 0 at slots without weight
    right_BK: Tensor | None  # bool, True where the first guess is the original; None in training
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
    needs_logits: ClassVar[bool] = False  # of the generator, all of them at once

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
        hidden_BKG = logits_BKV = None
        if self.generator is None or self.generator_head is None:
            logits_BKV = self.frequencies_V.expand(*originals_BK.shape, -1)
        else:
            shown_BT = masked_input(batch, self.mask_id, self.vocab_size)
            hidden_BTG = self.generator(shown_BT, batch.segments_BT, batch.attended_BT)
            hidden_BKG = at_positions(hidden_BTG, batch.positions_BK)
            if self.needs_logits or not self.generator_head.exceeds_memory(hidden_BKG):
                logits_BKV = self.generator_head(hidden_BKG)
        if logits_BKV is None:
            assert self.generator_head is not None and hidden_BKG is not None
            draw = Draw(batch.uniforms_BK, self.method.temperature, self.method.disallow_correct)
            losses_BK, right_BK, sampled_BK = in_chunks(self.generator_head, hidden_BKG, originals_BK, draw)
        else:
            losses_BK, sampled_BK = self._losses_and_samples(logits_BKV, originals_BK, batch.uniforms_BK)
            right_BK = None if self.training else logits_BKV.argmax(-1) == originals_BK
        losses_BK, corrupted_BT = losses_BK * batch.weights_BK, put_samples(batch, sampled_BK)
        return Proposals(logits_BKV, losses_BK, right_BK, sampled_BK, corrupted_BT, hidden_BKG)

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


def guesses(head: VocabularyHead, hidden_BND: Tensor, tokens_BN: Tensor) -> tuple[Tensor, Tensor | None]:
    """Cross entropy [B, N] of the tokens, nats; and, in evaluation only, where the first guess is right [B, N]."""
    if head.exceeds_memory(hidden_BND):
        losses_BN, right_BN, _ = in_chunks(head, hidden_BND, tokens_BN)
        return losses_BN, right_BN
    logits_BNV = head(hidden_BND).float()
    return token_losses(logits_BNV, tokens_BN), None if head.training else logits_BNV.argmax(-1) == tokens_BN


def num_correct(right_BN: Tensor | None, weights_BN: Tensor) -> Tensor:
    """How often the most likely token is the right one, at positions with weight."""
    assert right_BN is not None
    return (right_BN & (weights_BN > 0)).sum()


# ---- the same without the logits of all positions at once

CHUNK = 2**26  # logits at a time


@dataclass(frozen=True)
class Draw:
    """How tokens are drawn; see :func:`sample`."""

    uniforms_BK: Tensor
    temperature: float = 1.0
    disallow_correct: bool = False


def in_chunks(
    head: VocabularyHead, hidden_BND: Tensor, tokens_BN: Tensor, draw: Draw | None = None
) -> tuple[Tensor, Tensor | None, Tensor]:
    """Cross entropy [B, N] of the tokens (nats), where the first guess is right (in evaluation), and tokens drawn.

    Some rows at a time, whose logits are forgotten and computed again in the backward pass: one product more, and
    memory that does not grow with the number of positions. The same as from all logits, to rounding.
    """
    draw = draw or Draw(torch.empty(0))
    drawn = (draw.uniforms_BK.flatten(), draw.temperature, draw.disallow_correct)

    def use(states_BNE: Tensor, weight_VE: Tensor, bias_V: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        found: tuple[Tensor, Tensor, Tensor] = _Chunked.apply(
            states_BNE.flatten(0, 1), weight_VE, bias_V, tokens_BN.flatten(), *drawn, not head.training
        )
        return found

    losses_R, right_R, sampled_R = head(hidden_BND, use)
    right_BN = None if head.training else right_R.view_as(tokens_BN)
    return losses_R.view_as(tokens_BN), right_BN, sampled_R.view_as(tokens_BN) if len(drawn[0]) else sampled_R


class _Chunked(torch.autograd.Function):
    """Cross entropy [R] of a linear layer, first guesses and samples, for R rows."""

    @staticmethod
    def forward(
        ctx: Any,
        states_RE: Tensor,
        weight_VE: Tensor,
        bias_V: Tensor,
        tokens_R: Tensor,
        uniforms_R: Tensor,
        temperature: float,
        disallow_correct: bool,
        with_guesses: bool,
    ) -> tuple[Tensor, Tensor, Tensor]:
        kind = states_RE.device.type
        dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else states_RE.dtype
        states, weight, bias = states_RE.to(dtype), weight_VE.to(dtype), bias_V.to(dtype)
        size = _rows(weight)
        totals, losses, right, sampled = [], [], [], []
        for start in range(0, len(states), size):
            rows = slice(start, start + size)
            logits, tokens = F.linear(states[rows], weight, bias).float(), tokens_R[rows, None]
            totals.append(logits.logsumexp(-1))
            losses.append(totals[-1] - logits.gather(-1, tokens).squeeze(-1))
            if with_guesses:
                right.append(logits.argmax(-1) == tokens_R[rows])
            if len(uniforms_R):
                if disallow_correct:
                    logits = logits.scatter(-1, tokens, float("-inf"))
                sampled.append(sample(logits, uniforms_R[rows], temperature))
        ctx.save_for_backward(states_RE, weight_VE, bias_V, tokens_R, torch.cat(totals))
        ctx.dtype = dtype
        # two empty tensors, not one twice: torch.compile (2.13) fails on results that are the same
        guessed = torch.cat(right) if right else tokens_R.new_empty(0)
        drawn = torch.cat(sampled) if sampled else tokens_R.new_empty(0)
        ctx.mark_non_differentiable(guessed, drawn)
        return torch.cat(losses), guessed, drawn

    @staticmethod
    def backward(ctx: Any, grad_R: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
        states_RE, weight_VE, bias_V, tokens_R, totals_R = ctx.saved_tensors
        states, weight, bias = (value.to(ctx.dtype) for value in (states_RE, weight_VE, bias_V))
        grad_states, grad_weight, grad_bias = [], torch.zeros_like(weight_VE), torch.zeros_like(bias_V)
        for start in range(0, len(states), size := _rows(weight)):
            rows = slice(start, start + size)
            with torch.autocast(states.device.type, enabled=False):
                logits = F.linear(states[rows], weight, bias).float()
                shares = (logits - totals_R[rows, None]).exp()
                ones = torch.ones_like(totals_R[rows, None])
                shares = shares.scatter_add(-1, tokens_R[rows, None], -ones) * grad_R[rows, None]
                grad_bias = grad_bias + shares.sum(0)
                shares = shares.to(ctx.dtype)
                grad_states.append(shares @ weight)
                grad_weight = grad_weight + (shares.T @ states[rows]).to(grad_weight.dtype)
        return torch.cat(grad_states).to(states_RE.dtype), grad_weight, grad_bias, None, None, None, None, None


def _rows(weight_VE: Tensor) -> int:
    return max(1, CHUNK // len(weight_VE))
