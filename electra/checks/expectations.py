"""Short names for the expectations of the suites, each with its meaning for the user and the next step if it fails."""

from collections.abc import Callable
from functools import partial
from typing import Any

import great_expectations.expectations as gxe
from great_expectations.expectations.metadata_types import FailureSeverity

from electra.checks.tables import INTACT

Expectation = gxe.Expectation
Suite = dict[str, list[Expectation]]  # table name -> expectations on it
Condition = Callable[..., Expectation]  # a condition on a column; ``mostly`` is the share of rows that must satisfy it


def critical(column: str, condition: Condition, what: str, next_step: str) -> Expectation:
    """Return an expectation whose failure stops the pipeline."""
    return condition(column=column, severity=FailureSeverity.CRITICAL, description=what, notes=next_step)


def warning(column: str, condition: Condition, what: str, next_step: str) -> Expectation:
    """Return an expectation whose failure is printed and recorded."""
    return condition(column=column, severity=FailureSeverity.WARNING, description=what, notes=next_step)


def between(low: float | None = None, high: float | None = None, **options: Any) -> Condition:
    """Require values from ``low`` to ``high``, inclusive."""
    return partial(gxe.ExpectColumnValuesToBeBetween, min_value=low, max_value=high, **options)


def is_in(*values: Any) -> Condition:
    """Require values among the given ones."""
    return partial(gxe.ExpectColumnValuesToBeInSet, value_set=list(values))


def matches(regex: str) -> Condition:
    """Require a match of the regular expression in every value."""
    return partial(gxe.ExpectColumnValuesToMatchRegex, regex=regex)


def is_unique() -> Condition:
    """Require that no value occurs twice."""
    return gxe.ExpectColumnValuesToBeUnique


def is_given() -> Condition:
    """Require that no value is null."""
    return gxe.ExpectColumnValuesToNotBeNull


def files_expectations(folder: str, stage: str) -> list[Expectation]:
    """Return the expectations on a files table; ``folder`` and ``stage`` are the names used in messages."""
    return [
        critical(
            "state",
            is_in(INTACT),
            f"the files in {folder} are those of its manifest (sha256)",
            f"make the {stage} again: dvc repro -f {stage}",
        )
    ]
