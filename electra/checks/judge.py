"""Validate tables of bounded size against suites of expectations (Great Expectations).

A table has all rows if they fit, else a fixed sample by hash and every row that breaks a rule.
"""

import json
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import great_expectations as gx
import great_expectations.expectations as gxe
import numpy as np
import pandas as pd
from great_expectations.data_context.types.base import ProgressBarsConfig
from great_expectations.expectations.metadata_types import FailureSeverity

from electra.checks.resemblance import hash_bound
from electra.common.artifacts import MANIFEST, sha256, write_json
from electra.common.errors import DataError
from electra.common.paths import Paths

MAX_ROWS = 200_000  # rows in a table; larger tables are sampled
MAX_OFFENDERS = 1_000  # rule-breaking rows that are added to the sample
DRIFT, DRIFT_POINTS = 0.1, 0.01  # relative and absolute change of a statistic since the last commit that is reported


@dataclass(frozen=True)
class Table:
    """A table to validate, and the columns that identify a row in messages (none for tables with one row)."""

    frame: pd.DataFrame
    named_by: list[str]


class RowSample:
    """Collect a table of bounded size from a stream of rows.

    A row is sampled if its 64-bit key is below a bound, so the choice depends on the row alone. Rows that break a rule
    are always kept (up to ``MAX_OFFENDERS``): rules that must hold for every row are checked on every row.

    Args:
        expected_rows: rows in the whole stream.
        named_by: columns that identify a row in messages.
    """

    def __init__(self, expected_rows: int, named_by: list[str]):
        self.named_by = named_by
        self._bound = hash_bound(expected_rows, MAX_ROWS)
        self._offenders = 0
        self._taken: list[tuple[pd.DataFrame, np.ndarray, np.ndarray]] = []

    def chooses(self, keys: np.ndarray) -> np.ndarray:
        """Return a mask [N] of the sampled rows, for statistics that are too expensive for every row."""
        return keys <= self._bound

    def add(self, rows: pd.DataFrame, keys: np.ndarray, breaks_rule: np.ndarray) -> None:
        """Add the rows [N] that belong in the table; keys uint64 [N], breaks_rule bool [N]."""
        sampled = self.chooses(keys)
        extra = breaks_rule & ~sampled
        extra &= np.cumsum(extra) + self._offenders <= MAX_OFFENDERS
        self._offenders += int(extra.sum())
        taken = sampled | extra
        self._taken.append((rows[taken], keys[taken], breaks_rule[taken]))

    def add_all(self, part: "RowSample") -> None:
        """Add the sample of the next part of the stream; the result equals one sample of both parts."""
        for rows, keys, breaks_rule in part._taken:
            self.add(rows, keys, breaks_rule)

    def table(self, columns: list[str]) -> Table:
        """Return the rows in the order of the stream; ``columns`` is used if there are none."""
        frames = [rows for rows, _, _ in self._taken if len(rows)] or [pd.DataFrame(columns=columns)]
        return Table(pd.concat(frames, ignore_index=True), self.named_by)


CRITICAL, WARNING = FailureSeverity.CRITICAL, FailureSeverity.WARNING
MAX_EXAMPLES = 5

Suite = dict[str, list[gxe.Expectation]]  # table name -> expectations on it


@dataclass(frozen=True)
class Check:
    """Result of one expectation."""

    table: str
    description: str
    expectation: str
    column: str | None
    severity: str
    success: bool
    observed: Any  # value of a one-row table, else {"unexpected": rows that break the rule, "rows": rows checked}
    hint: str
    examples: list[str] = field(default_factory=list)  # descriptions of rows that break the rule, at most MAX_EXAMPLES


