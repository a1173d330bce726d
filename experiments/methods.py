"""Compare methods of pre-training at equal hardware FLOPs on real text, by fine-tuned tasks.

    python -m experiments.methods FOLDER --data DATA                     # bert and electra, 6M tokens, seeds 1 to 5
    python -m experiments.methods FOLDER --data DATA --budget 24M --methods bert electra --seeds 1 2 3 --jobs 2
    python -m experiments.methods FOLDER --data DATA --shape 4x192 --methods bert mlm_then_rtd --seeds 1 2 3
    python -m experiments.methods FOLDER --data DATA --text 200MB --budget 24M --methods bert mlm_then_rtd
    python -m experiments.methods FOLDER --data DATA --budget 24M --methods bert --check-rates 1.5e-3 3e-3
    python -m experiments.methods FOLDER --probe                         # minimal pairs, with what is finished
    python -m experiments.methods FOLDER --table [--write]               # of what is finished; computes nothing

Settings, tasks and rules: ``experiments/methods.yaml``. DATA has ``prose/``, ``conll2000/``, ``wnut17/``, ``glue/`` and
``squad/``. For each method the learning rate is chosen first, with a pre-training seed that no reported run has, on
rows that are cut from the training sets; then each seed is pre-trained at that rate, fine-tuned and scored on the
development sets. Every finished piece is a small file in ``FOLDER/pieces``: the same call goes on where an earlier one
stopped, also after a kill. With ``--write`` the finished rows go to ``experiments/results/methods.json`` and the tables
to ``docs/results.md``, ``docs/results-in-full.md``, ``docs/records.md`` and ``experiments/README.md``; a new folder,
also on another machine, begins with the pieces of the committed rows.
"""

import argparse
import itertools
import json
import os
import random
import statistics
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from benchmarks import measure
from electra.common.artifacts import read_json, write_json, write_text
from electra.common.errors import ConfigError, InfrastructureError
from electra.common.parsing import read_yaml
from electra.common.paths import Paths
from electra.config import Settings
from electra.config.loading import parse_settings
from experiments.equal_flops import (
    ROOT,
    electra,
    pretrained_at_cost,
    training_flops,
    vocab_size_of,
    write_workspace,
)
from experiments.methods_table import (
    CHOICE,
    DEV,
    RANDOM,
    SHAPE,
    TEXT,
    Row,
    answer_table,
    compared,
    corrected_table,
    costs_table,
    differences_table,
    group_name,
    of_group,
    page_with,
    pairs_table,
    rates_beyond,
    rates_table,
    records_table,
    scores_table,
    summary_table,
    tuning_scores,
    ways_table,
)
from experiments.texts import write_chosen, write_texts

SETTINGS = ROOT / "experiments/methods.yaml"
BUNDLED = ROOT / "data/labelled"
RESULTS = ROOT / "experiments/results/methods.json"
PAGE, PAGE_IN_FULL, RECORDS_PAGE = (ROOT / f"docs/{name}.md" for name in ("results", "results-in-full", "records"))
APPENDIX = ROOT / "experiments/README.md"
MOST_RATES = 5  # of one method
PAIRS = "pairs"  # name of the pieces with minimal pairs
SHARED = ("tasks", "texts", "settings")  # what all pieces of a folder have in common
STAGES = ("tasks", "evaluation-texts", "corpus", "tokenizer", "shards")
OF_ALL = {
    "answer": (PAGE, answer_table),
    "summary": (PAGE, summary_table),
    "records": (RECORDS_PAGE, records_table),
    "corrected": (PAGE_IN_FULL, corrected_table),
    "costs": (PAGE_IN_FULL, costs_table),
}
OF_A_GROUP = {
    "scores": (PAGE_IN_FULL, scores_table),
    "differences": (PAGE_IN_FULL, differences_table),
    "pairs": (PAGE_IN_FULL, pairs_table),
    "rates": (APPENDIX, rates_table),
    "ways": (APPENDIX, ways_table),
}


@dataclass(frozen=True)
class Run:
    """One pre-training run; of :data:`RANDOM` only the name, the shape and the text are used."""

    budget: str
    method: str
    rate: float
    seed: int
    shape: str = SHAPE
    text: str = TEXT

    @property
    def name(self) -> str:
        about = self.method if self.method == RANDOM else f"{self.budget}-{self.method}-{self.rate:g}-{self.seed}"
        others = [name for name, usual in ((self.shape, SHAPE), (self.text, TEXT)) if name != usual]
        return "-".join([*others, about])


