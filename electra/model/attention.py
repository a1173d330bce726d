"""Self-attention: its masks, packed rows, rotary positions, and the ways to compute it.

Shape legend: B examples or rows, T tokens, D hidden width, H heads, d width of a head, h = d / 2, N examples and
stretches of padding in all rows.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from electra.model.shape import EncoderConfig

BLOCKED = -1e9  # added to a score that must not count


@dataclass
class CuSeqlens:
    """Boundaries of examples in the flattened rows, for the flash kernel for sequences of any length."""

    ends_N: Tensor  # int32, cumulative and beginning with 0; the same number may come several times
    mask_BT: Tensor  # used where the flash kernel is unavailable: real tokens, or the example of each token
    window: int | None = None  # of a local layer, half of it on each side


class Rotation(NamedTuple):
    """Angles that queries and keys are rotated by, one for each pair of their elements i and i + d/2; float32.

    The first dimension is 1 where all rows have the same positions, B where rows are packed.
    """

    cosines_BTh: Tensor
    sines_BTh: Tensor


class SelfAttention(nn.Module):
    """Multi-head self-attention; query, key and value come from one matrix product."""

    def __init__(self, config: EncoderConfig):
        super().__init__()
        self.num_heads = config.num_heads
        self.qkv = nn.Linear(config.hidden_size, 3 * config.hidden_size, bias=config.has_bias)
        self.output = nn.Linear(config.hidden_size, config.hidden_size, bias=config.has_bias)
        self.dropout = nn.Dropout(config.attention_dropout)

    def forward(
        self,
        hidden_BTD: Tensor,
        attn_bias: Tensor | CuSeqlens | None,
        rotation: Rotation | None = None,
        num_queries: int | None = None,
    ) -> Tensor:
        """Return the attention output of all tokens [B, T, D], or of the first ``num_queries``.

        Args:
            attn_bias: added to the scores: [B, 1, 1, T] for padding, [B, 1, T, T] where the direction is one-sided or
                rows are packed, or None. For the flash kernel the boundaries of examples instead.
            rotation: rotary positions; None where positions are learned.
        """
        return self.output(self.mix(self.qkv(hidden_BTD), attn_bias, rotation, num_queries))

    def mix(
        self,
        qkv_BT3D: Tensor,
        attn_bias: Tensor | CuSeqlens | None,
        rotation: Rotation | None = None,
        num_queries: int | None = None,
    ) -> Tensor:
        """Softmax attention of all heads [B, T or num_queries, D] from queries, keys and values beside each other."""
        q_BTHd, k_BTHd, v_BTHd = qkv_BT3D.unflatten(-1, (3, self.num_heads, -1)).unbind(2)
        if rotation is not None:
            q_BTHd, k_BTHd = rotate(q_BTHd, rotation), rotate(k_BTHd, rotation)
        dropout = self.dropout.p if self.training else 0.0
        if isinstance(attn_bias, CuSeqlens):
            mixed_BTHd = flash_attention(q_BTHd, k_BTHd, v_BTHd, attn_bias, dropout, num_queries)
        else:
            mixed_BTHd = dense_attention(q_BTHd, k_BTHd, v_BTHd, attn_bias, dropout, num_queries)
        return mixed_BTHd.flatten(2)


def dense_attention(
    q_BTHd: Tensor, k_BTHd: Tensor, v_BTHd: Tensor, attn_bias: Tensor | None, dropout: float, num_queries: int | None
) -> Tensor:
    """softmax(q k^T / sqrt(d) + bias) v, [B, T or num_queries, H, d]."""
    q_BHTd, k_BHTd, v_BHTd = q_BTHd[:, :num_queries].transpose(1, 2), k_BTHd.transpose(1, 2), v_BTHd.transpose(1, 2)
    if attn_bias is not None:
        attn_bias = attn_bias[:, :, :num_queries].to(q_BHTd.dtype)
    if q_BTHd.is_cuda:
        return F.scaled_dot_product_attention(q_BHTd, k_BHTd, v_BHTd, attn_bias, dropout_p=dropout).transpose(1, 2)
    # On CPU the fused kernel's backward is slower than two plain matrix products at these lengths.
    scores_BHTT = q_BHTd @ k_BHTd.transpose(-1, -2) * (1 / math.sqrt(q_BHTd.shape[-1]))
    if attn_bias is not None:
        scores_BHTT = scores_BHTT + attn_bias
    # the softmax: PyTorch's own gradient of it has other last bits on one thread than on several
    shares_BHTT = scores_BHTT.log_softmax(-1, torch.float32).exp().to(v_BHTd.dtype)
    return (F.dropout(shares_BHTT, dropout) @ v_BHTd).transpose(1, 2)


def flash_attention(
    q_BTHd: Tensor, k_BTHd: Tensor, v_BTHd: Tensor, ends: CuSeqlens, dropout: float, num_queries: int | None
) -> Tensor:
    """As :func:`dense_attention` within each example, by the flash kernel, which makes no matrix of scores.

    ``torch.nn.attention.varlen`` has no dropout; the operation below it has.
    """
    B, T = q_BTHd.shape[:2]
    q, k, v = (x_BTHd.flatten(0, 1) for x_BTHd in (q_BTHd, k_BTHd, v_BTHd))
    side = {} if ends.window is None else dict.fromkeys(("window_size_left", "window_size_right"), ends.window // 2)
    mixed, *_ = torch.ops.aten._flash_attention_forward(
        q, k, v, ends.ends_N, ends.ends_N, T, T, dropout, False, False, **side
    )
    return mixed.unflatten(0, (B, T))[:, :num_queries]


def has_kernel(device: torch.device, bf16: bool) -> bool:
    """Return whether the flash kernel for sequences of any length runs here: in bf16 on Ampere or newer."""
    return device.type == "cuda" and bf16 and torch.cuda.get_device_capability(device) >= (8, 0)


def fits_kernel(head_width: int) -> bool:
    """Return whether the flash kernel takes heads of this width."""
    return head_width % 8 == 0 and head_width <= 256


# ---- masks


def padding_bias(mask_BT: Tensor) -> Tensor:
    """Additive attention bias [B, 1, 1, T]: :data:`BLOCKED` at padding."""
    return torch.zeros(mask_BT.shape, device=mask_BT.device).masked_fill_(~mask_BT, BLOCKED)[:, None, None]


def block_bias(example_BT: Tensor) -> Tensor:
    """Additive attention bias [B, 1, T, T]: zero within an example, :data:`BLOCKED` between two."""
    other_BTT = example_BT[:, :, None] != example_BT[:, None, :]
    return torch.zeros(other_BTT.shape, device=example_BT.device).masked_fill_(other_BTT, BLOCKED)[:, None]


def window_bias(length: int, window: int, device: torch.device) -> Tensor:
    """Additive attention bias [1, 1, T, T]: a token sees window / 2 tokens on each side of it, inclusive."""
    positions_T = torch.arange(length, device=device)
    is_far_TT = (positions_T[:, None] - positions_T).abs() > window // 2
    return torch.zeros(length, length, device=device).masked_fill_(is_far_TT, BLOCKED)[None, None]


# ---- positions


def positions(example_BT: Tensor) -> Tensor:
    """Position of each token in its example [B, T]."""
    columns_BT = torch.arange(example_BT.shape[1], device=example_BT.device).expand_as(example_BT)
    is_first_BT = torch.ones_like(example_BT, dtype=torch.bool)
    is_first_BT[:, 1:] = example_BT[:, 1:] != example_BT[:, :-1]
    return columns_BT - columns_BT.where(is_first_BT, 0).cummax(1).values


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
