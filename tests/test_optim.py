"""The optimizer of the original implementation, exactly."""

import subprocess
import sys
from types import SimpleNamespace
from typing import Any, Literal

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from electra.cluster.hardware import Machine, bucket_size
from electra.config import Model, Pretrain
from electra.config.training import Method
from electra.objectives.electra import Electra
from electra.optim import ElectraAdamW, generator_rates, learning_rate, parameter_groups, rate_of, warmup_stable_decay
from electra.pretrain.engine import deepspeed_config, set_step
from electra.pretrain.zero import scatter_state

SMALL: dict[str, Any] = {
    "num_layers": 1, "hidden_size": 16, "num_heads": 2, "intermediate_size": 32, "embedding_size": 8
}  # fmt: skip


def test_update_is_adam_without_bias_correction() -> None:
    torch.manual_seed(0)
    parameter = nn.Parameter(torch.randn(50, dtype=torch.float32))
    optimizer = ElectraAdamW([parameter], lr=0.01, eps=1e-6, weight_decay=0.1)
    expected = parameter.detach().double().clone()
    m = v = torch.zeros(50, dtype=torch.float64)
    for step in range(30):
        gradient = torch.randn(50) * 10.0 ** -(step % 4)
        parameter.grad = gradient.clone()
        optimizer.step()
        g = gradient.double()
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
        expected = expected - 0.01 * (m / (v.sqrt() + 1e-6) + 0.1 * expected)
        assert torch.allclose(parameter.detach().double(), expected, rtol=2e-5, atol=1e-6)


def test_rate_warms_up_and_decays_multiplied() -> None:
    assert learning_rate(0, 5e-4, 1000, 100) == 0
    assert learning_rate(100, 5e-4, 1000, 100) == pytest.approx(5e-4 * 0.9), "lr(W) = lr0 (1 - W / T)"
    assert learning_rate(50, 5e-4, 1000, 100) == pytest.approx(5e-4 * 0.5 * 0.95)
    assert learning_rate(1000, 5e-4, 1000, 100) == 0
    assert learning_rate(0, 1.0, 10, 0) == 1


def test_warm_up_may_take_most_of_a_run_and_half_of_a_phase() -> None:
    recipe = Pretrain(num_steps=1000, batch_size=8, learning_rate=1e-3, warmup_steps=800, eval_every=10)
    assert rate_of(600, recipe, range(1000)) == pytest.approx(1e-3 * (600 / 800) * (1 - 600 / 1000)), "as the original"
    assert rate_of(600, recipe, range(500, 1000)) == pytest.approx(1e-3 * (100 / 250) * (1 - 100 / 500))
    short = recipe.model_copy(update={"num_steps": 500})  # as pretrain.epochs does
    assert rate_of(250, short, range(500)) == pytest.approx(1e-3 * 0.5)


def test_the_rate_stays_at_its_peak_and_falls_by_one_minus_the_root_in_the_last_steps() -> None:
    def rate(step: int) -> float:
        return warmup_stable_decay(step, 5e-4, 1000, 100, decay_share=0.2)

    assert rate(0) == 0
    assert rate(50) == pytest.approx(2.5e-4)
    assert [rate(step) for step in (100, 500, 800)] == [5e-4] * 3
    assert rate(850) == pytest.approx(5e-4 * 0.5), "a quarter of the decay is over: 1 - sqrt(1 / 4)"
    assert 0 < rate(999) < 5e-4 * 0.003
    assert rate(1000) == 0


def test_a_warm_up_that_reaches_into_the_decay_is_refused() -> None:
    recipe = {"num_steps": 1000, "batch_size": 8, "learning_rate": 1e-3, "eval_every": 10, "decay_share": 0.3}

    assert Pretrain(**recipe, schedule="wsd", warmup_steps=700).warmup_steps == 700
    assert Pretrain(**recipe, warmup_steps=701).schedule == "polynomial"
    with pytest.raises(ValueError, match="warmup_steps 701 reaches into the decay, which begins at 700"):
        Pretrain(**recipe, schedule="wsd", warmup_steps=701)


def test_biases_and_norms_do_not_decay_and_shared_tables_are_listed_once() -> None:
    model = Electra(Model(**SMALL), vocab_size=30, mask_id=4)
    decayed, plain = parameter_groups(model, 0.01)
    assert decayed["weight_decay"] == 0.01 and plain["weight_decay"] == 0
    names = {id(p): n for n, p in model.named_parameters()}
    listed = [names[id(p)] for group in (decayed, plain) for p in group["params"]]
    assert sorted(listed) == sorted(names.values())
    plain_names = {names[id(p)] for p in plain["params"]}
    assert plain_names == {n for n in names.values() if n.endswith("bias") or "norm" in n}
    assert any(names[id(p)] == "discriminator.embeddings.word.weight" for p in decayed["params"])


