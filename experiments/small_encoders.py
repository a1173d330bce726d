"""Set the profile ``tiny`` beside published small encoders, on five tasks of GLUE with all their rows.

    python -m experiments.small_encoders FOLDER --data DATA                         # 64 MB of text, seeds 1 to 5
    python -m experiments.small_encoders FOLDER --data DATA --text 200MB --seeds 1 2 3 --jobs 2
    python -m experiments.small_encoders FOLDER [--write]                           # the tables of what is finished

Settings and rules: ``experiments/small_encoders.yaml``, on top of ``params/tiny.yaml``. DATA has ``prose/`` and
``glue/``. Method and recipes of fine-tuning are chosen first, with a pre-training seed that is not reported, on rows
that are cut from the training sets; the official development sets are scored once, by the profile as it is and by the
best method, then by masked language modelling. Every finished piece is a file in ``FOLDER/pieces``, so an interrupted
call goes on. With ``--write`` all finished pieces go to ``experiments/results/small_encoders.json`` and the tables to
``docs/real-text.md``; a new folder begins with the committed pieces.
"""

import argparse
import itertools
import random
import statistics
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks import measure
from electra.common.artifacts import read_json, write_json, write_text
from electra.common.parsing import read_yaml
from electra.common.paths import Paths
from electra.config import Settings
from electra.config.loading import parse_settings
from electra.results.evaluate import scores_of_run
from electra.results.report.beside import published_scores
from electra.tasks.catalogue import find_spec
from electra.tasks.matrix import PRETRAINED, SCRATCH, read_rows
from experiments.equal_flops import (
    ROOT,
    electra,
    pretrained_at_cost,
    training_flops,
    vocab_size_of,
    write_workspace,
)
from experiments.methods import STAGES
from experiments.methods_table import BASELINE, CHOICE, DEV, RANDOM, page_with, paired, with_interval
from experiments.texts import write_texts

SETTINGS = ROOT / "experiments/small_encoders.yaml"
RESULTS = ROOT / "experiments/results/small_encoders.json"
PAGE = ROOT / "docs/real-text.md"
PROFILE = ROOT / "params/tiny.yaml"
HEADERLESS = ("CoLA",)  # files of GLUE without a line of column names

Piece = dict[str, Any]
Recipe = tuple[float, float]  # learning rate and epochs of fine-tuning
Recipes = dict[str, Recipe]  # by task
Best = dict[str, tuple[float, Recipe]]  # by task, the best score and its recipe
Scores = dict[int, dict[str, float]]  # by pre-training seed, the score of each task


@dataclass(frozen=True)
class Encoder:
    """A pre-trained encoder; of :data:`RANDOM` weights the seed is 0."""

    text: str
    method: str
    seed: int

    @property
    def name(self) -> str:
        return f"{self.text}-{self.method}-{self.seed}"

    @property
    def split(self) -> str:
        """The rows on which it is scored: those of one seed are for choices."""
        return CHOICE if self.seed == plan()["tuning"]["seed"] else DEV


@dataclass(frozen=True)
class Cell:
    """One fine-tuning run."""

    task: str
    rate: float
    epochs: float
    seed: int


@cache
def plan() -> dict[str, Any]:
    """Return ``experiments/small_encoders.yaml``."""
    values: dict[str, Any] = read_yaml(SETTINGS)
    return values


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="for texts, runs and pieces; the same folder goes on")
    parser.add_argument("--data", type=Path, help="folder with prose/ and glue/; without it nothing is computed")
    parser.add_argument("--text", choices=plan()["texts"], default=next(iter(plan()["texts"])))
    parser.add_argument("--seeds", nargs="+", type=int, default=plan()["seeds"], help="of pre-training")
    parser.add_argument("--jobs", type=int, default=2, help="encoders side by side, one thread each")
    parser.add_argument("--write", action="store_true", help="write what is finished into the repository")
    arguments = parser.parse_args()
    place = Place(arguments.folder.resolve())
    restore(place)
    if arguments.data:
        measure_encoders(place, arguments.data.resolve(), arguments.text, arguments.seeds, arguments.jobs)
    pieces = place.pieces()
    found = tables(pieces)
    print("\n\n".join(found.values()))
    if arguments.write:
        write_json(RESULTS, {"plan": plan(), "pieces": pieces})
        write_text(PAGE, page_of(found))


