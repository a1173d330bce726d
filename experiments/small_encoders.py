"""Set the profile ``tiny`` beside published small encoders, on five tasks of GLUE with all their rows.

    python -m experiments.small_encoders FOLDER --data DATA                         # 64 MB of text, seeds 1 to 5
    python -m experiments.small_encoders FOLDER --data DATA --text 200MB --seeds 1 2 3 --jobs 2
    python -m experiments.small_encoders FOLDER [--write]                           # the tables of what is finished

Settings and rules: ``experiments/small_encoders.yaml``, on top of ``params/tiny.yaml``. DATA has ``prose/`` and
``glue/``. Method and recipes of fine-tuning are chosen first, with a pre-training seed that is not reported, on rows
that are cut from the training sets; the official development sets are scored once, by the profile as it is and by the
best method, then by masked language modelling. Some tasks are fine-tuned once more, from the encoder that was
fine-tuned on another task (``intermediate``), and a method is run on several cores for as long as the goal allows
(``longer``). Every finished piece is a file in ``FOLDER/pieces``, so an interrupted call goes on. With ``--write`` all
finished pieces go to ``experiments/results/small_encoders.json`` and the tables to ``docs/real-text.md``; a new folder
begins with the committed pieces.
"""

import argparse
import itertools
import random
import statistics
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from scipy import stats

from benchmarks import measure
from electra.common.artifacts import read_json, write_json, write_text
from electra.common.parsing import read_yaml
from electra.common.paths import Paths
from electra.config import Settings
from electra.config.loading import parse_settings
from electra.results.evaluate import scores_of_run
from electra.results.report.beside import published_scores
from electra.tasks.catalogue import find_spec
from electra.tasks.matrix import PRETRAINED, SCRATCH, Start, finetuned_name, read_rows
from experiments.equal_flops import (
    ROOT,
    electra,
    pretrained_at_cost,
    training_flops,
    vocab_size_of,
    write_workspace,
)
from experiments.methods import STAGES
from experiments.methods_table import BASELINE, CHOICE, DEV, LEVEL, RANDOM, page_with, paired, with_interval
from experiments.texts import write_texts

SETTINGS = ROOT / "experiments/small_encoders.yaml"
RESULTS = ROOT / "experiments/results/small_encoders.json"
PAGE = ROOT / "docs/real-text.md"
PROFILE = ROOT / "params/tiny.yaml"
HEADERLESS = ("CoLA",)  # files of GLUE without a line of column names
RECIPE = {"task_learning_rate": "rate", "task_epochs": "epochs"}  # settings of a recipe, and their names here

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
    after: str = ""  # the task on which the encoder was fine-tuned before


@dataclass(frozen=True)
class Row:
    """A row of the table of scores."""

    text: str
    method: str
    is_after: bool = False  # some tasks are fine-tuned after another one (`intermediate`)


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

    def glue(self, split: str, data: Path, after: str = "") -> Path:
        """Return the folder of the tasks whose development sets are scored."""
        if after:
            return self.folder / f"glue-{split}-after"
        return data / "glue" if split == DEV else self.folder / "glue-choice"

    def tasks(self, text: str, split: str, after: str = "") -> Path:
        """Return the workspace in which the tasks of :meth:`glue` are prepared."""
        if after:
            return self.folder / f"{split}-after"
        return self.data(text) if split == DEV else self.folder / "choice"

    def workspace(self, encoder: Encoder) -> Path:
        return self.folder / "runs" / encoder.name

    def piece(self, encoder: Encoder, cell: Cell | None = None) -> Path:
        """Return the file of a pre-training run, or of one of its fine-tuning runs."""
        of_cell = [str(value) for value in vars(cell).values() if value != ""] if cell else []
        return self.folder / "pieces" / ("-".join([encoder.name, *of_cell]) + ".json")

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
    longer = plan.get("longer", {}).get(encoder.method)
    method = plan["methods"].get(longer["like"] if longer else encoder.method)
    of_encoder = [plan["texts"].get(encoder.text), method, longer or plan["reference_steps"]]
    cut = plan["tasks"].get(cell.task, {}) if cell and encoder.split == CHOICE else {}
    before = plan.get("intermediate", {}) if cell and cell.after else {}
    of_cell = {name: value for name, value in cut.items() if name != "epochs"}
    return [*of_encoder, of_cell, *(before.get(name) for name in ("task", "rate", "epochs"))]


