"""SWAG (Zellers et al. 2018) in its official layout: ``{train,val,test}.csv`` of a situation and four endings."""

import csv
from collections.abc import Iterator
from pathlib import Path

from electra.errors import DataError
from electra.finetune.rows import Row, choice_row
from electra.finetune.tasks import TaskSpec

ENDINGS = ("ending0", "ending1", "ending2", "ending3")


def read_swag(spec: TaskSpec, path: Path, labelled: bool) -> Iterator[Row]:
    """Rows in file order: the text is the first sentence, a choice is the second's beginning with one ending.

    Raises:
        DataError: a missing column, a row with another number of values, a label other than 0 to 3; with file and line.
    """
    wanted = ["sent1", "sent2", *ENDINGS, *(["label"] if labelled else [])]
    with open(path, encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file)
        header = next(reader, [])
        if missing := [name for name in wanted if name not in header]:
            raise DataError(
                f"{spec.name}: no column {', '.join(map(repr, missing))} in the header {header}",
                where=f"{path}:1",
                next_step="use the file as SWAG distributes it, not train_full.csv or val_full.csv",
            )
        for number, values in enumerate(reader):
            where = f"{path}:{reader.line_num}"
            if len(values) != len(header):
                raise DataError(
                    f"{spec.name}: expected {len(header)} comma-separated columns, found {len(values)}",
                    where=where,
                    next_step="repair the row; the columns are " + ", ".join(header),
                )
            row = dict(zip(header, values, strict=True))
            yield choice_row(
                spec,
                id=str(number),
                text_a=row["sent1"],
                choices=[f"{row['sent2']} {row[ending]}".strip() if row[ending].strip() else "" for ending in ENDINGS],
                label=row["label"] if labelled else None,
                where=where,
            )
