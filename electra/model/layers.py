"""Building blocks of an encoder: embeddings, norms, rotary positions, local attention, gated feed-forward.

Shape legend: B examples, T tokens, E embedding width.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from electra.model.kernels import functions as fused
from electra.model.kernels import modern as fused_modern
from electra.model.shape import EncoderConfig


class LayerNorm(nn.LayerNorm):
    """LayerNorm of x, or of x + residual; on CPUs its gradients are the same bits on any number of threads."""

    def forward(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        if self.weight.dtype == torch.float32 and fused.can_fuse(x, x if residual is None else residual):
            residual = torch.zeros_like(x) if residual is None else residual.expand_as(x)
            bias = torch.zeros_like(self.weight) if self.bias is None else self.bias
            return fused.add_norm(x, None, residual, self.weight, bias, self.eps, 0.0)
        x = x if residual is None else x + residual
        if x.device.type == "cpu":  # PyTorch's own gradients of weight and bias are sums per thread
            normalized = F.layer_norm(x.float(), self.normalized_shape, eps=self.eps)
            scaled = normalized * self.weight
            return (scaled if self.bias is None else scaled + self.bias).to(x.dtype)
        return super().forward(x)


def tables_of(config: EncoderConfig) -> dict[str, int]:
    """The tables that are added up, and their rows: words, learned positions, and segments where there are any."""
    tables = {"word": config.vocab_size}
    if config.positions == "learned":
        tables["position"] = config.max_positions
    if not config.is_modern:
        tables["segment"] = config.num_segments
    return tables


class Embeddings(nn.Module):
    """Word + position + segment embeddings, LayerNorm, dropout. One instance serves generator and discriminator.

    ``modern`` has no segments, and LayerNorm and dropout above the projection (:class:`electra.model.encoder.Encoder`).
    """

    word: nn.Embedding
    position: nn.Embedding
    segment: nn.Embedding

    def __init__(self, config: EncoderConfig):
        super().__init__()
        self.is_modern, self.has_positions = config.is_modern, config.positions == "learned"
        for name, rows in tables_of(config).items():
            self.add_module(name, nn.Embedding(rows, config.embedding_size))
        if not config.is_modern:
            self.norm = LayerNorm(config.embedding_size, eps=config.layer_norm_eps)
            self.dropout = nn.Dropout(config.dropout)

    def forward(self, tokens_BT: Tensor, segments_BT: Tensor, positions_BT: Tensor | None = None) -> Tensor:
        embedded_BTE = self.word(tokens_BT)
        if self.has_positions:
            embedded_BTE = embedded_BTE + self.position(_positions(tokens_BT, positions_BT))
        if self.is_modern:
            return embedded_BTE
        return self.dropout(self.norm(embedded_BTE, self.segment(segments_BT)))


def _positions(tokens_BT: Tensor, positions_BT: Tensor | None) -> Tensor:
    return torch.arange(tokens_BT.shape[1], device=tokens_BT.device) if positions_BT is None else positions_BT


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
        self.is_modern, self.tables = config.is_modern, list(tables_of(config))
        for name, rows in tables_of(config).items():
            self.add_module(f"{name}_difference", nn.Embedding(rows, config.embedding_size))
        if not config.is_modern:
            self.norm = LayerNorm(config.embedding_size, eps=config.layer_norm_eps)
            self.dropout = nn.Dropout(config.dropout)

    def forward(self, tokens_BT: Tensor, segments_BT: Tensor, positions_BT: Tensor | None = None) -> Tensor:
        rows = {"word": tokens_BT, "position": _positions(tokens_BT, positions_BT), "segment": segments_BT}
        # through the generator's modules, so that ZeRO-3 has gathered the tables
        theirs_BTE = _sum([getattr(self.source, name)(rows[name]) for name in self.tables])
        ours_BTE = _sum([getattr(self, f"{name}_difference")(rows[name]) for name in self.tables])
        if self.is_modern:
            return theirs_BTE.detach() + ours_BTE
        return self.dropout(self.norm(theirs_BTE.detach(), ours_BTE))

    @torch.no_grad()
    def merged(self, config: EncoderConfig) -> Embeddings:
        """Plain embeddings that compute the same: what is published."""
        plain = Embeddings(config)
        for name in self.tables:
            difference = getattr(self, f"{name}_difference").weight
            getattr(plain, name).weight.copy_(getattr(self.source, name).weight + difference)
        if not self.is_modern:
            plain.norm.load_state_dict(self.norm.state_dict())
        return plain


def _sum(tables: list[Tensor]) -> Tensor:
    total = tables[0]
    for table in tables[1:]:
        total = total + table
    return total


def merge_differences(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Weights of an encoder by name, with gradient-disentangled embeddings as the plain ones that compute the same."""
    merged = {name: tensor for name, tensor in weights.items() if "_difference." not in name and ".source." not in name}
    for table in ("word", "position", "segment"):
        if (difference := weights.get(f"embeddings.{table}_difference.weight")) is not None:
            merged[f"embeddings.{table}.weight"] = weights[f"embeddings.source.{table}.weight"] + difference
    return merged


