"""Hours, memory and cost of pre-training: measured on this machine, and predicted for NVIDIA GPUs.

On GPUs, a run takes its FLOPs divided by a share of the device's bf16 peak; each step takes at least the host's time to
launch its kernels; and the gradients' all-reduce is added without overlap. The shares are the same as for the expected
rates of docs/gpu.md: derived from numbers of launches and the devices' rates, not measured, +-25%. Memory is that of a
traced step, on CPU tensors if PyTorch is built without CUDA: within 5% of CUDA's allocator for Small, Base and Large
without activation checkpointing.
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor

from electra.cluster.estimate.cost import Estimate, Speed, estimate, measure_speed
from electra.cluster.estimate.memory import FILL, predict_step_memory
from electra.cluster.hardware import Machine, choose_precision, resolve_machine
from electra.common.errors import ConfigError
from electra.config import Settings
from electra.config.methods import METHODS
from electra.model import layers
from electra.model.kernels import build

GIB = 2**30
MOST_FLOPS = 5e11  # per example; a step with more takes a CPU too long to measure
WIDTHS, SHARES = (0, 256, 768, 1024, 2048), (0.0, 0.07, 0.31, 0.40, 0.45)  # hidden size, share of an H100's peak
LAUNCH_SECONDS = 0.0174 / 24  # host time of a layer in a step, both passes: Small's 24 layers (docs/gpu-tests.md)


@dataclass(frozen=True)
class Device:
    """One kind of GPU.

    Attributes:
        peak_flops: dense bf16 FLOP/s.
        speed: speed of training relative to an H100.
        memory: bytes available to PyTorch.
        link: bytes per second to the other GPUs of the node, in one direction.
    """

    name: str
    peak_flops: float
    speed: float
    memory: int
    link: float


H100_FLOPS = 989e12
DEVICES = {
    "a100": Device("A100 80 GB", 312e12, 0.45, int(79.1 * GIB), 300e9),
    "h100": Device("H100 80 GB", H100_FLOPS, 1.0, int(79.1 * GIB), 450e9),
    "h200": Device("H200 141 GB", H100_FLOPS, 1.0, int(139.8 * GIB), 450e9),  # an H100's cores, more memory
}


def parse_gpu(text: str) -> tuple[int, Device]:
    """Return the number and the kind of GPUs that a text such as ``8xh100`` or ``h100`` names.

    Raises:
        ConfigError: the text has another form, or the kind is unknown.
    """
    found = re.fullmatch(r"(?:(\d{1,4})x)?([a-z]\w*)", text.strip().lower())
    device = DEVICES.get(found[2]) if found else None
    if found is None or device is None or found[1] == "0":
        raise ConfigError(
            f"{text!r} is no number of known GPUs",
            where="--gpu",
            next_step=f"such as 8xh100; known: {', '.join(DEVICES)}",
        )
    return int(found[1] or 1), device


def gpu_hours(settings: Settings, counted: Estimate, number: int, device: Device) -> float:
    """Return the expected hours of pre-training on GPUs of one node.

    Raises:
        ConfigError: the global batch does not split evenly over the GPUs.
    """
    recipe = settings.pretrain
    if recipe.batch_size % number:
        raise ConfigError(
            f"the global batch of {recipe.batch_size} examples does not split into {number} GPUs",
            where="--gpu",
            next_step=f"a divisor of {recipe.batch_size}",
        )
    share = float(np.interp(settings.model.hidden_size, WIDTHS, SHARES))
    generators = METHODS[recipe.objective].num_generators if recipe.trains_generator else 0
    num_layers = settings.model.num_layers * (1 + settings.model.generator_depth * generators)
    computing = max(
        counted.hardware_training_flops / (number * share * H100_FLOPS * device.speed),
        recipe.num_steps * num_layers * LAUNCH_SECONDS,
    )
    sending = recipe.num_steps * 2 * (number - 1) / number * 4 * counted.total_parameters / device.link
    return (computing + sending) / 3600


@dataclass(frozen=True)
class Fit:
    """Predicted memory of a step at one ZeRO stage.

    Attributes:
        bytes: peak of one process, with a micro-batch of ``examples``.
        most: largest micro-batch that fits into 85% of the device's memory; 0 if none does.
    """

    zero_stage: int
    examples: int
    bytes: int
    most: int


def gpu_memory(settings: Settings, number: int, device: Device) -> list[Fit]:
    """Return a step's memory and the largest micro-batch at every ZeRO stage, without activation checkpointing."""
    share, length = settings.pretrain.batch_size // number, settings.shards.max_length
    sizes = [size for size in range(1, share + 1) if share % size == 0]
    first = next((size for size in sizes if size * length >= 2048), sizes[-1])
    second = next((size for size in sizes if size > first), first)

    def peak(zero_stage: int, examples: int) -> int:
        machine = Machine("cuda", number, choose_precision(settings.cluster, "cuda"), zero_stage, examples, 1)
        with traced_as_on_cuda():
            return predict_step_memory(
                settings.model, settings.pretrain, machine, length, settings.tokenizer.vocab_size
            ).peak

    at_first = {stage: peak(stage, first) for stage in range(4)}
    slope = (peak(0, second) - at_first[0]) / (second - first) if second > first else 0.0
    limit = FILL * device.memory
    return [
        Fit(stage, first, size, max((n for n in sizes if size + slope * (n - first) <= limit), default=0))
        for stage, size in at_first.items()
    ]


