"""The DeepSpeed engine: ZeRO, precision, accumulation and clipping from the settings; gradient norms; agreement.

Before a step the processes agree on counts and on requests to save or stop, without waiting for a device.
"""

import os
import socket
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed
from torch import Tensor

from electra import config
from electra.common.errors import InfrastructureError
from electra.model.objective import Batch, Objective
from electra.optim import ElectraAdamW, parameter_groups
from electra.system.hardware import Machine, bucket_size
from electra.system.processes import free_port


@dataclass
class Agreed:
    """One step's batches, and what all processes say of it.

    Attributes:
        counts: of each term over the global batch [terms], at least 1, on the CPU: what losses are divided by.
        save, stop: whether any process wants a checkpoint, or to end, so that none does while another goes on.
    """

    micro_batches: list[Batch]
    counts: Tensor
    save: bool
    stop: bool


class Agreement:
    """One small all-reduce for each step.

    On CUDA it is among the hosts (gloo) and a step ahead, so that it is over when its step begins; a wish to save or to
    stop is granted a step later for that.

    Args:
        count: the counts of a batch by term.
        terms: in the order of the counts.
        group: of processes; None for the default group.
        ahead: steps between asking and taking the answer: 0 or 1.
    """

    def __init__(self, count: Callable[[Batch], dict[str, Tensor]], terms: list[str], group: Any, ahead: int):
        self.count, self.terms, self.group, self.ahead = count, terms, group, ahead

    def of_steps(self, steps: Iterable[list[Batch]], wishes: Callable[[], tuple[bool, bool]]) -> Iterator[Agreed]:
        """Each step with what was agreed on.

        Args:
            wishes: whether this process wants to save, and to stop; asked when a step is drawn.
        """
        asked: deque[tuple[list[Batch], Tensor, Any]] = deque()
        for micro_batches in steps:
            asked.append((micro_batches, *self._ask(micro_batches, *wishes())))
            if len(asked) > self.ahead:
                yield self._answer(*asked.popleft())
        while asked:
            yield self._answer(*asked.popleft())

    def _ask(self, batches: list[Batch], save: bool, stop: bool) -> tuple[Tensor, Any]:
        counts = [self.count(batch) for batch in batches]
        totals = [sum(float(count[term]) for count in counts) for term in self.terms]
        shared = torch.tensor([*totals, float(save), float(stop)])
        if not torch.distributed.is_initialized() or torch.distributed.get_world_size() == 1:
            return shared, None
        return shared, torch.distributed.all_reduce(shared, group=self.group, async_op=True)

    def _answer(self, micro_batches: list[Batch], shared: Tensor, work: Any) -> Agreed:
        if work is not None:
            work.wait()
        *_, save, stop = shared.tolist()
        return Agreed(micro_batches, shared[:-2].clamp(min=1), save > 0, stop > 0)


def start_distributed(machine: Machine, timeout: timedelta) -> None:
    """Join the process group; alone, a group of one on the loopback interface.

    Args:
        timeout: of waiting for the other processes to come, and of every operation with them.

    Raises:
        InfrastructureError: they have not all come.
    """
    os.environ.setdefault("DS_ACCELERATOR", machine.device)
    # The op that DeepSpeed compiles at first use fits one torch only: keep it with this environment's. And build it
    # with this environment's ninja: another one on the PATH takes the finished build for unfinished and starts over.
    os.environ.setdefault("TORCH_EXTENSIONS_DIR", str(Path(sys.prefix) / "torch_extensions"))
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    if "MASTER_ADDR" not in os.environ:
        port = free_port()
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK="0", WORLD_SIZE="1", LOCAL_RANK="0")
    import deepspeed

    deepspeed.logger.setLevel("ERROR")
    if machine.device == "cuda":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)))
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
    """A process group for numbers that the hosts agree on; None where the default one serves.

    What goes through NCCL is ordered behind the kernels of the step, and reading it waits for them all.
    """
    if machine.device == "cuda" and machine.num_processes > 1:
        return torch.distributed.new_group(backend="gloo", timeout=timeout)
    return None


