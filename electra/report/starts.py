"""What other starts bring: parts of pre-training, encoders of another make, encoders fine-tuned on another task."""

from typing import Any

from electra.report.facts import Facts
from electra.report.section import Section


def milestones(facts: Facts) -> Section:
    """What more pre-training brings: the score card's headline after each part of it."""
    scores = facts.scores or {}
    tasks, parts = scores.get("tasks", {}), scores.get("milestones", {})
    found = {part: [entry["mean"], *_medians(tasks, "milestones", part)] for part, entry in parts.items()}
    if found:
        found["100"] = [scores["mean"]["pretrained"], *(entry["pretrained"] for entry in tasks.values())]
    rows = [
        [f"{percent}%", *(f"{value:.1f}" for value in values)]
        for percent, values in sorted(found.items(), key=lambda item: float(item[0]))
    ]
    note = "Development sets after a part of one schedule that is not re-scaled."
    return Section("Milestones", note, ["pre-training", "mean", *tasks], rows)


def encoders(facts: Facts) -> Section:
    """The run's encoder beside encoders of another make, put through the same tasks by the same harness."""
    scores = facts.scores or {}
    tasks, others = scores.get("tasks", {}), scores.get("encoders", {})
    if not others:
        return Section("Other encoders", "", [], [])
    ours = [score(entry["pretrained"], entry.get("pretrained_sd")) for entry in tasks.values()]
    rows = [["this run", f"{scores['mean']['pretrained']:.1f}", *ours]]
    for name, mean in others.items():
        found = [entry["encoders"][name] for entry in tasks.values()]
        rows.append([name, f"{mean['mean']:.1f}", *(score(entry["median"], entry["sd"]) for entry in found)])
    note = "The same rows, seeds, heads and settings; " + statistic(facts)
    return Section("Other encoders", note, ["encoder", "mean", *tasks], rows)


def intermediate(facts: Facts) -> Section:
    """Tasks that were also fine-tuned from an encoder fine-tuned on another task first."""
    rows = []
    for task, entry in (facts.scores or {}).get("tasks", {}).items():
        for first, found in entry.get("intermediate", {}).items():
            both = [
                score(entry["pretrained"], entry.get("pretrained_sd")),
                score(found["median"], found["sd"]),
            ]
            rows.append([task, first, *both, f"{found['median'] - entry['pretrained']:+.1f}"])
    note = (
        f"Development sets; {statistic(facts)} The paper does this for test submissions only: its development scores "
        "are without it, and so are the means here."
    )
    return Section(
        "Fine-tuned on another task first", note, ["task", "first on", "pre-trained", "then the task", "gain"], rows
    )


def statistic(facts: Facts) -> str:
    """What a figure is of the seeds' figures, never the best of them."""
    seeds = len(facts.settings.cells.seeds)
    return f"median of {seeds} seeds ± standard deviation." if seeds > 1 else "one seed."


def score(value: float, deviation: float | None) -> str:
    """A median with its standard deviation where there is one."""
    return f"{value:.1f}" if deviation is None else f"{value:.1f} ± {deviation:.1f}"


def _medians(tasks: dict[str, Any], group: str, name: str) -> list[float]:
    return [entry[group][name]["median"] for entry in tasks.values()]
