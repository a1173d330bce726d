"""The one place that talks to Great Expectations: tables and expectations in, a plain verdict out.

Importing this module takes seconds (Great Expectations does); the gate imports it inside its functions.

In a suite, an expectation's ``description`` says what must hold and ``notes`` what to do where it does not.
"""

from dataclasses import dataclass, field
from typing import Any

import great_expectations as gx
import great_expectations.expectations as gxe
import numpy as np
import pandas as pd
from great_expectations.data_context.types.base import ProgressBarsConfig
from great_expectations.expectations.metadata_types import FailureSeverity

from electra.validation.sample import Table

CRITICAL, WARNING = FailureSeverity.CRITICAL, FailureSeverity.WARNING
MAX_EXAMPLES = 5

Suite = dict[str, list[gxe.Expectation]]  # table name -> what must hold there


@dataclass(frozen=True)
class Check:
    """One judged expectation."""

    table: str
    description: str
    expectation: str
    column: str | None
    severity: str
    success: bool
    observed: Any  # the value of a one-row table, else {"unexpected": rows that break the rule, "rows": rows judged}
    hint: str
    examples: list[str] = field(default_factory=list)  # rows that break the rule, named, at most MAX_EXAMPLES


def judge(tables: dict[str, Table], suite: Suite) -> list[Check]:
    """Judge every table of a suite; checks come in the order of the suite.

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
        # results come back in any order
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
    """Where the row is, then the value that breaks the rule: ``file=train-00000.parquet row=7 -> chars=3``."""
    shown = {key: _show(value) for key, value in row.items()}
    return " ".join(f"{key}={shown[key]}" for key in row if key != column) + f" -> {column}={shown[column]}"


def _show(value: Any) -> str:
    text = str(plain(value)).replace("\n", " ")
    return text if text.isprintable() else repr(text)


def plain(value: Any) -> Any:
    """A JSON value without numpy types; floats with six significant digits, so that reports have stable bytes."""
    if isinstance(value, (list, tuple, np.ndarray)):
        return [plain(v) for v in value]
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if isinstance(value, np.integer):
        return int(value)
    if isinstance(value, (float, np.floating)):
        return None if pd.isna(value) else float(f"{value:.6g}")
    return value
