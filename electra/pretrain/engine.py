"""The DeepSpeed engine: its process group, its config derived from the settings, and what is set before a step.

Workarounds for DeepSpeed are in electra/pretrain/zero.py.
"""

import json
import os
import socket
import sys
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed

from electra import config
from electra.cluster.hardware import Machine, bucket_size, resolve_machine
from electra.cluster.processes import free_port
from electra.common.errors import ConfigError, InfrastructureError
from electra.objectives.base import Objective, build_objective
from electra.optim import Optimizer, build_optimizer, generator_rates, parameter_groups
from electra.pretrain.zero import average_without_copies, clips_in_step, create_moments, full_gradient, load_collectives


def prepare_environment(device: str) -> None:
    """Set the variables that DeepSpeed reads when it is imported."""
    os.environ.setdefault("DS_ACCELERATOR", device)
    # The op that DeepSpeed compiles at first use fits one torch only: keep it with this environment's. And build it
    # with this environment's ninja: another one on the PATH takes the finished build for unfinished and starts over.
    os.environ.setdefault("TORCH_EXTENSIONS_DIR", str(Path(sys.prefix) / "torch_extensions"))
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])


def start_distributed(machine: Machine, timeout: timedelta) -> None:
    """Join the process group; alone, a group of one on the loopback interface.

    Args:
        timeout: of waiting for the other processes to come, and of every operation with them.

    Raises:
        InfrastructureError: they have not all come.
    """
    prepare_environment(machine.device)
    if "MASTER_ADDR" not in os.environ:
        port = free_port()
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK="0", WORLD_SIZE="1", LOCAL_RANK="0")
    import deepspeed

    deepspeed.logger.setLevel("ERROR")
    if machine.device == "cuda":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)))
    load_collectives()
    backend = "nccl" if machine.device == "cuda" else "gloo"
    try:
        deepspeed.init_distributed(dist_backend=backend, timeout=timeout, verbose=False)
    except torch.distributed.DistError as error:  # the store's or the network's
        raise InfrastructureError(
            f"process {os.environ['RANK']} ({socket.gethostname()}) did not meet all {os.environ['WORLD_SIZE']} "
            f"processes: {str(error).splitlines()[0]}",
            where=f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}",
            next_step="look at the logs of the machines that are missing; cluster.timeout_minutes is the limit",
        ) from error


def host_group(machine: Machine, timeout: timedelta) -> Any:
    """Return a process group for numbers that the hosts agree on; None where the default one serves.

    What goes through NCCL is ordered behind the kernels of the step, and reading it waits for them all.
    """
    if machine.device == "cuda" and machine.num_processes > 1:
        return torch.distributed.new_group(backend="gloo", timeout=timeout)
    return None


def communication_device(machine: Machine) -> torch.device:
    """Return the device of tensors that the processes exchange: NCCL knows GPUs only."""
    return torch.device("cuda", torch.cuda.current_device()) if machine.device == "cuda" else torch.device("cpu")


