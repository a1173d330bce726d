"""Compare two runs: list what changed, and test for each figure whether the difference exceeds noise."""

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from electra.common.paths import CODE
from electra.results.report.facts import Curves, parse_curves
from electra.results.review.examples import Flips, Pairs, bootstrap, flips_of, pairs_of
from electra.results.review.sides import WORK_TREE, Side
from electra.results.review.statistics import (
    Components,
    Difference,
    Spread,
    Verdict,
    from_record,
    from_seeds,
    pooled,
)

SMALLEST = 2.0  # smallest relevant difference of a task, in points
DATA = ("data/corpus", "data/tokenizer", "data/shards")
COUNTS = {"documents": "documents", "characters": "characters", "examples": "examples", "tokens": "tokens"}
PRETRAIN_FIGURES = {"disc_auc": True, "disc_loss": False, "mlm_loss": False}  # whether larger is better
JOINT = 2.5  # Bonferroni: 2% for the mean and 2% for all tasks together; training noise is not quite normal
OTHER_DATA = "other data"  # reason of a row: no record of noise gives such a difference an interval
_SEED_KEYS = ("pretrain.seed", "cells.seeds")


@dataclass(frozen=True)
class Row:
    """Comparison of a task, or of the mean over tasks.

    Attributes:
        why: reason for a missing interval.
    """

    name: str
    metric: str
    figures: Difference
    verdict: Verdict
    why: str = ""


@dataclass(frozen=True)
class Changes:
    """Differences between the runs, by kind.

    Attributes:
        machine: how and where they ran, which is not part of the recipe.
        unknown: what could not be compared, as sentences.
    """

    parameters: dict[str, tuple[Any, Any]]
    seeds: dict[str, tuple[Any, Any]]
    machine: dict[str, tuple[Any, Any]]
    data: list[str]
    code: dict[str, list[str]]  # file or folder -> stages
    processor: dict[str, tuple[str, str]]  # stage -> names
    unknown: list[str] = field(default_factory=list)

    @property
    def kinds(self) -> list[str]:
        """Names of the kinds that are known to differ; empty if none is."""
        return [name for name, value in vars(self).items() if value and name != "unknown"]


@dataclass(frozen=True)
class Cost:
    """Cost of pre-training one run; None for unknown figures.

    Attributes:
        tokens: including padding.
        flops: of the hardware's matrix products.
        processor: with the device and the version of PyTorch.
    """

    minutes: float | None
    tokens: int | None
    flops: float | None
    processor: str | None


@dataclass(frozen=True)
class Comparison:
    """All results of comparing two runs.

    Attributes:
        curves: held-out columns of ``results/pretrain.tsv`` of both runs; empty if a run has none.
    """

    before: str
    after: str
    profiles: tuple[str, str]
    changes: Changes
    rows: list[Row]
    mean: Row | None
    pretrain: dict[str, tuple[float | None, float | None]]
    curves: tuple[Curves, Curves]
    cost: tuple[Cost, Cost]
    flips: list[Flips]
    only: dict[str, list[str]]  # side -> tasks missing on the other side
    notes: list[str] = field(default_factory=list)

    @property
    def verdict(self) -> str:
        """Summarise the comparison in one sentence."""
        if self.mean is None:
            return "no task that both have been scored on"
        figures, word = self.mean.figures, self.mean.verdict
        if word == "same" and all(row.verdict == "same" for row in self.rows):
            return f"same: every task scores as before (mean {figures.after:.1f})"
        text = f"{word}: mean {figures.before:.1f} -> {figures.after:.1f} ({figures.difference:+.1f})"
        counts = [
            f"{sum(row.verdict == kind for row in self.rows)} {kind}"
            for kind in ("better", "worse", "unknown noise", "underpowered", "noise", "same")
            if any(row.verdict == kind for row in self.rows)
        ]
        return f"{text}; tasks: {', '.join(counts)}"

    def as_json(self) -> dict[str, Any]:
        """Return all results as JSON values."""
        return {
            **asdict(self),
            "verdict": self.verdict,
            "changed": self.changes.kinds,
            "rows": [_row_json(row) for row in self.rows],
            "mean": _row_json(self.mean) if self.mean else None,
        }


