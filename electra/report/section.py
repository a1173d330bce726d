"""What the report is made of."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Section:
    """A titled table; numbers are text already. Without columns it is its note alone."""

    title: str
    note: str
    columns: list[str]
    rows: list[list[str]]
