"""One side of a comparison: settings, lock and results of a git revision, an experiment, a folder or the work tree."""

import json
import subprocess
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from electra.common.errors import ConfigError, DataError
from electra.common.parsing import flat
from electra.common.paths import SCORE_FAMILIES

WORK_TREE = "work tree"
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # a lock has thousands of lines: ten times faster


@dataclass
class Side:
    """Files of one run.

    Attributes:
        name: as the user gave it.
        folder: where they lie; for a revision, the repository.
        revision: full commit; None for a folder.
    """

    name: str
    folder: Path
    revision: str | None = None
    _read: dict[str, bytes | None] = field(default_factory=dict, repr=False)

    def read(self, path: str) -> bytes | None:
        """Content of a file; None where it is not there."""
        if path not in self._read:
            self._read[path] = self._look(path)
        return self._read[path]

    def _look(self, path: str) -> bytes | None:
        if self.revision is None:
            file = self.folder / path
            return file.read_bytes() if file.is_file() else None
        done = _git(self.folder, "show", f"{self.revision}:./{path}")
        return done.stdout if done.returncode == 0 else None

    def json(self, path: str) -> Any:
        """A JSON file; an empty object where it is not there.

        Raises:
            DataError: it is no JSON.
        """
        content = self.read(path)
        try:
            return json.loads(content) if content is not None else {}
        except ValueError as error:
            raise DataError(f"not JSON: {error}", where=f"{self.name}: {path}", next_step="dvc repro") from None

    def yaml(self, path: str) -> Any:
        """A YAML file; an empty object where it is not there.

        Raises:
            DataError: it is no YAML.
        """
        content = self.read(path)
        try:
            return (yaml.load(content, Loader=_LOADER) if content is not None else None) or {}
        except (yaml.YAMLError, ValueError) as error:
            raise DataError(f"not YAML: {error}", where=f"{self.name}: {path}") from None

    @cached_property
    def profile(self) -> str:
        return str(self.yaml("params.yaml").get("profile", ""))

    @cached_property
    def settings(self) -> dict[str, Any]:
        """All settings by the path of their key; ``cluster`` too."""
        common = self.yaml("params.yaml")
        own = self.yaml(f"params/{self.profile}.yaml")
        return dict(flat({**common, **{k: _merged(common.get(k), v) for k, v in own.items()}}))

    @cached_property
    def stages(self) -> dict[str, Any]:
        """Stages of ``dvc.lock``."""
        return self.yaml("dvc.lock").get("stages", {})

    @cached_property
    def tasks(self) -> dict[str, dict[str, Any]]:
        """The score card's entry of every task."""
        return {name: entry for family in SCORE_FAMILIES for name, entry in self.json(f"results/{family}.json").items()}

    @property
    def machine(self) -> dict[str, dict[str, Any]]:
        """``results/machine.json`` by stage."""
        return self.json("results/machine.json")

    def hash_of(self, path: str) -> str | None:
        """md5 of an output in the lock."""
        for stage in self.stages.values():
            for out in stage.get("outs", []):
                if out["path"] == path:
                    return out.get("md5")
        return None

    def values(self, task: str) -> dict[str, float]:
        """Headline of a task from the pre-trained weights, by seed."""
        entry = self.tasks[task]
        seeds = entry.get("seeds") or {"": {"pretrained": {entry["metric"]: entry["pretrained"]}}}
        return {seed: found["pretrained"][entry["metric"]] for seed, found in seeds.items()}

    def predictions(self, task: str, seed: str) -> list[dict[str, Any]] | None:
        """Predictions of the cell on the development set, from its folder or from DVC's cache; None where not there."""
        cell = f"models/finetuned/{task}-{seed}"
        content = None
        if self.revision is None:
            content = self.read(f"{cell}/predictions.jsonl")
        elif (digest := self.hash_of(cell)) and digest.endswith(".dir"):
            listed = self._cached(digest)
            files = {entry["relpath"]: entry["md5"] for entry in json.loads(listed)} if listed else {}
            content = self._cached(files["predictions.jsonl"]) if "predictions.jsonl" in files else None
        if content is None:
            return None
        return [json.loads(line) for line in content.decode("utf-8").splitlines() if line]

    def _cached(self, digest: str) -> bytes | None:
        file = self.folder / ".dvc/cache/files/md5" / digest[:2] / digest[2:]
        return file.read_bytes() if file.is_file() else None

    def stale(self) -> list[str]:
        """Stages whose lock has other parameters than the settings: their results are of before."""
        found = []
        for name, stage in self.stages.items():
            for file, keys in stage.get("params", {}).items():
                if file not in ("params.yaml", f"params/{self.profile}.yaml"):
                    found.append(name)
                    continue
                now = self.yaml(file)
                if any(dict(flat(_at(now, key))) != dict(flat(value)) for key, value in keys.items()):
                    found.append(name)
        return list(dict.fromkeys(found))


def open_side(name: str | None, root: Path = Path(".")) -> Side:
    """A folder with results, a git revision, or the name of an experiment of DVC; the work tree for None.

    Raises:
        ConfigError: it is none of these, or has no results.
    """
    if name is None:
        return _with_results(Side(WORK_TREE, root))
    if (Path(name) / "results").is_dir():
        return _with_results(Side(name, Path(name)))
    revision = _resolve(root, name)
    if revision is None:
        raise ConfigError(
            f"{name} is no revision, no experiment and no folder with results/",
            next_step="name a commit, branch or tag (git log --oneline), an experiment (dvc exp list), or a folder",
        )
    return _with_results(Side(name, root, revision))


def _with_results(side: Side) -> Side:
    if side.read("results/scores.json") is None:
        raise ConfigError(
            f"{side.name} has no results/scores.json", next_step="run it first: make run; or name another revision"
        )
    return side


def _resolve(root: Path, name: str) -> str | None:
    if name.startswith("-"):
        return None
    done = _git(root, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
    if done.returncode == 0:
        return done.stdout.decode().strip()
    listed = _git(root, "for-each-ref", "--format=%(objectname) %(refname)", "refs/exps").stdout.decode()
    for line in listed.splitlines():
        commit, _, reference = line.partition(" ")
        if reference.rpartition("/")[2] == name:
            return commit
    return None


def _git(root: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, check=False)
    except FileNotFoundError:
        raise ConfigError("git is not installed", next_step="install it, or compare folders") from None


def _merged(common: Any, own: Any) -> Any:
    return {**common, **own} if isinstance(common, dict) and isinstance(own, dict) else own


def _at(values: Any, key: str) -> Any:
    if key in values:
        return values[key]
    for part in key.split("."):
        values = values.get(part) if isinstance(values, dict) else None
    return values