# ---- text and tasks


def settings_of(encoder: Encoder, glue: Path, cell: Cell | None = None) -> Settings:
    """Return the settings of ``tiny`` with this text, method and seed, and with the recipe of one fine-tuning run."""
    values = read_yaml(PROFILE)
    values["corpus"]["sources"][0] |= {"paths": ["text/*.txt"], "documents": "file"}
    values["tasks"] |= {"own": [], "pairs": []}
    values["tasks"]["source"] |= {"glue": str(glue), "squad": None}
    values["pretrain"] |= changes_of(encoder.method) | {"seed": encoder.seed}
    values["finetune"] |= {name: {cell.task: vars(cell)[of]} if cell else {} for name, of in RECIPE.items()}
    cells = {"tasks": list(plan()["tasks"]), "seeds": plan()["finetuning_seeds"]}
    cluster = {"device": "cpu", "precision": "auto", "num_threads": 1, "num_processes": 1, "checkpoint_minutes": 2}
    common = {"profile": "tiny", "fidelity": "corrected", "cells": cells, "cluster": cluster}
    return parse_settings(common | values, where=str(PROFILE))


def changes_of(method: str) -> dict[str, Any]:
    """Return the changes of a method to ``pretrain`` of ``tiny``; random weights have none."""
    longer = plan()["longer"].get(method, {})
    changes = plan()["methods"].get(longer.get("like", method), {})
    return {**changes, **{name: longer[name] for name in ("num_steps", "batch_size") if name in longer}}


def prepare(place: Place, data: Path, text: str) -> None:
    """Build corpus, vocabulary and examples of a text, and the tasks with both kinds of scored rows, unless there."""
    workspace, source = place.data(text), plan()["texts"][text]
    if not (workspace / "text").exists():
        write_texts([data / name for name in source["archives"]], workspace / "text", source["seed"])
    for task, facts in plan()["tasks"].items():
        cut_part_a(data / "glue" / task, place.glue(CHOICE, data) / task, facts["choice"], facts.get("phrases", False))
    untrained = Encoder(text, RANDOM, 0)
    after = plan()["intermediate"]["task"]
    for split in (DEV, CHOICE):
        leave_out_shared_sentences(place.glue(split, data), place.glue(split, data, after))
    for before, split in itertools.product(("", after), (DEV, CHOICE)):
        folder, glue = place.tasks(text, split, before), place.glue(split, data, before)
        (folder / "data").mkdir(parents=True, exist_ok=True)
        write_workspace(folder, settings_of(untrained, glue), folder / "data", 1000, [1])
        for stage in STAGES if folder == workspace else STAGES[:1]:
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


def leave_out_shared_sentences(glue: Path, folder: Path) -> None:
    """Copy the tasks, without training rows of the first task that share a sentence with a scored row of the next.

    A sentence is a column with several words; case, spaces and punctuation do not count.
    """
    first, then = plan()["intermediate"]["task"], plan()["intermediate"]["then"]
    files = [glue / task / name for task in plan()["tasks"] for name in ("train.tsv", "dev.tsv")]
    texts = {file: file.read_text(encoding="utf-8").splitlines(keepends=True) for file in files}
    scored = {sentence for task in then for line in texts[glue / task / "dev.tsv"] for sentence in sentences_of(line)}
    training = glue / first / "train.tsv"
    texts[training] = [line for line in texts[training] if scored.isdisjoint(sentences_of(line))]
    for file, lines in texts.items():
        copy = folder / file.relative_to(glue)
        copy.parent.mkdir(parents=True, exist_ok=True)
        write_text(copy, "".join(lines))


def sentences_of(line: str) -> set[str]:
    """Return the letters and digits of every column that has several words."""
    columns = [column for column in line.rstrip().split("\t") if " " in column]
    return {"".join(filter(str.isalnum, column.lower())) for column in columns}


# ---- runs


