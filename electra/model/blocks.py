"""Parts of a layer beside the paper's: rotary positions, local attention, LayerNorm before a part, gated feed-forward.

Shape legend: as in encoder.py.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from electra.model.embeddings import LayerNorm
from electra.model.kernels import functions as fused
from electra.model.kernels import modern as fused_modern
from electra.model.shape import EncoderConfig

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
