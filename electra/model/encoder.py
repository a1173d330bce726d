"""The transformer encoder of generator and discriminator, BERT's or of newer parts, and attention in packed rows.

Shape legend: B examples or rows, T tokens, E embedding width, D hidden width, H heads, d width of a head, F
feed-forward width, V vocabulary, N examples and stretches of padding in all rows.
"""

import math
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from electra.model.kernels import functions as fused
from electra.model.kernels.functions import Linear
from electra.model.layers import (
    BLOCKED,
    DisentangledEmbeddings,
    Embeddings,
    LayerNorm,
    Rotation,
    StreamNorm,
    geglu,
    rotate,
    rotation_of,
    window_bias,
)
from electra.model.shape import EncoderConfig


@dataclass
class CuSeqlens:
    """Where examples end in the flattened rows, for the flash kernel, which takes sequences of any length."""

    ends_N: Tensor  # int32, cumulative and beginning with 0; the same number may come several times
    mask_BT: Tensor  # what encoders are told without the kernel: real tokens, or the example of each token
    window: int | None = None  # of a local layer, half of it on each side


def block_bias(example_BT: Tensor) -> Tensor:
    """Additive attention bias [B, 1, T, T]: zero within an example, :data:`BLOCKED` between two."""
    other_BTT = example_BT[:, :, None] != example_BT[:, None, :]
    return torch.zeros(other_BTT.shape, device=example_BT.device).masked_fill_(other_BTT, BLOCKED)[:, None]


def positions(example_BT: Tensor) -> Tensor:
    """Position of each token in its example [B, T]."""
    places_BT = torch.arange(example_BT.shape[1], device=example_BT.device).expand_as(example_BT)
    is_first_BT = torch.ones_like(example_BT, dtype=torch.bool)
    is_first_BT[:, 1:] = example_BT[:, 1:] != example_BT[:, :-1]
    return places_BT - places_BT.where(is_first_BT, 0).cummax(1).values


def example_ends(example_BT: Tensor, num_examples: int | None = None) -> Tensor:
    """:attr:`CuSeqlens.ends_N` of rows on the CPU, where it costs no wait for a device.

    Args:
        example_BT: the number of each token's example, or True at real tokens. Padding counts as an example.
        num_examples: entries are added until there are so many examples, all of them empty: one shape for all batches.
    """
    numbers_BT = example_BT.long()
    changes_BT = torch.ones_like(numbers_BT, dtype=torch.bool)
    changes_BT[:, 1:] = numbers_BT[:, 1:] != numbers_BT[:, :-1]
    starts_N = changes_BT.flatten().nonzero().flatten()
    missing = max(0, (num_examples or 0) - len(starts_N))
    return torch.cat([starts_N, starts_N.new_full((missing + 1,), numbers_BT.numel())]).to(torch.int32)


def has_kernel(device: torch.device, bf16: bool) -> bool:
    """Return whether the flash kernel for sequences of any length runs here: in bf16 on Ampere or newer."""
    return device.type == "cuda" and bf16 and torch.cuda.get_device_capability(device) >= (8, 0)


def fits_kernel(head_width: int) -> bool:
    """Return whether the flash kernel takes heads of this width."""
    return head_width % 8 == 0 and head_width <= 256


