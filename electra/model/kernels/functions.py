"""Fused operations of a layer with their gradients, over the loops of ``cpu.cpp``, and the compilation of these loops.

Each has the same meaning as the PyTorch operations it stands for, to rounding; dropout draws other elements (a hash of
their numbers under a key from the global generator, so a seed still decides them). ``cpu.cpp`` is compiled once per
machine, in two seconds, and kept beside the environment's other builds. Shape legend: as in encoder.py.
"""

import ctypes
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import warnings
from functools import cache
from pathlib import Path
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

SOURCE = Path(__file__).with_name("cpu.cpp")
# All of -ffast-math but its blindness for NaN and its change of the process' rounding mode.
FLAGS = [
    *("-O3", "-march=native", "-fopenmp", "-fPIC", "-shared", "-std=c++17"),
    *("-fno-math-errno", "-fno-trapping-math", "-fassociative-math", "-fno-signed-zeros", "-freciprocal-math"),
]
OFF = "ELECTRA_PLAIN_KERNELS"  # set: PyTorch's own operations, to compare with


@cache
def library() -> ctypes.CDLL | None:
    """The compiled loops; None where there is no compiler, with a warning, or where they are switched off."""
    if os.environ.get(OFF):
        return None
    compiler = shutil.which(os.environ.get("CXX", "g++"))
    if compiler is None:
        warnings.warn("there is no C++ compiler: CPU training runs on PyTorch's own, slower operations", stacklevel=2)
        return None
    try:
        # The loops share PyTorch's OpenMP threads: its runtime is in the process already, under the same name.
        return ctypes.CDLL(str(_compiled(compiler)))
    except (OSError, subprocess.CalledProcessError) as error:
        said = getattr(error, "stderr", None) or error
        warnings.warn(f"cpu.cpp does not compile, CPU training runs slower: {said}", stacklevel=2)
        return None


def _compiled(compiler: str) -> Path:
    """The shared library for this source, compiler and processor; processes that build it at once do not meet."""
    version = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True).stdout
    facts = "\n".join([SOURCE.read_text(), *FLAGS, version, _processor()])
    file = _folder() / f"electra_kernels_{hashlib.sha256(facts.encode()).hexdigest()[:16]}.so"
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=file.parent) as scratch:
            built = Path(scratch) / file.name
            subprocess.run(
                [compiler, *FLAGS, str(SOURCE), "-o", str(built)], capture_output=True, text=True, check=True
            )
            os.replace(built, file)
    return file


def _folder() -> Path:
    beside = Path(sys.prefix)
    return (beside if os.access(beside, os.W_OK) else Path.home() / ".cache") / "electra_kernels"