def _row_json(row: Row) -> dict[str, Any]:
    return {**asdict(row), "difference": row.figures.difference}


def compare(before: Side, after: Side, smallest: float = SMALLEST) -> Comparison:
    """Compare two runs by the files in git or in their folders.

    Args:
        smallest: smallest relevant difference in points; noise that could hide it is called underpowered.
    """
    shared = [task for task in before.tasks if task in after.tasks]
    same_encoder = _is_same_encoder(before, after)
    record = _record(before, after)
    pairs = {
        task: "its data differ" if _has_other_data(task, before, after) else pairs_of(task, before, after)
        for task in shared
    }
    noises = _noises(shared, before, after, record, same_encoder)
    rows = [_row(task, before, after, pairs[task], noises.get(task), JOINT * len(shared), smallest) for task in shared]
    notes = [f"{side.name}: results are older than the settings of {', '.join(sorted(stale)[:3])}; run: dvc repro"
             for side in (before, after) if (stale := {name.partition("@")[0] for name in side.stale()})]  # fmt: skip
    if any(len(side.values(task)) > 1 for side in (before, after) for task in shared):
        notes.append("scores are means over fine-tuning seeds; the card and metrics/ have medians")
    return Comparison(
        _named(before),
        _named(after),
        (before.profile, after.profile),
        changes_between(before, after),
        rows,
        _mean_row(shared, before, after, record, same_encoder, smallest) if shared else None,
        {key: (pretrain_figure(before, key), pretrain_figure(after, key)) for key in PRETRAIN_FIGURES
         if pretrain_figure(before, key) is not None or pretrain_figure(after, key) is not None},
        (_curves(before), _curves(after)),
        (_cost(before), _cost(after)),
        [flips_of(task, pairs[task]) for task in shared],
        {side.name: alone for side, other in ((before, after), (after, before))
         if (alone := [task for task in side.tasks if task not in other.tasks])},
        notes,
    )  # fmt: skip


def _is_same_encoder(before: Side, after: Side) -> bool:
    """Return whether both runs fine-tuned the same weights, by the lock; not if their held-out figures differ.

    A lock that was copied beside other results names the weights of another run.
    """
    digest = before.hash_of("models/pretrained")
    figures = [side.json("results/pretrain.json") for side in (before, after)]
    return digest is not None and digest == after.hash_of("models/pretrained") and figures[0] == figures[1]


def _named(side: Side) -> str:
    return side.name if side.revision is None or side.revision.startswith(side.name) else (
        f"{side.name} ({side.revision[:7]})"
    )  # fmt: skip


def pretrain_figure(side: Side, key: str) -> float | None:
    """Return a headline figure of pre-training; None if the run lacks it."""
    value = side.json("results/pretrain.json").get(key)
    return float(value) if isinstance(value, int | float) else None


def _curves(side: Side) -> Curves:
    """Return held-out figures by step, without the training columns and without rows that have no held-out figure."""
    content = side.read("results/pretrain.tsv")
    curves = parse_curves(content.decode("utf-8"), f"{side.name}: results/pretrain.tsv") if content else {}
    kept = {name: values for name, values in curves.items() if name == "step" or not name.startswith("train_")}
    rows = [
        n for n in range(len(kept.get("step", []))) if any(v[n] is not None for k, v in kept.items() if k != "step")
    ]
    return {name: [values[n] for n in rows] for name, values in kept.items()}


def _cost(side: Side) -> Cost:
    """Return the cost from ``results/machine.json``; if it lacks tokens, they are computed from examples and length."""
    facts = side.machine.get("pretrain", {})
    examples, length = side.json("results/pretrain.json").get("examples_seen"), side.settings.get("shards.max_length")
    tokens = facts.get("tokens") or (int(examples * length) if examples and length else None)
    return Cost(facts.get("minutes"), tokens, facts.get("flops"), _processor(facts) if facts else None)


# --- what changed


