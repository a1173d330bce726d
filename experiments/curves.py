"""What a text, a time and a size are worth: held-out loss and two tasks over tokens of pre-training, and a law of them.

    python -m experiments.curves FOLDER --data DATA [--shapes 2x128] [--jobs 2]
    python -m experiments.curves FOLDER --table [--write]

Settings and the list of runs: ``experiments/curves.yaml``, on top of ``experiments/methods.yaml``. DATA has ``prose/``,
``conll2000/`` and ``glue/``. All runs share vocabulary and held-out examples, so that their losses compare; a smaller
text is the first part of the whole. Every finished run is a file in ``FOLDER/pieces``, so an interrupted command goes
on. With ``--write`` all finished runs and the law go to ``experiments/results/curves.json``, the tables to
``experiments/README.md`` and ``docs/results.md``.
"""

import argparse
import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks import measure
from electra.cluster.estimate.expected import Law, body_parameters
from electra.common.artifacts import read_json, read_manifest, write_json, write_manifest, write_text
from electra.common.parsing import read_yaml
from electra.common.paths import Paths
from electra.config import Settings
from electra.config.loading import parse_settings
from electra.results.evaluate import scores_of_run
from electra.tasks.catalogue import find_spec
from electra.tasks.matrix import PRETRAINED, finetuned_name, read_rows
from experiments import methods
from experiments.curves_law import fitted, rates_table, table, texts_table
from experiments.equal_flops import ROOT, electra, processor_seconds, write_workspace
from experiments.methods_table import page_with
from experiments.texts import write_texts

SETTINGS = ROOT / "experiments/curves.yaml"
RESULTS = ROOT / "experiments/results/curves.json"
APPENDIX, PAGE = ROOT / "experiments/README.md", ROOT / "docs/results.md"
STAGES = ("tasks", "evaluation-texts", "corpus", "tokenizer", "shards")
PARTS = ("runs", "checks", "other_blocks")  # of the plan
WHOLE = 200  # megabytes of the whole text


@dataclass(frozen=True)
class Run:
    """One pre-training run: shape, megabytes of text, tokens and learning rate."""

    shape: str
    megabytes: int
    tokens: int
    rate: float

    @property
    def name(self) -> str:
        return f"{self.shape}-{self.megabytes}MB-{self.tokens / 1e6:g}M-{self.rate:g}"


@cache
def plan() -> dict[str, Any]:
    """Return ``experiments/curves.yaml``."""
    values: dict[str, Any] = read_yaml(SETTINGS)
    return values


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="for text, runs and pieces; the same folder goes on")
    parser.add_argument("--data", type=Path, help="folder with prose/, conll2000/ and glue/")
    parser.add_argument("--shapes", nargs="+", choices=plan()["shapes"], default=list(plan()["shapes"]))
    parser.add_argument("--jobs", type=int, default=2, help="runs side by side, one thread each")
    parser.add_argument("--table", action="store_true", help="print the table of what is finished, compute nothing")
    parser.add_argument("--write", action="store_true", help="write it and the runs into the repository")
    arguments = parser.parse_args()
    folder = arguments.folder.resolve()
    if not (arguments.table or arguments.write):
        if arguments.data is None:
            parser.error("--data: name the folder with prose/, conll2000/ and glue/")
        prepare(folder, arguments.data.resolve())
        restore(folder)
        measure_runs(folder, arguments.shapes, arguments.jobs)
    rows = finished_rows(folder)
    law = fitted(rows)
    print(table(rows, law) + "\n" + rates_table(known_losses(folder)))
    if arguments.write:
        found = {"law": asdict(law) if law else None, "rows": rows, "losses": known_losses(folder)}
        write_json(RESULTS, {"plan": plan(), **found})
        for page, text in pages_of(found).items():
            write_text(page, text)


def pages_of(found: dict[str, Any]) -> dict[Path, str]:
    """Return the texts of the pages with the tables of these results."""
    law = law_of(found["law"]) if found["law"] else None
    tables = {
        "curves": (APPENDIX, table(found["rows"], law)),
        "curves-rates": (APPENDIX, rates_table(found["losses"])),
        "curves-texts": (PAGE, texts_table(found["rows"])),
    }
    pages = {page: page.read_text(encoding="utf-8") for page in (APPENDIX, PAGE)}
    for name, (page, text) in tables.items():
        pages[page] = page_with(name, text, pages[page], "experiments.curves")
    return pages


def law_of(values: dict[str, Any]) -> Law:
    """Return a stored law."""
    ranges = {key: tuple(values[key]) for key in ("sizes", "tokens")}
    scores = {task: tuple(slopes) for task, slopes in values["scores"].items()}
    return Law(**values | ranges | {"scores": scores})


# ---- text


