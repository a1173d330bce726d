"""Folders of example runs as in git: settings, lock and results."""

import copy
import json
import shutil
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import yaml

EXAMPLE = Path(__file__).parent / "example"  # settings, lock and results of smoke when it had ten tasks
MACHINE = {"processor": "Processor A (avx2)", "cores": 2, "device": "cpu", "torch": "2.13.0", "minutes": 3.0}


LOCK = yaml.load((EXAMPLE / "dvc.lock").read_text(), Loader=yaml.CSafeLoader)  # of its cells three


class Run:
    """The example's results in a folder, to be changed and written."""

    def __init__(self, folder: Path, seeds: int = 1, random: int = 0, gain: float = 0.0):
        self.folder = folder
        self.common = yaml.safe_load((EXAMPLE / "params.yaml").read_text())
        self.profile = yaml.safe_load((EXAMPLE / "params/smoke.yaml").read_text())
        self.lock = copy.deepcopy(LOCK)
        for stage in self.lock["stages"].values():  # as if it had run with the settings of today
            for file, values in stage.get("params", {}).items():
                settings = self.common if file == "params.yaml" else self.profile
                for key in values:
                    values[key] = copy.deepcopy(reduce(lambda tree, name: tree[name], key.split("."), settings))
        self.results = {path.name: json.loads(path.read_text()) for path in (EXAMPLE / "results").glob("*.json")}
        self.machine = {"pretrain": dict(MACHINE), "finetune": dict(MACHINE)}
        self.counts = {
            name: json.loads((EXAMPLE / f"results/validation/{name}.json").read_text()) for name in ("corpus", "shards")
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

    def stage(self, name: str) -> dict[str, Any]:
        return self.lock["stages"][name]

    def set_hash(self, path: str, digest: str) -> None:
        """Another hash of a dependency or an output, wherever the lock has it."""
        for stage in self.lock["stages"].values():
            for entry in [*stage.get("deps", []), *stage.get("outs", [])]:
                if entry["path"] == path:
                    entry["md5"] = digest

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
