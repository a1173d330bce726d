"""Predicted memory is what a real step takes."""

from dataclasses import replace
from typing import get_args

import pytest
from torch._subclasses.fake_tensor import FakeTensorMode

from benchmarks.memory import setting
from electra.config import ObjectiveName
from electra.estimate.memory import LiveBytes, forward_loss, kept_for_backward, placeholder_batch, predict_step_memory
from electra.model.objective import build_objective

CASE = {"shape": "smoke", "batch": 4, "length": 32}


def step_bytes(case: dict, recompute: bool) -> tuple[int, dict[str, int]]:
    """Peak of a forward and backward pass, and what is kept between them."""
    shape, recipe, machine, vocab_size = setting(case)
    model = build_objective(shape, vocab_size, 0, recipe)
    batch = placeholder_batch(recipe, case["batch"], case["length"])
    for encoder in model.children():
        encoder.recompute = recompute
    with kept_for_backward(model) as kept:
        forward_loss(model, batch, machine)
    with LiveBytes(model) as live:
        forward_loss(model, batch, machine).backward()
    return live.peak, dict(kept)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("recompute", [False, True])
def test_a_step_without_bytes_takes_what_a_real_one_takes(precision: str, recompute: bool) -> None:
    case = {**CASE, "precision": precision}
    with FakeTensorMode():
        predicted_peak, predicted_kept = step_bytes(case, recompute)
    peak, kept = step_bytes(case, recompute)
    assert predicted_peak == pytest.approx(peak, rel=1e-3)  # a few scalars come and go
    assert predicted_kept == pytest.approx(kept, rel=1e-3)


def test_activation_checkpointing_keeps_the_input_of_each_layer_alone() -> None:
    shape, recipe, machine, vocab_size = setting({**CASE, "precision": "fp32"})
    deep = shape.model_copy(update={"num_layers": 6})
    plain, recomputed = (
        predict_step_memory(deep, recipe, machine, 32, vocab_size, recompute=recompute) for recompute in (False, True)
    )
    between = recomputed.kept["discriminator"] // (6 * 4 * 32 * 128 * 4)  # in hidden states of a layer
    assert 1 <= between <= 2
    assert plain.kept["discriminator"] > 8 * recomputed.kept["discriminator"]
    assert plain.kept["generator_head"] == recomputed.kept["generator_head"]


@pytest.mark.parametrize("objective", get_args(ObjectiveName))
def test_memory_of_every_method_is_predicted(objective: str) -> None:
    shape, recipe, machine, vocab_size = setting({**CASE, "precision": "fp32"})
    recipe = recipe.model_copy(update={"objective": objective})
    found = predict_step_memory(shape, recipe, machine, 32, vocab_size)
    assert found.resident >= found.peak > found.weights + found.moments


def test_moments_and_copies_are_shared_out_by_zero() -> None:
    shape, recipe, machine, vocab_size = setting({**CASE, "precision": "fp32"})
    alone, shared = (
        predict_step_memory(
            shape, recipe, replace(machine, zero_stage=1, num_processes=n, micro_batch_size=4 // n), 32, vocab_size
        )
        for n in (1, 4)
    )
    assert alone.moments == 4 * shared.moments
    assert shared.weights < alone.weights and shared.peak < alone.peak
