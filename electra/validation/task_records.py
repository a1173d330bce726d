"""One line of a task file: what it holds and which rules it breaks."""

import json
from typing import Any

from electra.finetune.tasks import TaskSpec

OK = "ok"
Keys = dict[str, type | tuple[type, ...]]
SENTENCE_KEYS: Keys = {"id": str, "text_a": str, "text_b": (str, type(None)), "label": (str, float, int, type(None))}
SPAN_KEYS: Keys = {"id": str, "question": str, "context": str, "answers": list, "impossible": bool}
SENTENCE_COLUMNS = ["record", "id", "begins", "label", "label_missing", "text_missing"]
SPAN_COLUMNS = ["record", "id", "begins", "text_missing", "answers_fit", "answer_at_start", "found"]
TEXT_KEYS = {True: ("context",), False: ("text_a", "text_b")}  # what must not be both in train and dev


def parse(line: str, spec: TaskSpec) -> tuple[dict[str, Any], str]:
    """The record and ``ok``, or an empty record and a complaint."""
    expected = SPAN_KEYS if spec.kind == "span" else SENTENCE_KEYS
    try:
        record = json.loads(line)
    except json.JSONDecodeError as error:
        return {}, f"not JSON: {error.msg} at column {error.colno}"
    if not isinstance(record, dict) or set(record) != set(expected):
        return {}, f"keys must be {', '.join(expected)}"
    for key, types in expected.items():
        if not isinstance(record[key], types):
            return {}, f"{key} is a {type(record[key]).__name__}"
    if spec.kind == "span" and not all(_is_answer(answer) for answer in record["answers"]):
        return {}, "answers must be {text, start}"
    return record, OK


def describe_sentences(record: dict[str, Any], spec: TaskSpec, labelled: bool) -> dict[str, Any]:
    """Columns of a classification or regression record.

    Args:
        labelled: the split must have labels (train and dev).
    """
    texts = [record["text_a"]] if spec.text_b is None else [record["text_a"], record["text_b"]]
    return {
        "id": record["id"],
        "begins": record["text_a"][:40],
        "label": record["label"] if labelled else None,
        "label_missing": labelled and record["label"] is None,
        "text_missing": not all(text and text.strip() for text in texts),
    }


def describe_span(record: dict[str, Any], labelled: bool) -> dict[str, Any]:
    """Columns of a question with its context; ``found`` is what stands where the first misplaced answer should."""
    answers, context = record["answers"], record["context"]
    misplaced = [a for a in answers if not a["text"] or context[a["start"] : a["start"] + len(a["text"])] != a["text"]]
    found = ""
    if misplaced:
        text, start = misplaced[0]["text"], misplaced[0]["start"]
        found = f"{context[start : start + len(text)][:40]!r} for the answer {text[:40]!r} at {start}"
    return {
        "id": record["id"],
        "begins": record["question"][:40],
        "text_missing": not (record["question"].strip() and context.strip()),
        "answers_fit": not labelled or bool(answers) != record["impossible"],
        "answer_at_start": not misplaced,
        "found": found,
    }


def _is_answer(answer: Any) -> bool:
    if not isinstance(answer, dict) or set(answer) != {"text", "start"}:
        return False
    return isinstance(answer["text"], str) and isinstance(answer["start"], int) and answer["start"] >= 0
