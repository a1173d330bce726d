"""The fused CPU loops compute what PyTorch's operations compute, forward and backward."""

import math
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from electra.model.generator import sample
from electra.model.kernels import functions
from electra.model.kernels.build import has_operators

pytestmark = pytest.mark.skipif(not has_operators(), reason="no C++ compiler here: the loops are not built")

TOLERANCE = {torch.float32: 2e-6, torch.bfloat16: 2e-2}
TYPES = pytest.mark.parametrize("dtype", TOLERANCE)


def gradients(loss: Tensor, *inputs: Tensor) -> list[Tensor]:
    return list(torch.autograd.grad(loss, inputs))


def assert_alike(ours: Tensor, theirs: Tensor, dtype: torch.dtype) -> None:
    assert ours.dtype == theirs.dtype or theirs.dtype == torch.float32
    scale = max(1.0, float(theirs.detach().abs().max()))
    assert float((ours.float() - theirs.float()).detach().abs().max()) / scale < TOLERANCE[dtype]


def randn(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    values = torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
    return values.to(dtype).requires_grad_()


@TYPES
def test_gelu_and_its_gradient(dtype: torch.dtype) -> None:
    x, added = (randn(50, 20, dtype=dtype).detach() * 4).requires_grad_(), randn(20, seed=2)
    upstream = randn(50, 20, dtype=dtype, seed=1).detach()
    for ours, theirs in [
        (functions.gelu(x) + 0 * added.sum(), F.gelu(x.float()) + 0 * added.sum()),
        (functions.gelu(x, added), F.gelu(x.float() + added)),
    ]:
        assert_alike(ours, theirs, dtype)
        found = gradients((ours * upstream).sum(), x, added)
        expected = gradients((theirs * upstream.float()).sum(), x, added)
        for one, other in zip(found, expected, strict=True):
            assert_alike(one, other, dtype)


@TYPES
def test_add_norm_and_its_gradients_for_any_width_and_row_count(dtype: torch.dtype) -> None:
    for rows, width in [(1, 24), (7, 33), (100, 256)]:
        x, residual = randn(rows, width, dtype=dtype), randn(rows, width, dtype=dtype, seed=1)
        weight, bias, added = randn(width, seed=2), randn(width, seed=3), randn(width, seed=5)
        ours = functions.add_norm(x, added, residual, weight, bias, 1e-12, 0.0)
        theirs = F.layer_norm(residual.float() + x.float() + added, (width,), weight, bias, 1e-12)
        assert_alike(ours, theirs, dtype)
        upstream = randn(rows, width, dtype=dtype, seed=4).detach()
        inputs = (x, added, residual, weight, bias)
        found = gradients((ours * upstream).sum(), *inputs)
        expected = gradients((theirs * upstream.float()).sum(), *inputs)
        for one, other in zip(found, expected, strict=True):
            assert_alike(one, other, dtype)


def plain_attention(qkv: Tensor, bias: Tensor | None, num_heads: int, kept: Tensor | None = None) -> Tensor:
    B, T, width = qkv.shape
    q, k, v = qkv.float().view(B, T, 3, num_heads, -1).permute(2, 0, 3, 1, 4)
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    probabilities = (scores if bias is None else scores + bias).softmax(-1)
    if kept is not None:
        probabilities = probabilities * kept
    return (probabilities @ v).transpose(1, 2).reshape(B, T, width // 3)


@TYPES
@pytest.mark.parametrize("bias_shape", [None, (3, 1, 1, 9), (1, 1, 9, 9), (3, 1, 9, 9)])
def test_attention_and_its_gradient_under_every_kind_of_bias(
    dtype: torch.dtype, bias_shape: tuple[int, ...] | None
) -> None:
    qkv, added = randn(3, 9, 3 * 8, dtype=dtype), randn(3 * 8, seed=3)
    bias = None if bias_shape is None else randn(*bias_shape, seed=1).detach()
    ours, theirs = functions.attention(qkv, added, bias, 2, 0.0), plain_attention(qkv.float() + added, bias, 2)
    assert_alike(ours, theirs, dtype)
    upstream = randn(3, 9, 8, dtype=dtype, seed=2).detach()
    found = gradients((ours * upstream).sum(), qkv, added)
    expected = gradients((theirs * upstream.float()).sum(), qkv, added)
    for one, other in zip(found, expected, strict=True):
        assert_alike(one, other, dtype)


def kept_by(key: int, numel: int, p: float) -> Tensor:
    """Return dropout's mask and scale, read from LayerNorm's gradient for x, which they multiply."""
    x, residual = torch.zeros(1, numel, requires_grad=True), torch.arange(numel).float().requires_grad_()
    ones, zeros = torch.ones(numel), torch.zeros(numel)
    out = functions._AddNorm.apply(x, zeros, residual.view(1, -1), ones, zeros, 1e-12, p, torch.tensor(key))
    grad_x, grad_residual = gradients((out * torch.randn(1, numel)).sum(), x, residual)
    return (grad_x / grad_residual).flatten()


def test_dropout_keeps_the_right_share_scaled_and_differs_by_key() -> None:
    masks = [kept_by(key, 20_000, 0.1) for key in (1, 2, 2**40, 2**40 + 1, 2**62 - 12345)]
    for mask in masks:
        kept = mask > 0
        assert torch.allclose(mask[kept], torch.tensor(1 / 0.9), rtol=1e-4)
        assert float(kept.float().mean()) == pytest.approx(0.9, abs=0.01)
    for number, one in enumerate(masks):
        for other in masks[:number]:  # independent draws agree on 0.9 * 0.9 + 0.1 * 0.1 of the elements
            assert float(((one > 0) == (other > 0)).float().mean()) == pytest.approx(0.82, abs=0.012)
    neighbours = (masks[0][1:] > 0) == (masks[0][:-1] > 0)
    assert float(neighbours.float().mean()) == pytest.approx(0.82, abs=0.012)


def test_dropout_in_attention_and_its_gradient_use_the_same_elements() -> None:
    qkv, key, p = randn(2, 6, 3 * 4), 987654321, 0.3
    kept = kept_by(key, 2 * 2 * 6 * 6, p).view(2, 2, 6, 6).detach()
    ours = functions._Attention.apply(qkv, torch.zeros(12), None, 2, p, torch.tensor(key))
    theirs = plain_attention(qkv, None, 2, kept)
    upstream = randn(2, 6, 4, seed=2).detach()
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-4)
    (found,), (expected,) = gradients((ours * upstream).sum(), qkv), gradients((theirs * upstream).sum(), qkv)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-3)


