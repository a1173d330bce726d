"""Corners of DeepSpeed 0.19.8 that this project works around, each with the reason; config and engine: engine.py.

The state of a run is gathered as whole fp32 tensors by parameter name: DeepSpeed's own checkpoints are tied to world
size and ZeRO stage. All private attributes of DeepSpeed are named here, and nowhere else.
"""

import os
import shutil
from pathlib import Path
from typing import Any

import torch
import torch.distributed
from torch import Tensor

from electra.cluster.hardware import Machine
from electra.common.locks import exclusive
from electra.common.output import beside
from electra.optim import Optimizer


def load_collectives() -> None:
    """Build and load DeepSpeed's op for collectives on a CPU, one process of this environment at a time.

    torch marks a build by a file in its folder (FileBaton, torch 2.13). A process that is killed while it compiles
    leaves the file behind, and every later one waits for it without end or message. Our lock is freed by the system:
    whoever holds it knows that the file is left over. The whole folder is moved away, since compilers of the killed
    process may still write there.
    """
    import deepspeed
    from deepspeed.accelerator import get_accelerator
    from deepspeed.git_version_info import installed_ops

    builder = get_accelerator().create_op_builder("ShareMemCommBuilder")
    if builder is None or not deepspeed.ops.__compatible_ops__.get(builder.NAME, False):
        return  # DeepSpeed does without
    if installed_ops.get(builder.name):
        return  # compiled when DeepSpeed was installed
    folder = Path(os.environ["TORCH_EXTENSIONS_DIR"]) / builder.name
    with exclusive(folder, wait=True) as is_locked:
        if is_locked and (folder / "lock").exists():
            print(f"a build of {folder.name} was cut short: it is removed from {folder} and starts anew", flush=True)
            scratch = beside(folder, ".cut-short")
            shutil.rmtree(scratch, ignore_errors=True)
            os.replace(folder, scratch)
            shutil.rmtree(scratch, ignore_errors=True)
        builder.load(verbose=False)


Gathered = tuple[dict[str, Tensor], dict[str, Tensor]]  # weights, moments


def backward(engine: Any, share: Tensor | float) -> None:
    """Run the backward pass of this process's share of a sum.

    DeepSpeed divides by the accumulation steps and averages over the processes, as for a mean of means. Both factors
    are undone here.
    """
    engine.backward(share * torch.distributed.get_world_size() * engine.gradient_accumulation_steps())


def clips_in_step(machine: Machine) -> bool:
    """Return whether the optimizer clips instead of DeepSpeed, whose function waits for the device twice.

    Only ZeRO 0 has whole gradients on every process.
    """
    return machine.device == "cuda" and machine.zero_stage == 0


def average_without_copies(engine: Any, machine: Machine) -> None:
    """Average gradients at ZeRO 0 without a copy of each parameter by itself; alone, there is nothing to average.

    DeepSpeed copies every reduced gradient back in a call of its own: on CUDA hundreds of launches a step.
    """
    if machine.zero_stage != 0:
        return
    if machine.num_processes == 1:
        engine.enable_backward_allreduce = False
        return

    def allreduce_and_copy(bucket: list[Tensor], dp_group: Any, dp_world_size: float | None = None) -> None:
        reduced = engine.allreduce_bucket(bucket, dp_group, dp_world_size)
        torch._foreach_copy_(bucket, list(engine.unflatten(reduced, bucket)))

    engine.allreduce_and_copy = allreduce_and_copy


def create_moments(engine: Any, optimizer: Optimizer) -> None:
    """Let ZeRO link every parameter to its part of the moments now.

    Left alone it links after the first step of the first parameter group, when the second group has none yet, and
    that group's moments can then be neither saved nor restored (ZeRO 1 to 3).
    """
    zero = engine.optimizer
    if engine.zero_optimization_stage() in (1, 2):
        optimizer.create_moments(zero.single_partition_of_fp32_groups)
        zero._lazy_init_hp_params_optimizer_state()
    elif engine.zero_optimization_stage() == 3:
        optimizer.create_moments(zero.fp32_partitioned_groups_flat)


def take_skipped(engine: Any, optimizer: Optimizer) -> int:
    """Return the steps skipped for non-finite gradients since the last call, the same number on every process.

    ZeRO 1 to 3 skip before the optimizer sees the gradients, and count by themselves. Waits for the device.
    """
    by_zero, engine.skipped_steps = engine.skipped_steps, 0
    return optimizer.take_skipped() + int(by_zero)


