"""Functions shared by all benchmarks: interleaved timing, medians with spread, machine facts, tables and JSON."""

import argparse
import datetime
import multiprocessing
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Literal

import torch

from electra.cluster.hardware import choose_device, compiler_trouble, describe_cuda, num_cores
from electra.common.artifacts import write_json
from electra.common.errors import ElectraError
from electra.config import Cluster

Device = Literal["cpu", "cuda"]
Side = Callable[[], float | None]  # returns seconds it measured itself; None: the whole call is timed
PACKAGES = ("torch", "transformers", "tokenizers", "datasets", "deepspeed", "numpy", "pyarrow")
_UNITS = ("avx512f", "avx512_bf16", "amx_bf16")  # flags in /proc/cpuinfo of the units for matrix products
_STATISTICS: dict[str, Callable[[Sequence[float]], float]] = {"median": statistics.median, "min": min, "max": max}


def interleave(
    sides: Mapping[str, Side], repeats: int, *, warmups: int = 1, device: Device = "cpu"
) -> dict[str, list[float]]:
    """Return the seconds of every side in every repeat; the order is reversed after every repeat.

    Changes of the machine's load affect neighbouring calls alike: compare within a repeat (:func:`ratios`).

    Args:
        warmups: calls of each side that are not counted (compilation, caches, memory pools).
        device: on CUDA the clock waits for the device.
    """
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for repeat in range(-warmups, repeats):
        for name in list(sides) if repeat % 2 == 0 else list(sides)[::-1]:
            begin = clock(device)
            own = sides[name]()
            taken = clock(device) - begin if own is None else own
            if repeat >= 0:
                seconds[name].append(taken)
                print(f"repeat {repeat + 1} of {repeats}, {name}: {taken:.4g} s", file=sys.stderr, flush=True)
    return seconds


def clock(device: Device = "cpu") -> float:
    """Return the time in seconds after waiting for the device's work."""
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


# Imported once for all sides; packages that are not installed are skipped.
SLOW_IMPORTS = ("torch", "deepspeed", "transformers.models.electra.modeling_electra")


class Apart:
    """Side in a separate process that lives as long as this one, so that sides share neither memory nor settings.

    Args:
        build: module-level function that creates the side in the process, called with ``arguments``.
        start: how the process begins. ``forkserver``, the default on a CPU, is as clean as a new interpreter and has
            the slow imports done; ``spawn``, the default on a GPU, imports again: imports may initialize CUDA, which
            does not survive a fork. ``fork`` is for a process without threads and CUDA.
    """

    def __init__(
        self,
        device: Device,
        build: Callable[..., Side],
        *arguments: Any,
        start: Literal["forkserver", "spawn", "fork"] | None = None,
    ):
        start = start or ("forkserver" if device == "cpu" else "spawn")
        context = multiprocessing.get_context(start)
        if start == "forkserver":
            context.set_forkserver_preload([*SLOW_IMPORTS, build.__module__])
        self._here, there = context.Pipe()
        # every context has `Process`, but the type of their base class does not declare it
        self.process = context.Process(  # type: ignore[attr-defined]
            target=_serve, args=(there, device, build, arguments), daemon=True
        )
        self.process.start()
        there.close()

    def __call__(self, timeout: float | None = None) -> float:
        """Call the side in its process and return the seconds.

        Raises:
            EOFError: the process has died.
            TimeoutError: the call took longer than ``timeout`` seconds.
        """
        try:
            self._here.send("go")
        except BrokenPipeError as error:
            raise EOFError from error
        if not self._here.poll(timeout):
            raise TimeoutError
        return self._here.recv()

    def end(self) -> None:
        """Kill the process, which frees its memory."""
        self.process.kill()
        self.process.join()


def apart(device: Device, build: Callable[..., Side], *arguments: Any) -> Side:
    """Return a side that runs in a separate process (:class:`Apart`)."""
    return Apart(device, build, *arguments)


def _serve(commands: Connection, device: Device, build: Callable[..., Side], arguments: tuple[Any, ...]) -> None:
    side = build(*arguments)
    with suppress(EOFError):  # the parent process has ended
        while commands.recv():
            begin = clock(device)
            own = side()
            commands.send(clock(device) - begin if own is None else own)