def deepspeed_config(
    pretrain: config.Pretrain, machine: Machine, num_parameters: int = 0, added: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return DeepSpeed's config, derived from the settings, and the user's entries in it.

    Gradients are fp32 and are reduced in fp32, of all parameters: no module is listed as safe in a lower precision.

    Args:
        machine: the resolved ``cluster`` section.
        num_parameters: that are trained; decides the size of buckets.
        added: ``cluster.deepspeed.config``, whose entries are none that the project decides.
    """
    rows_per_round = machine.num_processes * machine.micro_batch_size
    on_cuda = machine.device == "cuda"
    zero: dict[str, Any] = {"stage": machine.zero_stage, "overlap_comm": False, "contiguous_gradients": True}
    if on_cuda and machine.zero_stage:
        size = bucket_size(num_parameters)
        zero.update(reduce_bucket_size=size, allgather_bucket_size=size, overlap_comm=machine.num_nodes > 1)
        if machine.zero_stage == 3:
            zero.update(stage3_prefetch_bucket_size=size // 4)
            del zero["allgather_bucket_size"]
    if machine.offload != "none":
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": on_cuda}
    if machine.offload == "parameters":
        zero["offload_param"] = {"device": "cpu", "pin_memory": on_cuda}
    derived = {
        "train_micro_batch_size_per_gpu": machine.micro_batch_size,
        "gradient_accumulation_steps": pretrain.batch_size // rows_per_round,
        "gradient_clipping": 0.0 if clips_in_step(machine) else pretrain.max_grad_norm,
        "zero_optimization": zero,
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,  # offloaded or not, the optimizer is the project's
        # fp32 weights, matrix products in bf16: the loss, softmax and sampling stay in fp32
        "torch_autocast": {
            "enabled": machine.precision == "bf16",
            "dtype": "bfloat16",
            "lower_precision_safe_modules": [],
        },
        "timers": {"throughput": {"enabled": False}},  # it waits for the device twice in every micro-batch
        "data_types": {"grad_accum_dtype": "fp32"},
        "steps_per_print": 2**31,
        "wall_clock_breakdown": False,
    }
    return merged(derived, added or {})


def describe_deepspeed(settings: config.Settings) -> str:
    """Return DeepSpeed's config on this machine as JSON."""
    machine = resolve_machine(settings.cluster, settings.pretrain.batch_size)
    with torch.device("meta"):
        model = build_objective(settings.model, settings.tokenizer.vocab_size, 0, settings.pretrain)
    num_parameters = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    added = settings.cluster.deepspeed.config
    return json.dumps(deepspeed_config(settings.pretrain, machine, num_parameters, added), indent=2)


def merged(settings: Mapping[str, Any], added: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``settings`` with added entries; tables are merged entry by entry."""
    found = dict(settings)
    for key, value in added.items():
        is_table = isinstance(value, Mapping) and isinstance(found.get(key), Mapping)
        found[key] = merged(found[key], value) if is_table else value
    return found


def build_engine(
    model: Objective, pretrain: config.Pretrain, machine: Machine, added: Mapping[str, Any] | None = None
) -> tuple[Any, Optimizer]:
    """Return the engine around a pre-training method, and its optimizer.

    Args:
        added: ``cluster.deepspeed.config``.

    Raises:
        ConfigError: DeepSpeed refuses an added entry.
    """
    import deepspeed
    from pydantic import ValidationError

    groups = parameter_groups(model, pretrain.weight_decay, generator_rates(model, pretrain.generator_rate))
    optimizer = build_optimizer(
        "adamw",
        groups,
        lr=0.0,  # set before every step; at zero, the step with which ZeRO creates its state changes nothing
        betas=(pretrain.adam_beta1, pretrain.adam_beta2),
        eps=pretrain.adam_epsilon,
        skip_non_finite=True,
        max_grad_norm=pretrain.max_grad_norm if clips_in_step(machine) else None,
    )
    num_parameters = sum(parameter.numel() for group in groups for parameter in group["params"])
    settings = deepspeed_config(pretrain, machine, num_parameters, added)
    try:
        engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=settings)
    except ValidationError as error:
        raise ConfigError(
            f"DeepSpeed refuses its configuration: {error.errors()[0]['loc'][-1]}: {error.errors()[0]['msg']}",
            where="cluster.deepspeed.config",
            next_step="electra config --deepspeed shows all of it",
        ) from error
    average_without_copies(engine, machine)
    create_moments(engine, optimizer)
    return engine, optimizer


def set_step(engine: Any, step: int, rate: float) -> None:
    """Set the optimizer's number of the next step (counted from 0) and its learning rate.

    Each group has its ``rate_factor`` of it: see :func:`~electra.optim.parameter_groups`.
    """
    for group in engine.optimizer.param_groups:
        group["lr"] = rate * group["rate_factor"]
        group["step_number"] = step


def seed_dropout(seed: int, step: int, micro_batch: int) -> None:
    """Seed the global generator, which dropout draws from, for one micro-batch.

    A resumed run repeats the same draws; so does one on another number of processes, if its micro-batches are as large.

    Args:
        micro_batch: its number in the step's whole batch, those of all processes counted.
    """
    torch.manual_seed((seed * 1_000_003 + step) * 65_537 + micro_batch)


def gradient_norms(engine: Any, part_of: Callable[[str], str]) -> dict[str, float]:
    """Return the norm of the whole gradient (``total``, what is clipped) and of each part, between backward and step.

    Every process must call it.

    Args:
        part_of: a parameter's part by its name.
    """
    gradients: dict[str, list[torch.Tensor]] = {}
    for name, parameter in engine.module.named_parameters():
        if parameter.requires_grad and (gradient := full_gradient(engine, parameter)) is not None:
            gradients.setdefault(part_of(name), []).append(gradient.float())
    if not gradients:
        return {"total": 0.0}
    each = [torch.linalg.vector_norm(torch.stack(torch._foreach_norm(part))) for part in gradients.values()]
    norms = dict(zip(gradients, torch.stack(each).tolist(), strict=True))  # waits for the device once
    return {"total": sum(norm**2 for norm in norms.values()) ** 0.5, **norms}
