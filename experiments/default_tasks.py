"""Which tasks, with how many training rows, show what the default profile's pre-training is good for?

    python -m experiments.default_tasks WORKSPACE --tasks ewt-tags WNUT-17 --rows 500 1000

Fine-tunes each task from the workspace's pre-trained weights and from random ones, with three seeds, on the first rows
of its training set, and scores rows of the training set that come after all of these. The development sets, which the
card reports, are not read. A task is worth its seconds where the gain over random weights is more than twice the
spread of the difference; of those, the fewest rows that keep it so are taken.
"""

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import torch

from electra.common.artifacts import write_json
from electra.common.paths import Paths
from electra.config.loading import load_settings
from electra.evaluation.metrics import constant_score, score
from electra.finetune.features import Vocabulary
from electra.finetune.run import _features, _model, predict_rows, prepare_machine
from electra.finetune.trainer import train
from electra.tasks.catalogue import find_spec
from electra.tasks.cells import Start, read_rows

HELD_BACK = 2_000  # training rows from here on are scored, never trained on
SCORED = 1_000
SEEDS = (1, 2, 3)


def run_cell(settings: Any, paths: Paths, task: str, num_rows: int, seed: int, scratch: bool) -> dict[str, float]:
    """Fine-tune once; return the score of the held-back rows and the seconds of training and prediction."""
    spec, options = find_spec(paths.tasks, task), settings.finetune
    _, bf16 = prepare_machine(settings.cluster)
    vocabulary = Vocabulary.load(paths)
    model = _model(settings, paths, spec, vocabulary, Start.chosen(scratch, None, None, None), seed)
    rows = read_rows(paths, task, "train")
    held_back = rows[HELD_BACK : HELD_BACK + SCORED]
    features = _features(options, spec, rows[:num_rows], vocabulary)
    begin = time.process_time()
    epochs = options.task_epochs.get(task, options.epochs)
    train(model, features, options, epochs=epochs, seed=seed, pad=vocabulary.pad, bf16=bf16, name=task)
    trained = time.process_time() - begin
    predictions = predict_rows(options, spec, model, held_back, vocabulary, bf16)
    value = score(spec, held_back, predictions)[spec.headline]
    return {"score": value, "seconds": trained, "constant": constant_score(spec, held_back) or 0.0}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workspace", type=Path)
    parser.add_argument("--tasks", nargs="+", required=True)
    parser.add_argument("--rows", nargs="+", type=int, default=[500, 1000])
    parser.add_argument("--epochs", type=float)
    parser.add_argument("--rate", type=float)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    settings, paths = load_settings(options.workspace), Paths(options.workspace)
    changes = {"learning_rate": options.rate, "epochs": options.epochs}
    if options.epochs:
        changes["task_epochs"] = {}
    given = {key: value for key, value in changes.items() if value is not None}
    settings = settings.model_copy(update={"finetune": settings.finetune.model_copy(update=given)})
    found = []
    for task in options.tasks:
        for num_rows in options.rows:
            cells = {
                scratch: [run_cell(settings, paths, task, num_rows, seed, scratch) for seed in SEEDS]
                for scratch in (False, True)
            }
            scores = {scratch: [cell["score"] for cell in runs] for scratch, runs in cells.items()}
            row = {
                "task": task,
                "rows": num_rows,
                "epochs": settings.finetune.task_epochs.get(task, settings.finetune.epochs),
                "rate": settings.finetune.learning_rate,
                "pretrained": statistics.fmean(scores[False]),
                "sd": statistics.stdev(scores[False]),
                "scratch": statistics.fmean(scores[True]),
                "scratch_sd": statistics.stdev(scores[True]),
                "constant": cells[False][0]["constant"],
                "seconds": statistics.fmean(cell["seconds"] for runs in cells.values() for cell in runs),
            }
            found.append(row)
            shown = {key: round(value, 4) if isinstance(value, float) else value for key, value in row.items()}
            print(json.dumps(shown), flush=True)
    if options.out:
        write_json(options.out, {"pretrain": settings.pretrain.model_dump(mode="json"), "rows": found})


if __name__ == "__main__":
    main()