@pytest.mark.parametrize("sharing", ["none", "embeddings", "gradient_disentangled", "all"])
def test_only_the_generators_own_weights_have_its_rate(sharing: Any) -> None:
    shape = Model(**SMALL, generator_width=1.0, embedding_sharing=sharing)
    model = Electra(shape, vocab_size=30, mask_id=4)
    groups = parameter_groups(model, 0.01, generator_rates(model, 0.3))
    optimizer = ElectraAdamW(groups, lr=0.0)
    set_step(SimpleNamespace(optimizer=optimizer), 7, 1e-3)

    rates = {id(p): (group["lr"], group["weight_decay"]) for group in optimizer.param_groups for p in group["params"]}
    slow = {n for n, p in model.named_parameters() if rates[id(p)][0] == pytest.approx(3e-4)}
    assert all(rates[id(p)][0] == 1e-3 for n, p in model.named_parameters() if n not in slow)
    assert len(rates) == sum(len(group["params"]) for group in groups) == len(list(model.parameters()))
    assert all(name.startswith("generator") for name in slow)
    assert not {id(p) for p in model.discriminator.parameters()} & {
        id(p) for n, p in model.named_parameters() if n in slow
    }
    assert "generator_head.transform.weight" in slow
    assert any(name.startswith("generator.layers.") for name in slow) == (sharing != "all")
    assert ("generator.embeddings.word.weight" in slow) == (sharing == "none")
    assert {decay for _, decay in rates.values()} == {0.01, 0.0}


@pytest.mark.parametrize(
    ("sharing", "generator", "part"),
    [
        ("embeddings", "transformer", "shared_embeddings"),
        ("none", "transformer", "discriminator"),
        ("embeddings", "unigram", "discriminator"),
    ],
)
def test_embeddings_have_a_gradient_norm_of_their_own_where_they_are_shared(
    sharing: Any, generator: Any, part: str
) -> None:
    model = Electra(
        Model(**SMALL, embedding_sharing=sharing), vocab_size=30, mask_id=4, method=Method(generator=generator)
    )
    assert model.part_of("discriminator.embeddings.word.weight") == part
    assert model.part_of("discriminator_head.output.weight") == "discriminator"


def test_with_one_rate_there_are_two_groups() -> None:
    assert len(parameter_groups(Electra(Model(**SMALL), vocab_size=30, mask_id=4), 0.01)) == 2


def devices_of_state(optimizer: ElectraAdamW) -> set[str]:
    return {value.device.type for state in optimizer.state.values() for value in state.values()}


def test_moments_and_step_count_lie_on_the_parameters_device() -> None:
    """On CUDA the fused kernel refuses a count on the CPU: ZeRO 1 to 3 would never take a step."""
    parameter = nn.Parameter(torch.empty(3, device="meta"))
    optimizer = ElectraAdamW([parameter], lr=0.0)
    optimizer.create_moments([parameter])
    assert devices_of_state(optimizer) == {"meta"}


def test_a_resumed_step_count_lies_on_the_parameters_device() -> None:
    module = nn.Linear(3, 2, device="meta")
    optimizer = ElectraAdamW(module.parameters(), lr=0.0)
    engine = SimpleNamespace(module=module, optimizer=optimizer, zero_optimization_stage=lambda: 0)
    weights = {name: torch.zeros(parameter.shape) for name, parameter in module.named_parameters()}
    moments = {f"{key}.{name}": value for key in optimizer.moments for name, value in weights.items()}
    scatter_state(engine, weights, moments)
    assert len(optimizer.state) == 2
    assert devices_of_state(optimizer) == {"meta"}


class NoWaits(TorchDispatchMode):
    """Fails where a value is read from a tensor: on CUDA the host waits for the device there."""

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        assert function is not torch.ops.aten._local_scalar_dense.default, "the host waits for the device"
        return function(*args, **(kwargs or {}))


