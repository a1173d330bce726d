"""The embeddings below the layers: word, position and segment tables with their LayerNorm.

Shape legend: B examples, T tokens, E embedding width.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from electra.model.kernels import functions as fused
from electra.model.shape import EncoderConfig


class LayerNorm(nn.LayerNorm):
    """LayerNorm of x, or of x + residual; on CPUs its gradients are the same bits on any number of threads."""

    def forward(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        if self.weight.dtype == torch.float32 and fused.can_fuse(x, x if residual is None else residual):
            residual = torch.zeros_like(x) if residual is None else residual.expand_as(x)
            return fused.add_norm(x, None, residual, self.weight, self.bias, self.eps, 0.0)
        x = x if residual is None else x + residual
        if x.device.type == "cpu":  # PyTorch's own gradients of weight and bias are sums per thread
            normalized = F.layer_norm(x.float(), self.normalized_shape, eps=self.eps)
            return (normalized * self.weight + self.bias).to(x.dtype)
        return super().forward(x)


class Embeddings(nn.Module):
    """Word + position + segment embeddings, LayerNorm, dropout. One instance serves generator and discriminator."""

    def __init__(self, config: EncoderConfig):
        super().__init__()
        self.word = nn.Embedding(config.vocab_size, config.embedding_size)
        self.position = nn.Embedding(config.max_positions, config.embedding_size)
        self.segment = nn.Embedding(config.num_segments, config.embedding_size)
        self.norm = LayerNorm(config.embedding_size, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, tokens_BT: Tensor, segments_BT: Tensor, positions_BT: Tensor | None = None) -> Tensor:
        positions = torch.arange(tokens_BT.shape[1], device=tokens_BT.device) if positions_BT is None else positions_BT
        return self.dropout(self.norm(self.word(tokens_BT) + self.position(positions), self.segment(segments_BT)))


class DisentangledEmbeddings(nn.Module):
    """The generator's tables, which only the generator's loss trains, plus differences, which only ours does.

    Gradient-disentangled sharing of DeBERTa-v3 (He et al., ICLR 2023, section 3.2): table = stop_grad(generator's) +
    difference, for words, positions and segments. The differences start at zero; the LayerNorm is our own.

    Args:
        source: the generator's embeddings.
    """

    def __init__(self, config: EncoderConfig, source: Embeddings):
        super().__init__()
        self.source = source
        self.word_difference = nn.Embedding(config.vocab_size, config.embedding_size)
        self.position_difference = nn.Embedding(config.max_positions, config.embedding_size)
        self.segment_difference = nn.Embedding(config.num_segments, config.embedding_size)
        self.norm = LayerNorm(config.embedding_size, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, tokens_BT: Tensor, segments_BT: Tensor, positions_BT: Tensor | None = None) -> Tensor:
        positions = torch.arange(tokens_BT.shape[1], device=tokens_BT.device) if positions_BT is None else positions_BT
        # through the generator's modules, so that ZeRO-3 has gathered the tables
        theirs_BTE = self.source.word(tokens_BT) + self.source.position(positions) + self.source.segment(segments_BT)
        ours_BTE = (
            self.word_difference(tokens_BT) + self.position_difference(positions) + self.segment_difference(segments_BT)
        )
        return self.dropout(self.norm(theirs_BTE.detach(), ours_BTE))

    @torch.no_grad()
    def merged(self, config: EncoderConfig) -> Embeddings:
        """Plain embeddings that compute the same: what is published."""
        plain = Embeddings(config)
        for name in ("word", "position", "segment"):
            difference = getattr(self, f"{name}_difference").weight
            getattr(plain, name).weight.copy_(getattr(self.source, name).weight + difference)
        plain.norm.load_state_dict(self.norm.state_dict())
        return plain


def merge_differences(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Weights of an encoder by name, with gradient-disentangled embeddings as the plain ones that compute the same."""
    merged = {name: tensor for name, tensor in weights.items() if "_difference." not in name and ".source." not in name}
    for table in ("word", "position", "segment"):
        if (difference := weights.get(f"embeddings.{table}_difference.weight")) is not None:
            merged[f"embeddings.{table}.weight"] = weights[f"embeddings.source.{table}.weight"] + difference
    return merged
