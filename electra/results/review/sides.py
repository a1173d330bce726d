"""One run: settings, lock and results of a git revision, an experiment, a folder or the work tree."""

import json
import subprocess
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from electra.common.errors import ConfigError, DataError
from electra.common.parsing import flat, quick_yaml, value_at
from electra.common.paths import SCORE_FAMILIES
from electra.config.loading import with_method

WORK_TREE = "work tree"


@dataclass
class Side:
    """Files of one run.

    Attributes:
        name: as given by the user.
        folder: the folder of the files; for a revision, the repository.
        revision: full commit; None for a folder.
        files_of_git: a reader for many revisions; by default each file is read by a ``git`` of its own.
    """

    name: str
    folder: Path
    revision: str | None = None
    files_of_git: "GitFiles | None" = field(default=None, repr=False)
    _read: dict[str, bytes | None] = field(default_factory=dict, repr=False)

    def read(self, path: str) -> bytes | None:
        """Return the content of a file; None if it does not exist."""
        if path not in self._read:
            self._read[path] = self._look(path)
        return self._read[path]

    def _look(self, path: str) -> bytes | None:
        if self.revision is None:
            file = self.folder / path
            return file.read_bytes() if file.is_file() else None
        if self.files_of_git:
            return self.files_of_git.read(self.revision, path)
        done = git(self.folder, "show", f"{self.revision}:./{path}")
        return done.stdout if done.returncode == 0 else None

    @property
    def files(self) -> list[Path]:
        """Files that were read; empty for a revision."""
        return [self.folder / path for path in self._read] if self.revision is None else []

    def json(self, path: str) -> Any:
        """Return the content of a JSON file; an empty object if it does not exist.

        Raises:
            DataError: it is not JSON.
        """
        content = self.read(path)
        try:
            return json.loads(content) if content is not None else {}
        except ValueError as error:
            raise DataError(f"not JSON: {error}", where=f"{self.name}: {path}", next_step="dvc repro") from None

    def yaml(self, path: str) -> Any:
        """Return the content of a YAML file; an empty object if it does not exist.

        Raises:
            DataError: it is not YAML.
        """
        content = self.read(path)
        try:
            return (quick_yaml(content) if content is not None else None) or {}
        except (yaml.YAMLError, ValueError) as error:
            raise DataError(f"not YAML: {error}", where=f"{self.name}: {path}") from None

    @cached_property
    def profile(self) -> str:
        return str(self.yaml("params.yaml").get("profile", ""))

    @cached_property
    def settings(self) -> dict[str, Any]:
        """All settings by key path, including ``cluster``."""
        common, own = with_method(self.yaml("params.yaml"), self.yaml(f"params/{self.profile}.yaml"))
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
        """Return the md5 of an output in the lock."""
        for stage in self.stages.values():
            for out in stage.get("outs", []):
                if out["path"] == path:
                    return out.get("md5")
        return None

    def values(self, task: str) -> dict[str, float]:
        """Return the headline metric of a task from the pre-trained weights, by seed."""
        entry = self.tasks[task]
        seeds = entry.get("seeds") or {"": {"pretrained": {entry["metric"]: entry["pretrained"]}}}
        return {seed: found["pretrained"][entry["metric"]] for seed, found in seeds.items()}

    def stale(self) -> list[str]:
        """Return stages whose parameters in the lock differ from the settings: their results are outdated.

        DVC keeps fine-tuning runs of other tasks and seeds in the lock; those the settings do not request are skipped.
        """
        found = []
        for name, stage in self.stages.items():
            if not self.is_requested(name):
                continue
            for file, keys in stage.get("params", {}).items():
                if file not in ("params.yaml", f"params/{self.profile}.yaml"):
                    found.append(name)
                    continue
                now = self.yaml(file)
                if any(dict(flat(value_at(now, key))) != dict(flat(value)) for key, value in keys.items()):
                    found.append(name)
        return list(dict.fromkeys(found))

    def is_requested(self, stage: str) -> bool:
        """Return True if the settings request a stage: all but fine-tuning runs of other tasks and seeds."""
        values = stage.partition("@")[2]
        cells = self.yaml("params.yaml").get("cells")
        if not values or cells is None:
            return True
        tasks = [*cells.get("tasks", []), *cells.get("intermediate", [])]
        requested = tuple(f"{task}-{seed}-" for task in tasks for seed in cells.get("seeds", []))
        return f"{values}-".startswith(requested)


