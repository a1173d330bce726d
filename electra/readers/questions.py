"""Readers of the MRQA 2019 shared task's question files (Fisch et al. 2019) and SWAG's tables (Zellers et al. 2018)."""

import gzip
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

from electra.common.errors import DataError
from electra.common.lines import csv_records, open_input, text_lines
from electra.common.parsing import is_text, parse_json, shown
from electra.tasks.catalogue import TaskSpec
from electra.tasks.format import Row, choice_row, question_row


def read_mrqa(spec: TaskSpec, path: Path, counts: Counter[str]) -> Iterator[Row]:
    """Yield questions in file order; one context is in memory at a time.

    ``answers`` has the first span of each detected answer; training uses the first answer. Predictions are compared
    with ``references``, all answers of the question, as in the task's official script.

    Raises:
        DataError: the first line is not a header, a line is not JSON or lacks a field, or a span exceeds its context;
            names file and line.
    """
    seen: set[str] = set()
    with _opened(path) as file:
        try:
            for line_number, line in text_lines(file, str(path)):
                where = f"{path}:{line_number}"
                record = _parse(spec, line, where)
                if line_number == 1:
                    if "header" not in record:
                        raise DataError(f"{spec.name}: the first line is no MRQA header", where=where)
                    continue
                questions = record.get("qas") or []
                if not isinstance(questions, list):
                    raise DataError(f"{spec.name}: `qas` is no list", where=where)
                for q, item in enumerate(questions):
                    row = _question(spec, record, item, f"{where}: qas[{q}]", counts)
                    if row["id"] in seen:
                        raise DataError(f"{spec.name}: question id {row['id']} stands twice", where=where)
                    seen.add(row["id"])
                    yield row
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise DataError(
                f"{spec.name}: the file is damaged: {error}", where=str(path), next_step="fetch it again"
            ) from None


def _opened(path: Path) -> BinaryIO:
    return cast(BinaryIO, gzip.open(path)) if path.suffix == ".gz" else open_input(path)


def _parse(spec: TaskSpec, line: str, where: str) -> dict[str, Any]:
    record = parse_json(line, where=where, what=f"{spec.name}: ")
    if not isinstance(record, dict):
        raise DataError(f"{spec.name}: expected an object with context and qas", where=where)
    return record


def _question(spec: TaskSpec, record: dict[str, Any], item: Any, where: str, counts: Counter[str]) -> Row:
    try:
        context = str(record["context"])
        # Ends are inclusive. The answer is taken from the context, because `text` may differ in case and spaces.
        spans = [answer["char_spans"][0] for answer in item["detected_answers"]]
        answers = [(context[int(first) : int(last) + 1], int(first)) for first, last in spans]
        references = [str(answer) for answer in item["answers"]]
        id, question = str(item["qid"]), str(item["question"])
    except (KeyError, IndexError, TypeError, ValueError, OverflowError) as error:
        raise DataError(
            f"{spec.name}: a question needs qid, question, answers and detected_answers with char_spans: {error!r}",
            where=where,
        ) from None
    if not all(map(is_text, references)):
        raise DataError(f"{spec.name}: an answer holds half of a surrogate pair, which is no character", where=where)
    row = question_row(
        spec,
        id=id,
        question=question,
        context=context,
        answers=answers,
        impossible=False,
        where=where,
        counts=counts,
    )
    return {**row, "references": references}


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
        if missing := [name for name in wanted if name not in header]:
            raise DataError(
                f"{spec.name}: no column {', '.join(map(repr, missing))} in the header {shown(header)}",
                where=f"{path}:1",
                next_step="use the file as SWAG distributes it, not train_full.csv or val_full.csv",
            )
        for number, (line_number, values) in enumerate(records):
            where = f"{path}:{line_number}"
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