def page_of(found: dict[str, str]) -> str:
    """Return the text of the page with these tables."""
    page = PAGE.read_text(encoding="utf-8")
    for name, table in found.items():
        page = page_with(name, table, page, "experiments.small_encoders")
    return page


@dataclass(frozen=True)
class Place:
    """The folder of the experiment."""

    folder: Path

    def data(self, text: str) -> Path:
        """Return the workspace in which a text is prepared."""
        return self.folder / f"data-{text}"

    def glue(self, split: str, data: Path) -> Path:
        """Return the folder of the tasks whose development sets are scored."""
        return data / "glue" if split == DEV else self.folder / "glue-choice"

    def workspace(self, encoder: Encoder) -> Path:
        return self.folder / "runs" / encoder.name

    def piece(self, encoder: Encoder, cell: Cell | None = None) -> Path:
        """Return the file of a pre-training run, or of one of its fine-tuning runs."""
        parts = [encoder.name, *(map(str, vars(cell).values()) if cell else ())]
        return self.folder / "pieces" / ("-".join(parts) + ".json")

    def pieces(self) -> list[Piece]:
        """Return everything that is finished."""
        return [read_json(file) for file in sorted((self.folder / "pieces").glob("*.json"))]


def restore(place: Place) -> None:
    """Write the committed pieces that the folder does not have, where their settings are the same."""
    (place.folder / "pieces").mkdir(parents=True, exist_ok=True)
    stored = read_json(RESULTS) if RESULTS.exists() else {"pieces": []}
    for piece in stored["pieces"]:
        encoder, cell = Encoder(**piece["encoder"]), Cell(**piece["cell"]) if "cell" in piece else None
        is_same = settings_that_decide(stored["plan"], encoder, cell) == settings_that_decide(plan(), encoder, cell)
        if is_same and not (file := place.piece(encoder, cell)).exists():
            write_json(file, piece)


def settings_that_decide(plan: dict[str, Any], encoder: Encoder, cell: Cell | None) -> list[Any]:
    """Return the settings on which a piece depends, besides its seed and the recipe of its cell."""
    of_encoder = [plan["texts"].get(encoder.text), plan["methods"].get(encoder.method), plan["reference_steps"]]
    cut = plan["tasks"].get(cell.task, {}) if cell and encoder.split == CHOICE else {}
    return [*of_encoder, {name: value for name, value in cut.items() if name != "epochs"}]


# ---- text and tasks


def settings_of(encoder: Encoder, glue: Path, cell: Cell | None = None) -> Settings:
    """Return the settings of ``tiny`` with this text, method and seed, and with the recipe of one fine-tuning run."""
    values = read_yaml(PROFILE)
    values["corpus"]["sources"][0] |= {"paths": ["text/*.txt"], "documents": "file"}
    values["tasks"] |= {"own": [], "pairs": []}
    values["tasks"]["source"] |= {"glue": str(glue), "squad": None}
    values["pretrain"] |= plan()["methods"].get(encoder.method, {}) | {"seed": encoder.seed}
    recipe: dict[str, dict[str, float]] = {"task_learning_rate": {}, "task_epochs": {}}
    if cell:
        recipe = {"task_learning_rate": {cell.task: cell.rate}, "task_epochs": {cell.task: cell.epochs}}
    values["finetune"] |= recipe
    cells = {"tasks": list(plan()["tasks"]), "seeds": plan()["finetuning_seeds"]}
    cluster = {"device": "cpu", "precision": "auto", "num_threads": 1, "num_processes": 1, "checkpoint_minutes": 2}
    common = {"profile": "tiny", "fidelity": "corrected", "cells": cells, "cluster": cluster}
    return parse_settings(common | values, where=str(PROFILE))


