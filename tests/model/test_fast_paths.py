"""Fast paths have the losses and gradients of the slow ones, to fp32 rounding or to the last bit."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from electra.cluster.estimate.memory import recompute_layers
from electra.config import Model
from electra.model import attention as attention_module
from electra.model.attention import BLOCKED, SelfAttention, positions
from electra.model.generator import token_losses
from electra.model.kernels.apply import use_cpu_kernels
from electra.objectives.base import Batch
from electra.objectives.electra import Electra
from electra.pretrain.data.packing import packed
from tests.model.test_electra import random_batch

V = 60
SHAPE = Model(
    num_layers=2, hidden_size=32, num_heads=4, intermediate_size=64, embedding_size=16, generator_width=0.5,
    dropout=0.0, attention_dropout=0.0,
)  # fmt: skip
Result = tuple[Tensor, dict[str, Tensor]]


def plain_model(shape: Model = SHAPE) -> Electra:
    return Electra(shape, V, mask_id=4).initialize(0.1, seed=1)


def model(shape: Model = SHAPE) -> Electra:
    return use_cpu_kernels(plain_model(shape))


def total_loss(electra: Electra, batch: Batch) -> Tensor:
    sums = electra(batch).loss_sums
    return sums["mlm"] + 50 * sums["disc"]


def result(electra: Electra, *batches: Batch) -> Result:
    """Loss and gradients, summed over the batches."""
    losses = []
    for batch in batches:
        loss = total_loss(electra, batch)
        loss.backward()
        losses.append(loss.detach())
    return torch.stack(losses).sum(), {name: p.grad for name, p in electra.named_parameters() if p.grad is not None}


def assert_equal_to_rounding(one: Result, other: Result) -> None:
    assert one[0].item() == pytest.approx(other[0].item(), rel=2e-6)
    assert one[1].keys() == other[1].keys()
    largest = max(float(gradient.abs().max()) for gradient in other[1].values())
    for name, gradient in one[1].items():
        assert float((gradient - other[1][name]).abs().max()) < 2e-6 * largest, name


def uneven_batch() -> Batch:
    """Ten examples of 3 to 24 tokens, with as many masked slots as their length allows."""
    lengths = torch.tensor([24, 3, 10, 17, 5, 24, 8, 12, 4, 20])
    batch = random_batch(10, 24, 4, V)
    real = torch.arange(24) < lengths[:, None]
    weights = (torch.arange(4) < (lengths[:, None] // 5).clamp(min=1)).float()
    random = torch.Generator().manual_seed(1)  # never the first place or the last, where [CLS] and [SEP] stand
    places = torch.stack([(1 + torch.randperm(int(n) - 2, generator=random)).repeat(4)[:4] for n in lengths])
    return replace(
        batch,
        input_ids_BT=batch.input_ids_BT * real,
        segments_BT=((torch.arange(24) >= lengths[:, None] // 2) & real).long(),
        mask_BT=real,
        candidate_BT=(torch.arange(24) > 0) & (torch.arange(24) < lengths[:, None] - 1),
        mask_positions_BK=places * weights.long(),
        mask_weights_BK=weights,
    )


def test_head_on_masked_positions_alone_is_the_head_on_all() -> None:
    batch = uneven_batch()

    class EveryPosition(Electra):
        def forward(self, batch: Batch):  # type: ignore[no-untyped-def]
            outputs = super().forward(batch)
            shown = self.mask_input(batch)
            logits_BTV = self.generator_head(self.generator(shown, batch.segments_BT, batch.mask_BT)).float()
            losses_BT = token_losses(logits_BTV, batch.input_ids_BT) * batch.is_masked_BT()
            outputs.loss_sums["mlm"] = losses_BT.sum()
            return outputs

        def mask_input(self, batch: Batch) -> Tensor:
            from electra.objectives.base import masked_input

            return masked_input(batch, self.mask_id, self.vocab_size)

    slow = EveryPosition(SHAPE, V, mask_id=4).initialize(0.1, seed=1)
    assert_equal_to_rounding(result(model(), batch), result(slow, batch))


def test_attention_as_matrix_products_is_the_flash_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = uneven_batch()
    plain = result(plain_model(), batch)

    def flash(self: SelfAttention, hidden_BTD: Tensor, bias: Tensor | None, *_: object) -> Tensor:
        B, T, D = hidden_BTD.shape
        qkv = F.linear(hidden_BTD, self.qkv.weight, self.qkv.bias)
        q, k, v = qkv.view(B, T, 3, self.num_heads, -1).permute(2, 0, 3, 1, 4)
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.FLASH_ATTENTION):
            mixed = F.scaled_dot_product_attention(q, k, v, bias)
        return self.output(mixed.transpose(1, 2).reshape(B, T, D))

    monkeypatch.setattr(SelfAttention, "forward", flash)
    assert_equal_to_rounding(plain, result(plain_model(), batch))


def test_fused_loops_are_pytorchs_own_operations() -> None:
    batch = uneven_batch()
    assert_equal_to_rounding(result(model(), batch), result(plain_model(), batch))


@pytest.mark.timeout(900)  # Inductor compiles with g++: a minute of a core, on cores that others may use
def test_compiled_layers_are_the_plain_ones() -> None:
    torch._dynamo.reset()
    batch, compiled = random_batch(examples=3, length=16, slots=2, vocab_size=V), model()
    compiled.discriminator.compile_layers()  # the generator's shape would take as long again
    assert_equal_to_rounding(result(model(), batch), result(compiled, batch))


@pytest.mark.parametrize("direction", ["both", "left"])
def test_the_first_token_alone_is_as_among_all(direction: Literal["both", "left"]) -> None:
    batch = uneven_batch()
    weights_D = torch.linspace(-1, 2, SHAPE.hidden_size)
    found = []
    for first_only in (True, False):
        encoder = model().discriminator
        hidden_BTD = encoder(batch.input_ids_BT, batch.segments_BT, batch.mask_BT, direction, first_only)
        assert hidden_BTD.shape[1] == (1 if first_only else batch.input_ids_BT.shape[1])
        loss = (hidden_BTD[:, 0] * weights_D).sum()
        loss.backward()
        found.append((loss, {name: p.grad for name, p in encoder.named_parameters() if p.grad is not None}))
    assert_equal_to_rounding(*found)


def test_packed_rows_are_the_padded_ones() -> None:
    batch = uneven_batch()
    dense = packed(batch, 24)
    assert dense.input_ids_BT.shape == (6, 24) and int(dense.mask_BT.sum()) == int(batch.mask_BT.sum())
    assert_equal_to_rounding(result(model(), dense), result(model(), batch))


def test_packed_rows_without_their_boundaries_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above would notice attention between examples."""
    dense = packed(uneven_batch(), 24)
    open_rows = replace(dense, example_BT=None)
    assert result(model(), open_rows)[0].item() != pytest.approx(result(model(), dense)[0].item(), rel=1e-4)