def measure_encoders(place: Place, data: Path, text: str, seeds: Sequence[int], jobs: int) -> None:
    """Compute what is missing: by group of methods the encoders that choices are made with, then those to report."""
    tuning = plan()["tuning"]
    for name in dict.fromkeys((tuning["text"], text)):
        prepare(place, data, name)
    for methods in groups():
        tried = [Encoder(tuning["text"], method, tuning["seed"]) for method in methods]
        finish_all(place, data, {encoder: cells_to_try_of(encoder.method) for encoder in tried}, jobs)
        pieces = place.pieces()
        recipes, further = reported(trials(pieces)), reported_after(pieces)
        cells = {method: cells_of(recipes[method]) for method in recipes}
        for method in cells.keys() & further.keys():
            cells[method] += cells_of(further[method], plan()["intermediate"]["task"])
        encoders = [Encoder(text, method, seed) for seed in seeds for method in recipes if method in plan()["methods"]]
        encoders = [Encoder(text, RANDOM, 0), *encoders]
        finish_all(place, data, {encoder: cells[encoder.method] for encoder in encoders}, jobs)
    longer = [Encoder(text, method, seed) for seed in seeds for method in plan()["longer"] if method in cells]
    of_longer = {encoder: cells[encoder.method] for encoder in longer}
    finish_all(place, data, of_longer, jobs=1)  # each has several processes


def cells_to_try_of(method: str) -> list[Cell]:
    """Return the fine-tuning runs of a method's trial, with those after the intermediate task where it has them."""
    intermediate = plan()["intermediate"]
    further = cells_to_try(intermediate["task"]) if method in intermediate["methods"] else []
    return [*cells_to_try(), *further]


def cells_to_try(after: str = "") -> list[Cell]:
    """Return the fine-tuning runs by which recipes are chosen."""
    return [
        Cell(task, rate, epochs, seed, after)
        for task in (plan()["intermediate"]["then"] if after else plan()["tasks"])
        for rate, epochs, seed in itertools.product(
            plan()["rates"], plan()["tasks"][task]["epochs"], plan()["tuning"]["finetuning_seeds"]
        )
    ]


def cells_of(recipes: Recipes, after: str = "") -> list[Cell]:
    """Return the fine-tuning runs of an encoder that is reported."""
    return [Cell(task, *recipes[task], seed, after) for task in recipes for seed in plan()["finetuning_seeds"]]


def finish_all(place: Place, data: Path, cells: dict[Encoder, list[Cell]], jobs: int) -> None:
    """Finish encoders side by side, each with its fine-tuning runs."""
    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(lambda encoder: finish(place, data, encoder, cells[encoder]), cells))


def finish(place: Place, data: Path, encoder: Encoder, cells: Sequence[Cell]) -> None:
    """Pre-train an encoder and fine-tune it; pieces that exist are left as they are."""
    workspace, glue = place.workspace(encoder), place.glue(encoder.split, data)
    missing = [cell for cell in cells if not place.piece(encoder, cell).exists()]
    if encoder.method != RANDOM:
        has_weights = (Paths(workspace).results / "pretrain.json").exists()
        if not place.piece(encoder).exists() or (missing and not has_weights):
            link_data(place, encoder, workspace)
            write_json(place.piece(encoder), pretrained(workspace, encoder, settings_of(encoder, glue)))
    for cell in missing:
        link_data(place, encoder, workspace, cell.after)
        settings = settings_of(encoder, place.glue(encoder.split, data, cell.after), cell)
        write_json(place.piece(encoder, cell), fine_tuned(workspace, encoder, cell, settings))
    print(f"{encoder.name}: finished", flush=True)


def link_data(place: Place, encoder: Encoder, workspace: Path, after: str = "") -> None:
    """Give a run's workspace the examples of its text, and the tasks with the rows on which it is scored."""
    text = place.data(encoder.text)
    (workspace / "data").mkdir(parents=True, exist_ok=True)
    for name, source in {
        "shards": text,
        "tokenizer": text,
        "tasks": place.tasks(encoder.text, encoder.split, after),
    }.items():
        link = workspace / "data" / name
        link.unlink(missing_ok=True)
        link.symlink_to(source / "data" / name)


def pretrained(workspace: Path, encoder: Encoder, settings: Settings) -> Piece:
    """Pre-train with the FLOPs of the first method, or in a longer run; return the cost and the held-out figures."""
    reference, processes = settings, 1
    if longer := plan()["longer"].get(encoder.method):
        processes = longer["processes"]
    else:
        reference = settings.model_copy(update={"pretrain": settings.pretrain.model_copy(update=first_method())})
    flops = training_flops(reference, vocab_size_of(Paths(workspace)))
    return {"encoder": vars(encoder), **pretrained_at_cost(workspace, settings, workspace / "data", flops, processes)}


