"""Fused operations of the blocks beside the paper's: LayerNorm before a part, and the gated feed-forward part.

As in functions.py, over the loops of ``cpu.cpp``. Rotary positions are part of the attention there.
"""

from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from electra.model.kernels.functions import call, new_key


class _ResidualNorm(Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        added: Tensor | None,
        stream: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        eps: float,
        p: float,
        key: int,
        is_learning: bool,
    ) -> tuple[Tensor, Tensor]:
        x, stream = x.contiguous(), stream.contiguous()
        width = x.shape[-1]
        total, out, normalized = torch.empty_like(stream), torch.empty_like(x), None
        if is_learning:
            normalized = torch.empty_like(x)
        inverse_std = torch.empty(x.numel() // width)
        sizes, results = (len(inverse_std), width, eps, p, key), (total, out, normalized, inverse_std)
        call("residual_norm_forward", x, x, added, stream, weight, bias, *sizes, *results)
        ctx.save_for_backward(normalized, inverse_std, weight)
        ctx.has_added, ctx.has_bias, ctx.p, ctx.key = added is not None, bias is not None, p, key
        return total, out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_total: Tensor, grad: Tensor) -> tuple[Tensor | None, ...]:
        normalized, inverse_std, weight = ctx.saved_tensors
        grad_x, grad_stream, grad_weight = (
            torch.empty_like(normalized),
            torch.empty(grad.shape),
            torch.empty_like(weight),
        )
        grad_bias = torch.empty_like(weight) if ctx.has_bias else None
        grad_added = torch.empty_like(weight) if ctx.has_added else None
        given = (grad.contiguous(), grad_total.contiguous(), normalized, inverse_std, weight)
        sizes = (len(inverse_std), normalized.shape[-1], ctx.p, ctx.key)
        results = (grad_x, grad_added, grad_stream, grad_weight, grad_bias)
        call("residual_norm_backward", normalized, *given, *sizes, *results)
        return *results, None, None, None, None


def residual_norm(
    x: Tensor, added: Tensor | None, stream: Tensor, weight: Tensor, bias: Tensor | None, eps: float, p: float
) -> tuple[Tensor, Tensor]:
    """stream + dropout(x + added), and its LayerNorm over the last dimension in the type of x.

    Args:
        x: [..., D]; stream the same in float32, weight and bias [D] float32.
        added: the bias [D] float32 of the product that x is.
        p: share of x + added that is dropped.
    """
    key = new_key() if p else 0
    found = _ResidualNorm.apply(x, added, stream, weight, bias, eps, p, key, torch.is_grad_enabled())
    return cast(tuple[Tensor, Tensor], found)


class _Geglu(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, added: Tensor | None) -> Tensor:
        x = x.contiguous()
        width = x.shape[-1] // 2
        out = torch.empty(*x.shape[:-1], width, dtype=x.dtype)
        call("geglu_forward", x, x, added, out.numel() // width, width, out)
        ctx.save_for_backward(x, added)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, added = ctx.saved_tensors
        width = x.shape[-1] // 2
        grad_x, grad_added = torch.empty_like(x), None if added is None else torch.empty(2 * width)
        call("geglu_backward", x, grad.contiguous(), x, added, grad.numel() // width, width, grad_x, grad_added)
        return grad_x, grad_added


def geglu(x: Tensor, added: Tensor | None = None) -> Tensor:
    """The exact GELU of the first half of x + added times the second half [..., F].

    Args:
        x: [..., 2 F].
        added: the bias [2 F] float32 of the product that x is.
    """
    return cast(Tensor, _Geglu.apply(x, added))