def test_positions_start_again_in_every_example() -> None:
    numbers = torch.tensor([[3, 3, 3, 1, 1, 0, 0], [2, 4, 4, 4, 5, 5, 5]])
    assert positions(numbers).tolist() == [[0, 1, 2, 0, 1, 0, 1], [0, 0, 1, 2, 0, 1, 2]]
    assert attention_module.block_bias(numbers)[0, 0, 0].tolist() == [0, 0, 0, *[BLOCKED] * 4]


@pytest.mark.parametrize("objective", ["replace_mlm", "all_tokens_mlm", "bert", "electric", "electra_15"])
def test_every_method_can_be_packed(objective: str) -> None:
    from electra.config import Method
    from electra.objectives.base import build_objective

    batch, found = uneven_batch(), []
    for one in (batch, packed(batch, 24)):
        module = build_objective(SHAPE, V, 4, Method(objective=objective)).initialize(0.1, seed=1)
        sums = module(one).loss_sums
        found.append({term: value.item() for term, value in sums.items()})
        counts = module.counts(one)
        found.append({term: float(counts[term]) for term in sums})
    assert found[0] == pytest.approx(found[2], rel=5e-6) and found[1] == found[3]


def part(batch: Batch, rows: slice) -> Batch:
    return Batch(**{name: None if value is None else value[rows] for name, value in vars(batch).items()})


def test_accumulated_parts_are_the_whole_batch() -> None:
    batch = uneven_batch()
    parts = [part(batch, slice(start, start + 2)) for start in range(0, 10, 2)]
    assert_equal_to_rounding(result(model(), *parts), result(model(), batch))


@contextmanager
def in_bf16(wanted: bool) -> Iterator[None]:
    with torch.autocast("cpu", torch.bfloat16, enabled=wanted):
        yield


@pytest.mark.parametrize("bf16", [False, True])
@pytest.mark.parametrize("packing", [False, True])
def test_activation_checkpointing_is_equal_to_the_last_bit(bf16: bool, packing: bool) -> None:
    """With dropout: a layer that runs again drops the same elements."""
    batch = packed(uneven_batch(), 24) if packing else uneven_batch()
    with_dropout = SHAPE.model_copy(update={"dropout": 0.1, "attention_dropout": 0.1})

    def run(prepare: Callable[[Electra], object]) -> Result:
        electra = model(with_dropout)
        prepare(electra)
        torch.manual_seed(7)
        with in_bf16(bf16):
            loss = total_loss(electra, batch)
        loss.backward()
        return loss.detach(), {name: p.grad for name, p in electra.named_parameters() if p.grad is not None}

    kept, recomputed = run(lambda _: None), run(recompute_layers)
    assert torch.equal(kept[0], recomputed[0])
    assert all(torch.equal(gradient, recomputed[1][name]) for name, gradient in kept[1].items())


def test_packing_needs_few_rows() -> None:
    random = np.random.default_rng(0)
    lengths = torch.from_numpy(random.integers(5, 65, 200))
    batch = random_batch(200, 64, 2, V)
    dense = packed(replace(batch, mask_BT=torch.arange(64) < lengths[:, None]), 64)
    assert dense.mask_BT.float().mean() > 0.94
