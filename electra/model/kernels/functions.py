"""Fused operations of a layer with their gradients, over the loops of ``cpu.cpp``.

Each has the same meaning as the PyTorch operations it replaces, to rounding; dropout draws other elements (a hash of
their numbers under a key from the global generator, so a seed still decides them). Shape legend: as in encoder.py.

The loops are operators of PyTorch that write into tensors they are given, with fake implementations (build.py), and
gradients are ``torch.autograd.Function``. ``register_autograd`` on operators that return tensors would take 18 us more
for each forward and backward call (58 against 40 us, minima on a busy machine), and hide the matrix products of
attention and the tensors made here from counters of FLOPs and memory.
"""

from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

loops = torch.ops.electra


def new_key(p: float) -> Tensor | None:
    """64 bits from the global generator for the elements that one dropout keeps; None where p is 0."""
    return torch.empty((), dtype=torch.int64).random_() if p else None


class _AddNorm(Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        linear_bias: Tensor,
        residual: Tensor,
        weight: Tensor,
        bias: Tensor,
        eps: float,
        p: float,
        key: Tensor | None,
        is_learning: bool = True,
    ) -> Tensor:
        x, residual = x.contiguous(), residual.contiguous()
        width = x.shape[-1]
        out, normalized = torch.empty_like(x), torch.empty_like(x) if is_learning else None
        inverse_std = torch.empty(x.numel() // width)
        loops.add_norm_forward(x, linear_bias, residual, weight, bias, eps, p, key, out, normalized, inverse_std)
        ctx.save_for_backward(normalized, inverse_std, weight)
        ctx.p, ctx.key = p, key
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        normalized, inverse_std, weight = ctx.saved_tensors
        grad_residual = torch.empty_like(normalized)
        grad_x = torch.empty_like(normalized)
        grad_linear_bias, grad_weight, grad_bias = (torch.empty_like(weight) for _ in range(3))
        results = (grad_x, grad_linear_bias, grad_residual, grad_weight, grad_bias)
        loops.add_norm_backward(grad.contiguous(), normalized, inverse_std, weight, ctx.p, ctx.key, *results)
        return *results, None, None, None, None


def add_norm(
    x: Tensor, linear_bias: Tensor | None, residual: Tensor, weight: Tensor, bias: Tensor, eps: float, p: float
) -> Tensor:
    """LayerNorm(residual + dropout(x + linear_bias)) over the last dimension.

    Args:
        x: [..., D]; residual the same, weight and bias [D] float32.
        linear_bias: bias [D] float32 of the linear layer, which x lacks.
        p: share of x + linear_bias that is dropped.
    """
    linear_bias = torch.zeros_like(weight) if linear_bias is None else linear_bias
    key = new_key(p)
    return cast(Tensor, _AddNorm.apply(x, linear_bias, residual, weight, bias, eps, p, key, torch.is_grad_enabled()))


class _ResidualNorm(Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        linear_bias: Tensor | None,
        stream: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        eps: float,
        p: float,
        key: Tensor | None,
        is_learning: bool,
    ) -> tuple[Tensor, Tensor]:
        x, stream = x.contiguous(), stream.contiguous()
        total, out, normalized = torch.empty_like(stream), torch.empty_like(x), None
        if is_learning:
            normalized = torch.empty_like(x)
        inverse_std = torch.empty(x.numel() // x.shape[-1])
        results = (total, out, normalized, inverse_std)
        loops.residual_norm_forward(x, linear_bias, stream, weight, bias, eps, p, key, *results)
        ctx.save_for_backward(normalized, inverse_std, weight)
        ctx.has_linear_bias, ctx.has_bias, ctx.p, ctx.key = linear_bias is not None, bias is not None, p, key
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
        grad_linear_bias = torch.empty_like(weight) if ctx.has_linear_bias else None
        given = (grad.contiguous(), grad_total.contiguous(), normalized, inverse_std, weight)
        results = (grad_x, grad_linear_bias, grad_stream, grad_weight, grad_bias)
        loops.residual_norm_backward(*given, ctx.p, ctx.key, *results)
        return *results, None, None, None, None


def residual_norm(
    x: Tensor, linear_bias: Tensor | None, stream: Tensor, weight: Tensor, bias: Tensor | None, eps: float, p: float
) -> tuple[Tensor, Tensor]:
    """stream + dropout(x + linear_bias), and its LayerNorm over the last dimension in the type of x.

    Args:
        x: [..., D]; stream the same in float32, weight and bias [D] float32.
        linear_bias: bias [D] float32 of the linear layer, which x lacks.
        p: share of x + linear_bias that is dropped.
    """
    key = new_key(p)
    found = _ResidualNorm.apply(x, linear_bias, stream, weight, bias, eps, p, key, torch.is_grad_enabled())
    return cast(tuple[Tensor, Tensor], found)


class _Gelu(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, linear_bias: Tensor, is_learning: bool) -> Tensor:
        x = x.contiguous()
        out = torch.empty_like(x)
        derivative = torch.empty_like(x) if is_learning else None
        loops.gelu_forward(x, linear_bias, out, derivative)
        ctx.save_for_backward(derivative)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (derivative,) = ctx.saved_tensors
        grad_x, grad_linear_bias = torch.empty_like(derivative), torch.empty(derivative.shape[-1])
        loops.gelu_backward(grad.contiguous(), derivative, grad_x, grad_linear_bias)
        return grad_x, grad_linear_bias, None


def gelu(x: Tensor, linear_bias: Tensor | None = None) -> Tensor:
    """The exact GELU of x + linear_bias: their sum times the normal distribution function of it.

    Args:
        x: [..., D].
        linear_bias: bias [D] float32 of the linear layer, which x lacks.
    """
    linear_bias = torch.zeros(x.shape[-1]) if linear_bias is None else linear_bias
    return cast(Tensor, _Gelu.apply(x, linear_bias, torch.is_grad_enabled()))


class _Geglu(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, linear_bias: Tensor | None) -> Tensor:
        x = x.contiguous()
        out = torch.empty(*x.shape[:-1], x.shape[-1] // 2, dtype=x.dtype)
        loops.geglu_forward(x, linear_bias, out)
        ctx.save_for_backward(x, linear_bias)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, linear_bias = ctx.saved_tensors
        grad_x, grad_linear_bias = torch.empty_like(x), None if linear_bias is None else torch.empty(x.shape[-1])
        loops.geglu_backward(grad.contiguous(), x, linear_bias, grad_x, grad_linear_bias)
        return grad_x, grad_linear_bias


def geglu(x: Tensor, linear_bias: Tensor | None = None) -> Tensor:
    """The exact GELU of the first half of x + linear_bias times the second half [..., F].

    Args:
        x: [..., 2 F].
        linear_bias: bias [2 F] float32 of the linear layer, which x lacks.
    """
    return cast(Tensor, _Geglu.apply(x, linear_bias))


def _split_heads(rows: Tensor, linear_bias: Tensor | None, kinds: int, num_heads: int) -> Tensor:
    """[B, T, kinds * D] to [kinds, B * H, T, D / H]."""
    B, T, width = rows.shape
    size = width // kinds // num_heads
    out = torch.empty(kinds, B * num_heads, T, size, dtype=rows.dtype)
    loops.split_heads(rows.contiguous(), linear_bias, out)
    return out


def _merge_heads(heads: Tensor, num_heads: int, sums: Tensor | None = None) -> Tensor:
    """[kinds, B * H, T, D / H] to [B, T, kinds * D]; writes the sums over all rows to ``sums`` [kinds * D]."""
    kinds, groups, T, size = heads.shape
    B = groups // num_heads
    out = torch.empty(B, T, kinds * num_heads * size, dtype=heads.dtype)
    loops.merge_heads(heads, out, sums)
    return out


class _Attention(Function):
    @staticmethod
    def forward(
        ctx: Any,
        qkv: Tensor,
        linear_bias: Tensor,
        bias: Tensor | None,
        num_heads: int,
        p: float,
        key: Tensor | None,
        rotation: tuple[Tensor, Tensor] | None = None,
    ) -> Tensor:
        size = qkv.shape[-1] // 3 // num_heads
        heads = _split_heads(qkv, linear_bias, 3, num_heads)
        if rotation is not None:
            _rotate(heads, rotation, num_heads, 1.0)
        q, k, v = heads
        probabilities = torch.bmm(q, k.transpose(1, 2))
        dropped = torch.empty_like(probabilities) if p else probabilities
        loops.softmax_forward(probabilities, bias, num_heads, size**-0.5, p, key, dropped)
        mixed = torch.bmm(dropped, v)
        ctx.save_for_backward(q, k, v, probabilities)
        ctx.num_heads, ctx.p, ctx.key, ctx.rotation = num_heads, p, key, rotation
        return _merge_heads(mixed[None], num_heads)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, probabilities = ctx.saved_tensors
        rows, T, size = q.shape
        grad = _split_heads(grad, None, 1, ctx.num_heads)[0]
        grad_scores = torch.bmm(grad, v.transpose(1, 2))
        dropped = torch.empty_like(probabilities)
        loops.softmax_backward(grad_scores, probabilities, size**-0.5, ctx.p, ctx.key, dropped)
        grad_qkv = torch.empty(3, rows, T, size, dtype=grad.dtype)
        torch.bmm(grad_scores, k, out=grad_qkv[0])
        torch.bmm(grad_scores.transpose(1, 2), q, out=grad_qkv[1])
        torch.bmm(dropped.transpose(1, 2), grad, out=grad_qkv[2])
        if ctx.rotation is not None:
            _rotate(grad_qkv, ctx.rotation, ctx.num_heads, -1.0)
        grad_linear_bias = torch.empty(3 * ctx.num_heads * size)
        return _merge_heads(grad_qkv, ctx.num_heads, grad_linear_bias), grad_linear_bias, *[None] * 5


def _rotate(heads: Tensor, rotation: tuple[Tensor, Tensor], num_heads: int, direction: float) -> None:
    """Rotate queries and keys [2 of 3, B * H, T, d] in place; by -1.0 back."""
    cosines, sines = (angles.contiguous() for angles in rotation)
    loops.rotate(heads, cosines, sines, num_heads, direction)


def attention(
    qkv_BT3D: Tensor,
    linear_bias: Tensor | None,
    bias: Tensor | None,
    num_heads: int,
    p: float,
    rotation: tuple[Tensor, Tensor] | None = None,
) -> Tensor:
    """Softmax attention [B, T, D] of all heads.

    Args:
        qkv_BT3D: queries, keys and values beside each other, [B, T, 3 D].
        linear_bias: bias [3 D] float32 of the linear layer, which they lack.
        bias: linear_bias to the scores, float32 [B or 1, 1, T or 1, T]; it gets no gradient.
        p: share of the probabilities that is dropped.
        rotation: cosines and sines [B or 1, T, d / 2] float32 of the angles that pairs of queries and keys turn by.
    """
    if bias is not None:
        bias = bias.float().contiguous()
    linear_bias = torch.zeros(qkv_BT3D.shape[-1]) if linear_bias is None else linear_bias
    return cast(Tensor, _Attention.apply(qkv_BT3D, linear_bias, bias, num_heads, p, new_key(p), rotation))


class _Vocabulary(Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor, uniforms: Tensor) -> tuple[Tensor, Tensor]:
        logits, targets, uniforms = logits.contiguous(), targets.contiguous(), uniforms.float().contiguous()
        losses, log_totals, samples = torch.empty(len(logits)), torch.empty(len(logits)), torch.empty_like(targets)
        loops.vocabulary_forward(logits, targets, uniforms, losses, log_totals, samples)
        ctx.save_for_backward(logits, targets, log_totals)
        ctx.mark_non_differentiable(samples)
        return losses, samples

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        logits, targets, log_totals = ctx.saved_tensors
        grad_logits = torch.empty_like(logits)
        loops.vocabulary_backward(logits, targets, log_totals, grad.contiguous(), grad_logits)
        return grad_logits, None, None


def losses_and_samples(logits_NV: Tensor, targets_N: Tensor, uniforms_N: Tensor) -> tuple[Tensor, Tensor]:
    """Cross entropy [N] (nats, float32) of each row, and one token [N] drawn from its softmax by its uniform."""
    return cast(tuple[Tensor, Tensor], _Vocabulary.apply(logits_NV, targets_N, uniforms_N))