def changes_between(before: Side, after: Side) -> Changes:
    """Compare settings by key, data by hash and counts, code by the stages that depend on it, and processors."""
    old, new = before.settings, after.settings
    different = {
        key: (old.get(key), new.get(key)) for key in dict.fromkeys([*old, *new]) if old.get(key) != new.get(key)
    }
    machine = {key: values for key, values in different.items() if key.startswith("cluster.")}
    seeds = {key: values for key, values in different.items() if key in _SEED_KEYS}
    rest = {key: values for key, values in different.items() if key not in machine and key not in seeds}
    data, code, processors = list(_data(before, after)), _code(before, after), _processors(before, after)
    return Changes(rest, seeds, machine, data, code, processors, _unknown(before, after))


def _data(before: Side, after: Side) -> Iterator[str]:
    """Yield the data that changed, with the changed counts."""
    for path in DATA:
        old, new = before.hash_of(path), after.hash_of(path)
        if old != new and old is not None and new is not None:
            name = path.removeprefix("data/")
            facts = [side.json(f"results/validation/{name}.json").get("statistics", {}) for side in (before, after)]
            counts = [
                f"{facts[0][key]:,} -> {facts[1][key]:,} {what}"
                for key, what in COUNTS.items()
                if key in facts[0] and key in facts[1] and facts[0][key] != facts[1][key]
            ]
            yield f"{name} ({', '.join(counts) or 'other content, the same counts'})"
    tasks = [name for name in before.tasks if name in after.tasks and _has_other_data(name, before, after)]
    if tasks:
        yield f"tasks: {', '.join(tasks)}"


def _has_other_data(task: str, before: Side, after: Side) -> bool:
    """Return True if both locks have the task's data and they differ; what is not known is in :func:`_unknown`."""
    old, new = _task_hash(before, task), _task_hash(after, task)
    return None not in (old, new) and old != new


def _unknown(before: Side, after: Side) -> list[str]:
    """Return what cannot be compared: data and code without dvc.lock, data of which a lock has no hash."""
    both = before, after
    if without := dict.fromkeys(_named(side) for side in both if side.read("dvc.lock") is None):
        return [f"data and code not known: no dvc.lock in {' and '.join(without)}"]
    hashes = {path.removeprefix("data/"): [side.hash_of(path) for side in both] for path in DATA}
    hashes |= {task: [_task_hash(side, task) for side in both] for task in before.tasks if task in after.tasks}
    names = [name for name, found in hashes.items() if None in found]
    return [f"data not known, no hash in dvc.lock: {', '.join(names)}"] if names else []


def _task_hash(side: Side, task: str) -> str | None:
    """Return the md5 of a task's data, from the lock of its fine-tuning runs.

    The lock keeps runs of seeds that the settings no longer request; they may be of older data, so they come last.
    """
    names = sorted((name for name in side.stages if name.startswith("finetune")), key=side.is_requested, reverse=True)
    for name in names:
        for dep in side.stages[name].get("deps", []):
            if dep["path"] == f"data/tasks/{task}":
                return dep.get("md5")
    return None


def _code(before: Side, after: Side) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name in before.stages:
        if name in after.stages:
            old, new = (
                {dep["path"]: dep.get("md5") for dep in side.stages[name].get("deps", [])} for side in (before, after)
            )
            for path in dict.fromkeys([*old, *new]):
                if path.startswith(CODE) and old.get(path) != new.get(path):
                    kind = name.partition("@")[0]
                    if kind not in found.setdefault(path, []):
                        found[path].append(kind)
    return found


def _processors(before: Side, after: Side) -> dict[str, tuple[str, str]]:
    found = {}
    for stage in ("pretrain", "finetune"):
        old, new = before.machine.get(stage), after.machine.get(stage)
        if old and new and (names := (_processor(old), _processor(new)))[0] != names[1]:
            found[stage] = names
    return found


def _processor(facts: dict[str, Any]) -> str:
    return f"{facts.get('processor')}, {facts.get('device')}, torch {facts.get('torch')}"


# --- noise


def noise_file(profile: str) -> str:
    """Return the path of a profile's noise record: standard deviations over A/A runs."""
    return f"results/noise/{profile}.json"


