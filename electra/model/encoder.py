"""The transformer encoder of generator and discriminator, with BERT's blocks or newer ones.

Plain PyTorch. On CPUs :func:`electra.model.kernels.apply.use_cpu_kernels` replaces the forward passes of these modules.

Shape legend: B examples or rows, T tokens, E embedding width, D hidden width, H heads, d width of a head, F
feed-forward width, V vocabulary, N examples and stretches of padding in all rows.
"""

from dataclasses import replace
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from electra.model.attention import (
    BLOCKED,
    CuSeqlens,
    Rotation,
    SelfAttention,
    block_bias,
    fits_kernel,
    padding_bias,
    positions,
    rotation_of,
    window_bias,
)
from electra.model.layers import DisentangledEmbeddings, Embeddings, Geglu, Gelu, LayerNorm, glorot, truncated_normal
from electra.model.shape import EncoderConfig


class Layer(nn.Module):
    """One transformer layer: attention and a feed-forward part, each added to its input, with LayerNorm after each."""

    def __init__(self, config: EncoderConfig):
        super().__init__()
        width, inner = config.hidden_size, config.intermediate_size
        self.attention = SelfAttention(config)
        self.attention_norm = LayerNorm(width, eps=config.layer_norm_eps, bias=config.has_bias)
        self.feed_forward_in = nn.Linear(width, inner * (2 if config.is_gated else 1), bias=config.has_bias)
        self.activation = Geglu() if config.is_gated else Gelu()
        self.feed_forward_out = nn.Linear(inner, width, bias=config.has_bias)
        self.feed_forward_norm = LayerNorm(width, eps=config.layer_norm_eps, bias=config.has_bias)
        self.dropout = nn.Dropout(config.dropout)

    def feed_forward(self, x_BTD: Tensor) -> Tensor:
        return self.feed_forward_out(self.activation(self.feed_forward_in(x_BTD)))

    def forward(
        self,
        x_BTD: Tensor,
        attn_bias: Tensor | CuSeqlens | None,
        rotation: Rotation | None = None,
        num_queries: int | None = None,
    ) -> Tensor:
        """The next hidden states: of all tokens, or of the first ``num_queries``, which see all."""
        attended_BTD = self.attention(x_BTD, attn_bias, rotation, num_queries)
        x_BTD = self.attention_norm(x_BTD[:, :num_queries] + self.dropout(attended_BTD))
        return self.feed_forward_norm(x_BTD + self.dropout(self.feed_forward(x_BTD)))

    def init_weights(self, std: float, generator: torch.Generator | None = None) -> None:
        for linear in (self.attention.qkv, self.attention.output, self.feed_forward_in, self.feed_forward_out):
            truncated_normal(linear, std, generator)


