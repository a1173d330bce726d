"""Check the decisions of ``electra compare``: false alarms, power, reports of planted changes, and the gate.

    python -m benchmarks.review [--comparisons 200] [--json results.json]

Nothing is trained: runs are simulated from a seed, so that the figures are the same everywhere. A run predicts every
row of its development sets; rows differ in difficulty, encoders and fine-tuning runs in strength, and errors differ
between runs. Sizes are those of GLUE. The comparisons are made by the command's code, on files as written by a run;
planted changes are commits of a temporary repository, whose lock is made from its files as DVC makes it.
"""

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from electra.common.artifacts import write_json
from electra.common.paths import SCORE_FAMILIES, Paths
from electra.results.review.compare import DATA, Comparison, compare, noise_file
from electra.results.review.gate import Thresholds, reasons_to_refuse
from electra.results.review.noise import record_noise
from electra.results.review.sides import Side, open_side

ROWS = {"CoLA": 1043, "SST-2": 872, "MRPC": 408, "STS-B": 1500, "QQP": 5000, "MNLI": 5000, "QNLI": 5000, "RTE": 277,
        "SQuAD1.1": 5000, "SQuAD2.0": 5000}  # fmt: skip
ENCODER, FINE_TUNING, ROW = 0.10, 0.06, 0.5  # standard deviations, in units of that of a task's rows
COLLAPSED = 55.0  # points of a fine-tuning run that predicts one label for all rows
NOWHERE = Path("simulated")  # a folder that does not exist: all files of a simulated side are in memory
FOUND = ("better", "worse")


class World:
    """Simulated tasks with a difficulty for each row, and simulated runs on them."""

    def __init__(self, seed: int):
        self.random = np.random.default_rng(seed)
        self.difficulty = {task: self.random.normal(0, 1, rows).astype(np.float32) for task, rows in ROWS.items()}
        self.level = {task: 0.4 + 0.05 * n for n, task in enumerate(ROWS)}

    def encoder(self) -> dict[str, float]:
        """Simulate a pre-training run; return its strength on each task."""
        return {task: float(value) for task, value in zip(ROWS, self.random.normal(0, ENCODER, len(ROWS)), strict=True)}

    def scores(self, encoder: dict[str, float], seeds: int, collapse: float = 0.0) -> dict[str, list[float]]:
        """Simulate fine-tuning; return the points of every task and seed."""
        return {task: [self._score(task, encoder[task], collapse) for _ in range(seeds)] for task in ROWS}

    def _score(self, task: str, encoder: float, collapse: float) -> float:
        if collapse and task in ("CoLA", "RTE") and self.random.random() < collapse:
            return COLLAPSED
        strength = self.level[task] + encoder + self.random.normal(0, FINE_TUNING)
        errors = ROW * self.random.standard_normal(ROWS[task], dtype=np.float32)
        return float(100 * np.mean(strength + errors > self.difficulty[task]))


def files_of(
    scores: dict[str, list[float]], encoder: str = "one", seed: int = 1, rows: Mapping[str, int] = ROWS
) -> dict[str, str]:
    """Return the files of a run that a comparison reads: settings, lock, results."""
    seeds = range(1, 1 + len(next(iter(scores.values()))))
    tasks = {
        task: {
            "metric": "accuracy",
            "pretrained": float(np.median(values)),
            "dev_rows": rows[task],
            "seeds": {str(n): {"pretrained": {"accuracy": value}} for n, value in zip(seeds, values, strict=True)},
        }
        for task, values in scores.items()
    }
    outs = [{"path": path, "md5": "0"} for path in DATA] + [{"path": "models/pretrained", "md5": encoder}]
    deps = [{"path": f"data/tasks/{task}", "md5": "0"} for task in scores]
    lock = {"stages": {"pretrain": {"outs": outs}, "finetune": {"deps": deps}}}
    return {
        "params.yaml": json.dumps({"profile": "simulated", "cells": {"seeds": list(seeds)}}),
        "params/simulated.yaml": json.dumps({"pretrain": {"seed": seed}}),
        "dvc.lock": json.dumps(lock),
        "results/scores.json": "{}",
        "results/glue.json": json.dumps(tasks),
        "results/pretrain.json": "{}",
    }


def side(name: str, files: dict[str, str]) -> Side:
    """Return a side whose files are in memory."""
    names = ("results/pretrain.tsv", "results/machine.json", noise_file("simulated"))
    missing: dict[str, bytes | None] = dict.fromkeys([*names, *(f"results/{family}.json" for family in SCORE_FAMILIES)])
    return Side(name, NOWHERE, _read={**missing, **{path: text.encode() for path, text in files.items()}})