def prepare(folder: Path, data: Path) -> None:
    """Write text and tasks, and build corpus, vocabulary and examples of the whole text, unless they exist."""
    workspace = folder / "data"
    if not (workspace / "text").exists():
        archives = [data / name for name in plan()["text"]["archives"]]
        write_texts(archives, workspace / "text", plan()["text"]["seed"])
    for task in plan()["tasks"]:
        methods.write_task(workspace / "labelled", task, methods.protocol()["tasks"][task], data)
    (workspace / "data").mkdir(exist_ok=True)
    settings = settings_of(next(iter(plan()["shapes"])), 1e-3, 6_000_000)
    write_workspace(workspace, settings, workspace / "data", settings.pretrain.num_steps, [1])
    for stage in STAGES:
        if not (workspace / "data" / stage.removesuffix("-texts") / "manifest.json").exists():
            electra(workspace, stage)
    for megabytes in sorted({megabytes for _, megabytes, _ in runs()}):
        part = folder / "parts" / f"{megabytes}MB"
        first_part(workspace / "data/shards", part / "shards", megabytes / WHOLE)
        for name in ("tokenizer", "tasks"):
            if not (part / name).exists():
                (part / name).symlink_to((workspace / "data" / name).resolve())


def first_part(shards: Path, target: Path, share: float) -> None:
    """Write a folder with the first training shards that hold this share of the tokens, and all held-out ones."""
    if (target / "manifest.json").exists():
        return
    facts = read_manifest(shards)
    train, taken = facts["splits"]["train"], list[dict[str, Any]]()
    for shard in train["shards"]:
        if sum(shard["tokens"] for shard in taken) >= share * train["tokens"]:
            break
        taken.append(shard)
    target.mkdir(parents=True, exist_ok=True)
    for shard in [*taken, *facts["splits"]["heldout"]["shards"]]:
        for file in shards.glob(f"{shard['name']}.*.npy"):
            (target / file.name).unlink(missing_ok=True)
            (target / file.name).hardlink_to(file)
    counts = {key: sum(shard[key] for shard in taken) for key in ("examples", "tokens", "words")}
    splits = {**facts["splits"], "train": {**counts, "shards": taken}}
    write_manifest(target, **{key: facts[key] for key in facts if key not in ("files", "splits")}, splits=splits)


# ---- runs


def settings_of(shape: str, rate: float, tokens: float) -> Settings:
    """Return the settings of a run, those of ``experiments/methods.yaml`` with this shape, rate and number of steps."""
    values = json.loads(json.dumps(methods.protocol()["settings"]))
    width = plan()["shapes"][shape]["hidden_size"]
    values["model"] |= plan()["block"] | plan()["shapes"][shape]
    values["model"] |= {"embedding_size": width, "initializer_range": round(width**-0.5, 3)}
    tokens_of_step = values["pretrain"]["batch_size"] * values["shards"]["max_length"]
    steps = round(tokens / tokens_of_step)
    warmup = values["pretrain"]["warmup_steps"] / values["pretrain"]["num_steps"]
    values["pretrain"] |= {"objective": "bert", "learning_rate": rate, "seed": plan()["seed"], "num_steps": steps}
    values["pretrain"] |= {"warmup_steps": round(warmup * steps), "eval_every": steps, "eval_examples": 4096}
    values["corpus"] |= {"held_out_fraction": 0.01, "documents_per_file": 8}
    for task in plan()["tasks"]:
        values["tasks"]["own"].append(f"labelled/{task}-dev.yaml")
        values["cells"]["tasks"].append(f"{task}-dev")
        values["finetune"]["task_epochs"][f"{task}-dev"] = methods.protocol()["tasks"][task]["epochs"]
    return parse_settings(values, where=str(SETTINGS))


def measure_runs(folder: Path, shapes: Sequence[str], jobs: int) -> None:
    """Compute the runs that are missing: the rates of every shape first, then all runs at the best, the cheapest first.

    A rate is judged by held-out loss; only runs at the best rate are fine-tuned.
    """
    chosen = sorted((run for run in runs() if run[0] in shapes), key=lambda run: run[2] * size_of(run[0]))
    known = {row["run"]["shape"]: row["run"]["rate"] for row in finished_rows(folder)}
    open_shapes = [shape for shape in shapes if shape not in known]
    tries = [Run(*first_of(shape), rate) for shape in open_shapes for rate in plan()["rates"]]
    with ThreadPoolExecutor(jobs) as pool:
        losses = dict(zip(tries, pool.map(lambda run: loss_of(folder, run), tries), strict=True))
        best = known | dict(
            zip(open_shapes, pool.map(lambda shape: best_rate(folder, losses, shape), open_shapes), strict=False)
        )
        checks = [
            Run(shape, megabytes, int(tokens), rate)
            for shape, megabytes, tokens, rates in plan()["rate_checks"]
            for rate in rates
            if shape in shapes
        ]
        finished = [pool.submit(finish, folder, Run(*run, best[run[0]])) for run in chosen]
        for done in [*finished, *(pool.submit(loss_of, folder, run) for run in checks)]:
            done.result()


def runs() -> list[tuple[str, int, int]]:
    """Return shape, megabytes and tokens of all runs."""
    return [run for part in PARTS for run in part_of_plan(part)]