def test_clipping_in_the_step_is_that_of_pytorch_and_waits_for_nothing() -> None:
    torch.manual_seed(0)
    shapes = [(5, 3), (7,), (2, 2)]
    for size in (0.01, 10.0):  # below the norm that is clipped to, and above
        plain, clipped = ([nn.Parameter(torch.ones(shape)) for shape in shapes] for _ in range(2))
        gradients = [size * torch.randn(shape) for shape in shapes]
        for parameters in (plain, clipped):
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.grad = gradient.clone()
        nn.utils.clip_grad_norm_(plain, 1.0)
        ElectraAdamW(plain, lr=0.1).step()
        optimizer = ElectraAdamW(clipped, lr=0.1, skip_non_finite=True, max_grad_norm=1.0)
        with NoWaits():
            optimizer.step()
        for one, other in zip(plain, clipped, strict=True):
            assert torch.allclose(one, other, rtol=1e-5)
        assert optimizer.take_skipped() == 0


class Operations(TorchDispatchMode):
    """The names of all operations."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(str(function))
        return function(*args, **(kwargs or {}))


def test_a_step_makes_one_count_for_all_groups() -> None:
    parameters = [nn.Parameter(torch.ones(3)) for _ in range(4)]
    optimizer = ElectraAdamW([{"params": [parameter]} for parameter in parameters], lr=0.1)
    for parameter in parameters:
        parameter.grad = torch.ones(3)
    optimizer.step()
    with Operations() as operations:
        optimizer.step()
    assert operations.names.count("aten.full.default") == 1
    assert operations.names.count("aten._fused_adamw_.default") == 4


def test_steps_do_not_import_pytorchs_compiler() -> None:
    """It takes longer than the training of a small task."""
    code = (
        "import sys, torch; from electra.optim import ElectraAdamW; p = torch.nn.Parameter(torch.ones(2));"
        "optimizer = ElectraAdamW([p], lr=0.1); p.grad = torch.ones(2); optimizer.step(); optimizer.zero_grad();"
        "assert p.grad is None; print('torch._dynamo' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def test_a_step_that_is_not_finite_is_skipped_with_clipping_too() -> None:
    parameter = nn.Parameter(torch.ones(3))
    optimizer = ElectraAdamW([parameter], lr=0.1, skip_non_finite=True, max_grad_norm=1.0)
    parameter.grad = torch.tensor([1.0, float("inf"), 0.0])
    optimizer.step()
    assert torch.equal(parameter, torch.ones(3))
    assert optimizer.take_skipped() == 1


def test_deepspeed_on_cuda_neither_clips_nor_times_at_zero_0_and_reduces_in_one_type() -> None:
    recipe = Pretrain(num_steps=4, batch_size=8, learning_rate=1e-3, warmup_steps=1, eval_every=4, eval_examples=20)

    def settings(device: Literal["cpu", "cuda"], stage: int, nodes: int = 1) -> dict[str, Any]:
        machine = Machine(device, 2, "bf16", stage, 4, 1, num_nodes=nodes)
        return deepspeed_config(recipe, machine, num_parameters=14_000_000)

    for found in (settings("cuda", 0), settings("cuda", 1), settings("cpu", 1)):
        assert found["timers"]["throughput"] == {"enabled": False}
        assert found["torch_autocast"]["lower_precision_safe_modules"] == []
    assert settings("cuda", 0)["gradient_clipping"] == 0
    assert settings("cuda", 1)["gradient_clipping"] == settings("cpu", 0)["gradient_clipping"] == 1
    assert 14_000_000 <= settings("cuda", 1)["zero_optimization"]["reduce_bucket_size"] < 14_001_024
    assert bucket_size(14_196_219) % 2 == 0, "ZeRO refuses buckets that its alignment does not divide"
    assert bucket_size(10**10) == 50_000_000
    assert settings("cuda", 2, nodes=2)["zero_optimization"]["overlap_comm"]
    assert not settings("cuda", 2)["zero_optimization"]["overlap_comm"]


def test_the_schedule_starts_anew_with_every_stage() -> None:
    recipe = Pretrain(num_steps=100, batch_size=8, learning_rate=1e-3, warmup_steps=10, eval_every=10)
    first, second = range(40), range(40, 100)
    assert [rate_of(step, recipe, second) for step in second] == [learning_rate(s, 1e-3, 60, 10) for s in range(60)]
    assert rate_of(40, recipe, second) == 0 < rate_of(39, recipe, first)
    assert rate_of(42, recipe, range(40, 46)) == pytest.approx(1e-3 * 2 / 3 * 4 / 6), "warm-up is at most half a stage"

    stable = recipe.model_copy(update={"schedule": "wsd", "decay_share": 0.3})
    expected = [warmup_stable_decay(s, 1e-3, 60, 10, 0.3) for s in range(60)]
    assert [rate_of(step, stable, second) for step in second] == expected
    assert rate_of(40 + 41, stable, second) == 1e-3 > rate_of(40 + 43, stable, second)