def first_method() -> dict[str, Any]:
    """Return the changes to ``pretrain`` of the method whose FLOPs all have."""
    return {**next(iter(plan()["methods"].values())), "num_steps": plan()["reference_steps"]}


def fine_tuned(workspace: Path, encoder: Encoder, cell: Cell, settings: Settings) -> Piece:
    """Fine-tune once; return all metrics of the scored rows in percent."""
    paths, start = Paths(workspace), SCRATCH if encoder.method == RANDOM else PRETRAINED
    if cell.after:
        fine_tune_before(paths, cell, settings, start)
        start = Start("task", cell.after)
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


def fine_tune_before(paths: Paths, cell: Cell, settings: Settings, start: Start) -> None:
    """Fine-tune the encoder from which a run starts, with the seed of the run, unless it is there."""
    target = paths.intermediate(finetuned_name(cell.after, cell.seed, PRETRAINED))
    if target.exists():
        return
    recipe = {name: {cell.after: plan()["intermediate"][of]} for name, of in RECIPE.items()}
    settings = settings.model_copy(update={"finetune": settings.finetune.model_copy(update=recipe)})
    write_workspace(paths.root, settings, paths.root / "data", settings.pretrain.num_steps, [cell.seed])
    call = ["--task", cell.after, "--seed", str(cell.seed), "--intermediate", *start.option.split()]
    electra(paths.root, "finetune", *call)
    paths.intermediate(finetuned_name(cell.after, cell.seed, start)).rename(target)  # of random weights it has another


# ---- choices and tables


def best_recipes(pieces: Sequence[Piece], method: str, after: str = "") -> Best:
    """Return, by task, the best mean over tuning seeds on part A and its recipe; nothing before all are finished."""
    scores: dict[Cell, float] = {}
    for piece in pieces:
        encoder = Encoder(**piece["encoder"])
        if "cell" in piece and (encoder.method, encoder.split) == (method, CHOICE):
            scores[Cell(**piece["cell"])] = piece["score"]
    cells = cells_to_try(after)
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


def trials_after(pieces: Sequence[Piece]) -> dict[str, Best]:
    """Return the best recipes after the intermediate task, of every method whose trial of it is finished."""
    intermediate = plan()["intermediate"]
    found = {method: best_recipes(pieces, method, intermediate["task"]) for method in intermediate["methods"]}
    return {method: best for method, best in found.items() if best}


def reported_after(pieces: Sequence[Piece]) -> dict[str, Recipes]:
    """Return the recipes after the intermediate task; random weights have those of the first method."""
    tried, first = trials_after(pieces), next(iter(plan()["methods"]))
    recipes = {method: recipes_of(best) for method, best in tried.items()}
    return {**({RANDOM: recipes[first]} if first in recipes else {}), **recipes, **recipes_of_longer(recipes)}


def mean_of_best(best: Best) -> float:
    return statistics.fmean(score for score, _ in best.values())


def groups() -> list[list[str]]:
    """Return the candidates, and the methods that are masked language modelling alone: the baseline is one of these."""
    methods = list(plan()["methods"])
    return [list(itertools.filterfalse(is_baseline, methods)), list(filter(is_baseline, methods))]


def is_baseline(method: str) -> bool:
    return changes_of(method).get("objective") == BASELINE


def reported(tried: dict[str, Best]) -> dict[str, Recipes]:
    """Return the recipes of what is reported.

    These are random weights, the first method, the best candidate, the best baseline, and longer runs of them. The
    candidates come first; nothing of a group is reported before all its trials are finished. Random weights have the
    recipes of the first method, which is the profile as it is.
    """
    complete = itertools.takewhile(lambda methods: all(method in tried for method in methods), groups())
    best = [max(methods, key=lambda method: mean_of_best(tried[method])) for methods in complete]
    if not best:
        return {}
    first = next(iter(plan()["methods"]))
    recipes = {method: recipes_of(tried[method]) for method in (first, *best)}
    return {RANDOM: recipes[first], **recipes, **recipes_of_longer(recipes)}


