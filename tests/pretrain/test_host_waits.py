"""A step reads no value of a tensor: on CUDA the host would wait for the device.

Tensors on the meta device have no values, so that ``item()``, ``tolist()``, ``bool()`` and shapes that depend on values
are errors there.
"""

from typing import Any, get_args

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from electra.cluster.estimate.memory import placeholder_batch
from electra.config import Model, ObjectiveName, Pretrain
from electra.objectives.base import build_objective
from electra.optim import ElectraAdamW, parameter_groups
from electra.pretrain.metrics import training_rates

SHAPE = Model(num_layers=1, hidden_size=16, num_heads=2, intermediate_size=32, embedding_size=8, max_positions=64)
RECIPE = Pretrain(num_steps=4, batch_size=8, learning_rate=1e-3, warmup_steps=1, eval_every=4, eval_examples=20)


@pytest.mark.parametrize("objective", get_args(ObjectiveName))
def test_forward_and_backward_pass_of_every_method_read_no_value(objective: str) -> None:
    recipe = RECIPE.model_copy(update={"objective": objective})
    with torch.device("meta"):
        model = build_objective(SHAPE, 60, 4, recipe).train()
        batch = placeholder_batch(recipe, 4, 16)
    outputs = model(batch)
    weights = model.loss_weights
    counts = torch.ones(len(weights), device="meta")
    loss = (torch.stack([outputs.loss_sums[term] for term in weights if term in outputs.loss_sums])).sum()
    loss.backward()
    assert torch.cat([loss.detach()[None] / counts[:1], training_rates(outputs)]).is_meta
    assert any(parameter.grad is not None for parameter in model.parameters())


class ValuesRead(TorchDispatchMode):
    """Counter of tensors whose value the host reads."""

    count = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += function is torch.ops.aten._local_scalar_dense.default
        return function(*args, **(kwargs or {}))


def test_the_optimizer_skips_and_clips_without_reading_a_value() -> None:
    """Also at ZeRO 0, where the optimizer clips; a reading of the counter of skipped steps is seen."""
    layer = torch.nn.Linear(3, 3)
    groups = parameter_groups(torch.nn.Sequential(layer), 0.01)
    optimizer = ElectraAdamW(groups, lr=0.1, skip_non_finite=True, max_grad_norm=1.0)
    with ValuesRead() as values:
        for _ in range(2):
            layer(torch.randn(2, 3)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        assert values.count == 0
        optimizer.take_skipped()
    assert values.count == 1
