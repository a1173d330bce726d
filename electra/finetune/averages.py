"""GLUE as one number, counted in the two ways that are in use. Both are of development sets: nobody has test labels."""

import statistics
from collections.abc import Callable, Mapping
from typing import Any

PAPER = ("CoLA", "SST-2", "MRPC", "STS-B", "QQP", "MNLI", "QNLI", "RTE")
LEADERBOARD = {
    "CoLA": ("matthews",),
    "SST-2": ("accuracy",),
    "MRPC": ("accuracy", "f1"),
    "STS-B": ("spearman", "pearson"),
    "QQP": ("accuracy", "f1"),
    "MNLI": ("accuracy", "mismatched_accuracy"),
    "QNLI": ("accuracy",),
    "RTE": ("accuracy",),
    "WNLI": ("accuracy",),
}


def glue_averages(tasks: Mapping[Any, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """The averages whose tasks are all there.

    ``glue_paper``: the ELECTRA paper's, the mean of eight tasks' headline metrics, without WNLI. ``glue_leaderboard``:
    the rule of gluebenchmark.com (Wang et al. 2019), nine tasks, a task with two metrics counts by their mean.

    Args:
        tasks: the card's entry of each task.
    """
    found = {}
    if all(task in tasks for task in PAPER):
        found["glue_paper"] = {
            "what": "mean of 8 development sets as in the ELECTRA paper: one metric a task, without WNLI",
            **_both(lambda init: statistics.fmean(tasks[task][init] for task in PAPER)),
        }
    if all(task in tasks for task in LEADERBOARD):
        found["glue_leaderboard"] = {
            "what": "the GLUE leaderboard's rule on 9 development sets (not a leaderboard score): two metrics of a "
            "task count by their mean, with WNLI",
            **_both(
                lambda init: statistics.fmean(
                    _combined(tasks[task], metrics, init) for task, metrics in LEADERBOARD.items()
                )
            ),
        }
    return found


def _both(mean: Callable[[str], float]) -> dict[str, float]:
    values = {init: round(mean(init), 3) for init in ("pretrained", "scratch")}
    return {**values, "gain": round(values["pretrained"] - values["scratch"], 3)}


def _combined(entry: Mapping[str, Any], metrics: tuple[str, ...], init: str) -> float:
    """Median over seeds of the mean of the metrics: the metrics of one seed belong together."""
    return statistics.median(
        statistics.fmean(seed[init][metric] for metric in metrics) for seed in entry["seeds"].values()
    )
