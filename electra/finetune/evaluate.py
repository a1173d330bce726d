"""The score card's numbers: every cell scored, medians over seeds, pre-trained beside scratch."""

import statistics
from collections.abc import Mapping
from typing import Any

from electra.artifacts import read_json, read_manifest, write_json
from electra.config import Settings
from electra.finetune.averages import glue_averages
from electra.finetune.cells import INITS, Init, cell_key, read_lines, read_rows
from electra.finetune.provenance import describe_card, describe_task, is_official
from electra.finetune.rows import Row
from electra.finetune.scoring import score
from electra.finetune.starts import Start, further_starts
from electra.finetune.tasks import TaskSpec, find_spec
from electra.paths import SCORE_FAMILIES, Paths

Scores = dict[str, float]
_FAMILIES = {"glue": "glue", "squad": "squad", "mrqa": "squad", "conll": "tagging"}  # of a task's source; else other


def evaluate_cells(settings: Settings, paths: Paths) -> None:
    """Write the score card. All scores are percent (x100); every figure stands in one file.

    ``results/{glue,squad,tagging,other}.json``: per task the headline's median over seeds from both starts, its
    standard deviation (null for a single seed), the other metrics, every seed's values, what the data is, and the same
    for milestones, intermediate tasks and encoders of another make, where ``cells`` asks for them.
    ``results/scores.json``: the mean over tasks of the headline, and the averages of GLUE that have all their tasks.

    Raises:
        DataError: a cell is missing, or its predictions are of other data.
    """
    manifest = read_manifest(paths.tasks)
    specs = [find_spec(paths.tasks, name) for name in settings.cells.tasks]
    tasks = {spec.name: _task_entry(settings, paths, spec, manifest) for spec in specs}
    mean = {
        init: _rounded(statistics.fmean(entry[init] for entry in tasks.values())) for init in ("pretrained", "scratch")
    }
    for family in SCORE_FAMILIES:
        members = [spec.name for spec in specs if _FAMILIES.get(spec.source, "other") == family]
        write_json(paths.scores(family), {name: tasks[name] for name in members})
    write_json(
        paths.results / "scores.json",
        {
            "data": describe_card(manifest),
            "units": "percent; headline metric, median over seeds; gain = pretrained - scratch; best_*: with the "
            "no-answer threshold that is tuned on the development set itself",
            "seeds": len(settings.cells.seeds),
            "mean": {**mean, "gain": _rounded(mean["pretrained"] - mean["scratch"])},
            "averages": glue_averages(tasks),
            **_means(settings, tasks),
        },
    )
    print(
        f"mean over {len(tasks)} tasks, {len(settings.cells.seeds)} seeds: pre-trained {mean['pretrained']:.2f}, "
        f"scratch {mean['scratch']:.2f}"
    )
    print(f"data: {describe_card(manifest)}")


def _means(settings: Settings, tasks: Mapping[Any, Any]) -> dict[str, Any]:
    """Of further starts that have all tasks, the mean over tasks: what more steps bring, how other encoders do."""
    found: dict[str, dict[str, Any]] = {}
    for start in further_starts(settings.cells):
        if start.tasks == tuple(tasks):
            medians = [entry[start.group][start.name]["median"] for entry in tasks.values()]
            found.setdefault(start.group, {})[start.name] = {"mean": _rounded(statistics.fmean(medians))}
    return found


def _task_entry(settings: Settings, paths: Paths, spec: TaskSpec, manifest: dict[str, Any]) -> dict[str, Any]:
    seeds = settings.cells.seeds
    rows = {split: read_rows(paths, spec.name, split) for split in spec.dev_splits}
    scores = {init: {seed: cell_scores(paths, spec, rows, seed, init) for seed in seeds} for init in INITS}
    names = list(scores["pretrained"][seeds[0]])
    medians: dict[str, dict[str, float]] = {
        name: {init: _median([scores[init][seed][name] for seed in seeds]) for init in INITS} for name in names
    }
    headline = medians.pop(spec.headline)
    deviations = {f"{init}_sd": _deviation([scores[init][seed][spec.headline] for seed in seeds]) for init in INITS}
    train_rows = read_json(paths.finetuned(cell_key(spec.name, seeds[0], "pretrained")) / "run.json")["train_rows"]
    entry = {
        "metric": spec.headline,
        **headline,
        "gain": _rounded(headline["pretrained"] - headline["scratch"]),
        **deviations,
        "data": describe_task(spec, manifest),
        "official_rows": is_official(spec, manifest, train_rows),
        "train_rows": train_rows,
        "dev_rows": len(rows["dev"]),
        "other_metrics": medians,
        "seeds": {
            str(seed): {init: {name: _rounded(scores[init][seed][name]) for name in names} for init in INITS}
            for seed in seeds
        },
    }
    for start in further_starts(settings.cells):
        if spec.name in start.tasks:
            entry.setdefault(start.group, {})[start.name] = _further(paths, spec, rows, seeds, start)
    return entry


def _further(
    paths: Paths, spec: TaskSpec, rows: dict[str, list[Row]], seeds: list[int], start: Start
) -> dict[str, Any]:
    """A task from one further start: the headline's median and standard deviation, the other metrics, every seed."""
    scores = {seed: cell_scores(paths, spec, rows, seed, start.init, start.option) for seed in seeds}
    headline = [scores[seed][spec.headline] for seed in seeds]
    others = [name for name in scores[seeds[0]] if name != spec.headline]
    return {
        "median": _median(headline),
        "sd": _deviation(headline),
        "other_metrics": {name: _median([scores[seed][name] for seed in seeds]) for name in others},
        "seeds": {str(seed): {name: _rounded(value) for name, value in scores[seed].items()} for seed in seeds},
    }


def cell_scores(
    paths: Paths, spec: TaskSpec, rows: dict[str, list[Row]], seed: int, init: Init, option: str = ""
) -> Scores:
    """All metrics of one cell in percent; further development splits have their name before the metric's.

    Args:
        option: how `electra finetune` is told of the start, for the message that a cell is missing.
    """
    key = cell_key(spec.name, seed, init)
    start = "--scratch" if init == "scratch" else option
    lines = read_lines(
        paths.finetuned(key) / "predictions.jsonl",
        next_step=f"run: electra finetune --task {spec.name} --seed {seed} {start}".rstrip() + " (or dvc repro)",
    )
    scores = {}
    for split in spec.dev_splits:
        found = score(spec, rows[split], [line for line in lines if line["split"] == split])
        prefix = split.removeprefix("dev").lstrip("_")
        for name, value in found.items():
            scale = 1 if name.endswith("_threshold") else 100
            scores[f"{prefix}_{name}" if prefix else name] = scale * value
    return scores


def _median(values: list[float]) -> float:
    return _rounded(statistics.median(values))


def _deviation(values: list[float]) -> float | None:
    """Sample standard deviation; None for a single value."""
    return _rounded(statistics.stdev(values)) if len(values) > 1 else None


def _rounded(value: float) -> float:
    return round(value, 3)
