"""Question files: SQuAD's JSON, and the JSON lines of the MRQA 2019 shared task (Fisch et al. 2019)."""

import gzip
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

from electra.common.errors import DataError
from electra.common.lines import open_input, text_lines
from electra.common.parsing import is_text, parse_json
from electra.tasks.catalogue import TaskSpec
from electra.tasks.format import Row, question_row


def read_questions(spec: TaskSpec, path: Path, counts: Counter[str]) -> Iterator[Row]:
    """Yield the rows of a SQuAD file, in file order.

    Raises:
        DataError: as :func:`squad_items`; a question is malformed or an id occurs twice, with its place.
    """
    items = squad_items(spec, path)
    return _unique(spec, ((_squad_question(spec, *found, counts), found[-1]) for found in items))


def read_mrqa(spec: TaskSpec, path: Path, counts: Counter[str]) -> Iterator[Row]:
    """Yield questions in file order; one context is in memory at a time.

    ``answers`` has the first span of each detected answer; training uses the first answer. Predictions are compared
    with ``references``, all answers of the question, as in the task's official script.

    Raises:
        DataError: the first line is not a header, a line is not JSON or lacks a field, a span exceeds its context, or
            an id occurs twice; names file and line.
    """
    items = _mrqa_items(spec, path)
    return _unique(spec, ((_mrqa_question(spec, *found, counts), found[-1]) for found in items))


def _unique(spec: TaskSpec, rows: Iterable[tuple[Row, str]]) -> Iterator[Row]:
    seen: set[str] = set()
    for row, where in rows:
        if row["id"] in seen:
            raise DataError(f"{spec.name}: question id {row['id']} occurs twice", where=where)
        seen.add(row["id"])
        yield row


def squad_items(spec: TaskSpec, path: Path) -> Iterator[tuple[Any, Any, str]]:
    """Yield (paragraph, question, place) of every question of a SQuAD file, unchecked.

    Raises:
        DataError: the file is not JSON, or lacks one of the lists of a SQuAD file.
    """
    content = parse_json(path.read_bytes(), where=str(path), what=f"{spec.name}: ")
    articles = content.get("data") if isinstance(content, dict) else None
    if not isinstance(articles, list):
        raise DataError(f"{spec.name}: no list `data`; not a SQuAD file", where=str(path))
    for a, article in enumerate(articles):
        for p, paragraph in enumerate(_list(article, "paragraphs", spec, f"{path}: data[{a}]")):
            where = f"{path}: data[{a}].paragraphs[{p}]"
            for q, item in enumerate(_list(paragraph, "qas", spec, where)):
                yield paragraph, item, f"{where}.qas[{q}]"


def _list(holder: Any, key: str, spec: TaskSpec, where: str) -> list[Any]:
    if not isinstance(holder, dict) or not isinstance(holder.get(key), list):
        raise DataError(f"{spec.name}: expected a list `{key}`", where=where)
    return holder[key]


def _squad_question(spec: TaskSpec, paragraph: Any, item: Any, where: str, counts: Counter[str]) -> Row:
    try:
        return question_row(
            spec,
            id=str(item["id"]),
            question=str(item["question"]),
            context=str(paragraph["context"]),
            answers=[(str(answer["text"]), int(answer["answer_start"])) for answer in item["answers"]],
            impossible=bool(item.get("is_impossible", False)),
            where=where,
            counts=counts,
        )
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise DataError(
            f"{spec.name}: a question needs id, question and answers with text and answer_start: {error!r}",
            where=where,
        ) from None


def _mrqa_items(spec: TaskSpec, path: Path) -> Iterator[tuple[dict[str, Any], Any, str]]:
    """Yield (record with the context, question, place) of every question of a file, unchecked."""
    with cast(BinaryIO, gzip.open(path)) if path.suffix == ".gz" else open_input(path) as file:
        try:
            for line_number, line in text_lines(file, str(path)):
                where = f"{path}:{line_number}"
                record = parse_json(line, where=where, what=f"{spec.name}: ")
                if not isinstance(record, dict):
                    raise DataError(f"{spec.name}: expected an object with context and qas", where=where)
                if line_number == 1:
                    if "header" not in record:
                        raise DataError(f"{spec.name}: the first line is no MRQA header", where=where)
                    continue
                questions = record.get("qas") or []
                if not isinstance(questions, list):
                    raise DataError(f"{spec.name}: `qas` is no list", where=where)
                for q, item in enumerate(questions):
                    yield record, item, f"{where}: qas[{q}]"
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise DataError(
                f"{spec.name}: the file is damaged: {error}", where=str(path), next_step="fetch it again"
            ) from None


def _mrqa_question(spec: TaskSpec, record: dict[str, Any], item: Any, where: str, counts: Counter[str]) -> Row:
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
