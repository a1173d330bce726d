"""Fine-tune published weights here and in a plain loop around ``transformers``: is this project's fine-tuning at fault?

    python -m experiments.harness ENCODER FOLDER --data DATA --tasks MRPC CoLA --seeds 1 2 3
    python -m experiments.harness ENCODER FOLDER --write

ENCODER is a folder that ``transformers`` loads; DATA has ``glue/TASK/train.tsv`` and ``dev.tsv``. All sides have the
same rows, weights, peak rate, epochs and batch size. The loop is that of ``run_glue``, an example of
``transformers``: ``AutoModelForSequenceClassification``, AdamW, a linear schedule, scores by scikit-learn and SciPy.
The side ``new pooler`` is this loop with the pooler drawn anew. Four sides are the loop with one choice of this project
each: ``no pooler`` has the classifier on the first token's last state, ``our Adam`` is without bias correction, ``our
schedule`` falls during warm-up too, and ``our order`` has batches of rows of similar length. ``all four`` is the loop
with all of them. ``here, usual Adam`` is fine-tuning in this project with bias correction. Every finished run is a file
in ``FOLDER/pieces``, so an interrupted command goes on, and two commands with different tasks or sides share a folder.
With ``--write`` all finished runs go to ``experiments/results/harness.json``; a new folder begins with the runs of that
file if they are of the same weights and recipe.
"""

import argparse
import itertools
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal
from unittest.mock import patch

import torch
import yaml
from scipy.stats import spearmanr
from sklearn.metrics import accuracy_score, matthews_corrcoef
from torch import nn
from torch.optim.lr_scheduler import LambdaLR
from transformers import AutoModelForSequenceClassification, AutoTokenizer, get_linear_schedule_with_warmup

from benchmarks.measure import machine
from electra.cluster.hardware import choose_precision
from electra.common.artifacts import read_json, sha256, write_json
from electra.common.paths import Paths
from electra.config import Settings
from electra.config.loading import parse_settings
from electra.finetune.encoders import EncoderSource
from electra.finetune.features import endless_batches
from electra.finetune.run import finetune_task
from electra.optim import OPTIMIZERS, ElectraAdamW, learning_rate
from electra.readers.build import prepare_tasks
from electra.results.evaluate import scores_of_run
from electra.tasks.catalogue import find_spec
from electra.tasks.matrix import Start, read_rows

ROOT = Path(__file__).resolve().parents[1]
RECIPE = {"learning_rate": 5e-5, "batch_size": 32, "epochs": 3.0, "warmup_fraction": 0.1, "weight_decay": 0.0}
SIDES = (
    "here", "transformers", "new pooler", "no pooler", "our Adam", "our schedule", "our order", "all four",
    "here, usual Adam",
)  # fmt: skip
POOLER_DEVIATION = 0.02  # BERT's initialization
TASKS = ("CoLA", "SST-2", "MRPC", "STS-B", "RTE")
RESULTS = ROOT / "experiments/results/harness.json"


def settings_of(glue: Path) -> Settings:
    """Return the profile ``small`` with the recipe, and those of GLUE's tasks whose folders there are."""
    values = yaml.safe_load((ROOT / "params/small.yaml").read_text(encoding="utf-8"))
    values["tasks"] = {"source": {"kind": "files", "glue": str(glue)}, "own": [], "pairs": []}
    same_rows = {"double_unordered": False, "task_epochs": {}, "task_learning_rate": {}}
    values["finetune"] |= RECIPE | same_rows | {"layerwise_decay": 1.0}
    cells = {"tasks": [task for task in TASKS if (glue / task).is_dir()], "seeds": [1]}
    cluster = {"device": "cpu", "precision": "auto", "num_threads": 1}
    common = {"profile": "small", "cells": cells, "cluster": cluster}
    return parse_settings(common | values, where="params/small.yaml")


def precision_of(settings: Settings) -> str:
    """Return the precision of matrix products on all sides."""
    return choose_precision(settings.cluster, "cpu")


class FirstState(nn.Module):
    """Take the first token's state, in place of a pooler."""

    def forward(self, hidden_BTD: torch.Tensor) -> torch.Tensor:
        return hidden_BTD[:, 0]


def our_schedule(optimizer: torch.optim.Optimizer, warmup_steps: int, steps: int) -> LambdaLR:
    """Return the schedule of fine-tuning here, in the form of those of ``transformers``."""
    return LambdaLR(optimizer, lambda step: learning_rate(step, 1.0, steps, warmup_steps))