def open_side(name: str | None, root: Path = Path(".")) -> Side:
    """Open a folder with results, a git revision, or a DVC experiment by its name; the work tree for None.

    Raises:
        ConfigError: there is no such folder, revision or experiment, it has no results, or several experiments have
            the name and none of them is of HEAD.
    """
    if name is None:
        return _with_results(Side(WORK_TREE, root))
    if (Path(name) / "results").is_dir():
        return _with_results(Side(name, Path(name)))
    revision = _resolve(root, name)
    if revision is None and name == "HEAD":
        raise without_history(root)
    if revision is None:
        raise ConfigError(
            f"{name} is neither a revision, an experiment nor a folder with results/",
            next_step="name a commit, branch or tag (git log --oneline), an experiment (dvc exp list), or a folder",
        )
    return _with_results(Side(name, root, revision))


def without_history(root: Path) -> ConfigError:
    """Return the error of a folder that has no commit, in a new repository or outside of any."""
    if git(root, "rev-parse", "--git-dir").returncode == 0:
        return ConfigError(
            "nothing is committed here yet", next_step="after a run: git add . && git commit -m 'First run'"
        )
    return ConfigError("no git history here", next_step="run it in the project's folder, which is a git repository")


def _with_results(side: Side) -> Side:
    if side.read("results/scores.json") is None:
        raise ConfigError(
            f"{side.name} has no results/scores.json", next_step="run it first: make run; or name another revision"
        )
    return side


def _resolve(root: Path, name: str) -> str | None:
    """Return the commit of a revision or an experiment; of experiments of one name, the one whose baseline is HEAD."""
    if name.startswith("-"):
        return None
    done = git(root, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
    if done.returncode == 0:
        return done.stdout.decode().strip()
    found = {one.commit: one.baseline for one in experiments(root) if one.name == name}
    if len(found) > 1:
        head = git(root, "rev-parse", "--verify", "--quiet", "HEAD").stdout.decode().strip()
        found = {commit: baseline for commit, baseline in found.items() if baseline == head} or found
    if len(found) > 1:
        listed = ", ".join(f"{commit[:7]} (baseline {baseline[:7]})" for commit, baseline in found.items())
        raise ConfigError(
            f"{len(found)} experiments are called {name}, and none of them is of HEAD: {listed}",
            next_step="name one by its commit; electra runs shows what each has changed",
        )
    return next(iter(found), None)


@dataclass(frozen=True)
class Experiment:
    """A DVC experiment: a commit that only a reference holds.

    Attributes:
        baseline: the commit that it was started from, its parent; '' without one.
        seconds: time of the commit.
        date: the same as YYYY-MM-DD.
    """

    name: str
    commit: str
    baseline: str
    seconds: int
    date: str


def experiments(root: Path) -> list[Experiment]:
    """Return DVC's experiments, newest first."""
    form = "--format=%(objectname)%09%(parent)%09%(committerdate:unix)%09%(committerdate:short)%09%(refname)"
    listed = git(root, "for-each-ref", "--sort=-committerdate", form, "refs/exps").stdout.decode("utf-8", "replace")
    found = []
    for line in listed.splitlines():
        commit, parents, seconds, date, reference = line.split("\t")
        if not reference.startswith(("refs/exps/exec/", "refs/exps/stash", "refs/exps/celery")):  # DVC's own
            name = reference.rpartition("/")[2]
            found.append(Experiment(name, commit, parents.partition(" ")[0], int(seconds), date))
    return found


class GitFiles:
    """Read files of any revision through one ``git cat-file --batch`` process."""

    def __init__(self, root: Path):
        self._prefix = git(root, "rev-parse", "--show-prefix").stdout.decode().strip()
        self._process = subprocess.Popen(
            ["git", "-C", str(root), "cat-file", "--batch"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def __enter__(self) -> "GitFiles":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def read(self, revision: str, path: str) -> bytes | None:
        """Return the content of a file in a revision; None if it does not exist."""
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(f"{revision}:{self._prefix}{path}\n".encode())
        self._process.stdin.flush()
        head = self._process.stdout.readline().split()
        if len(head) < 3 or head[1] != b"blob":
            return None
        content = self._process.stdout.read(int(head[2]))
        self._process.stdout.readline()
        return content


def git(root: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, check=False)
    except FileNotFoundError:
        raise ConfigError("git is not installed", next_step="install it, or compare folders") from None


def _merged(common: Any, own: Any) -> Any:
    return {**common, **own} if isinstance(common, dict) and isinstance(own, dict) else own