@dataclass(frozen=True)
class Place:
    """The folder of an experiment."""

    folder: Path

    def data(self, text: str) -> Path:
        """Return the workspace in which a text and the tasks are prepared."""
        return self.folder / ("data" if text == TEXT else f"data-{text}")

    def workspace(self, run: Run) -> Path:
        return self.folder / "runs" / run.name

    def piece(self, run: Run, *parts: object) -> Path:
        return self.folder / "pieces" / ("-".join(map(str, (run.name, *parts))) + ".json")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="for data, runs and pieces; the same folder goes on")
    parser.add_argument("--data", type=Path, help="folder with prose/, conll2000/, wnut17/, glue/ and squad/")
    parser.add_argument("--budget", choices=protocol()["budgets"], default="6M")
    parser.add_argument("--shape", choices=protocol()["shapes"], default=SHAPE)
    parser.add_argument("--text", choices=protocol()["texts"], default=TEXT)
    parser.add_argument("--methods", nargs="+", choices=protocol()["methods"], default=["bert", "electra"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3, 4, 5], help="of pre-training")
    parser.add_argument("--check-rates", nargs="+", type=float, help="only try these at the budget; changes no choice")
    parser.add_argument("--jobs", type=int, default=2, help="runs side by side, one thread each")
    parser.add_argument("--probe", action="store_true", help="minimal pairs of the finished runs, without fine-tuning")
    parser.add_argument("--table", action="store_true", help="print the tables of what is finished, compute nothing")
    parser.add_argument("--write", action="store_true", help="write them and the rows into the repository")
    arguments = parser.parse_args()
    place = Place(arguments.folder.resolve())
    if not (arguments.table or arguments.write or arguments.probe):
        if arguments.data is None:
            parser.error("--data: name the folder with prose/, conll2000/, wnut17/, glue/ and squad/")
        prepare(place, arguments.data.resolve(), arguments.text)
        restore(place)
        measure_methods(place, arguments)
        return
    if arguments.probe:
        probe_runs(place, arguments.jobs)
    rows = finished_rows(place)
    for name, table in tables(rows).items():
        print(f"{name}\n\n{table}")
    if arguments.write:
        write_json(RESULTS, {"settings": protocol(), "rows": rows})
        for page, text in pages_of(rows).items():
            write_text(page, text)


def pages_of(rows: list[Row]) -> dict[Path, str]:
    """Return the texts of the pages with the tables of these rows."""
    pages = {page: page.read_text(encoding="utf-8") for page in (PAGE, PAGE_IN_FULL, APPENDIX, RECORDS_PAGE)}
    for name, table in tables(rows).items():
        page, _ = (OF_ALL | OF_A_GROUP)[name.partition("-")[0]]
        pages[page] = page_with(name, table, pages[page])
    return pages


def tables(rows: list[Row]) -> dict[str, str]:
    """Return the tables by name; those of a further shape or text, as far as it has rows, end in the group's name."""
    found = {name: table(rows) for name, (_, table) in OF_ALL.items()}
    usual = group_name(SHAPE, TEXT)
    for group in (group_name(shape, text) for shape in protocol()["shapes"] for text in protocol()["texts"]):
        own, suffix = of_group(rows, group), "" if group == usual else f"-{group}"
        has_rates = any(row["split"] == CHOICE and row["run"]["method"] != RANDOM for row in own)
        names = [name for name in OF_A_GROUP if (has_rates if name == "rates" else compared(own))]
        found |= {name + suffix: OF_A_GROUP[name][1](own) for name in names}
    return found


@cache
def protocol() -> dict[str, Any]:
    """Return ``experiments/methods.yaml``."""
    values: dict[str, Any] = read_yaml(SETTINGS)
    return values


# ---- text and tasks


def settings_of(method: str = "electra", rate: float | None = None, seed: int = 1, shape: str = SHAPE) -> Settings:
    """Return the settings of a method; the number of steps is the reference's of the budget 6M."""
    values = json.loads(json.dumps(protocol()["settings"]))
    values["model"] |= protocol()["shapes"][shape]
    changes = {} if method == RANDOM else protocol()["methods"][method]
    for section in changes.keys() - {"rate_of"}:
        values[section] |= changes[section]
    values["pretrain"] |= {"seed": seed} | ({"learning_rate": rate} if rate else {})
    for task, facts in protocol()["tasks"].items():
        for split in (CHOICE, DEV):
            values["tasks"]["own"].append(f"labelled/{task}-{split}.yaml")
            values["cells"]["tasks"].append(f"{task}-{split}")
            values["finetune"]["task_epochs"][f"{task}-{split}"] = facts["epochs"]
    return parse_settings(values, where=str(SETTINGS))