def judge(tables: dict[str, Table], suite: Suite) -> list[Check]:
    """Validate every table of a suite; checks are returned in the order of the suite.

    Raises:
        RuntimeError: an expectation could not be evaluated: a defect of the suite, not of the data.
    """
    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = ProgressBarsConfig(globally=False)
    checks = []
    for name, expectations in suite.items():
        table = tables[name]
        source = context.data_sources.add_pandas(name)
        batch = (
            source.add_dataframe_asset("table")
            .add_batch_definition_whole_dataframe("whole")
            .get_batch(batch_parameters={"dataframe": table.frame})
        )
        result = batch.validate(
            gx.ExpectationSuite(name=name, expectations=expectations),
            result_format={
                "result_format": "SUMMARY",
                "partial_unexpected_count": MAX_EXAMPLES,
                **({"unexpected_index_column_names": table.named_by} if table.named_by else {}),
            },
        )
        # results are returned in any order
        by_description = {r.expectation_config.description: r for r in result.results if r.expectation_config}
        checks += [_check(name, table, by_description[e.description]) for e in expectations]
    return checks


def _check(name: str, table: Table, result: Any) -> Check:
    config, details = result.expectation_config, result.result
    if not details:
        raise RuntimeError(f"could not evaluate {config.type} on {name}: {result.exception_info}")
    column = config.kwargs.get("column")
    examples = []
    if not table.named_by:
        observed = plain(table.frame[column].iloc[0])
    else:
        observed = {"unexpected": int(details["unexpected_count"]), "rows": int(details["element_count"])}
        if not result.success:
            examples = [_name(row, column) for row in details["partial_unexpected_index_list"]]
    return Check(
        table=name,
        description=config.description,
        expectation=config.type,
        column=column,
        severity=str(config.severity.value),
        success=bool(result.success),
        observed=observed,
        hint=config.notes or "",
        examples=examples,
    )


def _name(row: dict[str, Any], column: str) -> str:
    """Return the row's position, then the offending value: ``file=train-00000.parquet row=7 -> chars=3``."""
    shown = {key: _show(value) for key, value in row.items()}
    return " ".join(f"{key}={shown[key]}" for key in row if key != column) + f" -> {column}={shown[column]}"


def _show(value: Any) -> str:
    text = str(plain(value)).replace("\n", " ")
    return text if text.isprintable() else repr(text)


def plain(value: Any) -> Any:
    """Return a JSON value without numpy types; floats have six significant digits, so that reports are reproducible."""
    if isinstance(value, (list, tuple, np.ndarray)):
        return [plain(v) for v in value]
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if isinstance(value, np.integer):
        return int(value)
    if isinstance(value, (float, np.floating)):
        return None if pd.isna(value) else float(f"{value:.6g}")
    return value


INTACT = "as listed"


def files_table(
    folder: Path, manifest: dict[str, Any], read: Callable[[Path], object], errors: tuple[type[Exception], ...]
) -> tuple[Table, list[Path]]:
    """Return one row per file on disk or in the manifest, with path and state.

    Files that match the manifest are trusted to be readable. Changed files are read once as a test, so that the rows of
    a readable one can still be checked and named.

    Args:
        read: reads one whole file.
        errors: exceptions that ``read`` raises for unreadable files.

    Returns:
        The table, and the readable paths, sorted.
    """
    listed = {entry["path"]: entry for entry in manifest["files"]}
    on_disk = {p.relative_to(folder).as_posix(): p for p in folder.rglob("*") if p.is_file() and p.name != MANIFEST}
    rows, readable = [], []
    for name in sorted(listed | on_disk):
        path = on_disk.get(name)
        if path is None:
            rows.append((name, "missing"))
            continue
        state = _compare(path, listed.get(name))
        if state != INTACT:
            try:
                read(path)
            except errors as error:
                rows.append((name, f"{state}; cannot be read: {str(error).splitlines()[0]:.160}"))
                continue
        rows.append((name, state))
        readable.append(path)
    return Table(pd.DataFrame(rows, columns=["file", "state"]), named_by=["file"]), readable


def _compare(path: Path, entry: dict[str, Any] | None) -> str:
    if entry is None:
        return "not in the manifest"
    if path.stat().st_size != entry["bytes"] or sha256(path) != entry["sha256"]:
        return "changed since it was written"
    return INTACT


# Conditions on a column, for :func:`expect`. ``mostly`` is the share of rows that must satisfy the condition.
Condition = Callable[..., gxe.Expectation]


def between(low: float | None = None, high: float | None = None, **options: Any) -> Condition:
    """Require values from ``low`` to ``high``, inclusive."""
    return partial(gxe.ExpectColumnValuesToBeBetween, min_value=low, max_value=high, **options)


