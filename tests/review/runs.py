"""Folders of example runs as in git: settings, lock and results."""

import copy
import json
import shutil
from functools import reduce
from hashlib import md5
from pathlib import Path
from typing import Any

import numpy as np
import yaml

EXAMPLE = Path(__file__).parent / "example"  # settings of a small profile with ten tasks
MACHINE = {"processor": "Processor A (avx2)", "cores": 2, "device": "cpu", "torch": "2.13.0", "minutes": 3.0}
FINETUNE = "data/tokenizer electra/finetune electra/model electra/optim.py electra/tasks models/pretrained"
SCORES = {  # task: metric, score from the pre-trained weights
    "CoLA": ("matthews", 26.172), "SST-2": ("accuracy", 67.0), "MRPC": ("accuracy", 62.5),
    "STS-B": ("spearman", -2.425), "QQP": ("accuracy", 57.25), "MNLI": ("accuracy", 50.75),
    "QNLI": ("accuracy", 61.25), "RTE": ("accuracy", 61.0), "SQuAD1.1": ("f1", 31.117), "SQuAD2.0": ("f1", 16.329),
}  # fmt: skip
STAGES = {  # dependencies, outputs, and the settings of params.yaml and of the profile that DVC watches
    "corpus": ("electra/text/corpus", "data/corpus", "", "corpus"),
    "tokenizer": ("data/corpus electra/text/tokenizer", "data/tokenizer", "", "model.max_positions tokenizer"),
    "shards": ("data/corpus data/tokenizer electra/text/shards", "data/shards", "", "shards"),
    "tasks": ("electra/readers electra/tasks", "data/tasks", "cells.tasks", "tasks"),
    "pretrain": (
        "data/shards data/tokenizer electra/pretrain electra/pretrain/data electra/model electra/optim.py",
        "models/pretrained results/pretrain.json",
        "fidelity pretrain",
        "model pretrain",
    ),
    **{
        f"finetune@{task}-1": (
            f"data/tasks/{task} {FINETUNE}",
            f"models/finetuned/{task}-1",
            "fidelity",
            "finetune model",
        )
        for task in SCORES
    },
    "export": ("electra/hub/export models/pretrained results/scores.json", "models/export", "cells", "model pretrain"),
    "inputs": ("electra/inputs.py", "data/inputs", "pretrain", "corpus pretrain"),
    "evaluate": ("data/tasks electra/results models/finetuned", "results/scores.json", "cells", ""),
}


def lock(common: dict[str, Any], profile: dict[str, Any]) -> dict[str, Any]:
    """Return a ``dvc.lock`` in which all stages ran with these settings; a path has one hash wherever it stands."""

    def entries(paths: str) -> list[dict[str, str]]:
        return [{"path": path, "md5": md5(path.encode()).hexdigest()} for path in paths.split()]

    def values(settings: dict[str, Any], keys: str) -> dict[str, Any]:
        found = {key: reduce(lambda tree, name: tree[name], key.split("."), settings) for key in keys.split()}
        return copy.deepcopy(found)

    return {
        "stages": {
            name: {
                "deps": entries(deps),
                "outs": entries(outs),
                "params": {"params.yaml": values(common, of_common), "params/smoke.yaml": values(profile, of_profile)},
            }
            for name, (deps, outs, of_common, of_profile) in STAGES.items()
        }
    }


def results() -> dict[str, Any]:
    """Return the files of ``results/`` with one seed per task."""
    entries = {
        task: {"metric": metric, "pretrained": value, "dev_rows": 400, "seeds": {"1": {"pretrained": {metric: value}}}}
        for task, (metric, value) in SCORES.items()
    }
    return {
        "glue.json": {task: entry for task, entry in entries.items() if not task.startswith("SQuAD")},
        "squad.json": {task: entry for task, entry in entries.items() if task.startswith("SQuAD")},
        "tagging.json": {},
        "other.json": {},
        "scores.json": {"seeds": 1, "mean": {"pretrained": 43.094, "scratch": 35.211, "gain": 7.883}},
        "pretrain.json": {"step": 2600, "examples_seen": 83200, "mlm_loss": 4.24633, "disc_loss": 0.188334,
                          "disc_auc": 0.920212},
    }  # fmt: skip


