"""Remarks on the score card: what its scores do not show, or what makes them hard to read."""

from collections.abc import Iterator
from typing import Any

from electra.results.report.facts import Facts

_STARTS = {"pretrained": "pre-trained", "scratch": "from scratch"}


def score_remarks(facts: Facts) -> list[str]:
    """Return remarks on tasks where pre-training did not help, or where a model is no better than a constant answer.

    Also on tasks whose gain may be chance, and on what makes the scores hard to read.
    """
    scores = facts.scores
    if not scores or not scores["tasks"]:
        return []
    return [
        *_below_scratch(scores),
        *_within_the_spread(scores),
        *_same_answers(scores),
        *_no_better_than_one_answer(scores),
        *_hard_to_read(scores),
        *_held_out(facts),
    ]


def _below_scratch(scores: dict[str, Any]) -> Iterator[str]:
    gains = {task: entry["gain"] for task, entry in scores["tasks"].items()}
    worse = [f"{task} ({gain:+.1f})" for task, gain in gains.items() if round(gain, 1) < 0]
    mean = round(scores["mean"]["gain"], 1)
    if worse or mean < 0:
        verdict = f" The mean is too: {mean:+.1f}. This pre-training did not help." if mean < 0 else ""
        named = f": {', '.join(worse)}" if worse else ""
        yield f"Pre-trained is below random weights on {len(worse)} of {len(gains)} tasks{named}.{verdict}"


def exceeds_spread(entry: dict[str, Any]) -> bool:
    """Return whether a task's gain is above twice the larger standard deviation over seeds; False for a single seed."""
    deviations = [entry[f"{init}_sd"] for init in _STARTS if entry.get(f"{init}_sd") is not None]
    return bool(deviations) and abs(entry["gain"]) > 2 * max(deviations)


def _within_the_spread(scores: dict[str, Any]) -> Iterator[str]:
    small = [
        f"{task} ({entry['gain']:+.1f})"
        for task, entry in scores["tasks"].items()
        if entry.get("pretrained_sd") is not None and not exceeds_spread(entry)
    ]
    if small:
        yield f"A gain below twice the standard deviation over seeds may be chance: {', '.join(small)}."


def _same_answers(scores: dict[str, Any]) -> Iterator[str]:
    total = scores.get("seeds", 1)
    found = [
        f"{task}, {start} ({len(seeds)} of {total} {'seed' if total == 1 else 'seeds'})"
        for task, entry in scores["tasks"].items()
        for start, seeds in _constant_seeds(entry)
        if seeds
    ]
    if found:
        yield f"The same answer for every row, so nothing was learned: {'; '.join(found)}."


def _constant_seeds(entry: dict[str, Any]) -> Iterator[tuple[str, list[int]]]:
    """Yield each initialisation of a task with the seeds whose fine-tuning run gives the same answer for every row."""
    for init, seeds in entry.get("constant_seeds", {}).items():
        yield _STARTS[init], seeds
    names = {"milestones": "after {}%", "encoders": "{}", "intermediate": "after {}"}
    for group, name in names.items():
        for start, found in entry.get(group, {}).items():
            yield name.format(start), found.get("constant_seeds", [])


def _no_better_than_one_answer(scores: dict[str, Any]) -> Iterator[str]:
    found = [
        f"{task}, {name} ({entry[init]:.1f}, one answer {entry['constant']:.1f})"
        for task, entry in scores["tasks"].items()
        for init, name in _STARTS.items()
        if entry.get("constant") is not None and entry[init] <= entry["constant"]
    ]
    if found:
        yield f"No better than one answer for every row: {'; '.join(found)}."


FEW_ROWS = 200  # rows of a development set: one row is half a point, the standard error of accuracy up to 3.5 points
IMBALANCED = 80.0  # percent of rows with the most frequent label
FAR_OFF = 2.0  # factor by which the held-out share may differ from the setting


def _hard_to_read(scores: dict[str, Any]) -> Iterator[str]:
    """Yield remarks on tasks with uninformative scores: few rows, or nearly all rows with one label."""
    few = [
        f"{task} ({entry['dev_rows']} rows, one row is {100 / entry['dev_rows']:.1f} points)"
        for task, entry in scores["tasks"].items()
        if 0 < (entry.get("dev_rows") or 0) < FEW_ROWS
    ]
    if few:
        yield f"Small development sets, so that scores vary by chance: {', '.join(few)}."
    imbalanced = [
        f"{task} ({entry['constant']:.0f}% have one label)"
        for task, entry in scores["tasks"].items()
        if entry.get("metric") == "accuracy" and (entry.get("constant") or 0) >= IMBALANCED
    ]
    if imbalanced:
        yield (
            "Accuracy hides the rare labels; in a classification macro_f1 or matthews would not: "
            f"{', '.join(imbalanced)}."
        )


def _held_out(facts: Facts) -> Iterator[str]:
    share = facts.validation.get("corpus", {}).get("statistics", {}).get("held_out_share")
    configured = facts.settings.corpus.held_out_fraction
    if share and not configured / FAR_OFF <= share <= configured * FAR_OFF:
        yield (
            f"{share:.1%} is held out for the learning curve, and {configured:.1%} was asked for "
            "(corpus.held_out_fraction): few, long documents."
        )
