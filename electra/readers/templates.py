"""Templates of own tasks: texts that are put together from columns, and lines that are taken apart into columns.

``{title}: {body}`` names columns in braces; ``{{`` and ``}}`` are braces of the text itself.
"""

import string
from collections.abc import Callable
from functools import cache

Part = tuple[str, str | None]  # text as it stands, and the column after it


def is_template(text: str) -> bool:
    """Return whether ``text`` is more than the name of a column."""
    return "{" in text or "}" in text


@cache
def parts_of(template: str) -> tuple[Part, ...]:
    """The parts of a template in order; only the last may be without a column.

    Raises:
        ValueError: braces that do not match, or a column without a name.
    """
    parts: list[Part] = []
    before = ""
    for text, column, form, conversion in string.Formatter().parse(template):
        if column == "" or form or conversion:
            raise ValueError(f"braces hold the name of a column and nothing else: {template!r}")
        before += text
        if column is not None:  # a doubled brace ends a part without a column
            parts.append((before, column))
            before = ""
    if not parts:
        raise ValueError(f"the template names no column: {template!r}")
    return (*parts, (before, None)) if before else tuple(parts)


def columns_of(text: str) -> list[str]:
    """The columns that a text is made of: the one that it names, or those of the template."""
    return [column for _, column in parts_of(text) if column is not None] if is_template(text) else [text]


def filled(text: str, value: Callable[[str], str]) -> str:
    """A text from the values of its columns."""
    if not is_template(text):
        return value(text)
    return "".join(part + ("" if column is None else value(column)) for part, column in parts_of(text))


def taken_apart(template: str, line: str) -> dict[str, str] | None:
    """The columns of a line, each up to where the text after it occurs first; None where a text does not occur.

    Raises:
        ValueError: as :func:`parts_of`; or no text stands between two columns.
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
