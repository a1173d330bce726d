"""Pre-training on 1 and 2 processes with ZeRO 0 to 3: step time, memory, communicated bytes.

    python -m benchmarks.scaling --text path/to/text.txt --vocab path/to/vocab.txt

Weak scaling: every process has the same micro-batch and the same number of threads (or its own GPU), so that the step
would take the same time if communication were free. Real runs (``electra.pretrain``) of a few steps, one after the
other; bytes are counted at the collectives of torch.distributed and compared with the bytes that the method must move
(cost_model.py, docs/scaling.md).
"""

import argparse
import os
import shutil
import tempfile
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch

from benchmarks import measure
from benchmarks.cost_model import ZERO_STAGES, weights_of
from benchmarks.training_run import watched_run
from benchmarks.workspace import copy_text, files_source, run_stage, write_workspace
from electra.cluster.hardware import resolve_machine
from electra.common.artifacts import read_manifest, write_json
from electra.common.errors import ConfigError
from electra.common.paths import Paths
from electra.config import Settings

FIRST_STEPS = 2  # not counted


def main() -> None:
    parser = measure.argument_parser(__doc__, "scaling", repeats=1)
    parser.add_argument("--text", type=Path, required=True, help="documents separated by blank lines")
    parser.add_argument("--vocab", type=Path, required=True, help="vocab.txt")
    parser.add_argument("--bytes", type=int, default=4_000_000, help="of the text that are used")
    parser.add_argument("--profile", default="small")
    parser.add_argument("--micro-batch-size", type=int, default=8, help="examples per process and step")
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--stages", type=int, nargs="+", default=[0, 1, 2, 3], choices=ZERO_STAGES)
    parser.add_argument("--steps", type=int, default=8, help="counted steps of each run")
    options = parser.parse_args()
    device = measure.device_of(options)
    if device == "cuda" and max(options.processes) > torch.cuda.device_count():
        raise ConfigError(
            f"{max(options.processes)} processes need as many GPUs, there are {torch.cuda.device_count()}",
            next_step="give --processes 1",
        )
    runs: dict[str, list[list[dict[str, Any]]]] = {}
    configurations = [(processes, stage) for processes in options.processes for stage in options.stages]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        settings, paths = prepare(folder, options)
        for repeat in range(options.repeats):
            for processes, stage in configurations if repeat % 2 == 0 else configurations[::-1]:
                seen = run(folder, processes, stage, device, options)
                runs.setdefault(f"{processes} x ZeRO {stage}", []).append(seen)
                print(f"repeat {repeat + 1}: {processes} x ZeRO {stage} done", flush=True)
        weights = weights_of(settings, read_manifest(paths.tokenizer)["vocab_size"])
    bf16 = resolve_machine(settings.cluster, settings.pretrain.batch_size).precision == "bf16"
    result = {
        "machine": measure.machine(device),
        "shapes": {
            "profile": options.profile,
            "parameters": weights.all,
            "parameters_of_linear_layers": weights.linear,
            "precision": "bf16" if bf16 else "fp32",
            "micro_batch_size": options.micro_batch_size,
            "max_length": settings.shards.max_length,
            "threads_per_process": 1 if device == "cpu" else None,
            "steps": options.steps,
        },
        "runs": {name: summarise(found) for name, found in runs.items()},
        "expected_bytes": {
            f"{processes} x ZeRO {stage}": weights.payload(stage, bf16) for processes, stage in configurations
        },
    }
    measure.finish(options, result, as_table(result))


def prepare(folder: Path, options: argparse.Namespace) -> tuple[Settings, Paths]:
    """Write a workspace with shards of enough text."""
    copy_text(options.text, folder / "text.txt", options.bytes)
    settings, paths = settings_of(folder, 1, 0, "cpu", options)
    for stage in ("corpus", "tokenizer", "shards"):
        run_stage(folder, stage)
    return settings, paths


