"""GLUE averages include the same scores as their authors', and exist only if all scores do."""

import pytest

from electra.results.evaluate import LEADERBOARD, PAPER, glue_averages, why_not_official
from electra.tasks.catalogue import TASKS


def entries(values_of_seeds):
    """Entries of all nine tasks; MRPC's two metrics differ by seed."""
    tasks = {}
    for task, metrics in LEADERBOARD.items():
        seeds = {
            str(seed): {init: dict.fromkeys(metrics, 50.0) for init in ("pretrained", "scratch")}
            for seed in range(len(values_of_seeds))
        }
        tasks[task] = {"pretrained": 50.0, "scratch": 50.0, "seeds": seeds}
    for seed, (accuracy, f1) in enumerate(values_of_seeds):
        tasks["MRPC"]["seeds"][str(seed)]["pretrained"] = {"accuracy": accuracy, "f1": f1}
    tasks["MRPC"]["pretrained"] = sorted(accuracy for accuracy, _ in values_of_seeds)[len(values_of_seeds) // 2]
    return tasks


def test_the_paper_counts_eight_tasks_by_one_metric_and_not_wnli():
    tasks = entries([(90.0, 70.0)])
    tasks["WNLI"]["pretrained"] = 0.0
    average = glue_averages(tasks)["glue_paper"]
    assert average["pretrained"] == pytest.approx((7 * 50 + 90) / 8)
    assert average["gain"] == pytest.approx(5.0)
    assert "without WNLI" in average["what"]


def test_the_leaderboard_takes_both_metrics_of_a_seed_and_nine_tasks():
    # the medians of the two metrics alone would be 90 and 60, 75 together; no seed has that pair
    tasks = entries([(90.0, 40.0), (100.0, 60.0), (80.0, 90.0)])
    average = glue_averages(tasks)["glue_leaderboard"]
    assert average["pretrained"] == pytest.approx((8 * 50 + 80) / 9, abs=1e-3)
    assert "not a leaderboard score" in average["what"]


def test_an_average_needs_all_its_tasks():
    tasks = entries([(90.0, 70.0)])
    del tasks["WNLI"]
    assert set(glue_averages(tasks)) == {"glue_paper"}
    del tasks[PAPER[0]]
    assert glue_averages(tasks) == {}


@pytest.mark.parametrize(
    ("kind", "rows", "train_rows", "why_not"),
    [
        ("files", {"train": 2490, "dev": 277}, 2490, None),
        ("files", {"train": 2490, "dev": 270}, 2490, "not on the official rows"),
        ("files", {"train": 2490, "dev": 277}, 100, "trained on a part of their rows (finetune.max_train_examples)"),
        ("files", {"train": 2490, "dev": 270}, 100, "not on the official rows"),
    ],
)
def test_only_all_of_the_official_rows_may_stand_beside_published_scores(kind, rows, train_rows, why_not):
    manifest = {"source": {"kind": kind}, "tasks": {"RTE": {"rows": rows}}}
    assert why_not_official(TASKS["RTE"], manifest, train_rows) == why_not
