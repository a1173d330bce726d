"""Pre-training runs of equal hardware FLOPs on the same data, each in a separate workspace, and their fine-tuning.

Existing results are not computed again, so an interrupted call can be repeated.
"""

import datetime
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import yaml

from benchmarks import measure
from electra.cluster.estimate.cost import tokens_and_flops
from electra.cluster.hardware import choose_precision
from electra.common.artifacts import read_json
from electra.common.errors import InfrastructureError
from electra.common.paths import Paths
from electra.config import Settings
from electra.results.evaluate import scores_of_run
from electra.tasks.catalogue import find_spec
from electra.tasks.matrix import PRETRAINED, SCRATCH, finetuned_name, read_rows

ROOT = Path(__file__).resolve().parents[1]
NOTES = "commands.jsonl"  # of a workspace: its commands and what they cost


def vocab_size_of(paths: Paths) -> int:
    return read_json(paths.shards / "manifest.json")["vocab_size"]


def training_flops(settings: Settings, vocab_size: int) -> float:
    """Return the hardware FLOPs of a run."""
    return tokens_and_flops(settings, vocab_size)[1]


def steps_that_cost(flops: float, settings: Settings, vocab_size: int) -> int:
    """Return the number of steps of these settings that costs ``flops``; their ``num_steps`` is ignored."""
    per_step = training_flops(settings, vocab_size) / settings.pretrain.num_steps
    return round(flops / per_step)


def scaled(settings: Settings, steps: int, seeds: list[int], processes: int = 1) -> Settings:
    """Return settings with warm-up scaled to the steps, four validations, and processes of one thread each."""
    values = json.loads(settings.model_dump_json())
    scale = steps / values["pretrain"]["num_steps"]
    values["pretrain"].update(
        num_steps=steps,
        warmup_steps=round(values["pretrain"]["warmup_steps"] * scale),
        eval_every=max(1, steps // 4),
    )
    values["cluster"].update(num_threads=1, num_processes=processes)
    values["cells"].update(seeds=seeds)
    return Settings.model_validate(values)


def write_workspace(
    folder: Path, settings: Settings, data: Path, steps: int, seeds: list[int], processes: int = 1
) -> None:
    """Write a workspace: settings with schedule and warm-up scaled to the steps, and links to existing data."""
    (folder / "params").mkdir(parents=True, exist_ok=True)
    if not (folder / "data").exists():
        (folder / "data").symlink_to(data.resolve())
    values = json.loads(scaled(settings, steps, seeds, processes).model_dump_json())
    common = {name: values.pop(name) for name in ("profile", "fidelity", "cells", "cluster")}
    (folder / "params.yaml").write_text(yaml.safe_dump(common))
    (folder / f"params/{settings.profile}.yaml").write_text(yaml.safe_dump(values))


def pretrained(folder: Path) -> dict[str, float]:
    """Pre-train in a workspace and return the figures of the last validation."""
    paths = Paths(folder)
    if not (paths.results / "pretrain.json").exists():
        electra(folder, "pretrain")
    figures = read_json(paths.results / "pretrain.json")
    return {name: figures[name] for name in figures if name not in ("step", "examples_seen")}


def pretrained_at_cost(
    folder: Path, settings: Settings, data: Path, flops: float, processes: int = 1
) -> dict[str, Any]:
    """Pre-train in a workspace with the number of steps that costs ``flops``; return cost, figures and machine."""
    steps = steps_that_cost(flops, settings, read_json(data / "shards/manifest.json")["vocab_size"])
    write_workspace(folder, settings, data, steps, [1], processes)
    pretrained(folder)
    figures = read_json(Paths(folder).results / "pretrain.json")
    return {
        "steps": steps,
        "tokens": steps * settings.pretrain.batch_size * settings.shards.max_length,
        "flops": flops,
        "processor_seconds": processor_seconds(folder),
        "heldout": {name: round(value, 5) for name, value in figures.items()},
        "precision": choose_precision(settings.cluster, "cpu"),
        "machine": measure.machine(),
    }


def fine_tuned(folder: Path, tasks: list[str], seeds: list[int], scratch: bool) -> dict[str, Any]:
    """Fine-tune all tasks with all seeds in a workspace, from its pre-trained or from random weights, and score them.

    Returns:
        ``mean``: mean of the tasks' medians over the seeds; ``mean_by_seed``; ``tasks``: values by seed, percent.
    """
    paths, start = Paths(folder), SCRATCH if scratch else PRETRAINED
    scores: dict[str, list[float]] = {}
    for task in tasks:
        spec = find_spec(paths.tasks, task)
        rows = {split: read_rows(paths, task, split) for split in spec.dev_splits}
        for seed in seeds:
            if not (paths.finetuned(finetuned_name(task, seed, start)) / "manifest.json").exists():
                electra(folder, "finetune", "--task", task, "--seed", str(seed), *start.option.split())
            scores.setdefault(task, []).append(scores_of_run(paths, spec, rows, seed, start)[spec.headline])
    means = [statistics.fmean(values[number] for values in scores.values()) for number in range(len(seeds))]
    return {
        "mean": round(statistics.fmean(statistics.median(values) for values in scores.values()), 2),
        "mean_by_seed": [round(mean, 2) for mean in means],
        "tasks": {task: [round(value, 2) for value in values] for task, values in scores.items()},
    }


def electra(folder: Path, *arguments: str) -> dict[str, Any]:
    """Run one command of the project in a workspace, on one thread; its output goes to a log file there.

    Appends a note to ``commands.jsonl`` beside the log when it begins, and one with its wall and processor seconds
    when it ends, which is returned.

    Raises:
        InfrastructureError: the command failed.
    """
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
    append_note(folder, {"command": list(arguments), "began": datetime.datetime.now().isoformat(timespec="seconds")})
    begin = time.perf_counter()
    with (
        open(folder / "log.txt", "a") as log,
        subprocess.Popen(
            [sys.executable, "-m", "electra", *arguments],
            cwd=folder,
            env={**environment, "PYTHONPATH": str(ROOT)},
            stdout=log,
            stderr=subprocess.STDOUT,
        ) as process,
    ):
        try:
            _, status, used = os.wait4(process.pid, 0)  # resources of this child only: others run at the same time
        except BaseException:
            process.kill()
            raise
        process.returncode = os.waitstatus_to_exitcode(status)
    note = {
        "command": list(arguments),
        "exit_code": process.returncode,
        "seconds": round(time.perf_counter() - begin, 2),
        "processor_seconds": round(used.ru_utime + used.ru_stime, 2),
    }
    append_note(folder, note)
    if process.returncode:
        raise InfrastructureError(
            f"electra {' '.join(arguments)} ended with exit code {process.returncode}",
            where=str(folder / "log.txt"),
            next_step="read the end of that file; the same call of the benchmark goes on where it stopped",
        )
    return note


def append_note(folder: Path, note: dict[str, Any]) -> None:
    with open(folder / NOTES, "a") as notes:
        notes.write(json.dumps(note) + "\n")


def processor_seconds(workspace: Path) -> float | None:
    """Return the processor seconds of all calls that pre-trained a workspace; None if not all were noted.

    A call that was killed has noted its beginning only.
    """
    notes = workspace / NOTES
    lines = [json.loads(line) for line in notes.read_text().splitlines()] if notes.exists() else []
    calls = [line for line in lines if line["command"] == ["pretrain"]]
    seconds = [line["processor_seconds"] for line in calls if "processor_seconds" in line]
    was_killed = sum("began" in line for line in calls) > len(seconds)
    return round(sum(seconds), 1) if seconds and not was_killed else None
