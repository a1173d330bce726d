"""The score card's numbers: every cell scored, medians over seeds, pre-trained beside scratch."""

import statistics
from collections.abc import Mapping
from typing import Any

from electra.artifacts import read_json, read_manifest, write_json
from electra.checksums import listed_files, verify_files
from electra.config import Settings
from electra.finetune.averages import glue_averages
from electra.finetune.cells import INITS, Init, cell_key, read_lines, read_rows
from electra.finetune.provenance import describe_card, describe_task, is_official
from electra.finetune.rows import Row
from electra.finetune.scoring import score
from electra.finetune.tasks import TaskSpec, find_spec
from electra.paths import Paths

Scores = dict[str, float]


def evaluate_cells(settings: Settings, paths: Paths) -> None:
    """Write ``results/scores.json``. All scores are percent (x100).

    ``milestones``: the same from the weights after a part of pre-training, where ``cells.milestones`` asks for them.
    ``mean``: mean over tasks of the headline metric. ``averages``: those of GLUE that have all their tasks.
    ``tasks``: per task the headline's median over seeds from both starts, its standard deviation (null for a single
    seed), the other metrics, and every seed's values.

    Raises:
        DataError: a cell is missing, its predictions are of other data, or a file is not as its manifest says.
    """
    manifest = read_manifest(paths.tasks)
    verify_files(file for name in settings.cells.tasks for file in listed_files(paths.tasks, f"{name}/*"))
    specs = [find_spec(paths.tasks, name) for name in settings.cells.tasks]
    tasks = {spec.name: _task_entry(settings, paths, spec, manifest) for spec in specs}
    mean = {
        init: _rounded(statistics.fmean(entry[init] for entry in tasks.values())) for init in ("pretrained", "scratch")
    }
    write_json(
        paths.results / "scores.json",
        {
            "data": describe_card(manifest),
            "units": "percent; headline metric, median over seeds; gain = pretrained - scratch",
            "seeds": len(settings.cells.seeds),
            "mean": {**mean, "gain": _rounded(mean["pretrained"] - mean["scratch"])},
            "averages": glue_averages(tasks),
            "tasks": tasks,
            **_milestones(settings, paths, tasks),
        },
    )
    print(
        f"mean over {len(tasks)} tasks, {len(settings.cells.seeds)} seeds: pre-trained {mean['pretrained']:.2f}, "
        f"scratch {mean['scratch']:.2f}"
    )
    print(f"data: {describe_card(manifest)}")


def _milestones(settings: Settings, paths: Paths, tasks: Mapping[Any, Any]) -> dict[str, Any]:
    """Per milestone the mean over tasks and each task's median, so that one sees what more steps bring."""
    if not settings.cells.milestones:
        return {}
    found = {}
    for milestone in settings.cells.milestones:
        medians = {}
        for name in tasks:
            spec = find_spec(paths.tasks, name)
            rows = {split: read_rows(paths, name, split) for split in spec.dev_splits}
            values = [cell_scores(paths, spec, rows, seed, milestone)[spec.headline] for seed in settings.cells.seeds]
            medians[name] = _rounded(statistics.median(values))
        found[milestone] = {"mean": _rounded(statistics.fmean(medians.values())), **medians}
    return {"milestones": found}


def _task_entry(settings: Settings, paths: Paths, spec: TaskSpec, manifest: dict[str, Any]) -> dict[str, Any]:
    seeds = settings.cells.seeds
    rows = {split: read_rows(paths, spec.name, split) for split in spec.dev_splits}
    scores = {init: {seed: cell_scores(paths, spec, rows, seed, init) for seed in seeds} for init in INITS}
    names = list(scores["pretrained"][seeds[0]])
    medians: dict[str, dict[str, float]] = {
        name: {init: _rounded(statistics.median(scores[init][seed][name] for seed in seeds)) for init in INITS}
        for name in names
    }
    headline = medians.pop(spec.headline)
    deviations = {f"{init}_sd": _deviation([scores[init][seed][spec.headline] for seed in seeds]) for init in INITS}
    train_rows = read_json(paths.finetuned(cell_key(spec.name, seeds[0], "pretrained")) / "run.json")["train_rows"]
    return {
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


def cell_scores(paths: Paths, spec: TaskSpec, rows: dict[str, list[Row]], seed: int, init: Init) -> Scores:
    """All metrics of one cell in percent; further development splits have their name before the metric's."""
    key = cell_key(spec.name, seed, init)
    start = {"pretrained": "", "scratch": " --scratch"}.get(init, f" --milestone {init}")
    predictions = paths.finetuned(key) / "predictions.jsonl"
    if predictions.is_file():
        verify_files(listed_files(predictions.parent, "*.json*"))
    lines = read_lines(
        predictions,
        next_step=f"run: electra finetune --task {spec.name} --seed {seed}{start} (or dvc repro)",
    )
    scores = {}
    for split in spec.dev_splits:
        found = score(spec, rows[split], [line for line in lines if line["split"] == split])
        prefix = split.removeprefix("dev").lstrip("_")
        for name, value in found.items():
            scale = 1 if name.endswith("_threshold") else 100
            scores[f"{prefix}_{name}" if prefix else name] = scale * value
    return scores


def _deviation(values: list[float]) -> float | None:
    """Sample standard deviation; None for a single value."""
    return _rounded(statistics.stdev(values)) if len(values) > 1 else None


def _rounded(value: float) -> float:
    return round(value, 3)