@dataclass(frozen=True)
class Setting:
    """Setting of simulated comparisons.

    Attributes:
        seeds: number of fine-tuning seeds on both sides.
        same_encoder: both sides start from the same weights.
        record: number of pre-training runs and fine-tuning seeds of the noise record; None for no record.
        collapse: probability that a fine-tuning run of CoLA or RTE collapses.
    """

    name: str
    seeds: int
    same_encoder: bool
    record: tuple[int, int] | None = None
    collapse: float = 0.0


SETTINGS = [
    Setting("fine-tuning seeds, 3 a side", 3, True),
    Setting("fine-tuning seeds, 5 a side", 5, True),
    Setting("the same, 4% of CoLA and RTE collapse", 5, True, collapse=0.04),
    Setting("pre-training seeds, record of 4 x 2, 1 fine-tuning seed", 1, False, (4, 2)),
    Setting("pre-training seeds, record of 8 x 2, 2 fine-tuning seeds", 2, False, (8, 2)),
    Setting("pre-training seeds, record of 8 x 2, 5 fine-tuning seeds", 5, False, (8, 2)),
    Setting("pre-training seeds, no record, 5 fine-tuning seeds", 5, False),
]
PER_RECORD = 4  # comparisons per record; they share the record's random error


def comparisons(setting: Setting, number: int, gain: dict[str, float] | None = None, seed: int = 1) -> list[Comparison]:
    """Compare pairs of runs that differ only in seeds, or by a gain.

    Args:
        gain: planted points by task.
    """
    world, found, record = World(seed), [], ""
    with tempfile.TemporaryDirectory() as folder:
        for n in range(number):
            if setting.record and n % PER_RECORD == 0:
                record = _record(world, setting, Path(folder))
            before = world.encoder()
            after = before if setting.same_encoder else world.encoder()
            runs = []
            for name, encoder, planted in (("before", before, {}), ("after", after, gain or {})):
                scores = world.scores(encoder, setting.seeds, setting.collapse)
                scores = {task: [value + planted.get(task, 0.0) for value in v] for task, v in scores.items()}
                files = files_of(scores, "one" if setting.same_encoder else name)
                runs.append(side(name, {**files, **({noise_file("simulated"): record} if record else {})}))
            found.append(compare(runs[0], runs[1]))
    return found


def _record(world: World, setting: Setting, folder: Path) -> str:
    assert setting.record
    pretrainings, seeds = setting.record
    runs = [
        side(f"run {n}", files_of(world.scores(world.encoder(), seeds, setting.collapse), f"run {n}", n))
        for n in range(pretrainings)
    ]
    return record_noise(runs, Paths(folder)).read_text(encoding="utf-8")


def is_false_alarm(found: Comparison) -> bool:
    """Return whether the comparison reports a difference of equal runs, in any task or in the mean."""
    return any(row.verdict in FOUND for row in [*found.rows, *([found.mean] if found.mean else [])])


def measure(setting: Setting, number: int) -> dict[str, Any]:
    """Return the share of false alarms, and the power at the difference that comparisons report as detectable."""
    equal = comparisons(setting, number)
    facts: dict[str, Any] = {
        "setting": setting.name,
        "comparisons": number,
        "false": sum(map(is_false_alarm, equal)),
        "false_means": sum(found.mean.verdict in FOUND for found in equal if found.mean),
    }
    stated = {name: _stated(equal, name) for name in [*ROWS, "mean"]}
    if {row.figures.noise for found in equal for row in found.rows} <= {"seeds", "record", "none"}:
        gained = comparisons(setting, number, {task: stated[task] for task in ROWS}, seed=2)
        verdicts = [row.verdict for found in gained for row in found.rows]
        moved = comparisons(setting, number, dict.fromkeys(ROWS, stated["mean"]), seed=3)
        facts |= {
            "detectable": {name: round(value, 2) for name, value in stated.items()},
            "power_tasks": verdicts.count("better") / len(verdicts),
            "power_mean": sum(found.mean.verdict == "better" for found in moved if found.mean) / number,
        }
    return facts


def _stated(found: list[Comparison], name: str) -> float:
    """Return the root mean square of the reported values, since the estimated variance is unbiased."""
    rows = [row for one in found for row in [*one.rows, one.mean] if row and row.name == name]
    return float(np.sqrt(np.mean([row.figures.detectable**2 for row in rows if row.figures.detectable] or [0.0])))