@contextmanager
def traced_as_on_cuda() -> Iterator[None]:
    """Make a step on fake CPU tensors take the code path of CUDA: flash attention, PyTorch's own operations.

    Needed because only a build of PyTorch with CUDA can trace CUDA tensors; with one, this does nothing.
    """
    if torch.version.cuda:
        yield
        return
    fake: Any = FakeTensor
    norms: Any = layers.LayerNorm
    own_norm, switched = norms.forward, os.environ.get(build.OFF)

    os.environ[build.OFF] = "1"
    build.has_operators.cache_clear()
    fake.is_cuda, norms.forward = property(lambda _: True), nn.LayerNorm.forward
    try:
        yield
    finally:
        del fake.is_cuda  # uncovers the inherited property
        norms.forward = own_norm
        os.environ.pop(build.OFF)
        if switched is not None:
            os.environ[build.OFF] = switched
        build.has_operators.cache_clear()


def measured(settings: Settings, counted: Estimate) -> Speed | None:
    """Return the speed of this machine, measured for some seconds; None if a step would take its CPU too long."""
    machine = resolve_machine(settings.cluster, settings.pretrain.batch_size)
    if machine.device == "cpu" and counted.hardware_flops_per_example > MOST_FLOPS:
        return None
    return measure_speed(settings, settings.tokenizer.vocab_size)


def describe_machines(
    settings: Settings,
    *,
    gpu: str | None = None,
    rate: float | None = None,
    memory: bool = True,
    measure: bool = True,
) -> dict[str, Any]:
    """Return hours and cost on this machine and on GPUs, and the memory of a step on the GPUs named by ``gpu``.

    Args:
        gpu: number and kind of GPUs, such as ``8xh100``; None for one of each kind.
        rate: price of an hour of one GPU, and of this machine.
        memory: whether to predict memory at every ZeRO stage, if ``gpu`` is given.
        measure: whether to measure the speed of this machine.

    Raises:
        ConfigError: ``gpu`` is unknown, or the batch does not split evenly.
    """
    counted = estimate(settings)
    wanted = [parse_gpu(gpu)] if gpu else [(1, device) for device in DEVICES.values()]
    found: dict[str, Any] = {"profile": settings.profile, "hours": [], "memory": []}
    if measure:
        speed = measured(settings, counted)
        hours = None if speed is None else settings.pretrain.num_steps * speed.seconds_per_step / 3600
        found["hours"].append(_row("this machine", 1, hours, rate, asdict(speed) if speed else None))
    for number, device in wanted:
        found["hours"].append(
            _row(f"{number} x {device.name}", number, gpu_hours(settings, counted, number, device), rate)
        )
    if gpu and memory:
        number, device = wanted[0]
        found["memory"] = [asdict(fit) for fit in gpu_memory(settings, number, device)]
        found["device_bytes"] = device.memory
    return found


def _row(machine: str, number: int, hours: float | None, rate: float | None, speed: Any = None) -> dict[str, Any]:
    cost = None if rate is None or hours is None else hours * number * rate
    return {"machine": machine, "hours": hours, "cost": cost, **({"speed": speed} if speed else {})}


def render_machines(found: dict[str, Any]) -> str:
    """Return the result of :func:`describe_machines` as text."""
    lines = []
    for row in found["hours"]:
        if row["hours"] is None:
            text = "not measured: one step on this CPU takes too long"
        else:
            text = f"{shown_hours(row['hours'])} {'measured' if 'speed' in row else 'expected, +-25%'}"
            others = row.get("speed", {}).get("used_by_others", 0.0)
            text += f"; other processes use {others:.1f} cores, alone it is faster" if others >= 0.5 else ""
            text += f"; cost {row['cost']:,.2f}" if row["cost"] is not None else ""
        lines.append((f"hours, {row['machine']}", text))
    for fit in found["memory"]:
        most = (
            f"at most {fit['most']} examples at a time fit"
            if fit["most"]
            else "does not fit: see docs/long-sequences.md"
        )
        lines.append(
            (
                f"memory, ZeRO {fit['zero_stage']}",
                f"{fit['bytes'] / 1e9:.1f} GB with {fit['examples']} examples; {most}",
            )
        )
    return "".join(f"{name:<26}{text}\n" for name, text in lines)


def shown_hours(hours: float) -> str:
    """Format hours with two significant digits, the precision of the estimate."""
    return f"{hours:.2g}" if hours < 10 else f"{hours:,.0f}"
