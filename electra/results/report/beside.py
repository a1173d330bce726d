"""Compare the card with published scores (``published_scores.yaml``, which has a source for every figure)."""

import statistics
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from electra.results.report.facts import Facts
from electra.results.report.tables import Section

FILE = Path(__file__).with_name("published_scores.yaml")
_SETS = {"dev": None, "test": "test sets"}  # what the source of a row says of them


@dataclass(frozen=True)
class Published:
    """One model's published scores in percent; unpublished figures are left out.

    Attributes:
        source: publication and table, and that the scores are of the test sets where they are.
        glue: task -> the metric of the score card.
        glue_mean: as published, over all GLUE tasks in the file.
        squad: task -> ``exact`` and ``f1``.
        tagging: task -> entity F1.
    """

    name: str
    source: str
    glue: dict[str, float] = field(default_factory=dict)
    glue_mean: float | None = None
    squad: dict[str, dict[str, float]] = field(default_factory=dict)
    tagging: dict[str, float] = field(default_factory=dict)


@cache
def published_scores() -> tuple[Published, ...]:
    """Return all models, in the file's order."""
    content = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    return tuple(
        Published(
            name=model["name"],
            source=", ".join(
                filter(None, [content["sources"][model["source"]], model.get("where"), _SETS[model.get("set", "dev")]])
            ),
            glue=model.get("glue", {}),
            glue_mean=model.get("glue_mean"),
            squad=model.get("squad", {}),
            tagging=model.get("tagging", {}),
        )
        for model in content["models"]
    )


GLUE_TASKS = tuple(dict.fromkeys(task for model in published_scores() for task in model.glue))  # tasks of its GLUE mean
SQUAD_TASKS = tuple(sorted({task for model in published_scores() for task in model.squad}))
TAGGING_TASKS = tuple(dict.fromkeys(task for model in published_scores() for task in model.tagging))
COMPARED = GLUE_TASKS + SQUAD_TASKS + TAGGING_TASKS
TITLE = "Beside published results"
MAIN = "this run"
_NOT_THERE = "not on the official rows or without published figures"


def beside_published(facts: Facts) -> Section:
    """Return the table; without comparable tasks, a section that states the reason."""
    scores = facts.scores
    if not scores or not scores["tasks"]:
        return Section(TITLE, "", [], [])
    there = [task for task in COMPARED if task in scores["tasks"]]
    known = [task for task in there if scores["tasks"][task].get("official_rows")]
    if not known:
        reasons = _reasons(scores, there, scores["data"])
        why = "; ".join(f"{', '.join(tasks)}: {reason}" for reason, tasks in reasons.items())
        note = f"None. {why}. Such scores cannot be compared with published ones."
        nothing = (
            f"None: the publications of this table have no development-set figures of {', '.join(scores['tasks'])}."
        )
        return Section(TITLE, note if there else nothing, [], [])
    seeds = len(facts.settings.cells.seeds)
    ours = _our_rows(scores, known, f"median of {seeds} seeds" if seeds > 1 else "one seed")
    rows = [*ours, *(row for model in published_scores() if (row := _published_row(model, known)).counted)]
    columns = [column for task in known for column in _columns(task)]
    if set(GLUE_TASKS) <= set(known):
        columns.append("GLUE mean")
    return Section(
        TITLE,
        _note(_reasons(scores, [task for task in scores["tasks"] if task not in known], _NOT_THERE)),
        ["model", *columns, "tasks in common", "mean over them", f"mean of {MAIN}", "source"],
        [row.as_text(columns, ours[0]) for row in rows],
    )


@dataclass(frozen=True)
class _Row:
    """One row. ``cells``: column -> percent. ``counted``: task -> figure used in the mean over tasks in common."""

    name: str
    source: str
    cells: dict[str, float | None]
    counted: dict[str, float]

    def as_text(self, columns: list[str], main: "_Row") -> list[str]:
        means = (statistics.fmean(values[task] for task in self.counted) for values in (self.counted, main.counted))
        cells = [_percent(self.cells.get(column)) for column in columns]
        return [self.name, *cells, str(len(self.counted)), *map(_percent, means), self.source]


def _our_rows(scores: dict[str, Any], known: list[str], source: str) -> list[_Row]:
    """Return rows for the pre-trained model, the baseline, the milestones, and third-party encoders."""
    rows, tasks = [], {task: scores["tasks"][task] for task in known}
    for name, init in ((MAIN, "pretrained"), (f"{MAIN}, from random weights", "scratch")):
        counted = {task: entry[init] for task, entry in tasks.items()}
        others = {
            f"{task} EM": entry["other_metrics"]["exact"][init] for task, entry in tasks.items() if task in SQUAD_TASKS
        }
        rows.append(_Row(name, source, _cells(counted) | others, counted))
    further = [("milestones", part, f"{MAIN}, {part}% of pre-training") for part in scores.get("milestones", {})]
    further += [("encoders", name, f"{name}, in this harness") for name in scores.get("encoders", {})]
    for group, start, title in further:
        found = {task: entry[group][start] for task, entry in tasks.items()}
        counted = {task: entry["median"] for task, entry in found.items()}
        others = {f"{task} EM": entry["other_metrics"]["exact"] for task, entry in found.items() if task in SQUAD_TASKS}
        rows.append(_Row(title, source, _cells(counted) | others, counted))
    return rows


def _published_row(model: Published, known: list[str]) -> _Row:
    """Return a model's row. Without single GLUE tasks, its published GLUE mean counts for each of the eight tasks."""
    values = dict(model.glue)
    if not values and model.glue_mean is not None and set(GLUE_TASKS) <= set(known):
        values = dict.fromkeys(GLUE_TASKS, model.glue_mean)
    others = {task: found["f1"] for task, found in model.squad.items() if "f1" in found} | model.tagging
    values |= others
    cells = _cells(values if model.glue else others)
    cells |= {f"{task} EM": found.get("exact") for task, found in model.squad.items()}
    if model.glue_mean is not None:
        cells["GLUE mean"] = model.glue_mean
    return _Row(model.name, model.source, cells, {task: values[task] for task in known if task in values})


def _columns(task: str) -> list[str]:
    return [f"{task} EM", f"{task} F1"] if task in SQUAD_TASKS else [task]


def _cells(counted: dict[str, float]) -> dict[str, float | None]:
    """Return the columns of the counted figures, and the GLUE mean if all its tasks are counted."""
    cells: dict[str, float | None] = {_columns(task)[-1]: value for task, value in counted.items()}
    if set(GLUE_TASKS) <= set(counted):
        cells["GLUE mean"] = statistics.fmean(counted[task] for task in GLUE_TASKS)
    return cells


def _reasons(scores: dict[str, Any], tasks: list[str], otherwise: str) -> dict[str, list[str]]:
    """Return the tasks without comparable figures, grouped by reason."""
    reasons: dict[str, list[str]] = {}
    for task in tasks:
        has_published = task in COMPARED
        reason = scores["tasks"][task].get("not_official", otherwise) if has_published else otherwise
        reasons.setdefault(reason, []).append(task)
    return reasons


def _note(left_out: dict[str, list[str]]) -> str:
    note = (
        "Percent, of the development sets where the source does not say test sets. The last two means are over the "
        "tasks that a row and this run both have, SQuAD by its F1; a row with a published GLUE mean only counts with "
        "it eight times."
    )
    return note + "".join(f" Left out, since {reason}: {', '.join(tasks)}." for reason, tasks in left_out.items())


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"
