"""What must hold for the labelled tasks before a model is fine-tuned and scored on them."""

from collections.abc import Iterable

from electra.checks.judge import CRITICAL, WARNING, Suite, conclude, files_expectations, gxe, judge
from electra.checks.task_table import OK, tasks_tables
from electra.common.artifacts import refuse_earlier
from electra.common.paths import Paths
from electra.config import Settings
from electra.tasks.catalogue import TaskSpec, find_spec

FIX_LINES = "correct these examples in the source, then: dvc repro tasks"


def validate_tasks(settings: Settings, paths: Paths) -> None:
    """Judge ``data/tasks``.

    Raises:
        DataError: a critical expectation failed; the rows are named.
    """
    refuse_earlier(paths, "tasks")
    tables, statistics = tasks_tables(settings.tasks, paths.tasks)
    specs = [find_spec(paths.tasks, name) for name in sorted(statistics)]
    conclude("tasks", judge(tables, tasks_suite(specs)), statistics, paths)


def tasks_suite(specs: Iterable[TaskSpec]) -> Suite:
    """Expectations per table of ``tasks_table.tasks_tables``."""
    return {
        "files": files_expectations("data/tasks", "tasks"),
        "splits": [
            gxe.ExpectColumnValuesToBeBetween(
                column="rows",
                min_value=1,
                severity=CRITICAL,
                description="every split has rows",
                notes="look at tasks.source: is a file empty or missing?",
            ),
            gxe.ExpectColumnValuesToBeInSet(
                column="rows_missing",
                value_set=[0],
                severity=CRITICAL,
                description="splits have the rows that the manifest says",
                notes="make the tasks again: dvc repro -f tasks",
            ),
            gxe.ExpectColumnValuesToBeInSet(
                column="labels_absent",
                value_set=[""],
                severity=CRITICAL,
                description="every class occurs in train and dev",
                notes="give more examples of the class, or leave the task out of cells.tasks",
            ),
            gxe.ExpectColumnValuesToBeBetween(
                column="avoidable_share",
                max_value=0.05,
                severity=WARNING,
                description="few texts of dev and test are in train (splits of a benchmark as released apart)",
                notes="scores of this task flatter: split the data by text",
            ),
            gxe.ExpectColumnValuesToBeBetween(
                column="rows_beyond_official",
                min_value=0,
                max_value=0,
                severity=WARNING,
                description="row counts are those of the benchmark as released",
                notes="scores are not comparable with published ones",
            ),
        ],
        **{spec.name: _examples(spec) for spec in specs},
    }


def _examples(spec: TaskSpec) -> list[gxe.Expectation]:
    common: list[gxe.Expectation] = [
        gxe.ExpectColumnValuesToBeInSet(
            column="record",
            value_set=[OK],
            severity=CRITICAL,
            description=f"{spec.name}: every line is a record with the right keys",
            notes=FIX_LINES,
        ),
        gxe.ExpectColumnValuesToBeInSet(
            column="id_repeats",
            value_set=[False],
            severity=CRITICAL,
            description=f"{spec.name}: ids are unique in their split",
            notes=FIX_LINES,
        ),
        gxe.ExpectColumnValuesToBeInSet(
            column="text_missing",
            value_set=[False],
            severity=CRITICAL,
            description=f"{spec.name}: no text is missing or empty",
            notes=FIX_LINES,
        ),
    ]
    if spec.kind == "span":
        return common + _span_rules(spec)
    return common + (_tag_rules(spec) if spec.kind == "tagging" else _label_rules(spec))


def _label_rules(spec: TaskSpec) -> list[gxe.Expectation]:
    known: gxe.Expectation
    if spec.labels:
        known = gxe.ExpectColumnValuesToBeInSet(
            column="label",
            value_set=list(spec.labels),
            severity=CRITICAL,
            description=f"{spec.name}: labels are {', '.join(spec.labels)}",
            notes=FIX_LINES,
        )
    else:
        known = gxe.ExpectColumnValuesToBeBetween(
            column="label",
            min_value=spec.score_range[0],
            max_value=spec.score_range[1],
            severity=CRITICAL,
            description=f"{spec.name}: scores are between {spec.score_range[0]:g} and {spec.score_range[1]:g}",
            notes=FIX_LINES,
        )
    return [
        known,
        gxe.ExpectColumnValuesToBeInSet(
            column="label_missing",
            value_set=[False],
            severity=CRITICAL,
            description=f"{spec.name}: train and dev are labelled",
            notes=FIX_LINES,
        ),
    ]


def _tag_rules(spec: TaskSpec) -> list[gxe.Expectation]:
    return [
        gxe.ExpectColumnValuesToBeInSet(
            column="unknown_tag",
            value_set=[""],
            severity=CRITICAL,
            description=f"{spec.name}: tags are {', '.join(spec.row_tags)}",
            notes=FIX_LINES,
        ),
        gxe.ExpectColumnValuesToBeInSet(
            column="tags_missing",
            value_set=[0],
            severity=CRITICAL,
            description=f"{spec.name}: every word of train and dev has a tag",
            notes=FIX_LINES,
        ),
    ]


def _span_rules(spec: TaskSpec) -> list[gxe.Expectation]:
    return [
        gxe.ExpectColumnValuesToBeInSet(
            column="answer_at_start",
            value_set=[True],
            severity=CRITICAL,
            description=f"{spec.name}: every answer stands in its context at its offset",
            notes="correct `start` (characters from the beginning of the context) in the source, then: dvc repro tasks",
        ),
        gxe.ExpectColumnValuesToBeInSet(
            column="answers_fit",
            value_set=[True],
            severity=CRITICAL,
            description=f"{spec.name}: a question has answers, or is marked impossible",
            notes=FIX_LINES,
        ),
    ]
