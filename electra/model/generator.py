"""The generator's parts: what it shares with the main encoder, its losses, and its samples.

Shape legend: B examples, T tokens, K masked slots per example, V vocabulary, G generator width."""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from electra import config
from electra.model.encoder import Encoder
from electra.model.heads import VocabularyHead
from electra.model.layers import DisentangledEmbeddings, Embeddings
from electra.model.shape import EncoderConfig


def sample(logits_BKV: Tensor, uniforms_BK: Tensor, temperature: float = 1.0) -> Tensor:
    """Draw one token per slot from softmax(logits / temperature), by inverse transform sampling.

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


def build_encoders(model: config.Model, vocab_size: int) -> tuple[Encoder, Encoder]:
    """The main encoder and the generator, sharing what ``model.embedding_sharing`` says."""
    shape, small = EncoderConfig.discriminator(model, vocab_size), EncoderConfig.generator(model, vocab_size)
    if model.embedding_sharing == "gradient_disentangled":
        embeddings = DisentangledEmbeddings(shape, Embeddings(small))
        return Encoder(shape, embeddings), Encoder(small, embeddings.source)
    main = Encoder(shape)
    if model.embedding_sharing == "all":
        return main, main
    return main, Encoder(small, main.plain_embeddings if model.embedding_sharing == "embeddings" else None)


def vocabulary_head(encoder: Encoder) -> VocabularyHead:
    """Return a head for masked language modelling, whose output matrix is the encoder's own word table."""
    return VocabularyHead(encoder.config, encoder.plain_embeddings, projection=encoder.projection)


class Sampler(nn.Module):
    """Losses [B, K] of the original tokens, nats, and one token [B, K] drawn from each distribution.

    Args:
        temperature: the logits are divided by it before a token is drawn.
        disallow_correct: the original token is never drawn.
    """

    def __init__(self, temperature: float = 1.0, disallow_correct: bool = False):
        super().__init__()
        self.temperature, self.disallow_correct = temperature, disallow_correct

    def forward(self, logits_BKV: Tensor, original_ids_BK: Tensor, uniforms_BK: Tensor) -> tuple[Tensor, Tensor]:
        logits_BKV = logits_BKV.float()
        distribution_BKV = logits_BKV.detach()
        if self.disallow_correct:
            distribution_BKV = distribution_BKV.scatter(-1, original_ids_BK[..., None], float("-inf"))
        sampled_ids_BK = sample(distribution_BKV, uniforms_BK, self.temperature)
        return token_losses(logits_BKV, original_ids_BK), sampled_ids_BK


@dataclass(frozen=True)
class Prediction:
    """Losses and samples at the masked positions."""

    losses_BK: Tensor  # of the original tokens, nats
    is_right_BK: Tensor | None  # bool, True where the first guess is the original; None in training
    sampled_ids_BK: Tensor  # no gradient flows through the choice
    logits_BKV: Tensor | None  # None where they were computed in chunks


def predict(
    head: VocabularyHead,
    hidden_BKG: Tensor,
    original_ids_BK: Tensor,
    uniforms_BK: Tensor,
    sampler: Sampler,
    needs_logits: bool = False,
) -> Prediction:
    """Predict the original token at every masked position, and draw one token from each prediction.

    Args:
        needs_logits: compute all logits at once, also where they may not fit.
    """
    if head.exceeds_memory(hidden_BKG) and not needs_logits:
        draw = Draw(uniforms_BK, sampler.temperature, sampler.disallow_correct)
        return Prediction(*in_chunks(head, hidden_BKG, original_ids_BK, draw), None)
    return prediction_from(head(hidden_BKG), original_ids_BK, uniforms_BK, sampler, with_guesses=not head.training)


def prediction_from(
    logits_BKV: Tensor, original_ids_BK: Tensor, uniforms_BK: Tensor, sampler: Sampler, with_guesses: bool
) -> Prediction:
    """Return the same from logits."""
    losses_BK, sampled_ids_BK = sampler(logits_BKV, original_ids_BK, uniforms_BK)
    is_right_BK = logits_BKV.argmax(-1) == original_ids_BK if with_guesses else None
    return Prediction(losses_BK, is_right_BK, sampled_ids_BK, logits_BKV)


def at_positions(hidden_BTD: Tensor, mask_positions_BK: Tensor) -> Tensor:
    """States [B, K, D] at the masked positions."""
    return hidden_BTD.gather(1, mask_positions_BK[..., None].expand(-1, -1, hidden_BTD.shape[-1]))


def token_losses(logits_BNV: Tensor, tokens_BN: Tensor) -> Tensor:
    """Cross entropy [B, N], nats."""
    return F.cross_entropy(logits_BNV.flatten(0, 1), tokens_BN.flatten(), reduction="none").view_as(tokens_BN)


def losses_and_hits(head: VocabularyHead, hidden_BND: Tensor, tokens_BN: Tensor) -> tuple[Tensor, Tensor | None]:
    """Cross entropy [B, N] of the tokens, nats; and, in evaluation only, where the first guess is right [B, N]."""
    if head.exceeds_memory(hidden_BND):
        losses_BN, right_BN, _ = in_chunks(head, hidden_BND, tokens_BN)
        return losses_BN, right_BN
    logits_BNV = head(hidden_BND).float()
    return token_losses(logits_BNV, tokens_BN), None if head.training else logits_BNV.argmax(-1) == tokens_BN


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