def _record(before: Side, after: Side) -> dict[str, Components]:
    """Return the profile's record from the newer side, the older side or the work tree; empty if there is none."""
    if before.profile != after.profile:
        return {}
    for side in (after, before, Side(WORK_TREE, after.folder)):  # commits may be older than the record
        if facts := side.json(noise_file(after.profile)):
            return {name: Components(**values) for name, values in facts["figures"].items()}
    return {}


def means_by_seed(side: Side, tasks: Sequence[str]) -> list[float]:
    """Return the mean over tasks for each seed that all tasks have."""
    values = [side.values(task) for task in tasks]
    seeds = [seed for seed in values[0] if all(seed in found for found in values)]
    return [sum(found[seed] for found in values) / len(values) for seed in seeds]


@dataclass(frozen=True)
class _Noise:
    """Estimated noise of one figure: from a record, or from the seeds of both sides."""

    spread: Spread
    kind: Literal["record", "seeds", "fine-tuning"]

    def difference(self, old: list[float], new: list[float], rows: float) -> Difference:
        if self.kind == "record":
            return from_record(statistics.fmean(old), statistics.fmean(new), self.spread, rows)
        return replace(from_seeds(old, new, rows, self.spread), noise=self.kind)


def _noise(
    old: list[float], new: list[float], record: Components | None, same_encoder: bool, least: float
) -> _Noise | None:
    if record:
        return _Noise(record.spread(min(len(old), len(new)), same_encoder, least), "record")
    if len(old) > 1 and len(new) > 1:
        return _Noise(pooled(old, new, least), "seeds" if same_encoder else "fine-tuning")
    return None


def _noises(
    tasks: Sequence[str], before: Side, after: Side, record: dict[str, Components], same_encoder: bool
) -> dict[str, _Noise]:
    """Return the noise of every task for which it is known."""
    found = {}
    for task in tasks:
        old, new = list(before.values(task).values()), list(after.values(task).values())
        if noise := _noise(old, new, record.get(task), same_encoder, _least(after, task)):
            found[task] = noise
    return found


def _least(side: Side, task: str) -> float:
    """Noise floor: the change of the score when one development row flips; identical scores have some noise too."""
    rows = side.tasks[task].get("dev_rows")
    return 100 / rows if rows else 0.0


def _row(
    task: str, before: Side, after: Side, pairs: Pairs | str, noise: _Noise | None, rows: float, smallest: float
) -> Row:
    old, new = list(before.values(task).values()), list(after.values(task).values())
    metric = str(after.tasks[task]["metric"])
    figures, why = Difference(statistics.fmean(old), statistics.fmean(new)), ""
    if _has_other_data(task, before, after):
        why = OTHER_DATA
    elif noise and old != new:
        figures = noise.difference(old, new, rows)
    elif figures.difference:
        has_one_seed = len(old) == len(new) == 1  # a bootstrap compares the predictions of a seed that both have
        figures = (has_one_seed and isinstance(pairs, Pairs) and bootstrap(pairs, metric, rows)) or figures
        why = "" if figures.noise == "bootstrap" else "one seed, no record"
    return Row(task, metric, figures, figures.verdict(smallest), why)


def _record_of_mean(record: dict[str, Components], tasks: Sequence[str]) -> Components | None:
    """Return the recorded noise of the mean, which is one over the tasks of the record, if these are the same."""
    return record.get("mean") if record.keys() - {"mean", *PRETRAIN_FIGURES} == set(tasks) else None


def _mean_row(
    tasks: Sequence[str], before: Side, after: Side, record: dict[str, Components], same_encoder: bool, smallest: float
) -> Row:
    old, new = means_by_seed(before, tasks), means_by_seed(after, tasks)
    figures = Difference(statistics.fmean(old), statistics.fmean(new))
    least = math.hypot(*(_least(after, task) for task in tasks)) / len(tasks)
    noise = _noise(old, new, _record_of_mean(record, tasks), same_encoder, least)
    if any(_has_other_data(task, before, after) for task in tasks):
        why = OTHER_DATA
    elif noise and old != new:
        figures, why = noise.difference(old, new, JOINT), ""
    else:
        why = "record of other tasks" if record.get("mean") else "no seeds, no record"
    return Row("mean", "", figures, figures.verdict(smallest / 2), why if figures.difference else "")