def prepare(place: Place, data: Path, text: str = TEXT) -> None:
    """Write a text and the tasks, and build corpus, vocabulary and examples, unless they exist.

    Raises:
        ConfigError: the folder belongs to other settings.
    """
    common = {key: protocol()[key] for key in SHARED}
    note = place.folder / "protocol.json"
    if note.exists() and read_json(note) != common:
        raise ConfigError(
            f"{place.folder} was begun with other settings", where=str(SETTINGS), next_step="take another folder"
        )
    place.folder.mkdir(parents=True, exist_ok=True)
    write_json(note, common)
    workspace, source = place.data(text), protocol()["texts"][text]
    archives = [data / name for name in source["archives"]]
    if not (workspace / "text").exists():
        if "documents" in source:
            write_chosen(archives, source["documents"], workspace / "text")
        else:
            write_texts(archives, workspace / "text", source["seed"])
    for task, facts in protocol()["tasks"].items():
        write_task(workspace / "labelled", task, facts, data)
    (workspace / "data").mkdir(exist_ok=True)
    settings = settings_of()
    write_workspace(workspace, settings, workspace / "data", settings.pretrain.num_steps, [1])
    for stage in STAGES:
        if not (workspace / "data" / stage.removesuffix("-texts") / "manifest.json").exists():
            electra(workspace, stage)


def restore(place: Place) -> None:
    """Write the pieces of the committed rows that the folder does not have: what was measured is not measured again."""
    stored = read_json(RESULTS) if RESULTS.exists() else None
    if stored is None or any(stored["settings"][key] != protocol()[key] for key in SHARED):
        return
    (place.folder / "pieces").mkdir(exist_ok=True)
    for row in stored["rows"]:
        run, split = Run(**row["run"]), row["split"]
        about = {key: value for key, value in row.items() if key not in ("split", "tasks", PAIRS)}
        pieces = {} if run.method == RANDOM else {place.piece(run): about}
        if PAIRS in row:
            pieces[place.piece(run, PAIRS)] = {"run": row["run"], PAIRS: row[PAIRS]}
        for task, scores in row["tasks"].items():
            for seed, score in zip(seeds_of(split), scores, strict=True):
                piece = {"run": row["run"], "task": task, "split": split, "seed": seed, "score": score}
                pieces[place.piece(run, task, split, seed)] = piece
        for file, piece in pieces.items():
            if not file.exists():
                write_json(file, piece)


def write_task(folder: Path, task: str, facts: dict[str, Any], data: Path) -> None:
    """Write the rows of a task: ``train``, part A and the development set, and a description for each of the two."""
    folder.mkdir(parents=True, exist_ok=True)
    format = facts["description"]["format"]
    train, dev = (_rows(_place_of(facts[key], data).read_text(encoding="utf-8"), format) for key in ("train", "dev"))
    random.Random(0).shuffle(train.rows)  # some files are sorted by source
    first, last = facts["rows"], facts["rows"] + facts["choice"]
    if len(train.rows) < last:
        raise ConfigError(f"{task}: {facts['train']} has {len(train.rows)} rows, not {last}", where=str(SETTINGS))
    parts = {
        "train": replace(train, rows=train.rows[:first]),
        CHOICE: replace(train, rows=train.rows[first:last]),
        DEV: dev,
    }
    for name, table in parts.items():
        (folder / f"{task}.{name}").write_text(table.text, encoding="utf-8")
    for split in (CHOICE, DEV):
        described = {**facts["description"], "train": f"{task}.train", "dev": f"{task}.{split}"}
        (folder / f"{task}-{split}.yaml").write_text(yaml.safe_dump(described), encoding="utf-8")


def _place_of(name: str, data: Path) -> Path:
    return BUNDLED / name.removeprefix("bundled/") if name.startswith("bundled/") else data / name


@dataclass(frozen=True)
class Rows:
    """A file of labelled rows: what is before them, between them and after them."""

    rows: list[str]
    heading: str = ""
    between: str = ""
    ending: str = ""

    @property
    def text(self) -> str:
        return self.heading + self.between.join(self.rows) + self.ending


def _rows(text: str, format: str) -> Rows:
    """Return the rows of a file: a line of a table, a sentence of a column file, a question of SQuAD's."""
    if format == "squad":
        paragraphs = [paragraph for article in json.loads(text)["data"] for paragraph in article["paragraphs"]]
        questions = [{**paragraph, "qas": [item]} for paragraph in paragraphs for item in paragraph["qas"]]
        return Rows([json.dumps(item) for item in questions], '{"data": [{"paragraphs": [\n', ",\n", "\n]}]}\n")
    lines = text.splitlines(keepends=True)
    if format != "conll":
        return Rows(lines[1:], heading=lines[0])
    sentences = itertools.groupby(lines, lambda line: bool(line.strip()))
    return Rows(["".join(words) + "\n" for has_words, words in sentences if has_words])


