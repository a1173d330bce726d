"""Files of the MRQA 2019 shared task (Fisch et al. 2019): a header line, then a line per context with its questions."""

import gzip
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, cast

from electra.artifacts import NOT_JSON
from electra.errors import DataError
from electra.finetune.rows import Row, question_row
from electra.finetune.tasks import TaskSpec


def mrqa_file(folder: Path, name: str) -> Path:
    """``name`` (``train/NewsQA.jsonl``) as it is there: plain, or compressed as the shared task distributes it."""
    plain = folder / name
    return plain if plain.is_file() else plain.with_name(plain.name + ".gz")


def read_mrqa(spec: TaskSpec, path: Path, counts: Counter[str]) -> Iterator[Row]:
    """Questions in file order; one context is in memory at a time.

    Answers are the first span of each detected answer, so the first of all is the one that is learned. Predictions
    are compared with ``references``, all answers of the question, as the task's own script does.

    Raises:
        DataError: the first line is no header, a line is not JSON or lacks a field, a span leaves its context; with
            file and line.
    """
    seen: set[str] = set()
    with _opened(path) as file:
        try:
            for line_number, line in enumerate(file, start=1):
                where = f"{path}:{line_number}"
                record = _parse(spec, line, where)
                if line_number == 1:
                    if "header" not in record:
                        raise DataError(f"{spec.name}: the first line is no MRQA header", where=where)
                    continue
                for q, item in enumerate(record.get("qas") or []):
                    row = _question(spec, record, item, f"{where}: qas[{q}]", counts)
                    if row["id"] in seen:
                        raise DataError(f"{spec.name}: question id {row['id']} stands twice", where=where)
                    seen.add(row["id"])
                    yield row
        except (EOFError, gzip.BadGzipFile) as error:
            raise DataError(
                f"{spec.name}: the file is damaged: {error}", where=str(path), next_step="fetch it again"
            ) from None


def _opened(path: Path) -> IO[str]:
    if path.suffix == ".gz":
        return cast(IO[str], gzip.open(path, "rt", encoding="utf-8", newline="\n"))
    return open(path, encoding="utf-8", newline="\n")


def _parse(spec: TaskSpec, line: str, where: str) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except NOT_JSON as error:
        raise DataError(f"{spec.name}: not valid JSON: {error}", where=where) from None
    if not isinstance(record, dict):
        raise DataError(f"{spec.name}: expected an object with context and qas", where=where)
    return record


def _question(spec: TaskSpec, record: dict[str, Any], item: Any, where: str, counts: Counter[str]) -> Row:
    try:
        context = str(record["context"])
        # Ends are inclusive. The text is cut from the context: `text` may differ from it in case and spaces.
        spans = [answer["char_spans"][0] for answer in item["detected_answers"]]
        answers = [(context[int(first) : int(last) + 1], int(first)) for first, last in spans]
        references = [str(answer) for answer in item["answers"]]
        id, question = str(item["qid"]), str(item["question"])
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise DataError(
            f"{spec.name}: a question needs qid, question, answers and detected_answers with char_spans: {error!r}",
            where=where,
        ) from None
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