def settings_of(
    folder: Path, processes: int, stage: int, device: measure.Device, options: argparse.Namespace
) -> tuple[Settings, Paths]:
    cluster = {"device": device, "num_processes": processes, "zero_stage": stage, "num_threads": 1, "num_workers": 1}
    return write_workspace(
        folder,
        options.profile,
        {**cluster, "micro_batch_size": options.micro_batch_size},
        corpus={"sources": [files_source(folder / "text.txt")], "max_chars": 20_000_000, "held_out_fraction": 0.03},
        tokenizer={"vocab_file": str(options.vocab.resolve())},
        pretrain={
            "num_steps": FIRST_STEPS + options.steps,
            "batch_size": options.micro_batch_size * processes,
            "warmup_steps": 1,
            "eval_every": 10**6,
            "eval_examples": 8,
        },
    )


def run(
    folder: Path, processes: int, stage: int, device: measure.Device, options: argparse.Namespace
) -> list[dict[str, Any]]:
    settings_of(folder, processes, stage, device, options)
    shutil.rmtree(folder / "checkpoints", ignore_errors=True)
    return watched_run(folder, processes)


def summarise(repeats: list[list[dict[str, Any]]]) -> dict[str, Any]:
    """Return seconds over all repeats' steps, the largest process' memory, and bytes per step by collective."""
    first = [repeat[0] for repeat in repeats]
    steps = [seconds for seen in first for seconds in seen["steps"][FIRST_STEPS:]]
    moved = first[0]["bytes"][-2]  # not the last step, which also validates and saves
    return {
        "seconds_per_step": measure.summary(steps),
        "peak_rss_bytes": max(seen["peak_rss_bytes"] for repeat in repeats for seen in repeat),
        "peak_cuda_bytes": max(seen.get("peak_cuda_bytes", 0) for repeat in repeats for seen in repeat),
        "bytes_per_step": moved,
        "bytes_per_step_in_all": sum(moved.values()),
    }


def all_reduce(file: Path, device: measure.Device, sizes: Sequence[int], repeats: int) -> None:
    """Write the seconds of an all-reduce by size, seen from one process, and whether the sum is right."""
    from torch import distributed

    rank = int(os.environ["RANK"])
    if device == "cuda":
        torch.cuda.set_device(rank)
    distributed.init_process_group("nccl" if device == "cuda" else "gloo", timeout=timedelta(seconds=120))
    ranks, rows = distributed.get_world_size(), []
    is_right = True
    for size in sizes:
        values = torch.full((size // 4,), float(rank + 1), device=device)
        distributed.all_reduce(values)
        is_right = is_right and bool((values == ranks * (ranks + 1) / 2).all())
        begin = measure.clock(device)
        for _ in range(repeats):
            distributed.all_reduce(values)
        seconds = (measure.clock(device) - begin) / repeats
        rows.append({"bytes": size, "seconds": seconds, "bus_bytes_per_second": bus_rate(size, ranks, seconds)})
    if rank == 0:
        write_json(file, {"ranks": ranks, "sum_is_right": is_right, "rows": rows})
    distributed.barrier()
    distributed.destroy_process_group()


def bus_rate(size: int, ranks: int, seconds: float) -> float:
    """Return the bytes per second on each link: nccl-tests' "bus bandwidth" of an all-reduce."""
    return size * 2 * (ranks - 1) / ranks / seconds


def as_table(result: dict[str, Any]) -> str:
    rows = []
    for name, found in result["runs"].items():
        memory = found["peak_cuda_bytes"] or found["peak_rss_bytes"]
        rows.append(
            [
                name,
                measure.spread(found["seconds_per_step"], ".3f"),
                f"{memory / 2**30:.2f}",
                f"{found['bytes_per_step_in_all'] / 1e6:.1f}",
                f"{result['expected_bytes'][name] / 1e6:.1f}",
            ]
        )
    heading = ["processes", "s/step, median (min - max)", "peak GiB of a process", "MB a step, counted", "expected"]
    return measure.table(heading, rows)


if __name__ == "__main__":
    measure.run(main)
