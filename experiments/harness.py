"""Fine-tune published weights here and in a plain loop around ``transformers``: is this project's fine-tuning at fault?

    python -m experiments.harness FOLDER --data ../shared/data --tasks MRPC STS-B CoLA --seeds 1 2 3

FOLDER is a folder that ``transformers`` loads. Both sides have the same rows, weights, rate, schedule, epochs and batch
size. The loop is that of ``run_glue``, an example of ``transformers``: ``AutoModelForSequenceClassification``, AdamW, a
linear schedule, scores by scikit-learn and SciPy. Finished runs are kept in --work, so an interrupted command goes on.
"""

import argparse
import itertools
import json
import statistics
import time
from pathlib import Path
from typing import Any

import torch
import yaml
from scipy.stats import spearmanr
from sklearn.metrics import accuracy_score, matthews_corrcoef
from torch import nn
from transformers import AutoModelForSequenceClassification, AutoTokenizer, get_linear_schedule_with_warmup

from benchmarks.measure import machine
from electra.common.artifacts import write_json
from electra.common.paths import Paths
from electra.config.loading import load_settings
from electra.finetune.encoders import EncoderSource
from electra.finetune.run import finetune_task
from electra.readers.build import prepare_tasks
from electra.results.evaluate import scores_of_run
from electra.tasks.catalogue import find_spec
from electra.tasks.matrix import Start, read_rows

ROOT = Path(__file__).resolve().parents[1]
RECIPE = {"learning_rate": 5e-5, "batch_size": 32, "epochs": 3.0, "warmup_fraction": 0.1, "weight_decay": 0.0}
SIDES = ("here", "transformers")


def write_workspace(work: Path, data: Path, tasks: list[str]) -> None:
    """Write settings with the recipe, and prepare the tasks, unless an earlier command has."""
    if (work / "params.yaml").exists():
        return
    values = yaml.safe_load((ROOT / "params/small.yaml").read_text())
    values["tasks"] = {"source": {"kind": "files", "glue": str((data / "glue").resolve())}, "own": [], "pairs": []}
    same_rows = {"double_unordered": False, "task_epochs": {}, "task_learning_rate": {}}
    values["finetune"] |= RECIPE | same_rows | {"layerwise_decay": 1.0}
    common = {"profile": "small", "cells": {"tasks": tasks, "seeds": [1]}, "cluster": {"num_threads": 1}}
    (work / "params").mkdir(parents=True, exist_ok=True)
    (work / "params/small.yaml").write_text(yaml.safe_dump(values))
    (work / "params.yaml").write_text(yaml.safe_dump(common))
    prepare_tasks(load_settings(work), Paths(work))


def score_here(folder: Path, work: Path, task: str, seed: int) -> float:
    """Fine-tune in this project; return the score of the development set in percent."""
    settings, paths = load_settings(work), Paths(work)
    encoder = EncoderSource.named(folder, "published")
    finetune_task(settings, paths, task=task, seed=seed, encoder=encoder)
    spec = find_spec(paths.tasks, task)
    rows = {split: read_rows(paths, task, split) for split in spec.dev_splits}
    return scores_of_run(paths, spec, rows, seed, Start.parse("published"))[spec.headline]


def score_in_transformers(folder: Path, work: Path, task: str, seed: int) -> float:
    """Fine-tune in a plain loop; return the score of the development set in percent."""
    paths = Paths(work)
    train, dev = read_rows(paths, task, "train"), read_rows(paths, task, "dev")
    classes = find_spec(paths.tasks, task).labels  # none for regression
    tokenizer = AutoTokenizer.from_pretrained(folder)
    torch.manual_seed(seed)
    model = AutoModelForSequenceClassification.from_pretrained(folder, num_labels=len(classes) or 1)

    def targets(rows: list[dict[str, Any]]) -> torch.Tensor:
        return torch.tensor([classes.index(row["label"]) if classes else float(row["label"]) for row in rows])

    def encode(rows: list[dict[str, Any]]) -> Any:
        pairs = [row["text_b"] for row in rows] if rows[0].get("text_b") is not None else None
        texts = [row["text_a"] for row in rows]
        return tokenizer(texts, pairs, truncation=True, max_length=128, padding=True, return_tensors="pt")

    size = int(RECIPE["batch_size"])
    steps = int(-(-len(train) // size) * RECIPE["epochs"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=RECIPE["learning_rate"], weight_decay=RECIPE["weight_decay"])
    schedule = get_linear_schedule_with_warmup(optimizer, int(steps * RECIPE["warmup_fraction"]), steps)
    model.train()
    for _ in range(int(RECIPE["epochs"])):
        for indices in torch.randperm(len(train)).split(size):
            rows = [train[i] for i in indices]
            with torch.autocast("cpu", torch.bfloat16):
                loss = model(**encode(rows), labels=targets(rows)).loss
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
    model.eval()
    with torch.inference_mode():
        parts = [model(**encode(dev[start : start + size])).logits for start in range(0, len(dev), size)]
    logits, truth = torch.cat(parts).float().numpy(), targets(dev).numpy()
    if not classes:
        return 100 * float(spearmanr(logits[:, 0], truth).statistic)
    metric = matthews_corrcoef if task == "CoLA" else accuracy_score
    return 100 * float(metric(truth, logits.argmax(1)))


def table(cells: list[dict[str, Any]]) -> str:
    """Return a Markdown table: mean and standard deviation over seeds of both sides."""
    lines = ["| task | here | transformers | difference |", "|---|---:|---:|---:|"]
    for task in dict.fromkeys(cell["task"] for cell in cells):
        found = {side: [c["score"] for c in cells if (c["task"], c["side"]) == (task, side)] for side in SIDES}
        if any(len(values) < 2 for values in found.values()):
            continue  # nothing is stated from one seed
        means = {side: statistics.fmean(values) for side, values in found.items()}
        shown = [f"{means[side]:.1f} ± {statistics.stdev(found[side]):.1f}" for side in SIDES]
        lines.append(f"| {task} | {shown[0]} | {shown[1]} | {means['here'] - means['transformers']:+.1f} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="published weights")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder with glue/TASK/*.tsv")
    parser.add_argument("--tasks", nargs="+", default=["MRPC", "STS-B", "CoLA"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--work", type=Path, default=Path("logs/harness"))
    parser.add_argument("--write", type=Path, default=ROOT / "experiments/results/harness.json")
    options = parser.parse_args()
    torch.set_num_threads(1)
    write_workspace(options.work, options.data, options.tasks)
    score = dict(zip(SIDES, (score_here, score_in_transformers), strict=True))
    cells = []
    for seed, task, side in itertools.product(options.seeds, options.tasks, SIDES):
        piece = options.work / f"pieces/{task}-{seed}-{side}.json"
        if not piece.exists():
            begin = time.process_time()
            value = score[side](options.folder, options.work, task, seed)
            seconds = round(time.process_time() - begin)
            piece.parent.mkdir(parents=True, exist_ok=True)
            write_json(piece, {"task": task, "seed": seed, "side": side, "score": round(value, 2), "seconds": seconds})
            print(piece.read_text(), flush=True)
        cells.append(json.loads(piece.read_text()))
    write_json(options.write, {"recipe": RECIPE, "machine": machine(), "cells": cells})
    print(table(cells))


if __name__ == "__main__":
    main()