BLOCKED = -1e9  # added to a score that must not count


class Rotation(NamedTuple):
    """Angles that queries and keys are rotated by, one for each pair of their elements i and i + d/2; float32.

    The first dimension is 1 where all rows have the same positions, B where rows are packed.
    """

    cosines_BTh: Tensor
    sines_BTh: Tensor


def rotation_of(positions_BT: Tensor, head_width: int, base: float) -> Rotation:
    """Rotary positions (Su et al. 2021): the angle of pair i is position * base^(-2i/d)."""
    exponents = torch.arange(0, head_width, 2, dtype=torch.float32, device=positions_BT.device) / head_width
    angles_BTh = positions_BT[..., None].float() * (1.0 / base**exponents)
    return Rotation(angles_BTh.cos(), angles_BTh.sin())


def rotate(x_BTHd: Tensor, rotation: Rotation) -> Tensor:
    """Queries or keys rotated, in float32; the type of x stays."""
    cosines, sines = (angles[:, :, None] for angles in rotation)
    first, second = x_BTHd.float().chunk(2, -1)
    return torch.cat([first * cosines - second * sines, second * cosines + first * sines], -1).to(x_BTHd.dtype)


def window_bias(length: int, window: int, device: torch.device) -> Tensor:
    """Additive attention bias [1, 1, T, T]: a token sees window / 2 tokens on each side of it, inclusive."""
    places_T = torch.arange(length, device=device)
    is_far_TT = (places_T[:, None] - places_T).abs() > window // 2
    return torch.zeros(length, length, device=device).masked_fill_(is_far_TT, BLOCKED)[None, None]


def geglu(x_BT2F: Tensor, added: Tensor | None = None) -> Tensor:
    """GELU of the first half of x (or of x + added) times the second half [B, T, F]."""
    if fused.can_fuse(x_BT2F):
        return fused_modern.geglu(x_BT2F, added)
    gate, values = (x_BT2F if added is None else x_BT2F + added).chunk(2, -1)
    return F.gelu(gate) * values


class StreamNorm(LayerNorm):
    """stream + dropout(x), which is the next stream, and its LayerNorm: how every part of a pre-norm layer ends.

    The stream is never normalized itself, and stays in float32 under bf16.
    """

    def __init__(self, config: EncoderConfig):
        super().__init__(config.hidden_size, eps=config.layer_norm_eps, bias=config.has_bias)
        self.dropout = config.dropout

    def forward(  # type: ignore[override]
        self, x_BTD: Tensor, added: Tensor | None, stream_BTD: Tensor
    ) -> tuple[Tensor, Tensor]:
        dropout = self.dropout if self.training else 0.0
        if self.weight.dtype == stream_BTD.dtype == torch.float32 and fused.can_fuse(x_BTD):
            return fused_modern.residual_norm(x_BTD, added, stream_BTD, self.weight, self.bias, self.eps, dropout)
        x_BTD = x_BTD if added is None else x_BTD + added
        stream_BTD = stream_BTD + F.dropout(x_BTD, dropout)
        return stream_BTD, super().forward(stream_BTD)
