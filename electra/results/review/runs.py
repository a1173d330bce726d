"""Runs of a repository: the work tree, commits that changed the scores, DVC's experiments; for `electra runs`."""

import json
import statistics
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from electra.common.errors import DataError
from electra.results.report.tables import Section, as_text
from electra.results.review.compare import means_by_seed
from electra.results.review.sides import WORK_TREE, GitFiles, Side, experiments, git, without_history

SCORES = ("results/metrics", "results/pretrain.json", "results/scores.json")  # a commit that changes one is a run


@dataclass(frozen=True)
class Run:
    """One run.

    Attributes:
        name: profile and method, or the experiment's name.
        commit: its first seven digits; :data:`WORK_TREE` for results that are not committed.
        changed: parameters that differ from the previous commit with a run, of an experiment from its baseline, as
            ``key value``.
        spread: standard deviation of the mean over fine-tuning seeds; None for one seed.
        minutes: minutes of pre-training, if results/machine.json has them.
    """

    name: str
    commit: str
    date: str
    changed: list[str]
    mean: float | None
    spread: float | None
    auc: float | None
    minutes: float | None
    subject: str


@dataclass(frozen=True)
class _Commit:
    """A commit with a run, and the commit that its settings are compared with; '' without one."""

    commit: str
    before: str
    seconds: int
    date: str
    subject: str
    experiment: str = ""


def find_runs(root: Path = Path("."), most: int = 30) -> list[Run]:
    """Return runs, newest first; the first is the work tree, if its scores are not those of HEAD.

    Raises:
        ConfigError: the folder is not in a git repository, or the repository has no commit.
    """
    commits = _commits(root, most + 1)
    committed = sorted([*_experiments(root), *commits], key=lambda one: one.seconds, reverse=True)
    newest = [*_work_tree(root, before=commits[:1]), *committed][:most]
    with GitFiles(root) as files:
        sides = {
            commit: Side(commit, root, None if commit == WORK_TREE else commit, files)
            for one in newest
            for commit in (one.commit, one.before)
            if commit
        }
        return [_run(one, sides[one.commit], sides.get(one.before)) for one in newest]


def _work_tree(root: Path, before: list[_Commit]) -> list[_Commit]:
    """Return the work tree if it has scores that HEAD has not, as one after the commit ``before``."""
    file = root / "results/scores.json"
    if not file.exists() or not git(root, "status", "--porcelain", "--", *SCORES).stdout:
        return []
    seconds = int(file.stat().st_mtime)
    date = time.strftime("%Y-%m-%d", time.localtime(seconds))
    return [_Commit(WORK_TREE, before[0].commit if before else "", seconds, date, "not committed")]


def _commits(root: Path, most: int) -> list[_Commit]:
    """Return commits that changed the scores, newest first, each after the commit before it."""
    form = "--format=%H%x09%ct%x09%cs%x09%s"
    log = git(root, "log", f"-{most}", form, "--", *SCORES)
    if log.returncode:
        raise without_history(root)
    lines = [line.split("\t", 3) for line in log.stdout.decode("utf-8", "replace").splitlines() if line]
    before = [*(line[0] for line in lines[1:]), ""]
    return [
        _Commit(commit, old, int(seconds), date, subject)
        for (commit, seconds, date, subject), old in zip(lines, before, strict=True)
    ]


def _experiments(root: Path) -> list[_Commit]:
    """Return DVC's experiments, newest first, each after its baseline."""
    return [
        _Commit(one.commit, one.baseline, one.seconds, one.date, f"experiment {one.name}", one.name)
        for one in experiments(root)
    ]


def _run(one: _Commit, side: Side, before: Side | None) -> Run:
    settings = _settings(side)
    old = _settings(before) if before else settings
    changed = [
        f"{key.removeprefix('pretrain.')} {settings.get(key, '-')}"
        for key in dict.fromkeys([*settings, *old])
        if settings.get(key) != old.get(key) and not key.startswith("cluster.")
    ]
    return Run(
        one.experiment or f"{settings.get('profile', '')}-{settings.get('pretrain.objective', '')}",
        one.commit if one.commit == WORK_TREE else one.commit[:7],
        one.date,
        changed,
        side.json("results/scores.json").get("mean", {}).get("pretrained"),
        _spread(side),
        side.json("results/pretrain.json").get("disc_auc"),
        side.machine.get("pretrain", {}).get("minutes"),
        one.subject,
    )


def _settings(side: Side) -> dict[str, Any]:
    """Return the settings of a commit; none where its files are not YAML, so that the other runs are listed."""
    try:
        return side.settings
    except DataError:
        return {}


def _spread(side: Side) -> float | None:
    """Return the standard deviation over seeds of the mean over tasks."""
    tasks = [task for task, entry in side.tasks.items() if "seeds" in entry]
    means = means_by_seed(side, tasks) if tasks else []
    return round(statistics.stdev(means), 3) if len(means) > 1 else None


def render_runs(runs: list[Run]) -> str:
    """Return one line per run, of at most 100 columns."""
    rows = []
    for run in runs:
        mean = "-" if run.mean is None else f"{run.mean:.1f}" + ("" if run.spread is None else f" ± {run.spread:.1f}")
        auc = "-" if run.auc is None else f"{run.auc:.3f}"
        minutes = "-" if run.minutes is None else f"{run.minutes:.1f}"
        changed = ", ".join(run.changed[:3]) + (f" and {len(run.changed) - 3} more" if len(run.changed) > 3 else "")
        rows.append([run.name[:16], run.commit, run.date, mean, auc, minutes, changed or run.subject])
    columns = ["run", "commit", "date", "mean", "AUC", "min", "changed"]
    return "\n".join(as_text(Section("Runs", "", columns, rows))) + "\n"


def runs_as_json(runs: list[Run]) -> str:
    """Return the runs as JSON."""
    return json.dumps([asdict(run) for run in runs], indent=2, ensure_ascii=False) + "\n"