# ---- runs


def measure_methods(place: Place, arguments: argparse.Namespace) -> None:
    """Compute what is missing: random weights and learning rates, then the seeds, those of all methods in turn."""
    (place.folder / "pieces").mkdir(exist_ok=True)
    budget, methods, seed = arguments.budget, arguments.methods, protocol()["tuning_seed"]
    shape, text = arguments.shape, arguments.text
    if arguments.check_rates:
        checks = [Run(budget, method, rate, seed, shape, text) for rate in arguments.check_rates for method in methods]
        _finish_all(place, [(run, CHOICE) for run in checks], arguments.jobs)
        return
    untrained = Run("", RANDOM, 0, 0, shape, text)
    if text == TEXT:  # with another one the rates are those of this text
        tuned = [method for method in methods if "rate_of" not in protocol()["methods"][method]]
        small = protocol()["tuning_budget"][budget]
        tries = [Run(small, method, rate, seed, shape) for rate in protocol()["rates"] for method in tuned]
        _finish_all(place, [(run, CHOICE) for run in [untrained, *tries]], arguments.jobs)
        for method in tuned:
            while rates := beyond(place, small, method, shape):
                finish(place, Run(small, method, rates[0], seed, shape), CHOICE)
    chosen = {method: chosen_rate(place, budget, method, shape) for method in methods}
    runs = [Run(budget, method, chosen[method], seed, shape, text) for seed in arguments.seeds for method in methods]
    _finish_all(place, [(run, DEV) for run in [untrained, *runs]], arguments.jobs)


def _finish_all(place: Place, runs: list[tuple[Run, str]], jobs: int) -> None:
    with ThreadPoolExecutor(jobs) as pool:
        for done in [pool.submit(finish, place, run, split) for run, split in runs]:
            done.result()


def probe_runs(place: Place, jobs: int) -> None:
    """Score minimal pairs by the encoders of all reported runs, without fine-tuning."""
    runs = [Run(**row["run"]) for row in finished_rows(place) if row["split"] == DEV and row["run"]["method"] != RANDOM]
    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(lambda run: probe(place, run), runs))


