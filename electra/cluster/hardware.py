"""The machine: values of ``auto`` in the ``cluster`` section, and the speed of matrix products."""

import os
import re
import shutil
import sysconfig
import time
import warnings
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

import torch
import torch.distributed

from electra import config
from electra.cluster.processor import SLOW_BF16, is_bf16_faster
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
    compile: Literal["off", "layers", "model"] = "off"
    num_nodes: int = 1
    offload: Literal["none", "optimizer", "parameters"] = "none"
    fits_itself: bool = False  # micro_batch_size is an upper bound, lowered by electra.cluster.estimate.memory.fitted


def resolve_machine(cluster: config.Cluster, batch_size: int) -> Machine:
    """Resolve the ``auto`` values; all nodes are taken to be as this machine.

    Raises:
        ConfigError: CUDA is requested but unavailable, or the batch does not split evenly.
    """
    device = choose_device(cluster)
    per_node = torch.cuda.device_count() if device == "cuda" else 1
    if cluster.num_processes != "auto":
        per_node = cluster.num_processes // cluster.num_nodes
    processes = per_node * cluster.num_nodes
    micro = cluster.micro_batch(batch_size, processes)
    threads = max(1, num_cores() // per_node) if cluster.num_threads == "auto" else cluster.num_threads
    return Machine(
        device,
        processes,
        choose_precision(cluster, device),
        cluster.zero_stage,
        micro,
        threads,
        cluster.activation_checkpointing or ("auto" if device == "cuda" else "off"),
        choose_compile(cluster, device),
        cluster.num_nodes,
        cluster.offload,
        device == "cuda" and cluster.micro_batch_size == "auto",
    )


def choose_compile(cluster: config.Cluster, device: Literal["cpu", "cuda"]) -> Literal["off", "layers", "model"]:
    """Return the part of the model to compile with torch.compile: on CUDA the whole forward pass, except with ZeRO 3.

    On CPUs the kernels of electra/model/kernels are faster than compiled code.

    Raises:
        ConfigError: compilation is requested on CUDA, but a C compiler or Python's headers are missing.
    """
    if cluster.compile != "auto" and (cluster.compile == "off" or device == "cpu"):
        return cluster.compile
    if device == "cpu" or cluster.zero_stage == 3:
        return "off"
    if trouble := compiler_trouble():
        if cluster.compile == "auto":
            print(f"{trouble}: running without torch.compile, which is slower", flush=True)
            return "off"
        raise ConfigError(trouble, where="cluster.compile", next_step="install it, or set cluster.compile: off")
    return "model" if cluster.compile == "auto" else cluster.compile


def num_cores() -> int:
    """Return the number of cores this process may use."""
    return len(os.sched_getaffinity(0))


def choose_device(cluster: config.Cluster) -> Literal["cpu", "cuda"]:
    """Return the device: CUDA if available, unless ``cluster.device`` names another.

    Raises:
        ConfigError: CUDA is requested but unavailable, or there is an NVIDIA driver that PyTorch cannot use: a run does
            not silently fall back to the CPU on a machine with a GPU.
    """
    if cluster.device == "cpu":
        return "cpu"
    has_cuda, trouble = cuda_state()
    if trouble or (cluster.device == "cuda" and not has_cuda):
        raise ConfigError(
            trouble or "there is no CUDA device",
            where="cluster.device",
            next_step="update the NVIDIA driver, or set cluster.device: cpu" if trouble else "use auto or cpu",
        )
    return "cuda" if has_cuda else "cpu"


@cache
def cuda_state() -> tuple[bool, str]:
    """Return whether PyTorch can use a CUDA device, and the problem if there is a driver that it cannot use.

    With a driver that is too old, PyTorch itself reports "no device" and warns once.
    """
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        available = torch.cuda.is_available()
    if available:
        return True, ""
    for warning in said:
        if "CUDA initialization" in str(warning.message):
            return False, "PyTorch cannot use CUDA here: " + str(warning.message).split("initialization:")[-1].strip()
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1")
    if torch.version.cuda and not hidden and Path("/proc/driver/nvidia/version").exists():
        return False, f"there is an NVIDIA driver, but PyTorch (CUDA {torch.version.cuda}) finds no device"
    return False, ""


def describe_cuda() -> str:
    """Return the CUDA environment for a run's first line: device, versions, NCCL's variables."""
    facts = [torch.cuda.get_device_name(), f"CUDA {torch.version.cuda}"]
    try:
        driver = re.search(r"\b\d+\.\d+\.\d+\b", Path("/proc/driver/nvidia/version").read_text())
        facts += [f"driver {driver.group()}"] if driver else []
    except OSError:
        pass  # hidden in some containers
    if torch.distributed.is_nccl_available():
        facts.append(f"NCCL {'.'.join(map(str, torch.cuda.nccl.version()))}")
    facts += [f"{name}={value}" for name, value in sorted(os.environ.items()) if name.startswith("NCCL_")]
    return "; " + ", ".join(facts)


def compiler_trouble() -> str:
    """Return what torch.compile on CUDA lacks ('' if nothing): Triton builds launchers with a C compiler."""
    compiler = os.environ.get("CC")
    if not any(map(shutil.which, [compiler] if compiler else ["gcc", "clang", "cc"])):
        return "there is no C compiler (gcc)"
    if not (Path(sysconfig.get_path("include")) / "Python.h").exists():
        return "Python's headers (Python.h, of python3-dev) are missing"
    return ""


def repeat_exactly(strict: bool) -> None:
    """Choose PyTorch's deterministic algorithms on CUDA; call it before the first matrix product.

    Args:
        strict: an operation without a deterministic algorithm is an error. Otherwise it runs with a warning, and the
            summation order in FlashAttention's backward pass is not fixed.
    """
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS is deterministic only with it
    torch.use_deterministic_algorithms(True, warn_only=not strict)
    # saves a kernel launch for every new tensor; all of them are written before they are read
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]


def choose_precision(cluster: config.Cluster, device: Literal["cpu", "cuda"]) -> Literal["fp32", "bf16"]:
    """Return the precision of matrix products; ``auto`` is bf16 where it is faster than fp32.

    Warns of bf16 on a CPU that has no fast instructions for it.
    """
    if cluster.precision == "bf16" and device == "cpu" and not is_bf16_faster():
        warnings.warn(SLOW_BF16, stacklevel=2)
    if cluster.precision != "auto":
        return cluster.precision
    return "bf16" if device == "cuda" or is_bf16_faster() else "fp32"


def matrix_peak(machine: Machine, size: int = 1024, seconds: float = 0.3) -> float:
    """Return the best rate of a matrix product on this process' device in FLOP/s, the reference for a step's rate."""
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


MOST_BUCKET = 50_000_000  # elements: 200 MB in fp32, large enough for the full bandwidth of NVLink and InfiniBand


def bucket_size(num_parameters: int) -> int:
    """Return the number of gradient elements that ZeRO on CUDA reduces at once.

    DeepSpeed's default of 5e8 would take a buffer of 2 GB.
    """
    return min(MOST_BUCKET, max(1_000_000, -(-num_parameters // 1024) * 1024))  # ZeRO refuses unaligned sizes
