"""CPU kernels for a model from outside: :func:`use_cpu_kernels`.

Each class here computes what its base class computes, in fewer passes over the memory: a bias is added by the loop that
follows the matrix product, whose backward pass also sums up its gradient. On other devices, under torch.compile and
without a C++ compiler it is its base class. Shape legend: as in encoder.py.
"""

from typing import Any, TypeVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from electra.model.attention import CuSeqlens, Rotation, SelfAttention
from electra.model.encoder import Layer, PreNormLayer
from electra.model.generator import Sampler
from electra.model.kernels import functions
from electra.model.kernels.build import has_operators
from electra.model.layers import Geglu, Gelu, LayerNorm

Model = TypeVar("Model", bound=nn.Module)


def use_cpu_kernels(model: Model) -> Model:
    """Let the parts of a model compute with the fused loops on CPUs, in place. Weights and their names stay."""
    for module in model.modules():
        if kernel := _KERNELS.get(type(module)):
            module.__class__ = kernel
    return model


def can_fuse(x: Tensor) -> bool:
    """Return whether the loops take such tensors: on a CPU, in float32 or bfloat16, and not under torch.compile."""
    return (
        x.device.type == "cpu"
        and x.dtype in (torch.float32, torch.bfloat16)
        and not torch.compiler.is_compiling()
        and has_operators()
    )


def product(linear: nn.Linear, x: Tensor) -> tuple[Tensor, Tensor | None]:
    """x W^T and the bias that the next loop is to add; None where there is none, or where it has been added."""
    if cast(Tensor | None, linear.bias) is None or linear.bias.dtype != torch.float32 or hasattr(linear.bias, "ds_id"):
        return linear(x), None  # ZeRO-3 gathers weights for a call of their module alone
    return F.linear(x, linear.weight), linear.bias


def attended(
    attention: SelfAttention,
    x_BTD: Tensor,
    attn_bias: Tensor | CuSeqlens | None,
    rotation: Rotation | None,
    num_queries: int | None,
) -> tuple[Tensor, Tensor | None]:
    """Attention's output and the bias still to be added, as of :func:`product`."""
    assert not isinstance(attn_bias, CuSeqlens), "boundaries are for the flash kernel, on CUDA"
    qkv_BT3D, linear_bias = product(attention.qkv, x_BTD)
    if num_queries in (None, x_BTD.shape[1]):
        dropout = attention.dropout.p if attention.training else 0.0
        mixed_BTD = functions.attention(qkv_BT3D, linear_bias, attn_bias, attention.num_heads, dropout, rotation)
    else:
        qkv_BT3D = qkv_BT3D if linear_bias is None else qkv_BT3D + linear_bias.to(qkv_BT3D.dtype)
        mixed_BTD = attention.mix(qkv_BT3D, attn_bias, rotation, num_queries)
    return product(attention.output, mixed_BTD)


def transformed(layer: Layer, x_BTD: Tensor) -> tuple[Tensor, Tensor | None]:
    """The feed-forward part's output and the bias still to be added, as of :func:`product`."""
    return product(layer.feed_forward_out, layer.activation(*product(layer.feed_forward_in, x_BTD)))


class CpuLayer(Layer):
    def forward(
        self,
        x_BTD: Tensor,
        attn_bias: Tensor | CuSeqlens | None,
        rotation: Rotation | None = None,
        num_queries: int | None = None,
    ) -> Tensor:
        if not can_fuse(x_BTD):
            return super().forward(x_BTD, attn_bias, rotation, num_queries)
        dropout = self.dropout.p if self.training else 0.0
        mixed_BTD, linear_bias = attended(self.attention, x_BTD, attn_bias, rotation, num_queries)
        x_BTD = self.attention_norm(mixed_BTD, linear_bias, x_BTD[:, :num_queries], dropout)
        return self.feed_forward_norm(*transformed(self, x_BTD), x_BTD, dropout)