def probe(place: Place, run: Run) -> None:
    """Write the piece with a run's accuracies on two halves of the bundled minimal pairs, by way of scoring."""
    if (piece := place.piece(run, PAIRS)).exists():
        return
    printed = subprocess.run(
        [sys.executable, "-m", "electra", "probe", str(BUNDLED / "blimp.jsonl"), "--json"],
        cwd=place.workspace(run),
        env=environment(),
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    found = json.loads(printed.stdout)["accuracy"]
    write_json(piece, {"run": vars(run), PAIRS: {way: halves(rules) for way, rules in found.items()}})


def halves(accuracies: dict[str, float]) -> list[float]:
    """Return the mean accuracy of every other paradigm, by name, and of those between, percent."""
    values = [100 * accuracies[rule] for rule in sorted(accuracies) if rule != "all"]
    return [round(statistics.fmean(values[half::2]), 2) for half in (0, 1)]


def finish(place: Place, run: Run, split: str) -> None:
    """Pre-train a run and fine-tune it on all tasks, each scored on ``split``; what is finished is left as it is."""
    workspace = place.workspace(run)
    workspace.mkdir(parents=True, exist_ok=True)
    if run.method != RANDOM and not place.piece(run).exists():
        write_json(place.piece(run), pretrained(place, run))
    elif run.method == RANDOM and not (workspace / "params.yaml").exists():
        data = place.data(run.text) / "data"
        write_workspace(workspace, settings_of(RANDOM, shape=run.shape), data, 6000, [1])
    if missing := [cell for cell in cells_of(split, run) if not place.piece(run, *cell).exists()]:
        names = [f"{task}:{split}:{seed}" for task, split, seed in missing]
        fine_tune_in_process(place, run, names)
    print(f"{run.name}: {split} finished", flush=True)


def tasks_of(run: Run) -> list[str]:
    """Return the tasks on which a run is fine-tuned: all, or those of ``few_tasks``."""
    few = protocol()["few_tasks"]
    about = {"shapes": run.shape, "texts": run.text, "budgets": run.budget, "methods": run.method}
    is_limited = any(value in few[key] for key, value in about.items())
    return list(few["tasks"] if is_limited else protocol()["tasks"])


def cells_of(split: str, run: Run) -> list[tuple[str, str, int]]:
    """Return task, scored rows and seed of every fine-tuning of a run."""
    return [(task, split, seed) for task in tasks_of(run) for seed in seeds_of(split)]


def seeds_of(split: str) -> list[int]:
    """Return the seeds of fine-tuning, in the order in which a row has its scores."""
    seeds: list[int] = protocol()["tuning_finetuning_seeds" if split == CHOICE else "finetuning_seeds"]
    return sorted(seeds)


def pretrained(place: Place, run: Run) -> Row:
    """Pre-train in a workspace; return the cost and the figures of the last validation."""
    workspace, data = place.workspace(run), place.data(run.text)
    reference = settings_of(protocol()["reference"], shape=run.shape)
    flops = training_flops(reference, vocab_size_of(Paths(data)))
    flops *= protocol()["budgets"][run.budget] / reference.pretrain.num_steps
    settings = settings_of(run.method, run.rate, run.seed, run.shape)
    return {"run": vars(run), **pretrained_at_cost(workspace, settings, data / "data", flops)}


def environment() -> dict[str, str]:
    """Return the environment of child processes: one thread, and this copy of the code."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive", "PYTHONPATH": str(ROOT)}


def finished_rows(place: Place) -> list[Row]:
    """Return the runs of which every piece is finished, each once for the rows on which it was scored."""
    cells: dict[tuple[str, str], dict[str, dict[int, float]]] = {}
    about: dict[str, Row] = {}
    for file in sorted((place.folder / "pieces").glob("*.json")):
        piece = read_json(file)
        run = Run(**piece["run"])
        about.setdefault(run.name, {"run": vars(run)})
        if "task" in piece:
            scores = cells.setdefault((run.name, piece["split"]), {}).setdefault(piece["task"], {})
            scores[piece["seed"]] = piece["score"]
        else:
            about[run.name].update(piece)
    rows = []
    for (name, split), tasks in cells.items():
        run = Run(**about[name]["run"])
        missing = [cell for cell in cells_of(split, run) if cell[2] not in tasks.get(cell[0], {})]
        if not missing and ("flops" in about[name] or run.method == RANDOM):
            values = {task: [tasks[task][seed] for seed in sorted(tasks[task])] for task in tasks_of(run)}
            rows.append({**about[name], "split": split, "tasks": values})
    order = [RANDOM, *protocol()["methods"]]
    return sorted(
        rows,
        key=lambda row: (
            list(protocol()["shapes"]).index(row["run"].get("shape", SHAPE)),
            list(protocol()["texts"]).index(row["run"].get("text", TEXT)),
            row["split"],
            row.get("flops", 0),
            order.index(row["run"]["method"]),
            row["run"]["rate"],
            row["run"]["seed"],
        ),
    )


def beyond(place: Place, budget: str, method: str, shape: str) -> list[float]:
    """Return the next learning rate to try, by the rule of ``experiments/methods.yaml``."""
    own = of_group(finished_rows(place), group_name(shape, TEXT))
    return rates_beyond(tuning_scores(own, budget, method), MOST_RATES)


def chosen_rate(place: Place, budget: str, method: str, shape: str) -> float:
    """Return the learning rate that is best on part A; that of another method where ``rate_of`` names one.

    Raises:
        ConfigError: no learning rate has been tried with the text :data:`TEXT`, with which rates are chosen.
    """
    named = protocol()["methods"][method].get("rate_of", method)
    tried = of_group(finished_rows(place), group_name(shape, TEXT))
    scores = tuning_scores(tried, protocol()["tuning_budget"][budget], named) if tried else {}
    if not scores:
        raise ConfigError(
            f"{named}: no learning rate was tried at {budget} with the text {TEXT}",
            next_step=f"run it with --text {TEXT} and {named} among --methods first",
        )
    return max(scores, key=lambda rate: scores[rate])


def fine_tune_in_process(place: Place, run: Run, cells: Sequence[str]) -> None:
    """Fine-tune in one process, which imports once and writes a piece after each cell."""
    with open(place.workspace(run) / "log.txt", "a") as log:
        done = subprocess.run(
            [sys.executable, "-m", "experiments.methods_cells", str(place.folder), json.dumps(vars(run)), *cells],
            cwd=place.workspace(run),
            env=environment(),
            stdout=log,
            stderr=subprocess.STDOUT,
            check=False,
        )
    if done.returncode:
        raise InfrastructureError(
            f"fine-tuning of {run.name} ended with exit code {done.returncode}",
            where=str(place.workspace(run) / "log.txt"),
            next_step="read the end of that file; the same call goes on where it stopped",
        )


if __name__ == "__main__":
    measure.run(main)
