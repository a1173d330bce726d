"""Pre-training methods at equal hardware FLOPs: the paper's table 5 on data at hand.

    python -m benchmarks.objectives                       # the chosen profile, all methods of the table
    python -m benchmarks.objectives --methods electra bert --seeds 1 2 3 4 5

Needs the profile's data (``dvc repro validate_shards validate_tasks``). Every method gets a workspace of its own under
``--folder`` with the same data, and as many steps as cost what the profile's own method costs; schedule and warm-up
scale with them. A call that was interrupted goes on: what is there is not done again.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import yaml

from electra.artifacts import read_json, write_json, write_text
from electra.config import Settings
from electra.finetune.cells import cell_key, read_rows
from electra.finetune.evaluate import cell_scores
from electra.finetune.tasks import TASKS
from electra.paths import Paths
from electra.pretrain.flops import flops_per_token
from electra.settings import load_settings

METHODS = ("electra", "electra_15", "replace_mlm", "all_tokens_mlm", "bert", "two_stage", "adversarial")
PUBLISHED = {  # GLUE dev mean, BERT-Base size (paper, table 5)
    "electra": "85.0",
    "all_tokens_mlm": "84.3",
    "electra_15": "82.4",
    "replace_mlm": "82.4",
    "bert": "82.2",
    "two_stage": "below joint (figure 3)",
    "adversarial": "below joint (figure 3)",
}
NO_METHOD = "no pre-training"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS)
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3], help="of fine-tuning")
    parser.add_argument("--parallel", type=int, default=2, help="methods side by side, one thread each")
    parser.add_argument("--budget", type=float, default=1.0, help="times the profile's own training FLOPs")
    parser.add_argument("--folder", type=Path, default=Path("logs/objectives"))
    parser.add_argument("--write", type=Path, help="a Markdown file for the table")
    options = parser.parse_args()
    settings = load_settings()

    def measure(method: str) -> dict[str, Any]:
        return measure_method(settings, method, options.seeds, options.budget, options.folder / method)

    names = [*options.methods, NO_METHOD]
    with ThreadPoolExecutor(options.parallel) as pool:
        found = dict(zip(names, pool.map(measure, names), strict=True))
    result = {
        "profile": settings.profile,
        "data": read_json(Paths().tasks / "manifest.json").get("kind", ""),
        "training_flops": budget_of(settings) * options.budget,
        "finetuning_seeds": options.seeds,
        "methods": found,
    }
    write_json(options.folder / "objectives.json", result)
    text = as_table(found, list(settings.cells.tasks), settings.model_dump()["pretrain"]["num_steps"])
    print(text)
    if options.write:
        write_text(options.write, text)


def vocab_size_of(paths: Paths) -> int:
    return read_json(paths.shards / "manifest.json")["vocab_size"]


def budget_of(settings: Settings) -> float:
    """Hardware FLOPs of the profile's own run."""
    recipe = settings.pretrain
    tokens = recipe.num_steps * recipe.batch_size * settings.shards.max_length
    return tokens * flops_per_token(settings, vocab_size_of(Paths()))


def with_method(settings: Settings, method: str, budget: float) -> tuple[Settings, int]:
    """The same settings with another method and the steps that cost as much."""
    recipe = settings.pretrain.model_copy(update={"objective": method})
    changed = settings.model_copy(update={"pretrain": recipe})
    per_step = recipe.batch_size * settings.shards.max_length * flops_per_token(changed, vocab_size_of(Paths()))
    steps = round(budget * budget_of(settings) / per_step)
    return changed, steps


def measure_method(settings: Settings, method: str, seeds: list[int], budget: float, folder: Path) -> dict[str, Any]:
    """Pre-train by one method, fine-tune all cells, score them."""
    scratch = method == NO_METHOD
    changed, steps = with_method(settings, "electra" if scratch else method, budget)
    write_workspace(folder, changed, steps, seeds)
    paths, figures = Paths(folder), {}
    if not scratch:
        if not (paths.results / "pretrain.json").exists():
            electra(folder, "pretrain")
        figures = read_json(paths.results / "pretrain.json")
    init = "scratch" if scratch else "pretrained"
    scores: dict[str, list[float]] = {}
    for task in settings.cells.tasks:
        spec = TASKS[task]
        rows = {split: read_rows(paths, task, split) for split in spec.dev_splits}
        for seed in seeds:
            if not (paths.finetuned(cell_key(task, seed, init)) / "manifest.json").exists():
                electra(folder, "finetune", "--task", task, "--seed", str(seed), *(["--scratch"] if scratch else []))
            scores.setdefault(task, []).append(cell_scores(paths, spec, rows, seed, init)[spec.headline])
    means = [statistics.fmean(values[number] for values in scores.values()) for number in range(len(seeds))]
    return {
        "steps": 0 if scratch else steps,
        "mean": round(statistics.fmean(statistics.median(values) for values in scores.values()), 2),
        "mean_by_seed": [round(mean, 2) for mean in means],
        "tasks": {task: [round(value, 2) for value in values] for task, values in scores.items()},
        "heldout": {name: figures[name] for name in figures if name not in ("step", "examples_seen")},
    }


def write_workspace(folder: Path, settings: Settings, steps: int, seeds: list[int]) -> None:
    """Settings of its own, the project's data."""
    (folder / "params").mkdir(parents=True, exist_ok=True)
    if not (folder / "data").exists():
        (folder / "data").symlink_to(Path("data").resolve())
    values = json.loads(settings.model_dump_json())
    scale = steps / values["pretrain"]["num_steps"]
    values["pretrain"].update(
        num_steps=steps,
        warmup_steps=round(values["pretrain"]["warmup_steps"] * scale),
        eval_every=max(1, steps // 4),
    )
    values["cluster"].update(num_threads=1, num_processes=1)
    values["cells"].update(seeds=seeds)
    common = {name: values.pop(name) for name in ("profile", "fidelity", "cells", "cluster")}
    (folder / "params.yaml").write_text(yaml.safe_dump(common))
    (folder / f"params/{settings.profile}.yaml").write_text(yaml.safe_dump(values))


def electra(folder: Path, *arguments: str) -> None:
    """One command of the project in a workspace; its output goes to a log file there."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
    with open(folder / "log.txt", "a") as log:
        subprocess.run(
            [sys.executable, "-m", "electra", *arguments],
            cwd=folder,
            env={**environment, "PYTHONPATH": str(Path(__file__).resolve().parents[1])},
            stdout=log,
            stderr=subprocess.STDOUT,
            check=True,
        )


def as_table(found: dict[str, dict[str, Any]], tasks: list[str], own_steps: int) -> str:
    """Methods by their mean, best first; the spread is the standard deviation of the mean over fine-tuning seeds."""
    lines = [
        "| method | steps | mean | ± | " + " | ".join(tasks) + " | paper |",
        "|---" * (len(tasks) + 5) + "|",
    ]
    for name, entry in sorted(found.items(), key=lambda item: -item[1]["mean"]):
        by_seed = entry["mean_by_seed"]
        spread = f"{statistics.stdev(by_seed):.1f}" if len(by_seed) > 1 else ""
        medians = " | ".join(f"{statistics.median(entry['tasks'][task]):.1f}" for task in tasks)
        lines.append(
            f"| {name} | {entry['steps']:,} | **{entry['mean']:.1f}** | {spread} | {medians} "
            f"| {PUBLISHED.get(name, '')} |"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
