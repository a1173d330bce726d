"""Checks of ``data/tasks``: expectations on the labelled tasks."""

from collections.abc import Iterable

from electra.checks.judge import (
    CRITICAL,
    WARNING,
    Suite,
    between,
    conclude,
    expect,
    files_expectations,
    gxe,
    is_in,
    judge,
)
from electra.checks.task_table import OK, tasks_tables
from electra.common.artifacts import refuse_earlier
from electra.common.paths import Paths
from electra.config import Settings
from electra.kinds import KINDS
from electra.kinds.base import FIX_LINES
from electra.tasks.catalogue import TaskSpec, find_spec


def validate_tasks(settings: Settings, paths: Paths) -> None:
    """Validate ``data/tasks``.

    Raises:
        DataError: a critical expectation failed; the message names the rows.
    """
    refuse_earlier(paths, "tasks")
    tables, statistics = tasks_tables(paths.tasks)
    specs = [find_spec(paths.tasks, name) for name in sorted(statistics)]
    suite = {name: expectations for name, expectations in tasks_suite(specs).items() if name in tables}
    conclude("tasks", judge(tables, suite), statistics, paths)


def tasks_suite(specs: Iterable[TaskSpec]) -> Suite:
    """Return the expectations per table of :func:`electra.checks.task_table.tasks_tables`."""
    return {
        "files": files_expectations("data/tasks", "tasks"),
        "splits": [
            expect(
                "rows",
                between(1),
                CRITICAL,
                "every split has rows",
                "look at tasks.source: is a file empty or missing?",
            ),
            expect(
                "rows_missing",
                is_in(0),
                CRITICAL,
                "splits have the rows that the manifest says",
                "make the tasks again: dvc repro -f tasks",
            ),
            expect(
                "labels_absent",
                is_in(""),
                CRITICAL,
                "every class occurs in train and dev",
                "give more examples of the class, or leave the task out of cells.tasks",
            ),
            expect(
                "avoidable_share",
                between(high=0.05),
                WARNING,
                "few texts of dev and test are in train (splits of a benchmark as released apart)",
                "scores of this task flatter: split the data by text",
            ),
            expect(
                "dev_rows",
                between(100),
                WARNING,
                "development sets have at least 100 rows (at 100, chance alone moves a score by 10 points)",
                "give more rows, or treat differences on this task as noise",
            ),
            expect(
                "majority_share",
                between(high=0.9),
                WARNING,
                "no class has more than nine tenths of a split",
                "a constant answer scores as much: compare with the majority class, or balance the data",
            ),
            expect(
                "rows_beyond_official",
                between(0, 0),
                WARNING,
                "row counts are those of the benchmark as released",
                "scores are not comparable with published ones",
            ),
        ],
        **{spec.name: _examples(spec) for spec in specs},
    }


def _examples(spec: TaskSpec) -> list[gxe.Expectation]:
    common: list[gxe.Expectation] = [
        expect("record", is_in(OK), CRITICAL, f"{spec.name}: every line is a record with the right keys", FIX_LINES),
        expect("id_repeats", is_in(False), CRITICAL, f"{spec.name}: ids are unique in their split", FIX_LINES),
        expect("text_missing", is_in(False), CRITICAL, f"{spec.name}: no text is missing or empty", FIX_LINES),
    ]
    return common + [
        expect(
            rule.column,
            is_in(*rule.values) if rule.range is None else between(*rule.range),
            CRITICAL,
            f"{spec.name}: {rule.says}",
            rule.next_step,
        )
        for rule in KINDS[spec.kind].rules(spec)
    ]