def recipes_of_longer(recipes: dict[str, Recipes]) -> dict[str, Recipes]:
    """Return the recipes of the longer runs: those of the method that runs longer."""
    runs = plan()["longer"].items()
    return {name: recipes[longer["like"]] for name, longer in runs if longer["like"] in recipes}


def recipes_of(best: Best) -> Recipes:
    return {task: recipe for task, (_, recipe) in best.items()}


def tables(pieces: Sequence[Piece]) -> dict[str, str]:
    """Return the tables of the page by name, as far as their pieces are finished."""
    tried = trials(pieces)
    found = {"small-encoders-choice": choice_table(tried, trials_after(pieces))}
    if scores := finished(pieces, reported(tried), reported_after(pieces)):
        found["small-encoders"] = scores_table(pieces, scores)
        if differences := differences_of(scores):
            found["small-encoders-differences"] = differences
    return found


def choice_table(tried: dict[str, Best], tried_after: dict[str, Best]) -> str:
    """Return what was chosen on part A: for every method the best recipes (rate, epochs) and their scores."""
    lines, tasks = [], list(plan()["tasks"])
    for method, best in tried.items():
        for label, found in ((name_of(method), best), (name_of(method, True), tried_after.get(method))):
            if found:
                cells = [_with_recipe(*found[task]) if task in found else "" for task in tasks]
                lines.append([label, *cells, f"{mean_of_best(found):.1f}" if len(found) == len(tasks) else ""])
    return measure.table(["method", *tasks, "mean"], lines) + "\n"


def _with_recipe(score: float, recipe: Recipe) -> str:
    rate, epochs = recipe
    return f"{score:.1f} ({rate:g}, {epochs:g})"


def name_of(method: str, is_after: bool = False) -> str:
    """Return the method as tables show it."""
    name, intermediate = "random weights" if method == RANDOM else f"`{method}`", plan()["intermediate"]
    return f"{name}; {' and '.join(intermediate['then'])} after {intermediate['task']}" if is_after else name


def finished(pieces: Sequence[Piece], recipes: dict[str, Recipes], further: dict[str, Recipes]) -> dict[Row, Scores]:
    """Return the scores of all that is reported.

    A score is the mean over fine-tuning seeds. A seed of pre-training counts when all its fine-tuning runs are
    finished; a method with a single seed is not reported. After the intermediate task, the tasks that have no
    recipe there have the scores without it.
    """
    rows: dict[Row, Scores] = {}
    for text, method in itertools.product(plan()["texts"], recipes):
        plain = scores_of(pieces, text, method, cells_of(recipes[method]))
        rows[Row(text, method)] = plain
        if method in further:
            after = scores_of(pieces, text, method, cells_of(further[method], plan()["intermediate"]["task"]))
            rows[Row(text, method, True)] = {seed: plain[seed] | after[seed] for seed in plain if seed in after}
    return {row: scores for row, scores in rows.items() if len(scores) > 1 or (scores and row.method == RANDOM)}


def scores_of(pieces: Sequence[Piece], text: str, method: str, cells: Sequence[Cell]) -> Scores:
    """Return the mean score on each task of the seeds that have finished all these fine-tuning runs."""
    found: dict[int, dict[Cell, float]] = {}
    for piece in pieces:
        encoder = Encoder(**piece["encoder"])
        if "cell" in piece and (encoder.text, encoder.method, encoder.split) == (text, method, DEV):
            found.setdefault(encoder.seed, {})[Cell(**piece["cell"])] = piece["score"]
    tasks = dict.fromkeys(cell.task for cell in cells)
    return {
        seed: {task: statistics.fmean(scores[cell] for cell in cells if cell.task == task) for task in tasks}
        for seed, scores in found.items()
        if scores.keys() >= set(cells)
    }


