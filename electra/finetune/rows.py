"""One row of a task in the project's own format, checked while it is built. Both readers use these functions."""

from collections import Counter
from typing import Any

from electra.errors import DataError
from electra.finetune.tasks import TaskSpec

Row = dict[str, Any]


def sentence_row(spec: TaskSpec, id: str, text_a: str, text_b: str | None, label: str | None, where: str) -> Row:
    """A classification or regression row; ``label`` is None where the split has no labels.

    Raises:
        DataError: an empty text, a label outside the label set, a score outside 0..5.
    """
    for text in (text_a, text_b):
        if text is not None and not text.strip():
            raise DataError(f"{spec.name}: a text is empty", where=where, next_step="remove or repair the row")
    return {"id": id, "text_a": text_a, "text_b": text_b, "label": _checked_label(spec, label, where)}


def _checked_label(spec: TaskSpec, label: str | None, where: str) -> str | float | None:
    if label is None:
        return None
    if spec.kind == "regression":
        try:
            score = float(label)
        except ValueError:
            score = float("nan")
        if not 0 <= score <= 5:
            raise DataError(f"{spec.name}: score {label!r} is not a number in 0..5", where=where)
        return score
    if label not in spec.labels:
        raise DataError(
            f"{spec.name}: label {label!r} is not one of {', '.join(spec.labels)}",
            where=where,
            next_step="repair the row; a label in the wrong column often means a tab too many",
        )
    return label


def question_row(
    spec: TaskSpec,
    id: str,
    question: str,
    context: str,
    answers: list[tuple[str, int]],
    impossible: bool,
    where: str,
    counts: Counter[str],
) -> Row:
    """A SQuAD row; answers are (text, character offset).

    An offset that points elsewhere is moved to the nearest occurrence of the answer's text and counted in
    ``counts["offsets_repaired"]``.

    Raises:
        DataError: an answer that does not occur in the context, or answers that contradict ``impossible``.
    """
    if impossible and not spec.has_unanswerable:
        raise DataError(f"{spec.name}: question {id} is marked impossible; {spec.name} has none such", where=where)
    if not impossible and not answers:
        raise DataError(f"{spec.name}: question {id} has no answer", where=where)
    found = []
    for text, offset in [] if impossible else answers:
        start = nearest_occurrence(context, text, offset) if text else None
        if start is None:
            raise DataError(
                f"{spec.name}: the answer {text!r} of question {id} does not occur in its context",
                where=where,
                next_step="repair the answer's text, or remove the question",
            )
        counts["offsets_repaired"] += start != offset
        found.append({"text": text, "start": start})
    return {"id": id, "question": question, "context": context, "answers": found, "impossible": impossible}


def nearest_occurrence(context: str, text: str, offset: int) -> int | None:
    """Where ``text`` occurs closest to ``offset`` (the earlier on a tie); None where it does not occur."""
    if offset >= 0 and context.startswith(text, offset):
        return offset
    starts = []
    start = context.find(text)
    while start >= 0:
        starts.append(start)
        start = context.find(text, start + 1)
    return min(starts, key=lambda start: abs(start - offset), default=None)
