"""The original's optimizer, to the letter."""

import pytest
import torch
from torch import nn

from electra.config import Model
from electra.objectives.electra import Electra
from electra.optim import ElectraAdamW, learning_rate, parameter_groups


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


def test_biases_and_norms_do_not_decay_and_shared_tables_are_listed_once() -> None:
    shape = Model(num_layers=1, hidden_size=16, num_heads=2, intermediate_size=32, embedding_size=8)
    model = Electra(shape, vocab_size=30, mask_id=4)
    decayed, plain = parameter_groups(model, 0.01)
    assert decayed["weight_decay"] == 0.01 and plain["weight_decay"] == 0
    names = {id(p): n for n, p in model.named_parameters()}
    listed = [names[id(p)] for group in (decayed, plain) for p in group["params"]]
    assert sorted(listed) == sorted(names.values())
    plain_names = {names[id(p)] for p in plain["params"]}
    assert plain_names == {n for n in names.values() if n.endswith("bias") or "norm" in n}
    assert any(names[id(p)] == "discriminator.embeddings.word.weight" for p in decayed["params"])
