"""The number of threads changes no bit of a loss or a gradient, by any method and with any head.

Matrix products are PyTorch's library's own affair (MKL or oneDNN, by processor and type) and run on one thread here.
"""

from collections.abc import Callable, Iterator
from typing import get_args

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from electra.config import Model, ObjectiveName
from electra.finetune.features import Batch
from electra.finetune.model import TaskModel
from electra.model.encoder import Encoder
from electra.model.kernels.apply import use_cpu_kernels
from electra.model.kernels.build import has_operators
from electra.model.layers import LayerNorm
from electra.model.shape import EncoderConfig
from electra.objectives.base import total
from electra.tasks.catalogue import TASKS
from tests.objectives.test_objectives import batch_for, make
from tests.objectives.test_objectives import total as weighted_loss

PRODUCTS = {torch.ops.aten.mm, torch.ops.aten.addmm, torch.ops.aten.bmm, torch.ops.aten.baddbmm}
SHAPE = Model(
    num_layers=2, hidden_size=48, num_heads=2, intermediate_size=80, embedding_size=24, generator_width=0.5,
    max_positions=64, dropout=0.1, attention_dropout=0.1,
)  # fmt: skip
WIDTH = 43  # tokens: no multiple of what a processor takes at once


class ProductsOnOneThread(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.overloadpacket not in PRODUCTS:
            return func(*args, **(kwargs or {}))
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            return func(*args, **(kwargs or {}))
        finally:
            torch.set_num_threads(threads)


@pytest.fixture(params=["loops", "plain"])
def _either_operations(request, monkeypatch) -> Iterator[None]:
    """The compiled loops, and PyTorch's operations where there is no compiler."""
    if request.param == "plain":
        monkeypatch.setenv("ELECTRA_PLAIN_KERNELS", "1")
        has_operators.cache_clear()
    yield
    monkeypatch.undo()
    has_operators.cache_clear()


def assert_equal_on_any_number(compute: Callable[[], list[Tensor]]) -> None:
    before, results = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            with ProductsOnOneThread():
                results.append(compute())
    finally:
        torch.set_num_threads(before)
    for number, values in enumerate(zip(*results, strict=True)):
        assert all(torch.equal(values[0], value) for value in values[1:]), number


def learned(model: nn.Module, loss: Callable[[], Tensor]) -> Callable[[], list[Tensor]]:
    def compute() -> list[Tensor]:
        torch.manual_seed(1)
        model.zero_grad()
        value = loss()
        value.backward()
        return [value.detach(), *(p.grad.clone() for p in model.parameters() if p.grad is not None)]

    return compute


@pytest.mark.usefixtures("_either_operations")
@pytest.mark.parametrize("objective", get_args(ObjectiveName))
def test_a_step_of_pre_training_is_the_same_on_any_number_of_threads(objective: str) -> None:
    model, batch = make(objective, SHAPE).train(), batch_for(objective, examples=20, length=WIDTH)
    assert_equal_on_any_number(learned(model, lambda: weighted_loss(model, batch)))


@pytest.mark.usefixtures("_either_operations")
@pytest.mark.parametrize(
    ("task", "span_head"),
    [("CoLA", "plain"), ("STS-B", "plain"), ("SQuAD2.0", "plain"), ("SQuAD2.0", "joint"), ("CoNLL-2003", "plain")],
)
def test_a_step_of_fine_tuning_is_the_same_on_any_number_of_threads(task: str, span_head: str) -> None:
    random = torch.Generator().manual_seed(0)
    spec, encoder = TASKS[task], use_cpu_kernels(Encoder(EncoderConfig.discriminator(SHAPE, 50)))
    model = TaskModel(spec, encoder, random, span_head=span_head).train()
    shape = (20, WIDTH)
    targets = {
        "classification": torch.randint(0, 2, (20,), generator=random),
        "regression": torch.rand(20, generator=random),
        "span": torch.stack([torch.arange(20) % 7 + 8, torch.arange(20) % 5 + 20, torch.arange(20) % 2], 1),
        "tagging": torch.randint(0, 3, shape, generator=random),
    }[spec.kind]
    mask_BT = torch.arange(WIDTH) < 30 + torch.arange(20)[:, None] % 14
    input_ids_BT = torch.randint(5, 50, shape, generator=random)
    batch = Batch(input_ids_BT, torch.zeros(shape, dtype=torch.long), mask_BT, torch.full((20,), 5), targets)
    assert_equal_on_any_number(learned(model, lambda: model.loss(batch)))


def test_a_sum_over_many_tokens_is_the_same_on_any_number_of_threads() -> None:
    values = torch.rand(900, 123, generator=torch.Generator().manual_seed(0))
    assert_equal_on_any_number(lambda: [total(values)])
    assert float(total(values)) == pytest.approx(float(values.double().sum()), rel=1e-6)


@pytest.mark.usefixtures("_either_operations")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_layer_norm_is_pytorchs(dtype: torch.dtype) -> None:
    random = torch.Generator().manual_seed(0)
    x, residual = (torch.randn(9, 31, generator=random).to(dtype) for _ in range(2))
    ours, theirs = use_cpu_kernels(LayerNorm(31, eps=1e-12)), nn.LayerNorm(31, eps=1e-12)
    for norm in (ours, theirs):
        with torch.no_grad():
            norm.weight.copy_(torch.linspace(0.5, 2, 31))
            norm.bias.copy_(torch.linspace(-1, 1, 31))
    close = {"atol": 2e-6, "rtol": 2e-6} if dtype == torch.float32 else {"atol": 0.03, "rtol": 0.02}
    for mine, wanted in (
        (ours(x), theirs(x.float())),
        (ours(x, None, residual), theirs(x.float() + residual.float())),
    ):
        assert mine.dtype == dtype
        torch.testing.assert_close(mine.float(), wanted, **close)
        grads = [
            torch.autograd.grad(y.float().square().sum(), [*n.parameters()])
            for y, n in ((mine, ours), (wanted, theirs))
        ]
        torch.testing.assert_close(*grads, atol=2e-4 if dtype == torch.float32 else 0.5, rtol=close["rtol"])
