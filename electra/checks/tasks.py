"""Checks of ``data/tasks``: expectations on the labelled tasks."""

from collections.abc import Iterable

from electra.checks.expectations import Expectation, Suite, between, critical, files_expectations, is_in, warning
from electra.checks.task_table import OK, tasks_tables
from electra.checks.validate import validate
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
    validate("tasks", tables, suite, statistics, paths)


def tasks_suite(specs: Iterable[TaskSpec]) -> Suite:
    """Return the expectations per table of :func:`electra.checks.task_table.tasks_tables`."""
    return {
        "files": files_expectations("data/tasks", "tasks"),
        "splits": [
            critical("rows", between(1), "every split has rows", "look at tasks.source: is a file empty or missing?"),
            critical(
                "rows_missing",
                is_in(0),
                "splits have the rows that the manifest says",
                "make the tasks again: dvc repro -f tasks",
            ),
            critical(
                "labels_absent",
                is_in(""),
                "every class occurs in train and dev",
                "give more examples of the class, or leave the task out of cells.tasks",
            ),
            warning(
                "avoidable_share",
                between(high=0.05),
                "few texts of dev and test are in train (splits of a benchmark as released apart)",
                "scores of this task flatter: split the data by text",
            ),
            warning(
                "dev_rows",
                between(100),
                "development sets have at least 100 rows (at 100, chance alone moves a score by 10 points)",
                "give more rows, or treat differences on this task as noise",
            ),
            warning(
                "majority_share",
                between(high=0.9),
                "no class has more than nine tenths of a split",
                "a constant answer scores as much: compare with the majority class, or balance the data",
            ),
            warning(
                "rows_beyond_official",
                between(0, 0),
                "row counts are those of the benchmark as released",
                "scores are not comparable with published ones",
            ),
        ],
        **{spec.name: _examples(spec) for spec in specs},
    }


def _examples(spec: TaskSpec) -> list[Expectation]:
    common: list[Expectation] = [
        critical("record", is_in(OK), f"{spec.name}: every line is a record with the right keys", FIX_LINES),
        critical("id_repeats", is_in(False), f"{spec.name}: ids are unique in their split", FIX_LINES),
        critical("text_missing", is_in(False), f"{spec.name}: no text is missing or empty", FIX_LINES),
    ]
    return common + [
        critical(
            rule.column,
            is_in(*rule.values) if rule.range is None else between(*rule.range),
            f"{spec.name}: {rule.says}",
            rule.next_step,
        )
        for rule in KINDS[spec.kind].rules(spec)
    ]