def attend_within(
    qkv_BT3D: Tensor, num_heads: int, ends: CuSeqlens, dropout: float, rotation: Rotation | None = None
) -> Tensor:
    """Attention [B, T, D] of all heads by the flash kernel, without a matrix of what is blocked.

    ``torch.nn.attention.varlen`` has no dropout; the operation below it has.
    """
    B, T, width = qkv_BT3D.shape
    q, k, v = qkv_BT3D.view(B * T, 3, num_heads, -1).unbind(1)
    if rotation is not None:
        q, k = (rotate(x.unflatten(0, (B, T)), rotation).flatten(0, 1) for x in (q, k))
    side = {} if ends.window is None else dict.fromkeys(("window_size_left", "window_size_right"), ends.window // 2)
    mixed, *_ = torch.ops.aten._flash_attention_forward(
        q, k, v, ends.ends_N, ends.ends_N, T, T, dropout, False, False, **side
    )
    return mixed.view(B, T, width // 3)


class SelfAttention(nn.Module):
    """Multi-head self-attention; query, key and value come from one matrix product.

    ``attn_bias`` is added to the scores: [B, 1, 1, T] for padding, [B, 1, T, T] where the direction is one-sided or
    rows are packed, or None. Where a kernel knows packed rows it is their boundaries instead.
    """

    def __init__(self, config: EncoderConfig):
        super().__init__()
        self.num_heads = config.num_heads
        self.qkv = Linear(config.hidden_size, 3 * config.hidden_size, bias=config.has_bias)
        self.output = Linear(config.hidden_size, config.hidden_size, bias=config.has_bias)
        self.dropout = nn.Dropout(config.attention_dropout)

    def forward(
        self,
        hidden_BTD: Tensor,
        attn_bias: Tensor | CuSeqlens | None,
        num_queries: int,
        rotation: Rotation | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Attention output of the first tokens [B, num_queries, D], and the bias still to add (:class:`Linear`)."""
        B, T, D = hidden_BTD.shape
        dropout = self.dropout.p if self.training else 0.0
        qkv_BT3D, added = self.qkv(hidden_BTD)
        if fused.can_fuse(qkv_BT3D) and not isinstance(attn_bias, CuSeqlens) and num_queries == T:
            return self.output(fused.attention(qkv_BT3D, added, attn_bias, self.num_heads, dropout, rotation))
        qkv_BT3D = qkv_BT3D if added is None else qkv_BT3D + added.to(qkv_BT3D.dtype)
        if isinstance(attn_bias, CuSeqlens):
            mixed_BTD = attend_within(qkv_BT3D, self.num_heads, attn_bias, dropout, rotation)
            return self.output(mixed_BTD[:, :num_queries])
        q_BHTd, k_BHTd, v_BHTd = qkv_BT3D.view(B, T, 3, self.num_heads, -1).permute(2, 0, 3, 1, 4)
        if rotation is not None:
            q_BHTd, k_BHTd = (rotate(x.transpose(1, 2), rotation).transpose(1, 2) for x in (q_BHTd, k_BHTd))
        if num_queries < T:
            q_BHTd = q_BHTd[:, :, :num_queries]
            attn_bias = attn_bias if attn_bias is None or attn_bias.shape[2] == 1 else attn_bias[:, :, :num_queries]
        if hidden_BTD.is_cuda:
            if attn_bias is not None:
                attn_bias = attn_bias.to(q_BHTd.dtype)
            mixed_BHTd = F.scaled_dot_product_attention(q_BHTd, k_BHTd, v_BHTd, attn_bias, dropout_p=dropout)
        else:
            # On CPU the fused kernel's backward is slower than two plain matrix products at these lengths.
            scores_BHTT = q_BHTd @ k_BHTd.transpose(-1, -2) * (1 / math.sqrt(q_BHTd.shape[-1]))
            if attn_bias is not None:
                scores_BHTT = scores_BHTT + attn_bias.to(scores_BHTT.dtype)
            # the softmax: PyTorch's own gradient of it has other last bits on one thread than on several
            shares_BHTT = scores_BHTT.log_softmax(-1, torch.float32).exp().to(v_BHTd.dtype)
            mixed_BHTd = self.dropout(shares_BHTT) @ v_BHTd
        return self.output(mixed_BHTd.transpose(1, 2).reshape(B, num_queries, D))


class AddNorm(LayerNorm):
    """LayerNorm(residual + dropout(x)): how every part of a layer ends."""

    def __init__(self, config: EncoderConfig):
        super().__init__(config.hidden_size, eps=config.layer_norm_eps, bias=config.has_bias)
        self.dropout = config.dropout

    def forward(self, x_BTD: Tensor, added: Tensor | None, residual_BTD: Tensor) -> Tensor:  # type: ignore[override]
        dropout = self.dropout if self.training else 0.0
        if self.weight.dtype == torch.float32 and fused.can_fuse(x_BTD, residual_BTD):
            bias = torch.zeros_like(self.weight) if self.bias is None else self.bias
            return fused.add_norm(x_BTD, added, residual_BTD, self.weight, bias, self.eps, dropout)
        x_BTD = x_BTD if added is None else x_BTD + added
        return super().forward(residual_BTD + F.dropout(x_BTD, dropout))


def gelu(x: Tensor, added: Tensor | None = None) -> Tensor:
    """The exact (erf) GELU of x, or of x + added."""
    if fused.can_fuse(x):
        return fused.gelu(x, added)
    return F.gelu(x if added is None else x + added)


class Layer(nn.Module):
    """One transformer layer: attention and a feed-forward part with the exact (erf) GELU, LayerNorm after each."""

    def __init__(self, config: EncoderConfig):
        super().__init__()
        width, inner, norm = config.hidden_size, config.intermediate_size, StreamNorm if self.is_pre else AddNorm
        self.attention = SelfAttention(config)
        self.attention_norm = norm(config)
        self.activation = geglu if config.is_gated else gelu
        self.feed_forward_in = Linear(width, inner * (2 if config.is_gated else 1), bias=config.has_bias)
        self.feed_forward_out = Linear(inner, width, bias=config.has_bias)
        self.feed_forward_norm = norm(config)

    is_pre = False

    def forward(
        self,
        hidden_BTD: Tensor,
        attn_bias: Tensor | CuSeqlens | None,
        num_queries: int | None = None,
        rotation: Rotation | None = None,
    ) -> Tensor:
        """The next hidden states: of all tokens, or of the first ``num_queries``, which see all."""
        num_queries = hidden_BTD.shape[1] if num_queries is None else num_queries
        hidden_BTD = self.attention_norm(
            *self.attention(hidden_BTD, attn_bias, num_queries, rotation), hidden_BTD[:, :num_queries]
        )
        transformed_BTD, added = self.feed_forward_out(self.activation(*self.feed_forward_in(hidden_BTD)))
        return self.feed_forward_norm(transformed_BTD, added, hidden_BTD)


class PreNormLayer(Layer):
    """The same with LayerNorm before each part, of a stream that is never normalized itself.

    It takes and gives the stream and, beside it, its LayerNorm for the part to come: ``attention_norm`` stands before
    the feed-forward part, ``feed_forward_norm`` before the next layer's attention, or is the last norm of the encoder.
    The first layer takes the embeddings as they are, which have a LayerNorm of their own.
    """

    is_pre = True

    def forward(  # type: ignore[override]
        self,
        states: tuple[Tensor, Tensor],
        attn_bias: Tensor | CuSeqlens | None,
        num_queries: int | None = None,
        rotation: Rotation | None = None,
    ) -> tuple[Tensor, Tensor]:
        stream_BTD, normed_BTD = states
        num_queries = stream_BTD.shape[1] if num_queries is None else num_queries
        mixed_BTD, added = self.attention(normed_BTD, attn_bias, num_queries, rotation)
        stream_BTD, normed_BTD = self.attention_norm(mixed_BTD, added, stream_BTD[:, :num_queries])
        transformed_BTD, added = self.feed_forward_out(self.activation(*self.feed_forward_in(normed_BTD)))
        return self.feed_forward_norm(transformed_BTD, added, stream_BTD)


class Encoder(nn.Module):
    """Embeddings, a projection where their width differs from the layers', and the layers.

    Args:
        config: the shape.
        embeddings: another encoder's embeddings to share, LayerNorm included; its own where none are given.

    Attributes:
        recompute: activation checkpointing. A layer keeps its input alone and runs again in the backward pass, with
            the same dropout, so that losses and gradients are the same to the last bit.
    """

    recompute = False
    embedding_norm: LayerNorm
    embedding_dropout: nn.Dropout

    def __init__(self, config: EncoderConfig, embeddings: Embeddings | DisentangledEmbeddings | None = None):
        super().__init__()
        self.config = config
        self.embeddings = embeddings if embeddings is not None else Embeddings(config)
        self.projection = (
            nn.Linear(config.embedding_size, config.hidden_size, bias=config.has_bias)
            if config.embedding_size != config.hidden_size
            else nn.Identity()
        )
        if config.is_modern:
            self.embedding_norm = LayerNorm(config.hidden_size, eps=config.layer_norm_eps, bias=False)
            self.embedding_dropout = nn.Dropout(config.dropout)
        kind = PreNormLayer if config.norm == "pre" else Layer
        self.layers = nn.ModuleList(kind(config) for _ in range(config.num_layers))

    @property
    def plain_embeddings(self) -> Embeddings:
        """The embeddings, where they are tables and not differences to another encoder's."""
        assert isinstance(self.embeddings, Embeddings)
        return self.embeddings

    def compile_layers(self) -> None:
        """Run layers through torch.compile from now on, each by itself: one compilation serves all of them."""
        for layer in self.layers:
            layer.compile(dynamic=False)

    def forward(
        self,
        tokens_BT: Tensor,
        segments_BT: Tensor,
        mask_BT: Tensor | CuSeqlens | None = None,
        direction: Literal["both", "left", "right"] = "both",
        first_only: bool = False,
    ) -> Tensor:
        """Hidden states [B, T, D] of the last layer.

        Args:
            tokens_BT: token ids, int64.
            segments_BT: 0 for the first segment, 1 for the second, int64.
            mask_BT: True at real tokens, False at padding; None where nothing is padded. Where several examples share
                a row: int64, the same number at the tokens of an example, 0 at padding. Either with the ends of
                examples, on CUDA: attention is a flash kernel then.
            direction: a token attends to all tokens, or to itself and those on its left, or on its right.
            first_only: the first token's alone [B, 1, D]: the last layer computes nothing for the others.
        """
        ends, mask_BT = (mask_BT, mask_BT.mask_BT) if isinstance(mask_BT, CuSeqlens) else (None, mask_BT)
        packed_BT = mask_BT if mask_BT is not None and mask_BT.dtype != torch.bool else None
        positions_BT = None if packed_BT is None else positions(packed_BT)
        hidden_BTD = self.projection(self.embeddings(tokens_BT, segments_BT, positions_BT))
        if self.config.is_modern:
            hidden_BTD = self.embedding_dropout(self.embedding_norm(hidden_BTD))
        attn_bias: Tensor | CuSeqlens | None = ends
        head_width = self.config.hidden_size // self.config.num_heads
        if ends is None or direction != "both" or not tokens_BT.is_cuda or not fits_kernel(head_width):
            attn_bias = self._attn_bias(mask_BT, packed_BT, direction, tokens_BT)
        rotations, biases = self._rotations(tokens_BT, positions_BT), [attn_bias, self._local(attn_bias, tokens_BT)]
        stream_BTD = hidden_BTD.float()  # of pre-norm layers: what passes between them is a sum of all of them
        if hidden_BTD.device.type == "cpu" and torch.is_autocast_enabled("cpu"):
            # one type through all layers: what is added and normalized in between is computed in float32 all the same
            hidden_BTD = hidden_BTD.to(torch.get_autocast_dtype("cpu"))
        states: Any = (stream_BTD, hidden_BTD) if self.config.norm == "pre" else hidden_BTD
        for number, layer in enumerate(self.layers, 1):
            num_queries = 1 if first_only and number == len(self.layers) else None
            is_local = self.config.is_local(number - 1)
            inputs = (biases[is_local], num_queries, rotations[is_local])
            if self.recompute and torch.is_grad_enabled():
                # to the end of the layer: ZeRO-3 gives weights back in hooks that an early stop would pass over
                early_stop: dict[str, Any] = {} if torch.compiler.is_compiling() else {"early_stop": False}
                states = checkpoint(layer, states, *inputs, use_reentrant=False, **early_stop)
            else:
                states = layer(states, *inputs)
        return states[1] if self.config.norm == "pre" else states

    def _rotations(self, tokens_BT: Tensor, positions_BT: Tensor | None) -> list[Rotation | None]:
        """Rotations in a layer that sees all, and in a local one; None each where positions are learned."""
        if self.config.positions == "learned":
            return [None, None]
        if positions_BT is None:
            positions_BT = torch.arange(tokens_BT.shape[1], device=tokens_BT.device)[None]
        head_width = self.config.hidden_size // self.config.num_heads
        bases = (self.config.rotary_base, self.config.local_rotary_base)
        first, *others = dict.fromkeys(bases if self.config.local_attention else bases[:1])
        rotation = rotation_of(positions_BT, head_width, first)
        return [rotation, rotation_of(positions_BT, head_width, others[0]) if others else rotation]

    def _local(self, attn_bias: Tensor | CuSeqlens | None, tokens_BT: Tensor) -> Tensor | CuSeqlens | None:
        """What a local layer is told instead of ``attn_bias``."""
        window = self.config.local_attention
        if window is None:
            return attn_bias
        if isinstance(attn_bias, CuSeqlens):
            return replace(attn_bias, window=window)
        window_11TT = window_bias(tokens_BT.shape[1], window, tokens_BT.device)
        return window_11TT if attn_bias is None else attn_bias + window_11TT

    def _attn_bias(
        self, mask_BT: Tensor | None, packed_BT: Tensor | None, direction: str, tokens_BT: Tensor
    ) -> Tensor | None:
        """Additive attention bias for padding, packed rows and a one-sided direction."""
        attn_bias = None
        if packed_BT is not None:
            attn_bias = block_bias(packed_BT)
        elif mask_BT is not None:
            attn_bias = padding_bias(mask_BT)
        if direction != "both":
            length = tokens_BT.shape[1]
            blocked_TT = torch.full((length, length), BLOCKED, device=tokens_BT.device)
            blocked_TT = blocked_TT.triu(1) if direction == "left" else blocked_TT.tril(-1)
            attn_bias = blocked_TT if attn_bias is None else attn_bias + blocked_TT
        return attn_bias


def padding_bias(mask_BT: Tensor) -> Tensor:
    """Additive attention bias [B, 1, 1, T]: :data:`BLOCKED` at padding."""
    return torch.zeros(mask_BT.shape, device=mask_BT.device).masked_fill_(~mask_BT, BLOCKED)[:, None, None]


@torch.no_grad()
def initialize(module: nn.Module, std: float, generator: torch.Generator | None = None) -> None:
    """The original's start: truncated normal (cut at two deviations) for tables and kernels, zero biases.

    Layers that the original leaves to TensorFlow's default (the embedding projection, here; heads name their own)
    start glorot-uniform. Differences between two tables start at zero.
    """
    for name, child in module.named_modules():
        if isinstance(child, nn.Embedding | nn.Linear):
            last = name.split(".")[-1]
            if last == "projection":
                nn.init.xavier_uniform_(child.weight, generator=generator)
            elif last.endswith("_difference"):
                nn.init.zeros_(child.weight)
            else:
                nn.init.trunc_normal_(child.weight, std=std, a=-2 * std, b=2 * std, generator=generator)
            if isinstance(child, nn.Linear) and child.bias is not None:
                nn.init.zeros_(child.bias)
        elif isinstance(child, nn.LayerNorm):
            nn.init.ones_(child.weight)
            if child.bias is not None:
                nn.init.zeros_(child.bias)
