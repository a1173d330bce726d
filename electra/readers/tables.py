"""Rows of a table by column name, one at a time.

Formats: .csv (quoted as by spreadsheets), .tsv (as in GLUE, quotes have no special meaning), .jsonl (an object per
line), .json (an object or a list of objects), .parquet, column files (a word per line, a row per sentence) and lines
split by a pattern. In objects, ``answer.text`` is the value ``text`` of the object ``answer``, and ``options.0`` the
first item of the list ``options``.
"""

import codecs
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

from electra.common.errors import DataError
from electra.common.globs import expanded
from electra.common.lines import csv_records, open_input, recoded, text_lines
from electra.common.parsing import is_text, parquet_errors, parse_json
from electra.common.printing import listed
from electra.readers.conll import DOCUMENT_START, column_lines
from electra.readers.templates import taken_apart

Record = tuple[str, dict[str, Any]]  # the row's place for messages, and its values
_MISSING = object()


@dataclass(frozen=True)
class Layout:
    """Layout of a table.

    Attributes:
        format: csv, tsv, jsonl, json, parquet, conll or conllu; None: by the file name's ending.
        header: whether the first line of a CSV or TSV names the columns; otherwise their names are numbers from 0.
        encoding: encoding of text files.
        lines: template (:mod:`electra.readers.templates`) that splits a line into columns.
        each: lists in an object that are iterated in parallel: each item gives a row.
    """

    format: str | None = None
    header: bool = True
    encoding: str = "utf-8"
    lines: str | None = None
    each: tuple[str, ...] = ()


def table_files(folder: Path, name: str) -> list[Path]:
    """Return the file with this name, or the files that match its wildcards, sorted.

    Raises:
        DataError: there is no such file.
    """
    path = folder / name
    found = [path] if path.is_file() else sorted(folder / match for match in expanded(name, folder))
    if files := [file for file in found if file.is_file()]:
        return files
    raise DataError(f"{path} does not exist", next_step="add the file, or correct its path in the task's YAML file")


def read_table(path: Path, columns: Sequence[str], layout: Layout = Layout()) -> Iterator[Record]:
    """Yield (place, values of ``columns``) of each row, in order.

    Raises:
        DataError: no such file, an unknown format, text in another encoding, a missing column or a malformed row;
            names file and line.
    """
    readers: dict[str, Callable[[Path, Sequence[str], Layout], Iterator[Record]]] = {
        "csv": _read_csv,
        "tsv": _read_tsv,
        "jsonl": _read_jsonl,
        "json": _read_json,
        "parquet": _read_parquet,
        "conll": _read_conll,
        "conllu": _read_conllu,
        "lines": _read_lines,
    }
    format = "lines" if layout.lines else layout.format or path.suffix.removeprefix(".").lower()
    if format not in readers:
        raise DataError(
            f"{path} is no table that can be read",
            next_step=f"use one of .{', .'.join(name for name in readers if name != 'lines')}, or say `format:` or "
            "`lines:` in the task's YAML file",
        )
    yield from readers[format](path, columns, layout)


def _read_csv(path: Path, columns: Sequence[str], layout: Layout) -> Iterator[Record]:
    with _open(path, layout) as file:
        records = csv_records(text_lines(file, str(path)), str(path))
        rows = ((f"{path}:{number}", values) for number, values in records)
        yield from _records(path, rows, columns, layout, "comma")


def _read_tsv(path: Path, columns: Sequence[str], layout: Layout) -> Iterator[Record]:
    rows = ((where, line.split("\t")) for where, line in _without_blank_end(_lines(path, layout)))
    yield from _records(path, rows, columns, layout, "tab")


def _open(path: Path, layout: Layout) -> BinaryIO:
    """Open a file with its text converted to UTF-8."""
    next_step = "set `encoding` in the task's YAML file, such as `encoding: latin-1`"
    return recoded(open_input(path), str(path), layout.encoding, next_step)


def _lines(path: Path, layout: Layout) -> Iterator[tuple[str, str]]:
    """Yield the place and the text of every line, without the line end."""
    with _open(path, layout) as file:
        for number, line in text_lines(file, str(path)):
            yield f"{path}:{number}", line.removesuffix("\n").removesuffix("\r")


