"""The machine: what ``auto`` in the ``cluster`` section means here, and how fast its matrix products are."""

import os
import time
from dataclasses import dataclass
from typing import Literal

import torch

from electra import config
from electra.common.errors import ConfigError


@dataclass(frozen=True)
class Machine:
    """The ``cluster`` section with every ``auto`` resolved."""

    device: Literal["cpu", "cuda"]
    num_processes: int
    precision: Literal["fp32", "bf16"]
    zero_stage: int
    micro_batch_size: int
    num_threads: int
    activation_checkpointing: Literal["auto", "off", "layers"] = "off"
    compile_layers: bool = False


def resolve_machine(cluster: config.Cluster, batch_size: int) -> Machine:
    """Fill in the ``auto`` values.

    Raises:
        ConfigError: CUDA is asked for and not there, or the batch does not split evenly.
    """
    device = choose_device(cluster)
    processes = torch.cuda.device_count() if device == "cuda" else 1
    if cluster.num_processes != "auto":
        processes = cluster.num_processes
    micro = max(1, batch_size // processes) if cluster.micro_batch_size == "auto" else cluster.micro_batch_size
    if batch_size % (processes * micro):
        raise ConfigError(
            f"the global batch of {batch_size} does not split into {processes} processes x micro-batches of {micro}",
            where="cluster.micro_batch_size",
            next_step=f"choose a divisor of {batch_size // processes if batch_size % processes == 0 else batch_size}",
        )
    threads = max(1, num_cores() // processes) if cluster.num_threads == "auto" else cluster.num_threads
    return Machine(
        device,
        processes,
        choose_precision(cluster, device),
        cluster.zero_stage,
        micro,
        threads,
        cluster.activation_checkpointing,
        # on CPUs the loops of electra/model/kernels are faster than what the compiler makes
        cluster.compile == "layers" or (cluster.compile == "auto" and device == "cuda" and cluster.zero_stage < 3),
    )


def num_cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0))


def choose_device(cluster: config.Cluster) -> Literal["cpu", "cuda"]:
    """CUDA where there is one, unless told otherwise.

    Raises:
        ConfigError: CUDA is asked for and not there.
    """
    has_cuda = torch.cuda.is_available()
    if cluster.device == "cuda" and not has_cuda:
        raise ConfigError("there is no CUDA device", where="cluster.device", next_step="use auto or cpu")
    return "cuda" if has_cuda and cluster.device != "cpu" else "cpu"


def choose_precision(cluster: config.Cluster, device: Literal["cpu", "cuda"]) -> Literal["fp32", "bf16"]:
    """bf16 for matrix products where the device has units for it, unless told otherwise."""
    if cluster.precision != "auto":
        return cluster.precision
    return "bf16" if device == "cuda" or _has_bf16_matrix_units() else "fp32"


def _has_bf16_matrix_units() -> bool:
    """CPUs without them emulate bf16 and are slower than in fp32."""
    try:
        with open("/proc/cpuinfo") as file:
            flags = file.read()
            return "amx_bf16" in flags or "avx512_bf16" in flags
    except OSError:
        return False


def matrix_peak(machine: Machine, size: int = 1024, seconds: float = 0.3) -> float:
    """Best rate of one matrix product on this process' device, FLOP/s: what a step's rate is compared with."""
    dtype = torch.bfloat16 if machine.precision == "bf16" else torch.float32
    size *= 8 if machine.device == "cuda" else 1
    a, b = (torch.randn(size, size, dtype=dtype, device=machine.device) for _ in range(2))
    best, deadline = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < deadline:
        start = time.perf_counter()
        a @ b
        if machine.device == "cuda":
            torch.cuda.synchronize()
        best = min(best, time.perf_counter() - start)
    return 2 * size**3 / best