# --- planted changes


class Repository:
    """Project in a temporary git repository: settings, code, data and results, and a lock made from them."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.settings: dict[str, Any] = {
            "corpus": {"min_chars": 20},
            "tokenizer": {"vocab_size": 4000},
            "shards": {"boundaries": "lines"},
            "model": {"num_layers": 2, "dropout": 0.0},
            "pretrain": {"learning_rate": 1e-3, "weight_decay": 0.01, "num_steps": 2600, "seed": 1},
            "finetune": {"epochs": 3, "learning_rate": 5e-4},
        }
        self.common: dict[str, Any] = {"profile": "planted", "cells": {"seeds": [1, 2, 3]}, "cluster": {"threads": 2}}
        folders = ("corpus", "tokenizer", "shards", "model", "loader", "finetune")
        data = ("corpus", "tokenizer", "shards", "tasks/CoLA", "tasks/RTE")
        self.code = {f"electra/{folder}": f"code of {folder}\n" for folder in folders}
        self.data = {f"data/{name}": f"{name}\n" for name in data}
        self.machine = {
            stage: {"processor": "A (avx2)", "device": "cpu", "torch": "2.13.0", "minutes": 3.0}
            for stage in ("pretrain", "finetune")
        }
        self.scores = World(1).scores(dict.fromkeys(ROWS, 0.0), 3)
        self.note = ""

    def lock(self) -> dict[str, Any]:
        """Return dvc.lock as DVC writes it: hashes of a stage's inputs and outputs, and its parameters."""
        code = {
            "corpus": ["corpus"],
            "tokenizer": ["tokenizer"],
            "shards": ["shards"],
            "pretrain": ["model", "loader"],
            "finetune@CoLA-1": ["finetune", "model"],
            "finetune@RTE-1": ["finetune", "model"],
        }
        stages: dict[str, Any] = {}
        for stage, folders in code.items():
            kind, _, cell = stage.partition("@")
            read = [f"data/tasks/{cell.partition('-')[0]}"] if cell else []
            deps = [
                *((f"electra/{folder}", self.code[f"electra/{folder}"]) for folder in folders),
                *((d, self.data[d]) for d in read),
            ]
            outs = [(f"data/{kind}", self.data[f"data/{kind}"])] if f"data/{kind}" in self.data else []
            stages[stage] = {
                "deps": [{"path": path, "md5": _md5(text)} for path, text in deps],
                "params": {"params/planted.yaml": {kind: self.settings[kind]}},
                "outs": [{"path": path, "md5": _md5(text)} for path, text in outs],
            }
        return {"stages": stages}

    def commit(self) -> str:
        """Write and commit all files; return the commit."""
        files = {
            **files_of(self.scores),
            "params.yaml": json.dumps(self.common, indent=1),
            "params/planted.yaml": json.dumps(self.settings, indent=1),
            "dvc.lock": json.dumps(self.lock(), indent=1),
            "results/machine.json": json.dumps(self.machine, indent=1),
            "README.md": self.note,
            **{f"{path}/file": text for path, text in self.code.items()},
        }
        for path, text in files.items():
            file = self.folder / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        git = ["git", "-C", str(self.folder), "-c", "user.name=planted", "-c", "user.email=planted@example.org"]
        if not (self.folder / ".git").exists():
            subprocess.run([*git, "init", "-q"], check=True)
        subprocess.run([*git, "add", "-A"], check=True)
        subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "planted"], check=True)
        done = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True)
        return done.stdout.strip()


def _md5(text: str) -> str:
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


