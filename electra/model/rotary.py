"""Rotary positions: queries and keys turned by angles that grow with the position (Su et al., 2021).

Shape legend: B examples (or 1), T tokens, D hidden width, H heads, d width of a head.
"""

import torch
from torch import Tensor

Rotation = tuple[Tensor, Tensor]  # cosines and sines [B, T, 1, 1, d / 2], float32


def rotation_of(positions_BT: Tensor, head_width: int, base: float = 10_000.0) -> Rotation:
    """The angles of all positions; the first of d / 2 frequencies is 1, the others fall towards 1 / base."""
    exponents = torch.arange(0, head_width, 2, device=positions_BT.device) / head_width
    angles = positions_BT[:, :, None, None, None].float() * base**-exponents
    return angles.cos(), angles.sin()


def rotate(qkv_BT3D: Tensor, rotation: Rotation, num_heads: int) -> Tensor:
    """Queries and keys turned, values as they are; the pairs are the two halves of a head."""
    cos, sin = rotation
    B, T, width = qkv_BT3D.shape
    qkv = qkv_BT3D.view(B, T, 3, num_heads, -1)
    first, second = qkv[:, :, :2].chunk(2, -1)
    turned = torch.cat([first * cos - second * sin, second * cos + first * sin], -1).to(qkv.dtype)
    return torch.cat([turned, qkv[:, :, 2:]], 2).view(B, T, width)