def is_in(*values: Any, **options: Any) -> Condition:
    """Require values among the given ones."""
    return partial(gxe.ExpectColumnValuesToBeInSet, value_set=list(values), **options)


def matches(regex: str) -> Condition:
    """Require a match of the regular expression in every value."""
    return partial(gxe.ExpectColumnValuesToMatchRegex, regex=regex)


def is_unique() -> Condition:
    """Require that no value occurs twice."""
    return gxe.ExpectColumnValuesToBeUnique


def is_given() -> Condition:
    """Require that no value is null."""
    return gxe.ExpectColumnValuesToNotBeNull


def expect(column: str, condition: Condition, severity: FailureSeverity, what: str, remedy: str) -> gxe.Expectation:
    """Return an expectation: a condition on a column, its meaning for the user, and the remedy if it fails."""
    return condition(column=column, severity=severity, description=what, notes=remedy)


def files_expectations(folder: str, stage: str) -> list[gxe.Expectation]:
    """Return the expectations on a files table; ``folder`` and ``stage`` are the names used in messages."""
    return [
        expect(
            "state",
            is_in(INTACT),
            CRITICAL,
            f"the files in {folder} are those of its manifest (sha256)",
            f"make the {stage} again: dvc repro -f {stage}",
        )
    ]


def conclude(name: str, checks: list[Check], statistics: dict[str, Any], paths: Paths) -> None:
    """Write ``results/validation/<name>.json`` and print the warnings.

    Raises:
        DataError: a critical expectation failed; the message names the rows.
    """
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
            "statistics": _plain_tree(statistics),
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
    for line in drift(statistics, committed_statistics(report_path)):
        print(f"validate_{name}: {line}")
    num_warnings = len(failed["warning"])
    warnings = "1 warning" if num_warnings == 1 else f"{num_warnings or 'no'} warnings"
    print(f"validate_{name}: {len(checks) - num_warnings} of {len(checks)} checks passed, {warnings}")


def drift(now: dict[str, Any], before: dict[str, Any]) -> list[str]:
    """Return descriptions of statistics that moved by more than :data:`DRIFT` (shares also by ``DRIFT_POINTS``).

    Statistics that only one side has are skipped.
    """
    old, found = leaves(before), []
    for name, value in leaves(now).items():
        was = old.get(name, value)
        least = DRIFT_POINTS if name.endswith("_share") else 0
        if abs(value - was) > max(DRIFT * abs(was), least):
            change = f" ({(value - was) / abs(was):+.0%})" if was else ""
            found.append(f"{name} was {was:,.6g} at the last commit and is {value:,.6g} now{change}")
    return found


def leaves(tree: dict[str, Any], prefix: str = "") -> dict[str, float]:
    """Return the numbers of a tree by their path."""
    found: dict[str, float] = {}
    for key, value in tree.items():
        if isinstance(value, dict):
            found |= leaves(value, f"{prefix}{key}.")
        elif isinstance(value, int | float):
            found[f"{prefix}{key}"] = value
    return found


def committed_statistics(report: Path) -> dict[str, Any]:
    """Return the statistics of the report in the last commit; empty if there is none."""
    command = ["git", "show", f"HEAD:./{report.name}"]
    try:
        shown = subprocess.run(command, cwd=report.parent, capture_output=True, timeout=10, check=True)
        return dict(json.loads(shown.stdout)["statistics"])
    except (OSError, subprocess.SubprocessError, ValueError, KeyError, TypeError):
        return {}


def _entry(check: Check) -> dict[str, Any]:
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


def _explain(check: Check) -> str:
    """Return two to seven lines: the expectation, the observed value, and the rows."""
    if isinstance(check.observed, dict):
        seen = f"{check.observed['unexpected']} of {check.observed['rows']} rows break it"
    else:
        seen = f"observed {check.observed}"
    lines = [f"expected: {check.description}", f"    {check.expectation}({check.table}.{check.column}): {seen}"]
    return "\n".join(lines + [f"    {example}" for example in check.examples])


def _plain_tree(value: Any) -> Any:
    return {k: _plain_tree(v) for k, v in value.items()} if isinstance(value, dict) else plain(value)