def plant(repository: Repository, number: int) -> tuple[str, str]:
    """Make the change with this number, of 30; return its kind and the name that a comparison must report."""
    parameters = [("pretrain", "learning_rate", 2e-3), ("pretrain", "weight_decay", 0.1), ("pretrain", "num_steps", 99),
                  ("model", "num_layers", 3), ("model", "dropout", 0.1), ("corpus", "min_chars", 5),
                  ("tokenizer", "vocab_size", 8000), ("shards", "boundaries", "none"), ("finetune", "epochs", 5),
                  ("finetune", "learning_rate", 1e-4)]  # fmt: skip
    changes = [
        *(("parameters", f"{section}.{key}") for section, key, _ in parameters),
        *(("code", path) for path in repository.code),
        *(("data", path) for path in repository.data),
        *(("processor", stage) for stage in repository.machine),
        ("seeds", "pretrain.seed"),
        ("seeds", "cells.seeds"),
        ("machine", "cluster.threads"),
        *(("nothing", what) for what in ("", "README.md", "minutes", "again")),
    ]
    kind, what = changes[number]
    if kind == "parameters":
        section, key, value = parameters[number]
        repository.settings[section][key] = value
    elif kind == "code":
        repository.code[what] += "one line more\n"
    elif kind == "data":
        repository.data[what] += "one line more\n"
    elif kind == "processor":
        repository.machine[what]["processor"] = "B (avx512f)"
    elif what == "pretrain.seed":
        repository.settings["pretrain"]["seed"] = 2
    elif what == "cells.seeds":
        repository.common["cells"]["seeds"] = [4, 5, 6]
    elif kind == "machine":
        repository.common["cluster"]["threads"] = 7
    elif what == "README.md":
        repository.note = "a page\n"
    elif what == "minutes":
        repository.machine["pretrain"]["minutes"] = 9.0
    return kind, what.removeprefix("data/").removeprefix("tasks/")


NUM_PLANTED = 30


def attributions(folder: Path, numbers: Sequence[int] = range(NUM_PLANTED)) -> Iterator[tuple[str, str, bool]]:
    """Yield (kind, name, whether the comparison reports exactly that) for planted changes, each a commit."""
    for number in numbers:
        repository = Repository(folder)
        before = repository.commit()
        kind, what = plant(repository, number)
        found = compare(open_side(before, folder), open_side(repository.commit(), folder))
        told = json.dumps(found.as_json()["changes"])
        expected = [] if kind == "nothing" else [kind]
        yield kind, what, found.changes.kinds == expected and (kind == "nothing" or what in told)


def gate_cases() -> Iterator[tuple[str, bool, list[str]]]:
    """Yield (case, whether the gate must pass, the gate's reasons)."""
    setting = SETTINGS[1]
    cases = {
        "equal runs": (0.0, {}, True),
        "15 points worse": (-15.0, {}, False),
        "15 points better": (15.0, {}, True),
        "worse, and that is allowed": (-15.0, {"worse": None, "mean_worse": True}, True),
        "equal, but too low": (0.0, {"mean": {"at_least": 90}}, False),
        "a drop that is too large": (-15.0, {"worse": None, "mean_worse": True, "mean": {"drop_at_most": 5}}, False),
        "a task that is not scored": (0.0, {"tasks": {"WNLI": {"at_least": 1}}}, False),
    }
    for name, (gain, thresholds, passes) in cases.items():
        (found,) = comparisons(setting, 1, dict.fromkeys(ROWS, gain), seed=4)
        yield name, passes, reasons_to_refuse(found, Thresholds.model_validate(thresholds))


def main(arguments: list[str] | None = None) -> int:
    """Print all figures; return 1 if one misses the value stated in docs/reviewing.md."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--comparisons", type=int, default=200, help="of each setting (200)")
    parser.add_argument("--json", type=Path, help="write the figures here")
    options = parser.parse_args(arguments)
    wrong, rows = [], []
    print(f"{'':58}{'false':>12}{'power, tasks':>15}{'mean':>7}")
    for setting in SETTINGS:
        facts = measure(setting, options.comparisons)
        rows.append(facts)
        power = f"{facts['power_tasks']:>15.1%}{facts['power_mean']:>7.1%}" if "power_mean" in facts else f"{'-':>15}"
        print(f"{setting.name:58}{facts['false']:>5} of {options.comparisons:<4}{power}", flush=True)
        if facts["false"] > 0.05 * options.comparisons:
            wrong.append(f"{setting.name}: false alarms")
        if min(facts.get("power_tasks", 1.0), facts.get("power_mean", 1.0)) < 0.8 and options.comparisons >= 200:
            wrong.append(f"{setting.name}: power below 80%")
    with tempfile.TemporaryDirectory() as folder:
        planted = list(attributions(Path(folder)))
    wrong += [f"{kind} {what}: not attributed" for kind, what, right in planted if not right]
    print(f"planted changes attributed: {sum(right for *_, right in planted)} of {len(planted)}")
    gates = list(gate_cases())
    wrong += [f"gate, {name}: {reasons}" for name, passes, reasons in gates if passes == bool(reasons)]
    print(f"gates as they should be: {sum(passes != bool(reasons) for _, passes, reasons in gates)} of {len(gates)}")
    if options.json:
        write_json(options.json, {"settings": rows, "planted": len(planted), "wrong": wrong})
    for line in wrong:
        print(f"wrong: {line}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
