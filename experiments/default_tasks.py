"""Choose tasks and numbers of training rows that show the gain from the default profile's pre-training.

    python -m experiments.default_tasks WORKSPACE [WORKSPACE ...] --tasks ewt-tags WNUT-17 --rows 500x8 1500x3
    python -m experiments.default_tasks WORKSPACE --tasks ewt-genre --rows 1500x6 --rates 1e-3 5e-4 2.5e-4

Fine-tunes each task from each workspace's pre-trained weights, and from random ones, on the first rows of its training
set (500x8: 500 rows, 8 epochs), and scores later rows of the training set. The development sets, which the card
reports, are not read. A task qualifies if its gain over random weights is more than twice the spread of the difference;
the smallest number of rows with such a gain is chosen. Several workspaces are runs of one recipe with different
pre-training seeds: the table has the standard deviation over them.
"""

import argparse
import itertools
import json
import statistics
import time
from pathlib import Path
from typing import Any

import torch

from electra.common.artifacts import write_json
from electra.common.paths import Paths
from electra.config.loading import load_settings
from electra.finetune.features import Vocabulary
from electra.finetune.kinds import FINETUNING
from electra.finetune.run import _model, predict_rows, prepare_machine
from electra.finetune.trainer import train
from electra.kinds.scores import constant_score, score
from electra.tasks.catalogue import find_spec
from electra.tasks.matrix import Start, read_rows

SCORED = 1_000
SEEDS = (1, 2, 3)


def run_cell(
    settings: Any, paths: Paths, task: str, num_rows: int, seed: int, scratch: bool, held_back_from: int
) -> dict[str, float]:
    """Fine-tune once; return the score of the held-back rows and the seconds of training and prediction."""
    spec, options = find_spec(paths.tasks, task), settings.finetune
    _, bf16 = prepare_machine(settings.cluster)
    vocabulary = Vocabulary.load(paths)
    model = _model(settings, paths, spec, vocabulary, Start.chosen(scratch, None, None, None), seed)
    rows = read_rows(paths, task, "train")
    held_back = rows[held_back_from : held_back_from + SCORED]
    features = FINETUNING[spec.kind].features(spec, rows[:num_rows], vocabulary, options)
    begin = time.process_time()
    train(model, features, options, epochs=options.epochs, seed=seed, pad=vocabulary.pad, bf16=bf16, name=task)
    trained = time.process_time() - begin
    predictions = predict_rows(options, spec, model, held_back, vocabulary, bf16)
    value = score(spec, held_back, predictions)[spec.headline]
    return {"score": value, "seconds": trained, "constant": constant_score(spec, held_back) or 0.0}


def table_row(cells: list[dict[str, Any]]) -> dict[str, Any]:
    """Return mean and standard deviation over workspaces (over fine-tuning seeds, if there is one), both starts."""
    found: dict[str, Any] = {key: cells[0][key] for key in ("task", "rows", "epochs", "learning_rate", "constant")}
    for name, is_scratch in (("pretrained", False), ("scratch", True)):
        runs: dict[str, list[float]] = {}
        for cell in cells:
            if cell["is_scratch"] == is_scratch:
                runs.setdefault(cell["workspace"], []).append(cell["score"])
        means = [statistics.fmean(values) for values in runs.values()]
        spread = means if len(means) > 1 else [value for values in runs.values() for value in values]
        found |= {name: statistics.fmean(means), f"{name}_sd": statistics.stdev(spread) if len(spread) > 1 else 0.0}
    return found | {"seconds": statistics.fmean(cell["seconds"] for cell in cells)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workspaces", type=Path, nargs="+")
    parser.add_argument("--tasks", nargs="+", required=True)
    parser.add_argument("--rows", nargs="+", default=["500x8"])
    parser.add_argument("--seeds", nargs="+", type=int, default=SEEDS)
    parser.add_argument("--rates", nargs="+", type=float, help="of fine-tuning; by default the profile's")
    parser.add_argument(
        "--held-back-from", type=int, default=2_000, help="training rows from here on are scored, never trained on"
    )
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if too_many := [size for size in options.rows if int(size.split("x")[0]) > options.held_back_from]:
        parser.error(f"--rows {too_many[0]}: rows from {options.held_back_from} on are scored; raise --held-back-from")
    torch.set_num_threads(1)
    cells = []
    for task, size, rate in itertools.product(options.tasks, options.rows, options.rates or [None]):
        num_rows, epochs = map(int, size.split("x"))
        here = []
        for workspace, is_scratch in [(options.workspaces[0], True), *((path, False) for path in options.workspaces)]:
            settings, paths = load_settings(workspace), Paths(workspace)
            changes = {"epochs": float(epochs), "learning_rate": rate or settings.finetune.rate_of(task)}
            settings = settings.model_copy(update={"finetune": settings.finetune.model_copy(update=changes)})
            for seed in options.seeds:
                cell = {"workspace": workspace.name, "task": task, "rows": num_rows, "seed": seed, **changes}
                found = run_cell(settings, paths, task, num_rows, seed, is_scratch, options.held_back_from)
                here.append({**cell, "is_scratch": is_scratch, **found})
        shown = {key: round(value, 4) if isinstance(value, float) else value for key, value in table_row(here).items()}
        print(json.dumps(shown), flush=True)
        cells += here
    if options.out:
        recipe = load_settings(options.workspaces[0]).pretrain.model_dump(mode="json")
        write_json(options.out, {"pretrain": recipe, "cells": cells})


if __name__ == "__main__":
    main()