def deepspeed_config(pretrain: config.Pretrain, machine: Machine, num_parameters: int = 0) -> dict[str, Any]:
    """DeepSpeed's own settings, all derived: the project's settings stay the one source of truth.

    Gradients are fp32 and are reduced in fp32, of all parameters: no module is listed as safe in a lower precision.

    Args:
        machine: the resolved ``cluster`` section.
        num_parameters: that are trained; decides about the size of buckets.
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
    return {
        "train_micro_batch_size_per_gpu": machine.micro_batch_size,
        "gradient_accumulation_steps": pretrain.batch_size // rows_per_round,
        # at ZeRO 0 on CUDA the optimizer clips: DeepSpeed's function waits for the device twice
        "gradient_clipping": 0.0 if on_cuda and machine.zero_stage == 0 else pretrain.max_grad_norm,
        "zero_optimization": zero,
        "zero_allow_untested_optimizer": True,
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


def build_engine(model: Objective, pretrain: config.Pretrain, machine: Machine) -> tuple[Any, ElectraAdamW]:
    """The engine around a pre-training method: one module, one optimizer, one backward pass."""
    import deepspeed

    optimizer = ElectraAdamW(
        parameter_groups(model, pretrain.weight_decay, pretrain.generator_rate),
        lr=0.0,  # set before every step; at zero, the step with which ZeRO creates its state changes nothing
        betas=(pretrain.adam_beta1, pretrain.adam_beta2),
        eps=pretrain.adam_epsilon,
        guard=True,
        max_grad_norm=pretrain.max_grad_norm if machine.device == "cuda" and machine.zero_stage == 0 else None,
    )
    num_parameters = sum(parameter.numel() for group in optimizer.param_groups for parameter in group["params"])
    settings = deepspeed_config(pretrain, machine, num_parameters)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=settings)
    if machine.zero_stage == 0:
        _copy_less(engine, machine)
    _create_moments(engine, optimizer)
    return engine, optimizer


def _copy_less(engine: Any, machine: Machine) -> None:
    """Average gradients at ZeRO 0 without a copy of each parameter by itself; alone, there is nothing to average."""
    if machine.num_processes == 1:
        engine.enable_backward_allreduce = False
        return

    def allreduce_and_copy(bucket: list[torch.Tensor], dp_group: Any, dp_world_size: float | None = None) -> None:
        reduced = engine.allreduce_bucket(bucket, dp_group, dp_world_size)
        torch._foreach_copy_(bucket, list(engine.unflatten(reduced, bucket)))

    engine.allreduce_and_copy = allreduce_and_copy


def _create_moments(engine: Any, optimizer: ElectraAdamW) -> None:
    """Let ZeRO link every parameter to its part of the moments now.

    Left alone it links after the first step of the first parameter group, when the second group has none yet, and
    that group's moments can then be neither saved nor restored (DeepSpeed 0.19.8, ZeRO 1 to 3).
    """
    zero = engine.optimizer
    if engine.zero_optimization_stage() in (1, 2):
        optimizer.create_moments(zero.single_partition_of_fp32_groups)
        zero._lazy_init_hp_params_optimizer_state()
    elif engine.zero_optimization_stage() == 3:
        optimizer.create_moments(zero.fp32_partitioned_groups_flat)


def set_step(engine: Any, step: int, rate: float) -> None:
    """Tell the optimizer which step comes next (it counts from 0) and at which learning rate.

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
    """Norm of the whole gradient (``total``, what is clipped) and of each part, between backward and step.

    Every process must call it.

    Args:
        part_of: a parameter's part by its name.
    """
    from deepspeed.utils import safe_get_full_grad

    gradients: dict[str, list[torch.Tensor]] = {}
    for name, parameter in engine.module.named_parameters():
        if not parameter.requires_grad:
            continue
        gradient = parameter.grad if engine.zero_optimization_stage() == 0 else safe_get_full_grad(parameter)
        if gradient is not None:
            gradients.setdefault(part_of(name), []).append(gradient.float())
    if not gradients:
        return {"total": 0.0}
    each = [torch.linalg.vector_norm(torch.stack(torch._foreach_norm(part))) for part in gradients.values()]
    norms = dict(zip(gradients, torch.stack(each).tolist(), strict=True))  # waits for the device once
    return {"total": sum(norm**2 for norm in norms.values()) ** 0.5, **norms}
