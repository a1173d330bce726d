"""Attention within the examples of a row: several that share it, or one and its padding.

Shape legend: B rows, T tokens, N examples and stretches of padding in all rows, H heads, d width of a head.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

BLOCKED = -1e9  # added to a score that must not count


@dataclass
class CuSeqlens:
    """Where examples end in the flattened rows, for the flash kernel, which takes sequences of any length."""

    ends_N: Tensor  # int32, cumulative and beginning with 0; the same number may come several times
    mask_BT: Tensor  # what encoders are told without the kernel: real tokens, or the example of each token


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


def attend_within(qkv_BT3D: Tensor, num_heads: int, ends: CuSeqlens, dropout: float) -> Tensor:
    """Attention [B, T, D] of all heads by the flash kernel, without a matrix of what is blocked.

    ``torch.nn.attention.varlen`` has no dropout; the operation below it has.
    """
    B, T, width = qkv_BT3D.shape
    q, k, v = qkv_BT3D.view(B * T, 3, num_heads, -1).unbind(1)
    mixed, *_ = torch.ops.aten._flash_attention_forward(q, k, v, ends.ends_N, ends.ends_N, T, T, dropout, False, False)
    return mixed.view(B, T, width // 3)
