"""The transformer encoder that generator and discriminator both are (BERT's, post-norm).

Shape legend: B examples, T tokens, E embedding width, D hidden width, H heads, F feed-forward width, V vocabulary.
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from electra import config


@dataclass(frozen=True)
class EncoderConfig:
    """Shape of one encoder."""

    vocab_size: int
    embedding_size: int
    hidden_size: int
    num_layers: int
    num_heads: int
    intermediate_size: int
    max_positions: int = 512
    num_segments: int = 2
    dropout: float = 0.1
    attention_dropout: float = 0.1
    layer_norm_eps: float = 1e-12

    @classmethod
    def discriminator(cls, model: config.Model, vocab_size: int) -> "EncoderConfig":
        return cls(
            vocab_size=vocab_size,
            embedding_size=model.embedding_size,
            hidden_size=model.hidden_size,
            num_layers=model.num_layers,
            num_heads=model.num_heads,
            intermediate_size=model.intermediate_size,
            max_positions=model.max_positions,
            dropout=model.dropout,
            attention_dropout=model.attention_dropout,
            layer_norm_eps=model.layer_norm_eps,
        )

    @classmethod
    def generator(cls, model: config.Model, vocab_size: int) -> "EncoderConfig":
        """The discriminator's shape scaled as in the paper: narrower, 64-wide heads, feed-forward four times as wide.

        Where the discriminator's own heads are narrower than 64, the generator keeps their width.
        """
        hidden = round(model.hidden_size * model.generator_width)
        head_width = min(64, model.hidden_size // model.num_heads)
        return cls(
            vocab_size=vocab_size,
            embedding_size=model.embedding_size,
            hidden_size=hidden,
            num_layers=max(1, round(model.num_layers * model.generator_depth)),
            num_heads=max(1, hidden // head_width),
            intermediate_size=4 * hidden,
            max_positions=model.max_positions,
            dropout=model.dropout,
            attention_dropout=model.attention_dropout,
            layer_norm_eps=model.layer_norm_eps,
        )


class Embeddings(nn.Module):
    """Word + position + segment embeddings, LayerNorm, dropout. One instance serves generator and discriminator."""

    def __init__(self, config: EncoderConfig):
        super().__init__()
        self.word = nn.Embedding(config.vocab_size, config.embedding_size)
        self.position = nn.Embedding(config.max_positions, config.embedding_size)
        self.segment = nn.Embedding(config.num_segments, config.embedding_size)
        self.norm = nn.LayerNorm(config.embedding_size, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, tokens_BT: Tensor, segments_BT: Tensor) -> Tensor:
        positions_TE = self.position(torch.arange(tokens_BT.shape[1], device=tokens_BT.device))
        return self.dropout(self.norm(self.word(tokens_BT) + positions_TE + self.segment(segments_BT)))


class SelfAttention(nn.Module):
    """Multi-head self-attention; query, key and value come from one matrix product."""

    def __init__(self, config: EncoderConfig):
        super().__init__()
        self.num_heads = config.num_heads
        self.qkv = nn.Linear(config.hidden_size, 3 * config.hidden_size)
        self.output = nn.Linear(config.hidden_size, config.hidden_size)
        self.dropout = nn.Dropout(config.attention_dropout)

    def forward(self, hidden_BTD: Tensor, bias_B11T: Tensor | None) -> Tensor:
        B, T, D = hidden_BTD.shape
        q_BHTd, k_BHTd, v_BHTd = self.qkv(hidden_BTD).view(B, T, 3, self.num_heads, -1).permute(2, 0, 3, 1, 4)
        if hidden_BTD.is_cuda:
            if bias_B11T is not None:
                bias_B11T = bias_B11T.to(q_BHTd.dtype)
            dropout = self.dropout.p if self.training else 0.0
            mixed_BHTd = F.scaled_dot_product_attention(q_BHTd, k_BHTd, v_BHTd, bias_B11T, dropout_p=dropout)
        else:
            # On CPU the fused kernel's backward is slower than two plain matrix products at these lengths.
            scores_BHTT = q_BHTd @ k_BHTd.transpose(-1, -2) * (1 / math.sqrt(q_BHTd.shape[-1]))
            if bias_B11T is not None:
                scores_BHTT = scores_BHTT + bias_B11T.to(scores_BHTT.dtype)
            mixed_BHTd = self.dropout(scores_BHTT.softmax(-1)) @ v_BHTd
        return self.output(mixed_BHTd.transpose(1, 2).reshape(B, T, D))


class Layer(nn.Module):
    """One post-norm transformer layer with the exact (erf) GELU."""

    def __init__(self, config: EncoderConfig):
        super().__init__()
        self.attention = SelfAttention(config)
        self.attention_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.feed_forward_in = nn.Linear(config.hidden_size, config.intermediate_size)
        self.feed_forward_out = nn.Linear(config.intermediate_size, config.hidden_size)
        self.feed_forward_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, hidden_BTD: Tensor, bias_B11T: Tensor | None) -> Tensor:
        attended_BTD = self.dropout(self.attention(hidden_BTD, bias_B11T))
        hidden_BTD = self.attention_norm(hidden_BTD + attended_BTD)
        transformed_BTD = self.feed_forward_out(F.gelu(self.feed_forward_in(hidden_BTD)))
        return self.feed_forward_norm(hidden_BTD + self.dropout(transformed_BTD))


class Encoder(nn.Module):
    """Embeddings, a projection where their width differs from the layers', and the layers.

    Args:
        config: the shape.
        embeddings: another encoder's embeddings to share, LayerNorm included; its own where none are given.
    """

    def __init__(self, config: EncoderConfig, embeddings: Embeddings | None = None):
        super().__init__()
        self.config = config
        self.embeddings = embeddings if embeddings is not None else Embeddings(config)
        self.projection = (
            nn.Linear(config.embedding_size, config.hidden_size)
            if config.embedding_size != config.hidden_size
            else nn.Identity()
        )
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.num_layers))

    def forward(self, tokens_BT: Tensor, segments_BT: Tensor, mask_BT: Tensor | None = None) -> Tensor:
        """Hidden states [B, T, D] of the last layer.

        Args:
            tokens_BT: token ids, int64.
            segments_BT: 0 for the first segment, 1 for the second, int64.
            mask_BT: True at real tokens, False at padding; None where nothing is padded.
        """
        bias_B11T = None
        if mask_BT is not None:
            bias_B11T = torch.zeros(mask_BT.shape, device=mask_BT.device).masked_fill_(~mask_BT, -1e9)[:, None, None]
        hidden_BTD = self.projection(self.embeddings(tokens_BT, segments_BT))
        for layer in self.layers:
            hidden_BTD = layer(hidden_BTD, bias_B11T)
        return hidden_BTD


@torch.no_grad()
def initialize(module: nn.Module, std: float, generator: torch.Generator | None = None) -> None:
    """The original's start: truncated normal (cut at two deviations) for tables and kernels, zero biases.

    Layers that the original leaves to TensorFlow's default (the embedding projection, here; heads name their own)
    start glorot-uniform.
    """
    for name, child in module.named_modules():
        if isinstance(child, nn.Embedding | nn.Linear):
            if name.split(".")[-1] == "projection":
                nn.init.xavier_uniform_(child.weight, generator=generator)
            else:
                nn.init.trunc_normal_(child.weight, std=std, a=-2 * std, b=2 * std, generator=generator)
            if isinstance(child, nn.Linear):
                nn.init.zeros_(child.bias)
        elif isinstance(child, nn.LayerNorm):
            nn.init.ones_(child.weight)
            nn.init.zeros_(child.bias)