def _processor() -> str:
    """Description of the processor, which ``-march=native`` depends on."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return sys.platform
    return "\n".join(sorted({line for line in lines if line.startswith(("flags", "Features", "model name"))}))


SUFFIXES = {torch.float32: "float32", torch.bfloat16: "bfloat16"}


def can_fuse(*tensors: Tensor) -> bool:
    """Return whether the compiled loops take these: on a CPU, of one type, and second derivatives are not asked for."""
    first = tensors[0]
    return (
        first.device.type == "cpu"
        and first.dtype in SUFFIXES
        and all(tensor.dtype == first.dtype for tensor in tensors)
        and not torch.compiler.is_compiling()
        and library() is not None
    )


def new_key() -> int:
    """64 bits from the global generator for the elements that one dropout keeps."""
    drawn = torch.empty((), dtype=torch.int64).random_()
    return 0 if isinstance(drawn, FakeTensor) else int(drawn.item())


def call(name: str, like: Tensor, *arguments: Tensor | int | float | None) -> None:
    """Run a loop; tensors are handed over as addresses, float arguments as C floats.

    Fake tensors, which have shapes and no bytes (electra/estimate/memory.py), stay as they are.
    """
    if isinstance(like, FakeTensor):
        return
    values: list[Any] = []
    for argument in arguments:
        if isinstance(argument, Tensor):
            assert argument.is_contiguous()
            values.append(ctypes.c_void_p(argument.data_ptr()))
        elif isinstance(argument, float):
            values.append(ctypes.c_float(argument))
        else:
            values.append(ctypes.c_void_p(None) if argument is None else ctypes.c_int64(argument))
    getattr(library(), f"{name}_{SUFFIXES[like.dtype]}")(*values)


class _AddNorm(Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        added: Tensor,
        residual: Tensor,
        weight: Tensor,
        bias: Tensor,
        eps: float,
        p: float,
        key: int,
        is_learning: bool = True,
    ) -> Tensor:
        x, residual = x.contiguous(), residual.contiguous()
        width = x.shape[-1]
        out, normalized = torch.empty_like(x), torch.empty_like(x) if is_learning else None
        inverse_std = torch.empty(x.numel() // width)
        arguments = (weight, bias, len(inverse_std), width, eps, p, key, out, normalized, inverse_std)
        call("add_norm_forward", x, x, added, residual, *arguments)
        ctx.save_for_backward(normalized, inverse_std, weight)
        ctx.p, ctx.key = p, key
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        normalized, inverse_std, weight = ctx.saved_tensors
        grad_residual = torch.empty_like(normalized)
        grad_x = torch.empty_like(normalized)
        grad_added, grad_weight, grad_bias = (torch.empty_like(weight) for _ in range(3))
        sizes = (len(inverse_std), normalized.shape[-1], ctx.p, ctx.key)
        results = (grad_x, grad_added, grad_residual, grad_weight, grad_bias)
        call("add_norm_backward", grad, grad.contiguous(), normalized, inverse_std, weight, *sizes, *results)
        return *results, None, None, None, None


def add_norm(
    x: Tensor, added: Tensor | None, residual: Tensor, weight: Tensor, bias: Tensor, eps: float, p: float
) -> Tensor:
    """LayerNorm(residual + dropout(x + added)) over the last dimension.

    Args:
        x: [..., D]; residual the same, weight and bias [D] float32.
        added: the bias [D] float32 of the product that x is.
        p: share of x + added that is dropped.
    """
    added = torch.zeros_like(weight) if added is None else added
    key = new_key() if p else 0
    return cast(Tensor, _AddNorm.apply(x, added, residual, weight, bias, eps, p, key, torch.is_grad_enabled()))


class _Gelu(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, added: Tensor, is_learning: bool) -> Tensor:
        x = x.contiguous()
        width = x.shape[-1]
        out = torch.empty_like(x)
        derivative = torch.empty_like(x) if is_learning else None
        call("gelu_forward", x, x, added, x.numel() // width, width, out, derivative)
        ctx.save_for_backward(derivative)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (derivative,) = ctx.saved_tensors
        width = derivative.shape[-1]
        grad_x, grad_added = torch.empty_like(derivative), torch.empty(width)
        sizes = (derivative.numel() // width, width)
        call("gelu_backward", grad, grad.contiguous(), derivative, *sizes, grad_x, grad_added)
        return grad_x, grad_added, None


def gelu(x: Tensor, added: Tensor | None = None) -> Tensor:
    """The exact GELU of x + added: their sum times the normal distribution function of it.

    Args:
        x: [..., D].
        added: the bias [D] float32 of the product that x is.
    """
    added = torch.zeros(x.shape[-1]) if added is None else added
    return cast(Tensor, _Gelu.apply(x, added, torch.is_grad_enabled()))


def _split_heads(rows: Tensor, added: Tensor | None, kinds: int, num_heads: int) -> Tensor:
    """[B, T, kinds * D] to [kinds, B * H, T, D / H]."""
    B, T, width = rows.shape
    size = width // kinds // num_heads
    out = torch.empty(kinds, B * num_heads, T, size, dtype=rows.dtype)
    call("split_heads", rows, rows.contiguous(), added, B, T, kinds, num_heads, size, out)
    return out


def _merge_heads(heads: Tensor, num_heads: int, sums: Tensor | None = None) -> Tensor:
    """[kinds, B * H, T, D / H] to [B, T, kinds * D]; writes the sums over all rows to ``sums`` [kinds * D]."""
    kinds, groups, T, size = heads.shape
    B = groups // num_heads
    out = torch.empty(B, T, kinds * num_heads * size, dtype=heads.dtype)
    call("merge_heads", heads, heads, B, T, kinds, num_heads, size, out, sums)
    return out


class _Attention(Function):
    @staticmethod
    def forward(
        ctx: Any,
        qkv: Tensor,
        added: Tensor,
        bias: Tensor | None,
        num_heads: int,
        p: float,
        key: int,
        rotation: tuple[Tensor, Tensor] | None = None,
    ) -> Tensor:
        B, T, width = qkv.shape
        size = width // 3 // num_heads
        heads = _split_heads(qkv, added, 3, num_heads)
        if rotation is not None:
            _rotate(heads, rotation, num_heads, 1.0)
        q, k, v = heads
        probabilities = torch.bmm(q, k.transpose(1, 2))
        dropped = torch.empty_like(probabilities) if p else probabilities
        strides = (0, 0) if bias is None else (bias.stride(0) * (len(bias) > 1), T * (bias.shape[2] > 1))
        arguments = (bias, *strides, B, num_heads, T, size**-0.5, p, key, dropped)
        call("softmax_forward", qkv, probabilities, *arguments)
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
        sizes = (rows * T, T, size**-0.5, ctx.p, ctx.key)
        call("softmax_backward", grad_scores, grad_scores, probabilities, *sizes, dropped)
        grad_qkv = torch.empty(3, rows, T, size, dtype=grad.dtype)
        torch.bmm(grad_scores, k, out=grad_qkv[0])
        torch.bmm(grad_scores.transpose(1, 2), q, out=grad_qkv[1])
        torch.bmm(dropped.transpose(1, 2), grad, out=grad_qkv[2])
        if ctx.rotation is not None:
            _rotate(grad_qkv, ctx.rotation, ctx.num_heads, -1.0)
        grad_added = torch.empty(3 * ctx.num_heads * size)
        return _merge_heads(grad_qkv, ctx.num_heads, grad_added), grad_added, *[None] * 5


def _rotate(heads: Tensor, rotation: tuple[Tensor, Tensor], num_heads: int, direction: float) -> None:
    """Rotate queries and keys [2 of 3, B * H, T, d] in place; by -1.0 back."""
    _, groups, T, size = heads.shape
    cosines, sines = (angles.contiguous() for angles in rotation)
    stride = T * size // 2 * (len(cosines) > 1)
    call("rotate", heads, heads, cosines, sines, groups // num_heads, num_heads, T, size, stride, direction)


def attention(
    qkv_BT3D: Tensor,
    added: Tensor | None,
    bias: Tensor | None,
    num_heads: int,
    p: float,
    rotation: tuple[Tensor, Tensor] | None = None,
) -> Tensor:
    """Softmax attention [B, T, D] of all heads.

    Args:
        qkv_BT3D: queries, keys and values beside each other, [B, T, 3 D].
        added: the bias [3 D] float32 of the product that they are.
        bias: added to the scores, float32 [B or 1, 1, T or 1, T]; it gets no gradient.
        p: share of the probabilities that is dropped.
        rotation: cosines and sines [B or 1, T, d / 2] float32 of the angles that pairs of queries and keys turn by.
    """
    if bias is not None:
        bias = bias.float().contiguous()
    added = torch.zeros(qkv_BT3D.shape[-1]) if added is None else added
    return cast(Tensor, _Attention.apply(qkv_BT3D, added, bias, num_heads, p, new_key() if p else 0, rotation))


class _Vocabulary(Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor, uniforms: Tensor) -> tuple[Tensor, Tensor]:
        logits, targets, uniforms = logits.contiguous(), targets.contiguous(), uniforms.float().contiguous()
        rows, size = logits.shape
        losses, log_totals, samples = torch.empty(rows), torch.empty(rows), torch.empty_like(targets)
        call("vocabulary_forward", logits, logits, targets, uniforms, rows, size, losses, log_totals, samples)
        ctx.save_for_backward(logits, targets, log_totals)
        ctx.mark_non_differentiable(samples)
        return losses, samples

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        logits, targets, log_totals = ctx.saved_tensors
        grad_logits = torch.empty_like(logits)
        arguments = (targets, log_totals, grad.contiguous(), *logits.shape, grad_logits)
        call("vocabulary_backward", logits, logits, *arguments)
        return grad_logits, None, None


def losses_and_samples(logits_NV: Tensor, targets_N: Tensor, uniforms_N: Tensor) -> tuple[Tensor, Tensor]:
    """Cross entropy [N] (nats, float32) of each row, and one token [N] drawn from its softmax by its uniform."""
    return cast(tuple[Tensor, Tensor], _Vocabulary.apply(logits_NV, targets_N, uniforms_N))


class Linear(nn.Linear):
    """A product x W^T and the bias that is still to be added, for a fused loop that adds it on its way.

    Adding it there saves a pass over the product, and its gradient falls off in the loop's backward pass. Where no such
    loop will follow, the bias is added already, and where there is none, None stands in its place.
    """

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor | None]:  # type: ignore[override]
        if cast(Tensor | None, self.bias) is None:
            return F.linear(x, self.weight), None
        if self._can_leave_bias(x):
            return F.linear(x, self.weight), self.bias
        return super().forward(x), None

    def _can_leave_bias(self, x: Tensor) -> bool:
        return (
            x.device.type == "cpu"
            and self.bias.dtype == torch.float32
            and not hasattr(self.bias, "ds_id")  # ZeRO-3 takes it away again at the end of this call
            and not torch.compiler.is_compiling()
            and library() is not None
        )