def full_gradient(engine: Any, parameter: Tensor) -> Tensor | None:
    """Return the whole gradient of a parameter, between backward pass and step; every process must call it."""
    if engine.zero_optimization_stage() == 0:
        return parameter.grad
    from deepspeed.utils import safe_get_full_grad

    gradient: Tensor | None = safe_get_full_grad(parameter)
    return gradient


def gather_state(engine: Any, keep: bool = True, into: Gathered | None = None) -> Gathered:
    """Return weights by name and the optimizer's moments by ``<moment>.<name>``, on the CPU.

    Every process must call it. Frozen parameters have no moments.

    Args:
        keep: whether this process keeps them; the others only take part in the exchange, and get nothing.
        into: the result of an earlier call that is no longer needed: its memory is used again. Fresh gigabytes
            cost more time than the copy into them.
    """
    from deepspeed.runtime.zero import GatheredParameters
    from deepspeed.utils import safe_get_full_fp32_param, safe_get_full_optimizer_state

    old_weights, old_moments = into or ({}, {})
    names = _optimizer(engine).moments
    weights, moments = {}, {}
    for name, parameter in engine.module.named_parameters():
        parts: dict[str, Tensor] = {}
        if not parameter.requires_grad:
            with GatheredParameters(parameter, enabled=engine.zero_optimization_stage() == 3):
                full = parameter.detach().clone()
        elif engine.zero_optimization_stage() == 0:
            state = engine.optimizer.state.get(parameter, {})
            full = parameter.detach()
            parts = {key: state.get(key, torch.zeros_like(parameter)) for key in names}
        else:
            full = safe_get_full_fp32_param(parameter)
            parts = {key: safe_get_full_optimizer_state(parameter, key) for key in names}
        if not keep:
            continue
        # ZeRO-3 hands out padded or flat tensors
        shape = getattr(parameter, "ds_shape", parameter.shape)
        weights[name] = _copy(full.reshape(shape), old_weights.get(name))
        for key, value in parts.items():
            moments[f"{key}.{name}"] = _copy(value.reshape(shape), old_moments.get(f"{key}.{name}"))
    return weights, moments


def _copy(value: Tensor, buffer: Tensor | None) -> Tensor:
    """Return a copy in fp32 on the CPU, in ``buffer`` if there is one of this shape."""
    if buffer is None or buffer.shape != value.shape:
        buffer = torch.empty(value.shape, dtype=torch.float32)
    return buffer.copy_(value.detach())


@torch.no_grad()
def scatter_state(engine: Any, weights: dict[str, Tensor], moments: dict[str, Tensor]) -> None:
    """Copy gathered weights and moments into the layout of an engine; every process must call it."""
    from deepspeed.runtime.zero import GatheredParameters
    from deepspeed.utils import (
        safe_set_full_fp32_param,
        safe_set_full_optimizer_state,
        safe_set_local_fp32_param,
        safe_set_local_optimizer_state,
    )

    stage, names = engine.zero_optimization_stage(), _optimizer(engine).moments
    for name, parameter in engine.module.named_parameters():
        device = parameter.device
        value = weights[name].to(device)
        if not parameter.requires_grad:
            continue  # loaded before the engine was built, and unchanged since
        parts = {key: moments[f"{key}.{name}"].to(device) for key in names}
        if stage == 0:
            parameter.copy_(value)
            engine.optimizer.set_moments(parameter, parts)
            continue
        if stage == 3:
            with GatheredParameters(parameter, modifier_rank=0):
                parameter.copy_(value)
            safe_set_local_fp32_param(parameter, _own_partition(parameter, value))
            for key, part in parts.items():
                safe_set_local_optimizer_state(parameter, _own_partition(parameter, part), key)
            continue
        parameter.copy_(value)
        safe_set_full_fp32_param(parameter, value)
        for key, part in parts.items():
            safe_set_full_optimizer_state(parameter, part, key)


def _own_partition(parameter: Any, value: Tensor) -> Tensor:
    """Return this process's partition of a whole tensor at ZeRO 3: flat, the last one padded with zeros.

    DeepSpeed's ``safe_set_full_*`` do not pad: they fail on tensors that the processes do not divide evenly, such as a
    bias of one number.
    """
    size = parameter.ds_tensor.numel()
    padded = torch.nn.functional.pad(value.flatten(), (0, size * torch.distributed.get_world_size() - value.numel()))
    return padded.narrow(0, size * torch.distributed.get_rank(), size)


def _optimizer(engine: Any) -> Optimizer:
    """Return the optimizer itself, which ZeRO 1 to 3 wrap."""
    optimizer: Optimizer = getattr(engine.optimizer, "optimizer", engine.optimizer)
    return optimizer