class Run:
    """The example's results in a folder, to be changed and written."""

    def __init__(self, folder: Path, seeds: int = 1, random: int = 0, gain: float = 0.0):
        self.folder = folder
        self.common = yaml.safe_load((EXAMPLE / "params.yaml").read_text())
        self.profile = yaml.safe_load((EXAMPLE / "params/smoke.yaml").read_text())
        self.lock = lock(self.common, self.profile)
        self.results = results()
        self.machine = {"pretrain": dict(MACHINE), "finetune": dict(MACHINE)}
        self.counts = {
            "corpus": {"statistics": {"documents": 19_978, "characters": 2_500_000}},
            "shards": {"statistics": {"examples": 40_000, "tokens": 1_200_000}},
        }
        self.common["cells"]["seeds"] = list(range(1, seeds + 1))
        if seeds > 1 or random:
            self.draw(seeds, random, gain)

    def draw(self, seeds: int, random: int, gain: float) -> None:
        """Scores of tasks that differ by chance, with a standard deviation of 2 points."""
        generator = np.random.default_rng(random)
        for family in ("glue.json", "squad.json"):
            for entry in self.results[family].values():
                values = 60 + gain + generator.normal(0, 2, seeds)
                entry["seeds"] = {str(n + 1): {"pretrained": {entry["metric"]: float(v)}} for n, v in enumerate(values)}
                entry["pretrained"] = float(np.median(values))

    def without_scores(self) -> "Run":
        """Take the scores of all tasks out."""
        for name in ("glue.json", "squad.json"):
            self.results[name] = {}
        return self

    def stage(self, name: str) -> dict[str, Any]:
        return self.lock["stages"][name]

    def set_hash(self, path: str, digest: str) -> None:
        """Another hash of a dependency or an output, wherever the lock has it."""
        for stage in self.lock["stages"].values():
            for entry in [*stage.get("deps", []), *stage.get("outs", [])]:
                if entry["path"] == path:
                    entry["md5"] = digest

    def set_pretrain_seed(self, seed: int) -> "Run":
        """Pre-trained with this seed: other weights."""
        self.set_parameter("pretrain.seed", seed)
        self.set_hash("models/pretrained", md5(b"weights of seed %d" % seed).hexdigest() + ".dir")
        return self

    def set_parameter(self, key: str, value: Any) -> None:
        """In the settings, and in the lock of the stages that name it."""
        section, name = key.split(".")
        self.profile[section][name] = value
        for stage in self.lock["stages"].values():
            found = stage.get("params", {}).get("params/smoke.yaml", {}).get(section)
            if found is not None:
                found[name] = value

    def write(self) -> "Run":
        if self.folder.exists():
            shutil.rmtree(self.folder)
        (self.folder / "params").mkdir(parents=True)
        (self.folder / "results/validation").mkdir(parents=True)
        for name, value in (("params.yaml", self.common), ("params/smoke.yaml", self.profile)):
            (self.folder / name).write_text(yaml.safe_dump(value))
        (self.folder / "dvc.lock").write_text(yaml.dump(self.lock, Dumper=yaml.CSafeDumper))
        for name, value in self.results.items():
            (self.folder / "results" / name).write_text(json.dumps(value))
        for name, value in self.counts.items():
            (self.folder / f"results/validation/{name}.json").write_text(json.dumps(value))
        (self.folder / "results/machine.json").write_text(json.dumps(self.machine))
        return self

    def copy(self, folder: Path) -> "Run":
        run = copy.deepcopy(self)
        run.folder = folder
        return run