def scores_table(pieces: Sequence[Piece], found: dict[Row, Scores]) -> str:
    """Return the scores on the official development sets beside published ones."""
    tasks, names = list(plan()["tasks"]), plan()["published"]
    known = {model.name: model.glue for model in published_scores() if model.name in names}
    short = [name.partition(" (")[0] for name in names]
    heading = ["encoder", "text", "seeds", *tasks, "mean", *(f"reaches {name} on" for name in short), "minutes"]
    lines = []
    for row, scores in found.items():
        of_tasks = [mean_by_seed(scores, [task]) for task in tasks]
        means = [statistics.fmean(values.values()) for values in of_tasks]
        reached = [
            f"{sum(_reaches(mean, known[name][task]) for task, mean in zip(tasks, means, strict=True))} of {len(tasks)}"
            for name in names
        ]
        name, seeds, minutes = name_of(row.method, row.is_after), "", ""
        if row.method != RANDOM:
            name, seeds = f"`tiny`, {name}", str(len(scores))
            minutes = "" if row.is_after else _minutes(pieces, row.text, row.method)
        figures = [with_interval(list(values.values())) for values in (*of_tasks, mean_by_seed(scores, tasks))]
        lines.append([name, row.text, seeds, *figures, *reached, minutes])
    for name in names:
        figures = [f"{known[name][task]:.1f}" for task in tasks]
        mean = statistics.fmean(known[name][task] for task in tasks)
        lines.append([f"{name}, test sets", "", "", *figures, f"{mean:.1f}", "", "", ""])
    return measure.table(heading, lines) + "\n"


def differences_of(found: dict[Row, Scores]) -> str:
    """Return a table of differences; empty without any.

    Those of a method to masked language modelling, of fine-tuning after the intermediate task to fine-tuning without
    it, and of a longer run to the shorter are paired by pre-training seed. Those of a text to the first text are not,
    since the vocabulary is another one too.
    """
    tasks, lines = list(plan()["tasks"]), []
    columns = [*([task] for task in tasks), tasks]
    for row, other in pairs_to_compare(found):
        scores, others = found[row], found.get(other, {})
        if len(scores.keys() & others) < 2:
            continue
        cells = []
        for names in columns:
            values, p = paired(mean_by_seed(scores, names), mean_by_seed(others, names))
            cells.append(with_interval(values, "+.1f") if any(values) else "")
        name, less = name_of(row.method, row.is_after), name_of(other.method, other.is_after)
        name += f"{',' if row.is_after else ''} minus {less}"
        lines.append([name, row.text, str(len(values)), *cells, f"{p:.2g}"])
    first = next(iter(plan()["texts"]))
    for row, scores in found.items():
        others = found.get(Row(first, row.method, row.is_after), {})
        if row.text == first or min(len(scores), len(others)) < 2:
            continue
        samples = [[list(mean_by_seed(of, names).values()) for of in (scores, others)] for names in columns]
        cells, p = zip(*(unpaired(*pair) for pair in samples), strict=True)
        name, texts = name_of(row.method, row.is_after), f"{row.text} minus {first}"
        lines.append([name, texts, f"{len(scores)}, {len(others)}", *cells, f"{p[-1]:.2g}"])
    return measure.table(["methods", "text", "seeds", *tasks, "mean", "p"], lines) + "\n" if lines else ""


def unpaired(ours: list[float], others: list[float]) -> tuple[str, float]:
    """Return the difference of two means ± half its 95% interval, and the p-value, by Welch's t-test."""
    test = stats.ttest_ind(ours, others, equal_var=False)
    low, high = test.confidence_interval(LEVEL)
    return f"{(low + high) / 2:+.1f} ± {(high - low) / 2:.1f}", float(test.pvalue)


def pairs_to_compare(rows: Collection[Row]) -> Iterator[tuple[Row, Row]]:
    """Yield the rows whose difference is reported, with what is subtracted."""
    for row in rows:
        if row.method == RANDOM:
            continue
        longer = plan()["longer"].get(row.method)
        if longer:
            yield row, Row(row.text, longer["like"], row.is_after)
        if row.is_after:
            yield row, Row(row.text, row.method)
        elif not longer and not is_baseline(row.method):
            yield from ((row, other) for other in rows if other.text == row.text and is_baseline(other.method))


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
    own = [piece for piece in own if not piece.get("cell", {}).get("after")]
    runs = [piece["processor_seconds"] for piece in own if "cell" in piece]
    known = [seconds for piece in own if "cell" not in piece and (seconds := piece["processor_seconds"])]
    once = len(plan()["tasks"]) * statistics.fmean(runs)
    return f"{statistics.median(known) / 60:.0f} + {once / 60:.0f}" if known else f"? + {once / 60:.0f}"


if __name__ == "__main__":
    measure.run(main)