def _without_blank_end(lines: Iterator[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Yield lines up to the last one that is not blank: before it, a blank line may be a row of one empty cell."""
    blank: list[tuple[str, str]] = []
    for where, line in lines:
        if not line:
            blank.append((where, line))
            continue
        yield from blank
        blank.clear()
        yield where, line


def _records(
    path: Path, rows: Iterator[tuple[str, list[str]]], columns: Sequence[str], layout: Layout, separator: str
) -> Iterator[Record]:
    first = next(rows, ("", []))
    header = first[1] if layout.header else [str(number) for number in range(len(first[1]))]
    _check_header(path, header, columns)
    if not layout.header:
        yield _record(header, first[1], first[0], separator)
    for where, values in rows:
        yield _record(header, values, where, separator)


def _read_lines(path: Path, columns: Sequence[str], layout: Layout) -> Iterator[Record]:
    assert layout.lines is not None
    for where, line in _lines(path, layout):
        if not line:
            continue
        values = taken_apart(layout.lines, line)
        if values is None:
            raise DataError(f"the line is not of the form {layout.lines}", where=where, next_step="repair the line")
        _check_header(path, list(values), columns)
        yield where, values


def _read_jsonl(path: Path, columns: Sequence[str], layout: Layout) -> Iterator[Record]:
    for where, line in _lines(path, layout):
        if not line.strip():
            continue
        values = parse_json(line, where=where)
        if not isinstance(values, dict):
            raise DataError("expected one object a line", where=where)
        yield from _objects(path, values, columns, where, layout)


def _read_json(path: Path, columns: Sequence[str], layout: Layout) -> Iterator[Record]:
    with _open(path, layout) as file:
        content = parse_json(file.read().removeprefix(codecs.BOM_UTF8), where=str(path))
    for number, values in enumerate(content if isinstance(content, list) else [content]):
        where = f"{path}: [{number}]" if isinstance(content, list) else str(path)
        if not isinstance(values, dict):
            raise DataError("expected an object, or a list of objects", where=where)
        yield from _objects(path, values, columns, where, layout)


def _read_parquet(path: Path, columns: Sequence[str], layout: Layout) -> Iterator[Record]:
    import pyarrow.parquet as pq

    from electra.common.parquet_pages import bounded_batches

    with parquet_errors(str(path)), open(path, "rb") as opened, pq.ParquetFile(path) as file:
        there = file.schema_arrow.names
        roots = dict.fromkeys(name if name in there else name.split(".")[0] for name in [*columns, *layout.each])
        _check_header(path, there, list(roots))
        number = 0
        for batch in bounded_batches(opened, file, list(roots), str(path), 1024):
            for values in batch.to_pylist():
                yield from _objects(path, values, columns, f"{path}: row {number}", layout)
                number += 1


def _objects(
    path: Path, values: dict[str, Any], columns: Sequence[str], where: str, layout: Layout
) -> Iterator[Record]:
    """Yield the rows of an object: the object itself, or one row for every item of the lists in ``layout.each``."""
    if not layout.each:
        yield where, _selected(path, values, columns, where)
        return
    _check_header(path, list(values), layout.each, where)
    lists = {name: values[name] for name in layout.each}
    if wrong := next((name for name, items in lists.items() if not isinstance(items, list)), None):
        raise DataError(f"{wrong!r} is no list", where=where, next_step="correct `each` in the task's YAML file")
    if len({len(items) for items in lists.values()}) > 1:
        found = ", ".join(f"{name} {len(items)}" for name, items in lists.items())
        raise DataError(f"lists of different lengths: {found}", where=where, next_step="repair the row")
    for number, items in enumerate(zip(*lists.values(), strict=True)):
        row = {**values, **dict(zip(lists, items, strict=True))}
        yield f"{where}: {layout.each[0]}[{number}]", _selected(path, row, columns, where)


def _selected(path: Path, values: dict[str, Any], columns: Sequence[str], where: str) -> dict[str, Any]:
    found = {name: _nested(values, name) for name in columns}
    if missing := [name for name, value in found.items() if value is _MISSING]:
        _check_header(path, [name for name in values if name not in missing], missing, where)
    if not is_text(json.dumps(found, ensure_ascii=False, default=str)):
        raise DataError(
            "a value holds half of a surrogate pair, which is no character",
            where=where,
            next_step="write the text again with whole characters, or remove the row",
        )
    return found


def _nested(values: dict[str, Any], name: str) -> Any:
    """Return a value by its key, or by a path such as ``answer.text``."""
    if name in values:
        return values[name]
    found: Any = values
    for key in name.split("."):
        if isinstance(found, list) and key.isdecimal() and int(key) < len(found):
            found = found[int(key)]
        elif isinstance(found, dict) and key in found:
            found = found[key]
        else:
            return _MISSING
    return found


def _read_conll(path: Path, columns: Sequence[str], layout: Layout) -> Iterator[Record]:
    """Yield a row per sentence: column number (from 0; -1 is the last) -> list of the column's values."""
    sentence: list[list[str]] = []
    begin, num_columns = str(path), 0
    for where, values in column_lines(path, layout.encoding):
        if values is None:
            if sentence:
                yield begin, {name: [word[int(name)] for word in sentence] for name in columns}
            sentence = []
        elif values[0] != DOCUMENT_START:
            if not num_columns:
                num_columns = len(values)
                there = [str(number) for number in (*range(num_columns), *range(-num_columns, 0))]
                _check_header(path, there, columns, where)
            if len(values) != num_columns:
                raise DataError(
                    f"expected {num_columns} columns as in the first line, found {len(values)}",
                    where=where,
                    next_step="repair the line; columns are separated by spaces, sentences by blank lines",
                )
            begin = begin if sentence else where
            sentence.append(values)


# https://universaldependencies.org/format.html
CONLLU = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")


def _read_conllu(path: Path, columns: Sequence[str], layout: Layout) -> Iterator[Record]:
    """Yield a row per sentence of a treebank: column name -> list of the values of its syntactic words.

    Comments, the surface form of several words (``3-4``) and empty nodes (``5.1``) are left out. Only tabs separate
    columns: a word may contain spaces.
    """
    _check_header(path, CONLLU, columns)
    sentence: list[list[str]] = []
    begin = str(path)
    for where, line in chain(_lines(path, layout), [(str(path), "")]):
        if line.startswith("#"):
            continue
        if not line.strip():
            if sentence:
                yield begin, {name: [word[CONLLU.index(name)] for word in sentence] for name in columns}
            sentence = []
            continue
        values = line.split("\t")
        if len(values) != len(CONLLU):
            raise DataError(
                f"expected the {len(CONLLU)} columns of CoNLL-U, separated by tabs, found {len(values)}",
                where=where,
                next_step="repair the line; or give the file the ending .conll if its columns are others",
            )
        if values[0].isdecimal():
            begin = begin if sentence else where
            sentence.append(values)


def _check_header(path: Path, header: Sequence[str], columns: Sequence[str], where: str | None = None) -> None:
    if missing := [name for name in columns if name not in header]:
        raise DataError(
            f"no column {', '.join(map(repr, missing))}; the columns are {listed(header)}",
            where=where or str(path),
            next_step="correct the column's name in the task's YAML file",
        )
    if several := [name for name in columns if list(header).count(name) > 1]:
        raise DataError(
            f"several columns {', '.join(map(repr, several))}; the columns are {listed(header)}",
            where=where or str(path),
            next_step="give each column of the file a name of its own",
        )


def _record(header: Sequence[str], values: Sequence[str], where: str, separator: str) -> Record:
    if len(values) != len(header):
        raise DataError(
            f"expected {len(header)} {separator}-separated columns, found {len(values)}",
            where=where,
            next_step=f"repair the row; the columns are {listed(header)}",
        )
    return where, dict(zip(header, values, strict=True))


def as_label(value: Any) -> str | None:
    """Return a label as a string, numbers and booleans as in JSON; None for an empty value or NaN."""
    if value is None or value == "" or value != value:  # NaN is the missing value of float columns
        return None
    return json.dumps(value, default=str) if isinstance(value, bool | int | float | list | dict) else str(value)
