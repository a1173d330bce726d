"""The machine: values of ``auto`` in the ``cluster`` section, speed of matrix products, cores shared with others.

PyTorch uses libgomp's threads, which spin at the end of every operation, some milliseconds at most, until the slowest
thread is done. This is fastest on idle cores. If another process uses one of the cores, the slowest thread is one that
waits for a core while the others spin on it: training is twenty times slower beside one busy process on two cores.
``OMP_WAIT_POLICY=passive`` turns spinning off permanently, which halves the speed of a small model on idle cores.
Therefore this module shortens spinning only while other processes use the cores, and the run's log reports it.
Results do not change: the number of threads and their work stay the same.
"""

import ctypes
import os
import re
import shutil
import sysconfig
import threading
import time
import warnings
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

import torch
import torch.distributed

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
    compile: Literal["off", "layers", "model"] = "off"
    num_nodes: int = 1
    fits_itself: bool = False  # micro_batch_size is an upper bound, lowered by electra.cluster.estimate.memory.fitted


def resolve_machine(cluster: config.Cluster, batch_size: int) -> Machine:
    """Resolve the ``auto`` values for this machine.

    Raises:
        ConfigError: CUDA is requested but unavailable, or the batch does not split evenly.
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
        cluster.activation_checkpointing or ("auto" if device == "cuda" else "off"),
        choose_compile(cluster, device),
        cluster.num_nodes,
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
    """Return the precision of matrix products; ``auto`` is bf16 where it is faster than fp32."""
    if cluster.precision != "auto":
        return cluster.precision
    return "bf16" if device == "cuda" or is_bf16_faster() else "fp32"


def is_bf16_faster(cpuinfo: Path = Path("/proc/cpuinfo")) -> bool:
    """Return whether this CPU multiplies matrices faster in bf16 than in fp32.

    True with AMX. AVX-512's bf16 instructions are twice as fast as fp32's on AMD's processors; on an Intel Xeon without
    AMX they were half as fast (128 against 74 GFLOP/s for 1,024 x 128 x 512; 162 against 83 for wider matrices).
    Other CPUs emulate bf16.
    """
    try:
        text = cpuinfo.read_text()
    except OSError:
        return False
    return "amx_bf16" in text or ("avx512_bf16" in text and "AuthenticAMD" in text)


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


SECONDS_BETWEEN_LOOKS = 1.0
FIRST_LOOK = 0.3
SHORT_FROM, LONG_AGAIN = 0.4, 0.25  # hysteresis: cores that the threads lack
LOOKS_BEFORE_WARNING = 30
MIN_SHARE = 1 / 3  # share of the time that a run's threads could use
SECONDS_BETWEEN_WARNINGS = 600.0
_CHOSEN_BY_USER = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")


class ShortWaits:
    """Switch for libgomp's short spinning: 100 iterations instead of 300,000.

    libgomp shortens spinning itself while it manages more threads than there are cores (``gomp_managed_threads`` and
    ``gomp_throttled_spin_count_var`` in its sources). Switching on starts a second, sleeping team of threads to reach
    that number; the team ends with the thread that holds it.
    """

    def __init__(self) -> None:
        self._over: threading.Event | None = None

    @property
    def are_on(self) -> bool:
        return self._over is not None

    def switch(self, on: bool) -> None:
        """Switch short spinning on or off; no effect with another OpenMP runtime or a wait policy set by the user."""
        if on == self.are_on or any(name in os.environ for name in _CHOSEN_BY_USER):
            return
        if self._over is not None:
            self._over.set()
            self._over = None
        elif library := _libgomp():
            self._over, ready = threading.Event(), threading.Event()
            threading.Thread(target=_hold_team, args=(library, self._over, ready), daemon=True).start()
            ready.wait()


def _libgomp() -> ctypes.CDLL | None:
    """Return the libgomp that PyTorch has loaded, or None."""
    try:
        library = ctypes.CDLL("libgomp.so.1", mode=os.RTLD_NOW | os.RTLD_NOLOAD)
        return library if hasattr(library, "GOMP_parallel") else None
    except (OSError, AttributeError):  # not loaded; RTLD_NOLOAD does not exist on this system
        return None


def _hold_team(library: ctypes.CDLL, over: threading.Event, ready: threading.Event) -> None:
    nothing_to_do = ctypes.cast(library.omp_get_thread_num, ctypes.c_void_p)
    threads = library.omp_get_num_procs() + 1
    library.GOMP_parallel(nothing_to_do, None, ctypes.c_uint(threads), ctypes.c_uint(0))
    ready.set()
    over.wait()


class CoreWatch:
    """Monitor of how much of this machine's cores other processes use, in a thread that nearly always sleeps.

    Args:
        num_threads: number of threads of this process' operations.
        cores: numbers of the cores that this process may use.
    """

    def __init__(self, num_threads: int, cores: Collection[int]):
        self.num_threads, self.cores = num_threads, frozenset(cores)
        self.waits = ShortWaits()
        self.shares: deque[float] = deque(maxlen=LOOKS_BEFORE_WARNING)
        self.used_by_others = 0.0  # cores
        self._warned = float("-inf")
        self._seen: tuple[float, float, float] | None = None

    def start(self) -> "CoreWatch":
        threading.Thread(target=self._run, daemon=True, name="core-watch").start()
        return self

    def _run(self) -> None:
        while (busy := busy_seconds(self.cores)) is not None:
            self.look(time.monotonic(), busy, time.process_time())
            time.sleep(SECONDS_BETWEEN_LOOKS if self.shares else FIRST_LOOK)

    def look(self, now: float, busy: float, own: float) -> None:
        """Update the share of the cores from the times since the last call.

        Args:
            now, busy, own: cumulative seconds of the clock, of work on all cores, and of this process' work on them.
        """
        seen, self._seen = self._seen, (now, busy, own)
        if seen is None or now <= seen[0]:
            return
        elapsed, worked, by_us = (mine - before for mine, before in zip(self._seen, seen, strict=True))
        self.used_by_others = min(max(0.0, (worked - by_us) / elapsed), len(self.cores))
        left = len(self.cores) - self.used_by_others
        self.shares.append(min(1.0, left / self.num_threads))
        lacking = self.num_threads - left if self.num_threads > 1 else 0.0
        self.waits.switch(lacking > (LONG_AGAIN if self.waits.are_on else SHORT_FROM))

    def warning(self, now: float | None = None) -> str | None:
        """Return a warning if others left this run less than a third of its time for half a minute; else None.

        At most one every ``SECONDS_BETWEEN_WARNINGS``.
        """
        now = time.monotonic() if now is None else now
        if len(self.shares) < LOOKS_BEFORE_WARNING or now - self._warned < SECONDS_BETWEEN_WARNINGS:
            return None
        share = sum(self.shares) / len(self.shares)
        if share >= MIN_SHARE:
            return None
        self._warned = now
        return (
            f"WARNING other processes use the cores: {self.used_by_others:.1f} of {len(self.cores)} (load average "
            f"{os.getloadavg()[0]:.1f}). This run gets {share:.0%} of the time that its {self.num_threads} threads "
            "could use, and is as much slower; results are not affected. End the other processes, or give this one "
            "separate cores"
        )


def busy_seconds(cores: Collection[int], file: Path = Path("/proc/stat")) -> float | None:
    """Return how many seconds these cores have worked so far, for any process or other machine on the same host.

    None if the system does not report it.
    """
    try:
        lines = [line.split() for line in file.read_text().splitlines()]
        ticks = os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError):
        return None
    times = [[int(value) for value in values[:8]] for name, *values in lines if name in {f"cpu{n}" for n in cores}]
    # user, nice, system, idle, iowait, irq, softirq, steal
    return sum(sum(values) - values[3] - values[4] for values in times) / ticks if times else None


_watch: CoreWatch | None = None


def watch_cores(num_threads: int) -> CoreWatch:
    """Return this process' monitor, started at the first call, with its number of threads updated."""
    global _watch
    if _watch is None:
        _watch = CoreWatch(num_threads, os.sched_getaffinity(0)).start()
    _watch.num_threads = num_threads
    return _watch