class CpuPreNormLayer(PreNormLayer):
    def forward(  # type: ignore[override]
        self,
        states: tuple[Tensor, Tensor],
        attn_bias: Tensor | CuSeqlens | None,
        rotation: Rotation | None = None,
        num_queries: int | None = None,
    ) -> tuple[Tensor, Tensor]:
        x_BTD, normed_BTD = states
        if not can_fuse(normed_BTD):
            return super().forward(states, attn_bias, rotation, num_queries)
        dropout = self.dropout.p if self.training else 0.0
        mixed_BTD, linear_bias = attended(self.attention, normed_BTD, attn_bias, rotation, num_queries)
        x_BTD, normed_BTD = self.attention_norm(mixed_BTD, linear_bias, x_BTD[:, :num_queries], dropout, with_sum=True)
        return self.feed_forward_norm(*transformed(self, normed_BTD), x_BTD, dropout, with_sum=True)


class CpuLayerNorm(LayerNorm):
    def forward(
        self,
        x: Tensor,
        linear_bias: Tensor | None = None,
        residual: Tensor | None = None,
        dropout: float = 0.0,
        *,
        with_sum: bool = False,
    ) -> Any:
        """LayerNorm of x, or of residual + dropout(x + linear_bias).

        Args:
            with_sum: the sum is returned too, in the residual's type.
        """
        fits = self.weight.dtype == torch.float32 and can_fuse(x)
        if with_sum and residual is not None:
            if fits and residual.dtype == torch.float32:
                return functions.residual_norm(x, linear_bias, residual, self.weight, self.bias, self.eps, dropout)
            total = _sum(x, linear_bias, residual, dropout)
            return total, super().forward(total)
        if fits and (residual is None or residual.dtype == x.dtype):
            residual = torch.zeros_like(x) if residual is None else residual
            bias = torch.zeros_like(self.weight) if self.bias is None else self.bias
            return functions.add_norm(x, linear_bias, residual, self.weight, bias, self.eps, dropout)
        return super().forward(x if residual is None else _sum(x, linear_bias, residual, dropout))


def _sum(x: Tensor, linear_bias: Tensor | None, residual: Tensor, dropout: float) -> Tensor:
    return residual + F.dropout(x if linear_bias is None else x + linear_bias, dropout)


class CpuGelu(Gelu):
    def forward(self, x: Tensor, linear_bias: Tensor | None = None) -> Tensor:
        """GELU of x, or of x + linear_bias."""
        return (
            functions.gelu(x, linear_bias)
            if can_fuse(x)
            else super().forward(x if linear_bias is None else x + linear_bias)
        )


class CpuGeglu(Geglu):
    def forward(self, x_BT2F: Tensor, linear_bias: Tensor | None = None) -> Tensor:
        """GELU of the first half of x, or of x + linear_bias, times the second half."""
        if can_fuse(x_BT2F):
            return functions.geglu(x_BT2F, linear_bias)
        return super().forward(x_BT2F if linear_bias is None else x_BT2F + linear_bias)


class CpuSampler(Sampler):
    def forward(self, logits_BKV: Tensor, original_ids_BK: Tensor, uniforms_BK: Tensor) -> tuple[Tensor, Tensor]:
        if self.temperature != 1 or self.disallow_correct or not can_fuse(logits_BKV):
            return super().forward(logits_BKV, original_ids_BK, uniforms_BK)
        losses_N, sampled_N = functions.losses_and_samples(
            logits_BKV.flatten(0, 1), original_ids_BK.flatten(), uniforms_BK.flatten()
        )
        return losses_N.view_as(original_ids_BK), sampled_N.view_as(original_ids_BK)


_KERNELS: dict[type, type] = {
    LayerNorm: CpuLayerNorm,
    Gelu: CpuGelu,
    Geglu: CpuGeglu,
    Layer: CpuLayer,
    PreNormLayer: CpuPreNormLayer,
    Sampler: CpuSampler,
}