class PreNormLayer(Layer):
    """The same with LayerNorm before each part: x + attention(norm(x)), then x + feed_forward(norm(x)).

    x is never normalized itself and stays in float32 under bf16. A layer takes x and norm(x), and returns both for the
    next one: ``attention_norm`` precedes the feed-forward part, ``feed_forward_norm`` the next layer's attention, or is
    the last norm of the encoder. The first layer takes the embeddings as they are, which have a LayerNorm of their own.
    """

    def forward(  # type: ignore[override]
        self,
        states: tuple[Tensor, Tensor],
        attn_bias: Tensor | CuSeqlens | None,
        rotation: Rotation | None = None,
        num_queries: int | None = None,
    ) -> tuple[Tensor, Tensor]:
        x_BTD, normed_BTD = states
        attended_BTD = self.attention(normed_BTD, attn_bias, rotation, num_queries)
        x_BTD = x_BTD[:, :num_queries] + self.dropout(attended_BTD)
        x_BTD = x_BTD + self.dropout(self.feed_forward(self.attention_norm(x_BTD)))
        return x_BTD, self.feed_forward_norm(x_BTD)


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
        self.is_sharing = isinstance(embeddings, Embeddings)
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

    @torch.no_grad()
    def init_weights(self, std: float, generator: torch.Generator | None = None) -> None:
        """The original's: truncated normal for tables and layers, the projection glorot-uniform, biases zero.

        Embeddings that are shared with another encoder are drawn there.
        """
        if not self.is_sharing:
            self.embeddings.init_weights(std, generator)
        if isinstance(self.projection, nn.Linear):
            glorot(self.projection, generator)  # TensorFlow's default, which the original leaves in place
        for layer in self.layers:
            cast(Layer, layer).init_weights(std, generator)

    def compile_layers(self) -> None:
        """Run layers through torch.compile from now on, each by itself: one compilation serves all of them."""
        for layer in self.layers:
            layer.compile(dynamic=False)

    def forward(
        self,
        input_ids_BT: Tensor,
        segments_BT: Tensor,
        mask_BT: Tensor | CuSeqlens | None = None,
        direction: Literal["both", "left", "right"] = "both",
        first_only: bool = False,
    ) -> Tensor:
        """Hidden states [B, T, D] of the last layer.

        Args:
            input_ids_BT: token ids, int64.
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

        states = self._embed(input_ids_BT, segments_BT, positions_BT)
        attn_bias: Tensor | CuSeqlens | None = ends
        head_width = self.config.hidden_size // self.config.num_heads
        if ends is None or direction != "both" or not input_ids_BT.is_cuda or not fits_kernel(head_width):
            attn_bias = self._attn_bias(mask_BT, packed_BT, direction, input_ids_BT)
        # of layers that attend to all tokens, and of local ones
        biases = [attn_bias, self._local_bias(attn_bias, input_ids_BT)]
        rotations = self._rotations(input_ids_BT, positions_BT)
        for number, layer in enumerate(self.layers):
            is_local, is_last = self.config.is_local(number), number == len(self.layers) - 1
            num_queries = 1 if first_only and is_last else None
            states = self._run(layer, states, biases[is_local], rotations[is_local], num_queries)
        return states[1] if self.config.norm == "pre" else states

    def _embed(self, input_ids_BT: Tensor, segments_BT: Tensor, positions_BT: Tensor | None) -> Any:
        """The input of the first layer."""
        hidden_BTD = self.projection(self.embeddings(input_ids_BT, segments_BT, positions_BT))
        if self.config.is_modern:
            hidden_BTD = self.embedding_dropout(self.embedding_norm(hidden_BTD))
        stream_BTD = hidden_BTD.float()
        if hidden_BTD.device.type == "cpu" and torch.is_autocast_enabled("cpu"):
            # one type through all layers: what is added and normalized in between is computed in float32 all the same
            hidden_BTD = hidden_BTD.to(torch.get_autocast_dtype("cpu"))
        return (stream_BTD, hidden_BTD) if self.config.norm == "pre" else hidden_BTD

    def _run(self, layer: nn.Module, states: Any, *inputs: Any) -> Any:
        """Run a layer, with activation checkpointing where it is on."""
        if not (self.recompute and torch.is_grad_enabled()):
            return layer(states, *inputs)
        # to the end of the layer: ZeRO-3 gives weights back in hooks that an early stop would pass over
        early_stop: dict[str, Any] = {} if torch.compiler.is_compiling() else {"early_stop": False}
        return checkpoint(layer, states, *inputs, use_reentrant=False, **early_stop)

    def _rotations(self, input_ids_BT: Tensor, positions_BT: Tensor | None) -> list[Rotation | None]:
        """Rotations in a layer that attends to all tokens, and in a local one; None where positions are learned."""
        if self.config.positions == "learned":
            return [None, None]
        if positions_BT is None:
            positions_BT = torch.arange(input_ids_BT.shape[1], device=input_ids_BT.device)[None]
        head_width = self.config.hidden_size // self.config.num_heads
        bases = (self.config.rotary_base, self.config.local_rotary_base)
        first, *others = dict.fromkeys(bases if self.config.local_attention else bases[:1])
        rotation = rotation_of(positions_BT, head_width, first)
        return [rotation, rotation_of(positions_BT, head_width, others[0]) if others else rotation]

    def _local_bias(self, attn_bias: Tensor | CuSeqlens | None, input_ids_BT: Tensor) -> Tensor | CuSeqlens | None:
        """``attn_bias`` of a local layer."""
        window = self.config.local_attention
        if window is None:
            return attn_bias
        if isinstance(attn_bias, CuSeqlens):
            return replace(attn_bias, window=window)
        window_11TT = window_bias(input_ids_BT.shape[1], window, input_ids_BT.device)
        return window_11TT if attn_bias is None else attn_bias + window_11TT

    def _attn_bias(
        self, mask_BT: Tensor | None, packed_BT: Tensor | None, direction: str, input_ids_BT: Tensor
    ) -> Tensor | None:
        """Additive attention bias for padding, packed rows and a one-sided direction."""
        attn_bias = None
        if packed_BT is not None:
            attn_bias = block_bias(packed_BT)
        elif mask_BT is not None:
            attn_bias = padding_bias(mask_BT)
        if direction != "both":
            length = input_ids_BT.shape[1]
            blocked_TT = torch.full((length, length), BLOCKED, device=input_ids_BT.device)
            blocked_TT = blocked_TT.triu(1) if direction == "left" else blocked_TT.tril(-1)
            attn_bias = blocked_TT if attn_bias is None else attn_bias + blocked_TT
        return attn_bias