def prepare(place: Place, data: Path, text: str) -> None:
    """Build corpus, vocabulary and examples of a text, and the tasks with both kinds of scored rows, unless there."""
    workspace, source = place.data(text), plan()["texts"][text]
    if not (workspace / "text").exists():
        write_texts([data / name for name in source["archives"]], workspace / "text", source["seed"])
    for task, facts in plan()["tasks"].items():
        cut_part_a(data / "glue" / task, place.glue(CHOICE, data) / task, facts["choice"], facts.get("phrases", False))
    untrained = Encoder(text, RANDOM, 0)
    (place.folder / "choice/data").mkdir(parents=True, exist_ok=True)
    (workspace / "data").mkdir(exist_ok=True)
    for folder, split, stages in ((workspace, DEV, STAGES), (place.folder / "choice", CHOICE, STAGES[:1])):
        write_workspace(folder, settings_of(untrained, place.glue(split, data)), folder / "data", 1000, [1])
        for stage in stages:
            if not (folder / "data" / stage.removesuffix("-texts") / "manifest.json").exists():
                electra(folder, stage)


def cut_part_a(official: Path, folder: Path, rows: int, phrases: bool = False) -> None:
    """Write ``dev.tsv`` with this many rows of the official training set, and ``train.tsv`` with the others.

    With *phrases*, the rows are sentences and parts of sentences: ``dev.tsv`` has sentences that are part of no other
    row, and the rows that are parts of these are left out of ``train.tsv``.
    """
    lines = (official / "train.tsv").read_text(encoding="utf-8").splitlines(keepends=True)
    heading = "" if official.name in HEADERLESS else lines.pop(0)
    random.Random(0).shuffle(lines)  # some files are sorted by source
    dev, train = split_by_sentence(lines, rows) if phrases else (lines[:rows], lines[rows:])
    folder.mkdir(parents=True, exist_ok=True)
    for name, part in (("dev.tsv", dev), ("train.tsv", train)):
        write_text(folder / name, heading + "".join(part))


def split_by_sentence(lines: Sequence[str], rows: int) -> tuple[list[str], list[str]]:
    """Return the first lines whose text is part of no other text, and the lines whose text is part of none of these."""
    texts = [tuple(line.rpartition("\t")[0].split()) for line in lines]
    parts = {part for text in texts for part in parts_of(text) if part != text}
    dev = [number for number, text in enumerate(texts) if text not in parts][:rows]
    scored = {part for number in dev for part in parts_of(texts[number])}
    train = [number for number, text in enumerate(texts) if text not in scored]
    return [lines[number] for number in dev], [lines[number] for number in train]


