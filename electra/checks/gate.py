"""The stages ``validate_corpus``, ``validate_shards`` and ``validate_tasks``.

Each computes its tables, lets Great Expectations judge them, and writes ``results/validation/<suite>.json``. Warnings
are printed; critical failures end the pipeline, after the report is written.
"""

from typing import TYPE_CHECKING, Any

from electra.common.artifacts import write_json
from electra.common.errors import DataError
from electra.common.paths import Paths
from electra.config import Settings

if TYPE_CHECKING:
    from electra.checks.judge import Check


def validate_corpus(settings: Settings, paths: Paths) -> None:
    """Judge ``data/corpus``.

    Raises:
        DataError: a critical expectation failed; the rows are named.
    """
    from electra.checks.corpus import corpus_suite, corpus_tables
    from electra.checks.judge import judge

    tables, statistics = corpus_tables(settings.corpus, paths.corpus, settings.cluster)
    _conclude("corpus", judge(tables, corpus_suite(settings.corpus)), statistics, paths)


def validate_shards(settings: Settings, paths: Paths) -> None:
    """Judge ``data/tokenizer`` and ``data/shards``.

    Raises:
        DataError: a critical expectation failed; the rows are named.
    """
    from electra.checks.judge import judge
    from electra.checks.shards import shards_suite, shards_tables

    tables, statistics = shards_tables(paths)
    _conclude("shards", judge(tables, shards_suite(settings)), statistics, paths)


def validate_tasks(settings: Settings, paths: Paths) -> None:
    """Judge ``data/tasks``.

    Raises:
        DataError: a critical expectation failed; the rows are named.
    """
    from electra.checks.judge import judge
    from electra.checks.task_table import tasks_tables
    from electra.checks.tasks import tasks_suite
    from electra.tasks.catalogue import find_spec

    tables, statistics = tasks_tables(settings.tasks, paths.tasks)
    specs = [find_spec(paths.tasks, name) for name in sorted(statistics)]
    _conclude("tasks", judge(tables, tasks_suite(specs)), statistics, paths)


def _conclude(name: str, checks: list["Check"], statistics: dict[str, Any], paths: Paths) -> None:
    """Write the report, print the warnings, raise on critical failures."""
    from electra.checks.judge import plain

    failed = {s: [c for c in checks if not c.success and c.severity == s] for s in ("critical", "warning")}
    report_path = paths.results / "validation" / f"{name}.json"
    write_json(
        report_path,
        {
            "suite": name,
            "success": not failed["critical"],
            "expectations": len(checks),
            "failed_critical": len(failed["critical"]),
            "failed_warning": len(failed["warning"]),
            "checks": [_entry(check) for check in checks],
            "statistics": _plain_tree(statistics, plain),
        },
    )
    for check in failed["warning"]:
        print(f"warning: {_explain(check)}\n    hint: {check.hint}")
    if failed["critical"]:
        count = len(failed["critical"])
        hints = sorted({check.hint for check in failed["critical"]})
        raise DataError(
            f"{name}: {count} critical {'check' if count == 1 else 'checks'} of {len(checks)} failed\n"
            + "\n".join(f"- {_explain(check)}" for check in failed["critical"]),
            where=str(report_path),
            next_step="; ".join(hints),
        )
    num_warnings = len(failed["warning"])
    warnings = "1 warning" if num_warnings == 1 else f"{num_warnings or 'no'} warnings"
    print(f"validate_{name}: {len(checks) - num_warnings} of {len(checks)} checks passed, {warnings}")


def _entry(check: "Check") -> dict[str, Any]:
    entry = {
        "check": check.description,
        "table": check.table,
        "expectation": check.expectation,
        "column": check.column,
        "severity": check.severity,
        "success": check.success,
        "observed": check.observed,
    }
    return entry if check.success else {**entry, "examples": check.examples, "hint": check.hint}


def _explain(check: "Check") -> str:
    """Two to seven lines: what should hold, what was seen, the rows."""
    if isinstance(check.observed, dict):
        seen = f"{check.observed['unexpected']} of {check.observed['rows']} rows break it"
    else:
        seen = f"observed {check.observed}"
    lines = [f"expected: {check.description}", f"    {check.expectation}({check.table}.{check.column}): {seen}"]
    return "\n".join(lines + [f"    {example}" for example in check.examples])


def _plain_tree(value: Any, plain: Any) -> Any:
    return {k: _plain_tree(v, plain) for k, v in value.items()} if isinstance(value, dict) else plain(value)