def random_batches(lengths: list[int], batch_size: int, seed: int) -> Iterator[Sequence[int]]:
    """Yield lists of indices in random order, epoch after epoch, from the global generator, which ``seed`` has set."""
    while True:
        yield from (batch.tolist() for batch in torch.randperm(len(lengths)).split(batch_size))


def score_here(encoder: Path, settings: Settings, paths: Paths, task: str, seed: int) -> float:
    """Fine-tune in this project; return the score of the development set in percent."""
    finetune_task(settings, paths, task=task, seed=seed, encoder=EncoderSource.named(encoder, "published"))
    spec = find_spec(paths.tasks, task)
    rows = {split: read_rows(paths, task, split) for split in spec.dev_splits}
    return scores_of_run(paths, spec, rows, seed, Start.parse("published"))[spec.headline]


def score_with_usual_adam(encoder: Path, settings: Settings, paths: Paths, task: str, seed: int) -> float:
    """Fine-tune in this project, but by PyTorch's AdamW, which corrects the bias; return the score in percent."""
    adam = partial(torch.optim.AdamW, eps=1e-6, fused=True)
    with patch.dict(OPTIMIZERS, adamw=adam):
        return score_here(encoder, settings, paths, task, seed)


def score_in_transformers(
    encoder: Path,
    settings: Settings,
    paths: Paths,
    task: str,
    seed: int,
    *,
    pooler: Literal["published", "new", "none"] = "published",
    adam: Callable[..., torch.optim.Optimizer] = torch.optim.AdamW,
    schedule: Callable[[torch.optim.Optimizer, int, int], LambdaLR] = get_linear_schedule_with_warmup,
    order: Callable[[list[int], int, int], Iterator[Sequence[int]]] = random_batches,
) -> float:
    """Fine-tune in a plain loop; return the score of the development set in percent."""
    train, dev = read_rows(paths, task, "train"), read_rows(paths, task, "dev")
    classes = find_spec(paths.tasks, task).labels  # none for regression
    tokenizer = AutoTokenizer.from_pretrained(encoder)
    torch.manual_seed(seed)
    model = AutoModelForSequenceClassification.from_pretrained(encoder, num_labels=len(classes) or 1)
    if pooler == "new":
        nn.init.normal_(model.base_model.pooler.dense.weight, std=POOLER_DEVIATION)
        nn.init.zeros_(model.base_model.pooler.dense.bias)
    elif pooler == "none":
        model.base_model.pooler = FirstState()

    def targets(rows: list[dict[str, Any]]) -> torch.Tensor:
        return torch.tensor([classes.index(row["label"]) if classes else float(row["label"]) for row in rows])

    def encode(rows: list[dict[str, Any]]) -> Any:
        pairs = [row["text_b"] for row in rows] if rows[0].get("text_b") is not None else None
        texts = [row["text_a"] for row in rows]
        return tokenizer(
            texts, pairs, truncation=True, max_length=settings.finetune.max_length, padding=True, return_tensors="pt"
        )

    size = int(RECIPE["batch_size"])
    steps = int(-(-len(train) // size) * RECIPE["epochs"])
    optimizer = adam(model.parameters(), lr=RECIPE["learning_rate"], weight_decay=RECIPE["weight_decay"])
    rates = schedule(optimizer, int(steps * RECIPE["warmup_fraction"]), steps)
    lengths = [len(encode([row])["input_ids"][0]) for row in train]
    model.train()
    for indices in itertools.islice(order(lengths, size, seed), steps):
        rows = [train[i] for i in indices]
        with torch.autocast("cpu", torch.bfloat16, enabled=precision_of(settings) == "bf16"):
            loss = model(**encode(rows), labels=targets(rows)).loss
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        rates.step()
        optimizer.zero_grad()
    model.eval()
    with torch.inference_mode():
        parts = [model(**encode(dev[start : start + size])).logits for start in range(0, len(dev), size)]
    logits, truth = torch.cat(parts).float().numpy(), targets(dev).numpy()
    if not classes:
        return 100 * float(spearmanr(logits[:, 0], truth).statistic)
    metric = matthews_corrcoef if task == "CoLA" else accuracy_score
    return 100 * float(metric(truth, logits.argmax(1)))


def weights_of(encoder: Path) -> str:
    """Return the SHA-256 of an encoder's weights, in the order of the names of their files."""
    files = sorted([*encoder.glob("*.safetensors"), *encoder.glob("pytorch_model*.bin")])
    return " ".join(map(sha256, files))


def piece_of(pieces: Path, cell: dict[str, Any]) -> Path:
    """Return the file of a run; ``cell`` has its task, seed and side."""
    return pieces / f"{cell['task']}-{cell['seed']}-{cell['side'].replace(',', '').replace(' ', '-')}.json"


def restore(pieces: Path, weights: str) -> None:
    """Write the committed runs of these weights and this recipe that the folder does not have."""
    stored = read_json(RESULTS) if RESULTS.exists() else {}
    if (stored.get("weights"), stored.get("recipe")) != (weights, RECIPE):
        return
    for cell in stored["cells"]:
        if not (piece := piece_of(pieces, cell)).exists():
            write_json(piece, cell)


def table(cells: list[dict[str, Any]]) -> str:
    """Return a Markdown table: mean and standard deviation over seeds of the sides, here minus the plain loop."""
    lines = [f"| task | {' | '.join(SIDES)} | here - transformers |", "|---|" + "---:|" * (len(SIDES) + 1)]
    for task in dict.fromkeys(cell["task"] for cell in cells):
        found = {side: [c["score"] for c in cells if (c["task"], c["side"]) == (task, side)] for side in SIDES}
        if any(len(found[side]) < 2 for side in SIDES[:2]):
            continue  # nothing is stated from one seed
        several = {side: values for side, values in found.items() if len(values) > 1}
        means = {side: statistics.fmean(values) for side, values in several.items()}
        shown = [
            f"{means[side]:.1f} ± {statistics.stdev(several[side]):.1f}" if side in means else "" for side in SIDES
        ]
        lines.append(f"| {task} | {' | '.join(shown)} | {means['here'] - means['transformers']:+.1f} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("encoder", type=Path, help="folder of published weights")
    parser.add_argument("folder", type=Path, help="for tasks, runs and pieces; the same folder goes on")
    parser.add_argument("--data", type=Path, help="folder with glue/TASK/train.tsv and dev.tsv")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=["MRPC", "STS-B", "CoLA", "RTE"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=list(SIDES[:2]))
    parser.add_argument("--write", action="store_true", help="write the finished runs into the repository")
    arguments = parser.parse_args()
    pieces, paths = arguments.folder / "pieces", Paths(arguments.folder)
    pieces.mkdir(parents=True, exist_ok=True)
    restore(pieces, weights := weights_of(arguments.encoder))
    if not arguments.write:
        if arguments.data is None:
            parser.error("--data: name the folder with glue/")
        torch.set_num_threads(1)
        settings = settings_of(arguments.data.resolve() / "glue")
        if not paths.tasks.exists():
            prepare_tasks(settings, paths)
        score: dict[str, Callable[..., float]] = {
            "here": score_here,
            "transformers": score_in_transformers,
            "new pooler": partial(score_in_transformers, pooler="new"),
            "no pooler": partial(score_in_transformers, pooler="none"),
            "our Adam": partial(score_in_transformers, adam=ElectraAdamW),
            "our schedule": partial(score_in_transformers, schedule=our_schedule),
            "our order": partial(score_in_transformers, order=endless_batches),
            "all four": partial(
                score_in_transformers, pooler="none", adam=ElectraAdamW, schedule=our_schedule, order=endless_batches
            ),
            "here, usual Adam": score_with_usual_adam,
        }
        for seed, task, side in itertools.product(arguments.seeds, arguments.tasks, arguments.sides):
            run = {"task": task, "seed": seed, "side": side}
            if not (piece := piece_of(pieces, run)).exists():
                begin = time.process_time()
                value = score[side](arguments.encoder, settings, paths, task, seed)
                cell = run | {"score": round(value, 2), "precision": precision_of(settings)}
                write_json(piece, cell | {"seconds": round(time.process_time() - begin), "machine": machine()})
                print(f"{task}, seed {seed}, {side}: {value:.1f}", flush=True)
    cells = sorted(
        (read_json(piece) for piece in pieces.glob("*.json")),
        key=lambda cell: (TASKS.index(cell["task"]), cell["seed"], cell["side"]),
    )
    print(table(cells))
    if arguments.write:
        write_json(RESULTS, {"weights": weights, "recipe": RECIPE, "cells": cells})


if __name__ == "__main__":
    main()