def parts_of(text: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield every run of words of a text, the whole of it too."""
    for start, end in itertools.combinations(range(len(text) + 1), 2):
        yield text[start:end]


# ---- runs


def measure_encoders(place: Place, data: Path, text: str, seeds: Sequence[int], jobs: int) -> None:
    """Compute what is missing: by group of methods the encoders that choices are made with, then those to report."""
    tuning = plan()["tuning"]
    for name in dict.fromkeys((tuning["text"], text)):
        prepare(place, data, name)
    for methods in groups():
        tried = [Encoder(tuning["text"], method, tuning["seed"]) for method in methods]
        finish_all(place, data, dict.fromkeys(tried, cells_to_try()), jobs)
        recipes = reported(trials(place.pieces()))
        encoders = [Encoder(text, method, seed) for seed in seeds for method in recipes if method != RANDOM]
        encoders = [Encoder(text, RANDOM, 0), *encoders]
        finish_all(place, data, {encoder: cells_of(recipes[encoder.method]) for encoder in encoders}, jobs)


def cells_to_try() -> list[Cell]:
    """Return the fine-tuning runs by which recipes are chosen."""
    return [
        Cell(task, rate, epochs, seed)
        for task, facts in plan()["tasks"].items()
        for rate, epochs, seed in itertools.product(
            plan()["rates"], facts["epochs"], plan()["tuning"]["finetuning_seeds"]
        )
    ]


def cells_of(recipes: Recipes) -> list[Cell]:
    """Return the fine-tuning runs of an encoder that is reported."""
    return [Cell(task, *recipes[task], seed) for task in recipes for seed in plan()["finetuning_seeds"]]


def finish_all(place: Place, data: Path, cells: dict[Encoder, list[Cell]], jobs: int) -> None:
    """Finish encoders side by side, each with its fine-tuning runs."""
    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(lambda encoder: finish(place, data, encoder, cells[encoder]), cells))


def finish(place: Place, data: Path, encoder: Encoder, cells: Sequence[Cell]) -> None:
    """Pre-train an encoder and fine-tune it; pieces that exist are left as they are."""
    workspace, glue = place.workspace(encoder), place.glue(encoder.split, data)
    link_data(place, encoder)
    missing = [cell for cell in cells if not place.piece(encoder, cell).exists()]
    if encoder.method != RANDOM:
        has_weights = (Paths(workspace).results / "pretrain.json").exists()
        if not place.piece(encoder).exists() or (missing and not has_weights):
            write_json(place.piece(encoder), pretrained(workspace, encoder, settings_of(encoder, glue)))
    for cell in missing:
        scores = fine_tuned(workspace, encoder, cell, settings_of(encoder, glue, cell))
        write_json(place.piece(encoder, cell), scores)
    print(f"{encoder.name}: finished", flush=True)


def link_data(place: Place, encoder: Encoder) -> None:
    """Give a run's workspace the examples of its text, and the tasks with the rows on which it is scored."""
    folder, text = place.workspace(encoder) / "data", place.data(encoder.text)
    folder.mkdir(parents=True, exist_ok=True)
    sources = {"shards": text, "tokenizer": text, "tasks": text if encoder.split == DEV else place.folder / "choice"}
    for name, source in sources.items():
        if not (folder / name).exists():
            (folder / name).symlink_to(source / "data" / name)


def pretrained(workspace: Path, encoder: Encoder, settings: Settings) -> Piece:
    """Pre-train with the FLOPs of the first method; return the cost and the held-out figures."""
    reference = settings.model_copy(update={"pretrain": settings.pretrain.model_copy(update=first_method())})
    flops = training_flops(reference, vocab_size_of(Paths(workspace)))
    return {"encoder": vars(encoder), **pretrained_at_cost(workspace, settings, workspace / "data", flops)}


def first_method() -> dict[str, Any]:
    """Return the changes to ``pretrain`` of the method whose FLOPs all have."""
    return {**next(iter(plan()["methods"].values())), "num_steps": plan()["reference_steps"]}


def fine_tuned(workspace: Path, encoder: Encoder, cell: Cell, settings: Settings) -> Piece:
    """Fine-tune once; return all metrics of the scored rows in percent."""
    paths, start = Paths(workspace), SCRATCH if encoder.method == RANDOM else PRETRAINED
    write_workspace(workspace, settings, workspace / "data", settings.pretrain.num_steps, [cell.seed])
    cost = electra(workspace, "finetune", "--task", cell.task, "--seed", str(cell.seed), *start.option.split())
    spec = find_spec(paths.tasks, cell.task)
    rows = {split: read_rows(paths, cell.task, split) for split in spec.dev_splits}
    scores = scores_of_run(paths, spec, rows, cell.seed, start)
    return {
        "encoder": vars(encoder),
        "cell": vars(cell),
        "score": round(scores[spec.headline], 3),
        "metrics": {name: round(value, 3) for name, value in scores.items()},
        "processor_seconds": cost["processor_seconds"],
    }


# ---- choices and tables


def best_recipes(pieces: Sequence[Piece], method: str) -> Best:
    """Return, by task, the best mean over tuning seeds on part A and its recipe; nothing before all are finished."""
    scores: dict[Cell, float] = {}
    for piece in pieces:
        encoder = Encoder(**piece["encoder"])
        if "cell" in piece and (encoder.method, encoder.split) == (method, CHOICE):
            scores[Cell(**piece["cell"])] = piece["score"]
    cells = cells_to_try()
    if not all(cell in scores for cell in cells):
        return {}
    found: dict[str, dict[Recipe, list[float]]] = {}
    for cell in cells:
        found.setdefault(cell.task, {}).setdefault((cell.rate, cell.epochs), []).append(scores[cell])
    means = {
        task: {recipe: statistics.fmean(values) for recipe, values in recipes.items()}
        for task, recipes in found.items()
    }
    return {task: max((mean, recipe) for recipe, mean in recipes.items()) for task, recipes in means.items()}


def trials(pieces: Sequence[Piece]) -> dict[str, Best]:
    """Return the best recipes of every method whose trial is finished."""
    return {method: best for method in plan()["methods"] if (best := best_recipes(pieces, method))}


def mean_of_best(best: Best) -> float:
    return statistics.fmean(score for score, _ in best.values())


def groups() -> list[list[str]]:
    """Return the candidates, and the methods that are masked language modelling alone: the baseline is one of these."""
    methods = list(plan()["methods"])
    return [list(itertools.filterfalse(is_baseline, methods)), list(filter(is_baseline, methods))]


def is_baseline(method: str) -> bool:
    return method != RANDOM and bool(plan()["methods"][method]["objective"] == BASELINE)


def reported(tried: dict[str, Best]) -> dict[str, Recipes]:
    """Return the recipes of what is reported: random weights, the first method, the best candidate, the best baseline.

    The candidates come first; nothing of a group is reported before all its trials are finished. Random weights have
    the recipes of the first method, which is the profile as it is.
    """
    complete = itertools.takewhile(lambda methods: all(method in tried for method in methods), groups())
    best = [max(methods, key=lambda method: mean_of_best(tried[method])) for methods in complete]
    if not best:
        return {}
    first = next(iter(plan()["methods"]))
    return {RANDOM: recipes_of(tried[first]), **{method: recipes_of(tried[method]) for method in (first, *best)}}


def recipes_of(best: Best) -> Recipes:
    return {task: recipe for task, (_, recipe) in best.items()}


def tables(pieces: Sequence[Piece]) -> dict[str, str]:
    """Return the tables of the page by name, as far as their pieces are finished."""
    tried = trials(pieces)
    found = {"small-encoders-choice": choice_table(tried)}
    if scores := finished(pieces, reported(tried)):
        found["small-encoders"] = scores_table(pieces, scores)
        if differences := differences_of(scores):
            found["small-encoders-differences"] = differences
    return found


def choice_table(tried: dict[str, Best]) -> str:
    """Return what was chosen on part A: for every method the best recipes (rate, epochs) and their scores."""
    lines = []
    for method, best in tried.items():
        cells = [f"{score:.1f} ({rate:g}, {epochs:g})" for score, (rate, epochs) in best.values()]
        lines.append([f"`{method}`", *cells, f"{mean_of_best(best):.1f}"])
    return measure.table(["method", *plan()["tasks"], "mean"], lines) + "\n"


def finished(pieces: Sequence[Piece], recipes: dict[str, Recipes]) -> dict[tuple[str, str], Scores]:
    """Return the scores of all that is reported, by text and method.

    A score is the mean over fine-tuning seeds. A seed of pre-training counts when all its fine-tuning runs are
    finished; a method with a single seed is not reported.
    """
    found: dict[Encoder, dict[str, list[float]]] = {}
    for piece in pieces:
        encoder = Encoder(**piece["encoder"])
        if "cell" not in piece or encoder.split != DEV or encoder.method not in recipes:
            continue
        cell = Cell(**piece["cell"])
        if (cell.rate, cell.epochs) == recipes[encoder.method][cell.task]:
            found.setdefault(encoder, {}).setdefault(cell.task, []).append(piece["score"])
    seeds, tasks = len(plan()["finetuning_seeds"]), list(plan()["tasks"])
    rows: dict[tuple[str, str], Scores] = {
        (text, method): {
            encoder.seed: {task: statistics.fmean(by_task[task]) for task in tasks}
            for encoder, by_task in found.items()
            if (encoder.text, encoder.method) == (text, method)
            and all(len(by_task.get(task, ())) == seeds for task in tasks)
        }
        for text, method in itertools.product(plan()["texts"], recipes)
    }
    return {key: scores for key, scores in rows.items() if len(scores) > 1 or (scores and key[1] == RANDOM)}


def scores_table(pieces: Sequence[Piece], found: dict[tuple[str, str], Scores]) -> str:
    """Return the scores on the official development sets beside published ones."""
    tasks, names = list(plan()["tasks"]), plan()["published"]
    known = {model.name: model.glue for model in published_scores() if model.name in names}
    short = [name.partition(" (")[0] for name in names]
    heading = ["encoder", "text", "seeds", *tasks, "mean", *(f"reaches {name} on" for name in short), "minutes"]
    lines = []
    for (text, method), scores in found.items():
        of_tasks = [mean_by_seed(scores, [task]) for task in tasks]
        means = [statistics.fmean(values.values()) for values in of_tasks]
        reached = [
            f"{sum(_reaches(mean, known[name][task]) for task, mean in zip(tasks, means, strict=True))} of {len(tasks)}"
            for name in names
        ]
        about, minutes = ["random weights", text, ""], ""
        if method != RANDOM:
            about, minutes = [f"`tiny`, `{method}`", text, str(len(scores))], _minutes(pieces, text, method)
        figures = [with_interval(list(values.values())) for values in (*of_tasks, mean_by_seed(scores, tasks))]
        lines.append([*about, *figures, *reached, minutes])
    for name in names:
        figures = [f"{known[name][task]:.1f}" for task in tasks]
        mean = statistics.fmean(known[name][task] for task in tasks)
        lines.append([f"{name}, test sets", "", "", *figures, f"{mean:.1f}", "", "", ""])
    return measure.table(heading, lines) + "\n"


def differences_of(found: dict[tuple[str, str], Scores]) -> str:
    """Return a table of the best candidate minus the baseline, paired by pre-training seed; empty below two pairs."""
    tasks, lines = list(plan()["tasks"]), []
    for (text, method), scores in found.items():
        baseline = next((other for of, other in found if of == text and is_baseline(other)), None)
        if method in (RANDOM, baseline) or baseline is None or len(scores.keys() & found[text, baseline]) < 2:
            continue
        cells = []
        for names in (*([task] for task in tasks), tasks):
            values, p = paired(mean_by_seed(scores, names), mean_by_seed(found[text, baseline], names))
            cells.append(with_interval(values, "+.1f"))
        lines.append([f"`{method}` minus `{baseline}`", text, str(len(values)), *cells, f"{p:.2g}"])
    return measure.table(["methods", "text", "seeds", *tasks, "mean", "p"], lines) + "\n" if lines else ""


def mean_by_seed(scores: Scores, tasks: Sequence[str]) -> dict[int, float]:
    """Return the mean over tasks, by pre-training seed."""
    return {seed: statistics.fmean(values[task] for task in tasks) for seed, values in sorted(scores.items())}


def _reaches(score: float, published: float) -> bool:
    """Return whether a score is at least the published one; by a score of zero nothing is reached, not even zero."""
    return score > 0 and score >= published


def _minutes(pieces: Sequence[Piece], text: str, method: str) -> str:
    """Return the processor minutes of one pre-training run (median) and of fine-tuning it once on every task (mean).

    A run that went on after a kill has no figure of all its seconds; without any other the table has none.
    """
    own = [piece for piece in pieces if (piece["encoder"]["text"], piece["encoder"]["method"]) == (text, method)]
    own = [piece for piece in own if Encoder(**piece["encoder"]).split == DEV]
    runs = [piece["processor_seconds"] for piece in own if "cell" in piece]
    known = [seconds for piece in own if "cell" not in piece and (seconds := piece["processor_seconds"])]
    once = len(plan()["tasks"]) * statistics.fmean(runs)
    return f"{statistics.median(known) / 60:.0f} + {once / 60:.0f}" if known else f"? + {once / 60:.0f}"


if __name__ == "__main__":
    measure.run(main)
