"""One row of a task in the project's own format, checked while it is built. Both readers use these functions."""

from collections import Counter
from typing import Any

from electra.common.errors import DataError
from electra.common.parsing import is_text
from electra.tasks.catalogue import TaskSpec
from electra.tasks.tag_schemes import entities, iob2

Row = dict[str, Any]


def sentence_row(spec: TaskSpec, id: str, text_a: str, text_b: str | None, label: str | None, where: str) -> Row:
    """A classification or regression row; ``label`` is None where the split has no labels.

    Raises:
        DataError: an empty text, a label outside the label set, a score outside the task's range.
    """
    _check_texts(spec, [text_a] if text_b is None else [text_a, text_b], where)
    _check_characters(spec, [id], where)
    return {"id": id, "text_a": text_a, "text_b": text_b, "label": _checked_label(spec, label, where)}


def choice_row(spec: TaskSpec, id: str, text_a: str, choices: list[str], label: str | None, where: str) -> Row:
    """A multiple-choice row; the label is the number of the right choice, from 0, as a string.

    Raises:
        DataError: an empty text or choice, a label that is no choice's number.
    """
    _check_texts(spec, [text_a, *choices], where)
    _check_characters(spec, [id], where)
    return {"id": id, "text_a": text_a, "choices": choices, "label": _checked_label(spec, label, where)}


def tagged_row(spec: TaskSpec, id: str, words: list[str], tags: list[str] | None, where: str) -> Row:
    """A tagging row, entities in IOB2; ``tags`` is None where the split has none.

    Raises:
        DataError: no words, an empty word, another number of tags than words, a tag the task does not have.
    """
    if not words or not all(word.strip() for word in words):
        raise DataError(f"{spec.name}: a word is empty", where=where, next_step="remove or repair the row")
    _check_characters(spec, [id, *words], where)
    if tags is None:
        return {"id": id, "words": words, "tags": None}
    if len(words) != len(tags):
        raise DataError(
            f"{spec.name}: {len(words)} words and {len(tags)} tags", where=where, next_step="repair the row"
        )
    if unknown := [tag for tag in tags if tag not in spec.labels]:
        raise DataError(
            f"{spec.name}: tag {unknown[0]!r} is not one of {', '.join(spec.labels)}",
            where=where,
            next_step="repair the row",
        )
    return {"id": id, "words": words, "tags": iob2(entities(tags), len(tags)) if spec.has_entities else tags}


def _check_texts(spec: TaskSpec, texts: list[str], where: str) -> None:
    if not all(text.strip() for text in texts):
        raise DataError(f"{spec.name}: a text is empty", where=where, next_step="remove or repair the row")
    _check_characters(spec, texts, where)


def _check_characters(spec: TaskSpec, texts: list[str], where: str) -> None:
    if not all(map(is_text, texts)):
        raise DataError(
            f"{spec.name}: a text holds half of a surrogate pair, which is no character",
            where=where,
            next_step="write the text again with whole characters, or remove the row",
        )


def _checked_label(spec: TaskSpec, label: str | None, where: str) -> str | float | None:
    if label is None:
        return None
    if spec.kind == "regression":
        try:
            score = float(label)
        except ValueError:
            score = float("nan")
        low, high = spec.score_range
        if not low <= score <= high:
            raise DataError(f"{spec.name}: score {label!r} is not a number in {low:g}..{high:g}", where=where)
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
    _check_characters(spec, [id, question, context], where)
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
