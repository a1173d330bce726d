"""All of a run's numbers as whole fp32 tensors by parameter name: free of world size and ZeRO stage.

DeepSpeed's own checkpoints are tied to both; these are gathered from, and scattered to, any layout.
"""

from typing import Any

import torch
from torch import Tensor, nn

MOMENTS = ("exp_avg", "exp_avg_sq")


def gather_state(engine: Any) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Weights by name, and Adam's moments by ``<moment>.<name>``, on the CPU; every process must call it.

    Parameters at rest have no moments.
    """
    from deepspeed.runtime.zero import GatheredParameters
    from deepspeed.utils import safe_get_full_fp32_param, safe_get_full_optimizer_state

    weights, moments = {}, {}
    for name, parameter in engine.module.named_parameters():
        parts = {}
        if not parameter.requires_grad:
            with GatheredParameters(parameter, enabled=engine.zero_optimization_stage() == 3):
                full = parameter.detach().clone()
        elif engine.zero_optimization_stage() == 0:
            state = engine.optimizer.state.get(parameter, {})
            full = parameter.detach()
            parts = {key: state.get(key, torch.zeros_like(parameter)) for key in MOMENTS}
        else:
            full = safe_get_full_fp32_param(parameter)
            parts = {key: safe_get_full_optimizer_state(parameter, key) for key in MOMENTS}
        # ZeRO-3 hands out padded or flat tensors
        shape = getattr(parameter, "ds_shape", parameter.shape)
        weights[name] = full.reshape(shape).float().cpu().clone()
        for key, value in parts.items():
            moments[f"{key}.{name}"] = value.reshape(shape).float().cpu().clone()
    return weights, moments


@torch.no_grad()
def scatter_state(engine: Any, weights: dict[str, Tensor], moments: dict[str, Tensor], step: int) -> None:
    """Put weights and moments back in whatever layout the engine has; every process must call it."""
    from deepspeed.runtime.zero import GatheredParameters
    from deepspeed.utils import safe_set_full_fp32_param, safe_set_full_optimizer_state

    stage = engine.zero_optimization_stage()
    for name, parameter in engine.module.named_parameters():
        device = parameter.device
        value = weights[name].to(device)
        if not parameter.requires_grad:
            continue  # loaded before the engine was built, and unchanged since
        parts = {key: moments[f"{key}.{name}"].to(device) for key in MOMENTS}
        if stage == 0:
            parameter.copy_(value)
            engine.optimizer.state[parameter] = {"step": torch.tensor(float(step)), **parts}
            continue
        if stage == 3:
            with GatheredParameters(parameter, modifier_rank=0):
                parameter.copy_(value)
        else:
            parameter.copy_(value)
        safe_set_full_fp32_param(parameter, value)
        for key, part in parts.items():
            safe_set_full_optimizer_state(parameter, part, key)


def load_weights(model: nn.Module, weights: dict[str, Tensor]) -> None:
    """Copy weights by name into a plain module; names and shapes must match exactly.

    Raises:
        KeyError: a parameter is missing from ``weights``.
    """
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(weights[name])
