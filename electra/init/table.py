"""A labelled table as an own task: its description, and its split into training and development rows."""

import hashlib
import json
import math
import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from electra.common.errors import ConfigError, DataError
from electra.common.printing import listed
from electra.readers.custom import column_text
from electra.readers.tables import Layout, Record, as_label, read_table
from electra.tasks.catalogue import TASKS

OWN = Path("own")  # descriptions and tables of own tasks
DEV_SHARE = 0.2
MAX_CLASSES = 50  # more distinct numbers are scores, not labels


@dataclass(frozen=True)
class Table:
    """A labelled table with its split.

    Attributes:
        description: content of the task's YAML file.
        splits: JSONL text of train and dev; empty if the user's tables are read directly.
        rows: number of rows by split.
        labels: summary of the labels or scores, for the user.
    """

    name: str
    path: Path
    description: dict[str, Any]
    splits: dict[str, str]
    rows: dict[str, int]
    labels: str


def check_name(name: str, option: str) -> None:
    """Raise ConfigError for an invalid name of a profile or a task."""
    if not re.fullmatch(r"[A-Za-z0-9][\w.-]{0,99}", name, re.ASCII):
        raise ConfigError(
            f"{name!r} cannot be a name", where=option, next_step="letters, digits, _, . and - can, 100 at most"
        )


def read_labelled(
    root: Path, table: Path, dev: Path | None, text_columns: list[str], label: str | None, encoding: str
) -> Table:
    """Read and split a table; see :func:`electra.init.project.plan_project` for the arguments.

    Raises:
        ConfigError: columns are not given, or the task's name cannot be used.
        DataError: the table cannot be read, has too few rows to hold some out, or rows that the stage tasks refuses.
    """
    name = _name_of(root, table)
    if name.lower() in {task.lower() for task in TASKS}:
        name += "-own"
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", name)
    check_name(name, "--table")
    if not text_columns or label is None or len(text_columns) > 2:
        there = listed(_columns(root / table, encoding))
        raise ConfigError(
            "which columns hold the text and the label?",
            where=str(table),
            next_step=_other_separator(table, there)
            or f"name them: --text COLUMN --label COLUMN (--text twice for pairs); the columns are {there}",
        )
    if braced := [column for column in text_columns if "{" in column or "}" in column]:
        raise ConfigError(
            f"the column {braced[0]!r} cannot be used: in the task's YAML file braces stand for another column's text",
            where=str(table),
            next_step="give the column another name",
        )
    columns = [*text_columns, label]
    layout = Layout(encoding=encoding)
    train = _labelled(root / table, columns, layout)
    held = _labelled(root / dev, columns, layout) if dev else []
    if not train or (dev and not held):
        raise DataError("no rows", where=str(dev if train else table), next_step="give a table with rows")
    values, held_values = ([str(as_label(record[label])) for record in rows] for rows in (train, held))
    scores = _scores([*values, *held_values])
    if len(set(scores or values)) < 2:
        raise DataError(
            f"every label is {values[0]!r}: there is nothing to learn",
            where=f"{table}: {label}",
            next_step="choose the column with --label, or add rows with other labels",
        )
    if dev and not scores and (unknown := set(held_values) - set(values)):
        raise DataError(
            f"no row of {table} has the label {min(unknown)!r}",
            where=f"{dev}: {label}",
            next_step="add some, or remove the rows that have it",
        )
    splits: dict[str, str] = {}
    if dev is None:
        parts = _split(train, text_columns, label)
        train, held = parts["train"], parts["dev"]
        splits = {split: "".join(_json(row, columns) for row in rows) for split, rows in parts.items()}
    description: dict[str, Any] = {"kind": "regression" if scores else "classification"}
    if len(text_columns) == 2 and not scores:
        description["kind"] = "pair"
    for split, path in {"train": table, "dev": dev or table}.items():
        description[split] = f"{name}/{split}.jsonl" if splits else os.path.relpath(root / path, root / OWN)
    first = "text" if description["kind"] == "classification" else "text_a"
    description |= dict(zip([first, "text_b"], text_columns, strict=False)) | {"label": label}
    if scores:
        description["range"] = [min(scores), max(scores)]
        labels = f"scores from {min(scores):g} to {max(scores):g}"
    else:
        counts = Counter(values + held_values)
        labels = "labels " + ", ".join(f"{value} {count:,}" for value, count in counts.most_common(6))
        labels += f" and {len(counts) - 6} more" if len(counts) > 6 else ""
    if encoding != "utf-8" and not splits:
        description["encoding"] = encoding
    return Table(name, table, description, splits, {"train": len(train), "dev": len(held)}, labels)


