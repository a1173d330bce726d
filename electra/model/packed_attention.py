"""Attention within the examples that share a row.

Shape legend: B rows, T tokens, N examples and stretches of padding in all rows, H heads, d width of a head.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

BLOCKED = -1e9  # added to a score that must not count


@dataclass
class Boundaries:
    """Where examples end in the flattened rows, for kernels that take sequences of any length."""

    ends_N: Tensor  # int32, cumulative and beginning with 0
    longest: int


def block_bias(example_BT: Tensor) -> Tensor:
    """What is added to the scores [B, 1, T, T]: nothing within an example, :data:`BLOCKED` between two."""
    other_BTT = example_BT[:, :, None] != example_BT[:, None, :]
    return torch.zeros(other_BTT.shape, device=example_BT.device).masked_fill_(other_BTT, BLOCKED)[:, None]


def positions(example_BT: Tensor) -> Tensor:
    """Position of each token in its example [B, T]."""
    places_BT = torch.arange(example_BT.shape[1], device=example_BT.device).expand_as(example_BT)
    is_first_BT = torch.ones_like(example_BT, dtype=torch.bool)
    is_first_BT[:, 1:] = example_BT[:, 1:] != example_BT[:, :-1]
    return places_BT - places_BT.where(is_first_BT, 0).cummax(1).values


def boundaries(example_BT: Tensor) -> Boundaries:
    """Found on the device; waits for it once."""
    first_BT = positions(example_BT) == 0
    starts_N = first_BT.flatten().nonzero().flatten().to(torch.int32)
    end = torch.full((1,), example_BT.numel(), dtype=torch.int32, device=example_BT.device)
    return Boundaries(torch.cat([starts_N, end]), example_BT.shape[1])


def has_kernel(device: torch.device, dropout: float) -> bool:
    """Whether ``varlen_attn`` (flash attention over sequences of any length; it knows no dropout) can be used."""
    return (
        device.type == "cuda"
        and dropout == 0
        and torch.is_autocast_enabled("cuda")
        and torch.cuda.get_device_capability(device) >= (8, 0)
    )


def attend_within(q_BHTd: Tensor, k_BHTd: Tensor, v_BHTd: Tensor, ends: Boundaries) -> Tensor:
    """Attention [B, H, T, d] by the kernel, without a matrix of what is blocked."""
    from torch.nn.attention.varlen import varlen_attn

    B, H, T, d = q_BHTd.shape
    q, k, v = (x.transpose(1, 2).reshape(B * T, H, d) for x in (q_BHTd, k_BHTd, v_BHTd))
    mixed = varlen_attn(q, k, v, ends.ends_N, ends.ends_N, ends.longest, ends.longest)
    assert isinstance(mixed, Tensor)
    return mixed.view(B, T, H, d).transpose(1, 2)