def part_of_plan(name: str) -> list[tuple[str, int, int]]:
    return [(shape, megabytes, int(tokens)) for shape, megabytes, tokens in plan()[name]]


@cache
def size_of(shape: str) -> int:
    """Return the number of weights in the matrices of a shape's layers."""
    return body_parameters(settings_of(shape, 1e-3, 6_000_000).model)


def first_of(shape: str) -> tuple[str, int, int]:
    return next(run for run in runs() if run[0] == shape)


def best_rate(folder: Path, losses: dict[Run, float], shape: str) -> float:
    """Return the learning rate at which a shape has the lowest held-out loss; rates beyond the ends are tried too."""
    tried = {run.rate: loss for run, loss in losses.items() if run.shape == shape}
    while True:
        best = min(tried, key=lambda rate: tried[rate])
        further = best * 2 if best == max(tried) else best / 2 if best == min(tried) else best
        if further in tried:
            return best
        tried[further] = loss_of(folder, Run(*first_of(shape), further))


def finished_rows(folder: Path) -> list[dict[str, Any]]:
    return [read_json(piece) for piece in sorted((folder / "pieces").glob("*.json"))]


def known_losses(folder: Path) -> list[dict[str, Any]]:
    """Return ``run`` and ``loss`` of all runs, also of those that only tried a rate."""
    return [read_json(piece) for piece in sorted((folder / "losses").glob("*.json"))]


def restore(folder: Path) -> None:
    """Write what is committed and the folder does not have, unless the settings have changed since."""
    stored = read_json(RESULTS) if RESULTS.exists() else None
    fixed = ("text", "block", "seed", "finetuning_seeds", "tasks")
    if stored is None or any(stored["plan"][key] != plan()[key] for key in fixed):
        return
    for place, rows in ((piece_of, stored["rows"]), (loss_piece_of, stored["losses"])):
        for row in rows:
            shape = row["run"]["shape"]
            if stored["plan"]["shapes"][shape] != plan()["shapes"].get(shape):
                continue
            if not (piece := place(folder, Run(**row["run"]))).exists():
                piece.parent.mkdir(exist_ok=True)
                write_json(piece, row)


def piece_of(folder: Path, run: Run) -> Path:
    return folder / "pieces" / f"{run.name}.json"


def loss_piece_of(folder: Path, run: Run) -> Path:
    return folder / "losses" / f"{run.name}.json"


def loss_of(folder: Path, run: Run) -> float:
    """Return the held-out loss of a run, which is pre-trained unless its loss is known: nats per masked token."""
    if not (piece := loss_piece_of(folder, run)).exists():
        loss = read_json(Paths(pretrained(folder, run)).results / "pretrain.json")["mlm_loss"]
        piece.parent.mkdir(exist_ok=True)
        write_json(piece, {"run": asdict(run), "loss": round(loss, 4)})
    return float(read_json(piece)["loss"])


def pretrained(folder: Path, run: Run) -> Path:
    """Pre-train a run unless it has been; return its workspace."""
    workspace, data = folder / "runs" / run.name, folder / "parts" / f"{run.megabytes}MB"
    settings = settings_of(run.shape, run.rate, run.tokens)
    write_workspace(workspace, settings, data, settings.pretrain.num_steps, [1])
    if not (Paths(workspace).results / "pretrain.json").exists():
        electra(workspace, "pretrain")
    return workspace


def finish(folder: Path, run: Run) -> None:
    """Pre-train and fine-tune a run and write its piece, unless that exists."""
    if (piece := piece_of(folder, run)).exists():
        return
    workspace, loss = pretrained(folder, run), loss_of(folder, run)
    row = {
        "run": asdict(run),
        "part": next(part for part in PARTS if (run.shape, run.megabytes, run.tokens) in part_of_plan(part)),
        "body_parameters": size_of(run.shape),
        "text_tokens": read_manifest(workspace / "data/shards")["splits"]["train"]["tokens"],
        "loss": loss,
        "tasks": {task: scores_of(workspace, f"{task}-dev") for task in plan()["tasks"]},
        "processor_seconds": processor_seconds(workspace),
        "machine": measure.machine(),
    }
    piece.parent.mkdir(exist_ok=True)
    write_json(piece, row)
    print(f"{run.name}: finished", flush=True)


def scores_of(workspace: Path, task: str) -> list[float]:
    """Fine-tune with every seed; return the scores in percent."""
    paths, found = Paths(workspace), []
    spec = find_spec(paths.tasks, task)
    rows = {split: read_rows(paths, task, split) for split in spec.dev_splits}
    for seed in plan()["finetuning_seeds"]:
        if not (paths.finetuned(finetuned_name(task, seed, PRETRAINED)) / "manifest.json").exists():
            electra(workspace, "finetune", "--task", task, "--seed", str(seed))
        found.append(round(scores_of_run(paths, spec, rows, seed, PRETRAINED)[spec.headline], 2))
    return found


if __name__ == "__main__":
    main()