def _labelled(path: Path, columns: list[str], layout: Layout) -> list[Any]:
    """Return the rows of a table, whose last column is the label.

    Raises:
        DataError: a text is empty, or a label is missing or is a list.
    """
    rows, first_without = [], ""
    for where, record in _read_table(path, columns, layout):
        rows.append(record)
        if isinstance(record[columns[-1]], list | dict):
            raise DataError(
                f"column {columns[-1]!r} holds a {type(record[columns[-1]]).__name__}, and a row has one label",
                where=where,
                next_step="choose the column with --label, or write a table for each label: `yes` or `no` in every row",
            )
        for column in columns[:-1]:
            if not column_text(record, column, where).strip():
                raise DataError(f"column {column!r} is empty", where=where, next_step="fill it in, or remove the row")
        if as_label(record[columns[-1]]) is None:
            first_without = first_without or where
    if first_without and all(as_label(record[columns[-1]]) is None for record in rows):
        where = f"{path}: {columns[-1]}"
        raise DataError("no labels", where=where, next_step="choose the column with --label")
    if first_without:
        raise DataError("a label is missing", where=first_without, next_step="add it, or remove the row")
    return rows


NEXT_STEPS = {  # by a word of the advice for a task's YAML file, which `electra init` has not written yet
    "column's": "correct --text or --label",
    "`encoding`": "say its encoding: electra init ... --encoding cp1252 (or latin-1, utf-16, shift_jis, ...)",
    "`format:`": "convert it to .csv, .tsv, .jsonl, .json or .parquet",
}


def _read_table(path: Path, columns: list[str], layout: Layout) -> Iterator[Record]:
    """Yield rows as :func:`electra.readers.tables.read_table`, with errors that advise on options of the command."""
    try:
        yield from read_table(path, columns, layout)
    except DataError as error:
        step = next((step for word, step in NEXT_STEPS.items() if word in (error.next_step or "")), error.next_step)
        step = _other_separator(path, error.what.partition("the columns are ")[2]) or step
        raise DataError(error.what, where=error.where, next_step=step) from None


def _other_separator(path: Path, columns: str) -> str:
    """Return advice for a CSV file whose only column's name shows that another character separates its columns."""
    if path.suffix.lower() != ".csv" or ", " in columns:
        return ""
    for separator, name, advice in ((";", "semicolons", "commas"), ("\t", "tabs", "commas, or name the file .tsv")):
        if separator in columns:
            return f"{name} separate the columns of this file: write it with {advice}"
    return ""


# names of tables and folders that do not describe the task
GENERIC = re.compile(r"(train(ing)?|dev(el(opment)?)?|data(set)?|test|val(id(ation)?)?|eval)([-_.]?\d+)?", re.I)


def _name_of(root: Path, table: Path) -> str:
    """Return the table's name without its suffix, or its folder's name if the table is called train, dev or data."""
    here = root.absolute()
    path = Path(os.path.abspath(here / table))
    names = [path.stem, *(folder.name for folder in path.parents if folder not in (here, *here.parents))]
    return next((name for name in names if name and not GENERIC.fullmatch(name)), path.stem)


def _columns(path: Path, encoding: str) -> list[str]:
    """Return the names of a table's columns, taken from its reader's error message."""
    try:
        next(_read_table(path, ["\0"], Layout(encoding=encoding)), None)
    except DataError as error:
        if "the columns are " in error.what:
            return error.what.partition("the columns are ")[2].split(", ")
        raise
    return []


def _scores(values: list[str]) -> list[float]:
    """Return the labels as numbers if they are scores: fractions, or too many distinct numbers for classes; else []."""
    try:
        numbers = [float(value) for value in values]
    except ValueError:
        return []
    if not all(map(math.isfinite, numbers)):
        return []
    return numbers if len(set(numbers)) > MAX_CLASSES or any(number % 1 for number in numbers) else []


def _split(rows: list[Any], text_columns: list[str], label: str) -> dict[str, list[Any]]:
    """Split rows by a hash of the text, per label: equal texts stay together, and every label is in train."""
    texts: dict[str, str] = {}
    for row in rows:
        texts.setdefault(_text_key(row, text_columns), str(as_label(row[label])))
    numeric = bool(_scores(list(texts.values())))
    groups: dict[str, list[str]] = defaultdict(list)
    for key, value in texts.items():
        groups["" if numeric else value].append(key)
    held = {key for keys in groups.values() for key in sorted(keys)[: round(DEV_SHARE * len(keys))]}
    if not held:
        few = "fewer than three different texts" if numeric else "no label that has three different texts"
        raise DataError(
            f"{len(rows):,} rows with {few}: none can be held out for development",
            next_step="give more rows, or a table of their own: --dev dev.csv",
        )
    parts: dict[str, list[Any]] = {"train": [], "dev": []}
    for row in rows:
        parts["dev" if _text_key(row, text_columns) in held else "train"].append(row)
    return parts


def _text_key(row: Any, text_columns: list[str]) -> str:
    return hashlib.sha256("\x1f".join(str(row[column]) for column in text_columns).encode()).hexdigest()


def _json(row: Any, columns: list[str]) -> str:
    return json.dumps({column: row[column] for column in columns}, ensure_ascii=False) + "\n"