def test_a_seed_decides_what_is_dropped() -> None:
    x = randn(4, 64)

    def run(seed: int) -> Tensor:
        torch.manual_seed(seed)
        return functions.add_norm(x, None, x, torch.ones(64), torch.zeros(64), 1e-12, 0.5)

    assert torch.equal(run(1), run(1))
    assert not torch.equal(run(1), run(2))


@TYPES
def test_losses_and_samples_of_the_vocabulary(dtype: torch.dtype) -> None:
    logits = (randn(50, 1300, dtype=dtype).detach() * 3).requires_grad_()
    targets = torch.randint(1300, (50,), generator=torch.Generator().manual_seed(1))
    uniforms = torch.rand(50, generator=torch.Generator().manual_seed(2))
    losses, samples = functions.losses_and_samples(logits, targets, uniforms)
    expected = F.cross_entropy(logits.float(), targets, reduction="none")
    torch.testing.assert_close(losses, expected, atol=1e-5, rtol=1e-5)
    assert torch.equal(samples, sample(logits.float(), uniforms))
    weights = torch.rand(50, generator=torch.Generator().manual_seed(3))
    (found,) = gradients((losses * weights).sum(), logits)
    (wanted,) = gradients((expected * weights).sum(), logits)
    assert_alike(found, wanted, dtype)


def test_samples_at_the_ends_of_the_distribution_are_tokens() -> None:
    logits = randn(2, 700).detach()
    ends = torch.tensor([0.0, 1.0 - 2**-24])
    _, samples = functions.losses_and_samples(logits, torch.tensor([0, 699]), ends)
    assert samples.tolist() == [0, 699]


@TYPES
def test_samples_follow_the_distribution(dtype: torch.dtype) -> None:
    logits = torch.tensor([[0.0, 1.0, 2.0, -1.0]], dtype=dtype).expand(40_000, -1).contiguous()
    uniforms = torch.rand(40_000, generator=torch.Generator().manual_seed(0))
    _, samples = functions.losses_and_samples(logits, torch.zeros(40_000, dtype=torch.long), uniforms)
    shares = samples.bincount(minlength=4) / 40_000
    torch.testing.assert_close(shares, logits[0].float().softmax(-1), atol=0.01, rtol=0.05)


def test_what_is_not_a_number_stays_visible() -> None:
    bad = torch.full((2, 16), float("nan"))
    one, zero = torch.ones(16), torch.zeros(16)
    assert functions.gelu(bad).isnan().all()
    assert functions.add_norm(bad, None, bad, one, zero, 1e-12, 0.1).isnan().all()
    assert functions.attention(torch.full((1, 4, 12), float("nan")), None, None, 1, 0.0).isnan().all()
    losses, _ = functions.losses_and_samples(bad, torch.tensor([0, 1]), torch.tensor([0.5, 0.5]))
    assert losses.isnan().all()


def test_the_number_of_threads_changes_nothing() -> None:
    x, residual, weight, qkv = randn(300, 48), randn(300, 48, seed=1), randn(48, seed=2), randn(5, 60, 48)
    before, results = torch.get_num_threads(), []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            out = functions._AddNorm.apply(x, weight, residual, weight, weight, 1e-12, 0.1, torch.tensor(77))
            active, mixed = (
                functions.gelu(x, weight),
                functions._Attention.apply(qkv, weight, None, 2, 0.1, torch.tensor(77)),
            )
            loss = out.square().sum() + active.square().sum() + mixed.square().sum()
            results.append([out, active, mixed, *gradients(loss, x, residual, weight, qkv)])
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(one, other) for one, other in zip(*results, strict=True))


def test_without_a_compiler_training_goes_on_with_plain_operations() -> None:
    code = (
        "import torch, warnings; from electra.model.kernels.apply import use_cpu_kernels\n"
        "from electra.model.layers import Gelu\n"
        "with warnings.catch_warnings(record=True) as said:\n"
        "    warnings.simplefilter('always'); out = use_cpu_kernels(Gelu())(torch.ones(3))\n"
        "print(any('no C++ compiler' in str(one.message) for one in said), out[0].item())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env={"PATH": "", "CXX": "absent"}, capture_output=True, text=True, check=True
    )
    said, value = done.stdout.split()
    assert said == "True" and float(value) == pytest.approx(0.8413447)
