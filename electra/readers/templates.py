"""Templates that combine columns into texts, such as ``{title}: {body}``; ``{{`` and ``}}`` are literal braces."""

import string
from collections.abc import Callable
from functools import cache

Part = tuple[str, str | None]  # literal text, and the column after it


def _is_template(text: str) -> bool:
    """Return whether ``text`` is a template instead of a column name."""
    return "{" in text or "}" in text


@cache
def parts_of(template: str) -> tuple[Part, ...]:
    """Return the parts of a template in order; only the last part may lack a column.

    Raises:
        ValueError: braces do not match, or a column has no name.
    """
    parts: list[Part] = []
    before = ""
    for text, column, form, conversion in string.Formatter().parse(template):
        if column == "" or form or conversion:
            raise ValueError(f"braces hold the name of a column and nothing else: {template!r}")
        before += text
        if column is not None:  # None: the formatter splits at a doubled brace
            parts.append((before, column))
            before = ""
    if not parts:
        raise ValueError(f"the template names no column: {template!r}")
    return (*parts, (before, None)) if before else tuple(parts)


def columns_of(text: str) -> list[str]:
    """Return the columns of a text: the column it names, or those of the template."""
    return [column for _, column in parts_of(text) if column is not None] if _is_template(text) else [text]


def filled(text: str, value: Callable[[str], str]) -> str:
    """Return the value of a column, or a template filled with the values of its columns."""
    if not _is_template(text):
        return value(text)
    return "".join(part + ("" if column is None else value(column)) for part, column in parts_of(text))


def taken_apart(template: str, line: str) -> dict[str, str] | None:
    """Split a line into the columns of a template; None if the line does not match.

    Each column ends at the first occurrence of the literal text after it.

    Raises:
        ValueError: as :func:`parts_of`; or there is no text between two columns.
    """
    parts = parts_of(template)
    begin, *between = (text for text, column in parts if column is not None)
    end = parts[-1][0] if parts[-1][1] is None else ""
    *columns, last = columns_of(template)
    if not all(between):
        raise ValueError(f"there must be text between two columns: {template!r}")
    if len(line) < len(begin) + len(end) or not line.startswith(begin) or not line.endswith(end):
        return None
    values, rest = {}, line[len(begin) : len(line) - len(end)]
    for column, text in zip(columns, between, strict=True):
        values[column], found, rest = rest.partition(text)
        if not found:
            return None
    return {**values, last: rest}
