"""Official tables: TSV files of GLUE (Wang et al. 2019a), JSON lines of SuperGLUE (2019b), CSV files of SWAG (Zellers
et al. 2018)."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from electra.common.errors import DataError
from electra.common.lines import csv_records, open_input, text_lines
from electra.common.parsing import parse_json, shown
from electra.readers.tables import as_label
from electra.readers.templates import columns_of, filled
from electra.tasks.catalogue import TaskSpec
from electra.tasks.format import Row, choice_row, sentence_row


def read_sentences(spec: TaskSpec, split: str, path: Path, counts: Counter[str]) -> Iterator[Row]:
    """Yield the rows of a GLUE TSV file, in which quotes have no special meaning and only a line feed ends a row."""
    with open_input(path) as file:
        numbered = text_lines(file, str(path))
        lines = ((number, line.removesuffix("\n").removesuffix("\r")) for number, line in numbered)
        is_labelled = not split.startswith("test")
        if spec.fixed_header and is_labelled:
            header = list(spec.fixed_header)
        else:
            header = next(lines, (1, ""))[1].split("\t")
        wanted = [spec.text_a] + ([spec.text_b] if spec.text_b else []) + ([spec.label] if is_labelled else [])
        _check_header(spec, path, header, wanted, "use the file as GLUE distributes it")
        column = {name: header.index(name) for name in wanted}
        # The ids of test rows are the file's index, as submissions need; the ids of labelled rows are their numbers.
        index = next((header.index(name) for name in ("index", "id") if name in header and not is_labelled), None)
        number = 0
        for line_number, line in lines:
            values = line.split("\t")
            if len(values) != len(header):
                if spec.may_have_broken_rows and len(values) < len(header):
                    counts["broken_rows_left_out"] += 1
                    continue
                raise _wrong_length(spec, header, values, "tab", f"{path}:{line_number}")
            yield sentence_row(
                spec,
                id=str(number) if index is None else values[index],
                text_a=values[column[spec.text_a]],
                text_b=values[column[spec.text_b]] if spec.text_b else None,
                label=values[column[spec.label]] if is_labelled else None,
                where=f"{path}:{line_number}",
            )
            number += 1


ID = "idx"


def read_json_lines(spec: TaskSpec, path: Path, labelled: bool) -> Iterator[Row]:
    """Yield rows of a classification or multiple-choice task in file order; labels ``true`` and 1 are kept as text.

    Args:
        labelled: False for a test split, whose labels are not read.

    Raises:
        DataError: a line is not an object, lacks a key, holds no text under a key, or has an unknown label; names file
            and line.
    """
    texts = [spec.text_a, *([spec.text_b] if spec.text_b else []), *spec.choices]
    wanted = [ID, *(column for text in texts for column in columns_of(text)), *([spec.label] if labelled else [])]
    with open_input(path) as file:
        for number, line in text_lines(file, str(path)):
            where = f"{path}:{number}"
            record = parse_json(line, where=where, what=f"{spec.name}: ")
            missing = [key for key in wanted if key not in record] if isinstance(record, dict) else wanted
            if missing:
                raise DataError(
                    f"{spec.name}: expected an object with {', '.join(wanted)}; {', '.join(missing)} is missing",
                    where=where,
                    next_step="use the file as SuperGLUE distributes it",
                )
            yield _row(spec, record, texts, as_label(record[spec.label]) if labelled else None, where)


def _row(spec: TaskSpec, record: dict[str, Any], texts: list[str], label: str | None, where: str) -> Row:
    def text_of(column: str) -> str:
        if not isinstance(record[column], str):
            raise DataError(f"{spec.name}: {column!r} holds no text", where=where, next_step="repair the row")
        return record[column]

    id = str(record[ID])
    first, *others = [filled(text, text_of) for text in texts]
    if spec.kind == "multiple_choice":
        return choice_row(spec, id, first, others, label, where)
    return sentence_row(spec, id, first, others[0] if others else None, label, where)


ENDINGS = ("ending0", "ending1", "ending2", "ending3")


def read_swag(spec: TaskSpec, path: Path, labelled: bool) -> Iterator[Row]:
    """Yield rows in file order: the text is the first sentence, a choice the second sentence's start with one ending.

    Raises:
        DataError: a column is missing, a row has a wrong number of values, or a label is not 0 to 3; names file and
            line.
    """
    wanted = ["sent1", "sent2", *ENDINGS, *(["label"] if labelled else [])]
    with open_input(path) as file:
        records = csv_records(text_lines(file, str(path)), str(path), strict=False)
        _, header = next(records, (1, []))
        next_step = "use the file as SWAG distributes it, not train_full.csv or val_full.csv"
        _check_header(spec, path, header, wanted, next_step)
        for number, (line_number, values) in enumerate(records):
            where = f"{path}:{line_number}"
            if len(values) != len(header):
                raise _wrong_length(spec, header, values, "comma", where)
            row = dict(zip(header, values, strict=True))
            yield choice_row(
                spec,
                id=str(number),
                text_a=row["sent1"],
                choices=[f"{row['sent2']} {row[ending]}".strip() if row[ending].strip() else "" for ending in ENDINGS],
                label=row["label"] if labelled else None,
                where=where,
            )


def _check_header(spec: TaskSpec, path: Path, header: Sequence[str], wanted: Sequence[str], next_step: str) -> None:
    if missing := [name for name in wanted if name not in header]:
        raise DataError(
            f"{spec.name}: no column {', '.join(map(repr, missing))} in the header {shown(header)}",
            where=f"{path}:1",
            next_step=next_step,
        )


def _wrong_length(
    spec: TaskSpec, header: Sequence[str], values: Sequence[str], separator: str, where: str
) -> DataError:
    return DataError(
        f"{spec.name}: expected {len(header)} {separator}-separated columns, found {len(values)}",
        where=where,
        next_step="repair the row; the columns are " + ", ".join(header),
    )