def device_spans(steps: Callable[[], Any]) -> list[tuple[float, float]]:
    """Return begin and end of each operation of the device during ``steps``, from PyTorch's profiler."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as found:
        steps()
        torch.cuda.synchronize()
    on_device = (event for event in found.events() if event.device_type == torch.autograd.DeviceType.CUDA)
    return [(event.time_range.start, event.time_range.end) for event in on_device]


def idle_share(spans: Iterable[tuple[float, float]]) -> float | None:
    """Return the share of the time between the first and the last span without any span; None without spans."""
    begin = reached = None
    busy = 0.0
    for start, end in sorted(spans):
        begin, reached = (start, start) if begin is None or reached is None else (begin, reached)
        busy += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return None if begin is None or reached is None or reached <= begin else 1 - busy / (reached - begin)


def summary(values: Sequence[float]) -> dict[str, Any]:
    """Return median, spread and the values of all repeats, to five digits."""
    return {**{name: _short(of(values)) for name, of in _STATISTICS.items()}, "repeats": [_short(v) for v in values]}


def rates(amount: float, seconds: Sequence[float]) -> dict[str, Any]:
    """Return a summary of ``amount`` (tokens, sentences) per second."""
    return summary([amount / taken for taken in seconds])


def ratios(seconds: Mapping[str, Sequence[float]], over: str) -> dict[str, dict[str, Any]]:
    """Return each other side's seconds over those of ``over`` in the same repeat, the speed-up of ``over``."""
    return {
        name: summary([mine / its for mine, its in zip(values, seconds[over], strict=True)])
        for name, values in seconds.items()
        if name != over
    }


def machine(device: Device = "cpu") -> dict[str, Any]:
    """Return the machine and the versions of libraries for a measurement."""
    flags = set(_cpu_field("flags").split())
    return {
        "date": datetime.date.today().isoformat(),
        "device": torch.cuda.get_device_name() if device == "cuda" else _cpu_field("model name"),
        "cores": num_cores(),
        "threads": torch.get_num_threads(),
        "matrix_units": [unit for unit in _UNITS if unit in flags],
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "revision": _revision(),
        "python": platform.python_version(),
        **{package: found for package in PACKAGES if (found := _version(package))},
    }


def find_facts(file: Path, device: Device) -> None:
    """Write machine, versions and each device's name, capability and memory."""
    facts: dict[str, Any] = {"machine": machine(device), "devices": [], "compiler": compiler_trouble()}
    if device == "cuda":
        for number in range(torch.cuda.device_count()):
            properties = torch.cuda.get_device_properties(number)
            free, total = torch.cuda.mem_get_info(number)
            capability = f"{properties.major}.{properties.minor}"
            facts["devices"].append(
                {"name": properties.name, "capability": capability, "free_bytes": free, "total_bytes": total}
            )
        facts["software"] = describe_cuda().removeprefix("; ")
    write_json(file, facts)


def mean_and_spread(values: Sequence[float], digits: int) -> str:
    """Format mean ± standard deviation; '' without values."""
    if not values:
        return ""
    spread = f" ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.{digits}f}{spread}"


def table(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    return "\n".join(["| " + " | ".join(row) + " |" for row in (heading, ["---"] * len(heading), *rows)])


def spread(found: Mapping[str, Any], form: str = ",.0f", unit: str = "") -> str:
    """Format a summary for a table as ``median (min - max)``."""
    return f"{found['median']:{form}}{unit} ({found['min']:{form}} - {found['max']:{form}})"


def argument_parser(doc: str, name: str, *, repeats: int = 5) -> argparse.ArgumentParser:
    """Return a parser with the options of every benchmark: --repeats, --device, --write."""
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=repeats)
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--write", type=Path, default=Path(f"logs/benchmarks/{name}.json"))
    return parser


def device_of(options: argparse.Namespace) -> Device:
    """Return the requested device.

    Raises:
        ConfigError: CUDA is requested but unavailable.
    """
    return choose_device(Cluster(device=options.device))


def finish(options: argparse.Namespace, result: dict[str, Any], text: str) -> None:
    """Print the table and write the figures."""
    write_json(options.write, result)
    print(text)
    print(f"written: {options.write}")


def run(main: Callable[[], None]) -> None:
    """Run a benchmark; as in the project's commands, a user's mistake ends with a message and its exit code."""
    try:
        main()
    except ElectraError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)


def _short(value: float) -> float:
    return float(f"{value:.5g}")


def _cpu_field(name: str) -> str:
    """Return a field of the first processor in /proc/cpuinfo; the architecture if the field does not exist."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), platform.machine())


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _revision() -> str:
    """Return the current commit, marked if files have changed since."""
    described = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    return described.stdout.strip() or "unknown"
