"""All of a run's numbers as whole fp32 tensors by parameter name: free of world size and ZeRO stage.

DeepSpeed's own checkpoints are tied to both; these are gathered from, and scattered to, any layout.
"""

from typing import Any

import torch
import torch.distributed
from torch import Tensor, nn

from electra.optim import MOMENTS
from electra.system.hardware import Machine

Gathered = tuple[dict[str, Tensor], dict[str, Tensor]]  # weights, moments
Saved = tuple[dict[str, Any], dict[str, Tensor], dict[str, Tensor]]  # state, weights, moments


def gather_state(engine: Any, keep: bool = True, into: Gathered | None = None) -> Gathered:
    """Weights by name, and Adam's moments by ``<moment>.<name>``, on the CPU; every process must call it.

    Parameters at rest have no moments.

    Args:
        keep: whether this process wants them; the others only take part, and get nothing.
        into: the result of an earlier call that is no longer needed: its memory is used again. Fresh gigabytes
            cost more time than the copy into them.
    """
    old_weights, old_moments = into or ({}, {})
    from deepspeed.runtime.zero import GatheredParameters
    from deepspeed.utils import safe_get_full_fp32_param, safe_get_full_optimizer_state

    weights, moments = {}, {}
    for name, parameter in engine.module.named_parameters():
        parts: dict[str, Tensor] = {}
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
        if not keep:
            continue
        # ZeRO-3 hands out padded or flat tensors
        shape = getattr(parameter, "ds_shape", parameter.shape)
        weights[name] = _copy(full.reshape(shape), old_weights.get(name))
        for key, value in parts.items():
            moments[f"{key}.{name}"] = _copy(value.reshape(shape), old_moments.get(f"{key}.{name}"))
    return weights, moments


def _copy(value: Tensor, buffer: Tensor | None) -> Tensor:
    """In fp32 on the CPU, in ``buffer`` if there is one of this shape."""
    if buffer is None or buffer.shape != value.shape:
        buffer = torch.empty(value.shape, dtype=torch.float32)
    return buffer.copy_(value.detach())


def exchange_device(machine: Machine) -> torch.device:
    """Where tensors must lie for the processes to exchange them: NCCL knows GPUs only."""
    return torch.device("cuda", torch.cuda.current_device()) if machine.device == "cuda" else torch.device("cpu")


def share_state(saved: Saved | None, device: torch.device) -> Saved | None:
    """Broadcast what the first process has loaded: only its machine needs to see the checkpoints.

    Args:
        saved: state, weights and moments; looked at on the first process only.
        device: on which the processes exchange tensors.
    """
    if torch.distributed.get_world_size() == 1:
        return saved
    parts = saved[1:] if saved and torch.distributed.get_rank() == 0 else None
    told: list[Any] = [None]
    if saved and parts:
        told = [(saved[0], [{name: tuple(tensor.shape) for name, tensor in part.items()} for part in parts])]
    torch.distributed.broadcast_object_list(told, src=0, device=device)
    if told[0] is None:
        return None
    state, shapes = told[0]
    shared: list[dict[str, Tensor]] = [{}, {}]
    for number, shape_of in enumerate(shapes):
        for name, shape in shape_of.items():
            tensor = parts[number][name].to(device) if parts else torch.empty(shape, device=device)
            torch.distributed.broadcast(tensor, src=0)
            shared[number][name] = tensor.cpu()
    return state, shared[0], shared[1]


@torch.no_grad()
def scatter_state(engine: Any, weights: dict[str, Tensor], moments: dict[str, Tensor]) -> None:
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
            engine.optimizer.set_moments(parameter, parts)
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
