"""One line of a task file: what it holds and which rules it breaks."""

import json
from typing import Any

from electra.artifacts import NOT_JSON
from electra.finetune.tasks import Kind, TaskSpec

OK = "ok"
Keys = dict[str, type | tuple[type, ...]]
_SENTENCE: Keys = {"id": str, "text_a": str, "text_b": (str, type(None)), "label": (str, float, int, type(None))}
_KEYS: dict[Kind, Keys] = {
    "classification": _SENTENCE,
    "regression": _SENTENCE,
    "span": {"id": str, "question": str, "context": str, "answers": list, "impossible": bool},
    "tagging": {"id": str, "words": list, "tags": (list, type(None))},
    "multiple_choice": {"id": str, "text_a": str, "choices": list, "label": (str, type(None))},
}
_OPTIONAL_KEYS: Keys = {"references": list}  # of spans: answers that count, wherever they stand
_COLUMNS = ["record", "id", "begins", "text_missing"]
_LABEL_COLUMNS = [*_COLUMNS, "label", "label_missing"]
COLUMNS: dict[Kind, list[str]] = {
    "classification": _LABEL_COLUMNS,
    "regression": _LABEL_COLUMNS,
    "span": [*_COLUMNS, "answers_fit", "answer_at_start", "found"],
    "tagging": [*_COLUMNS, "tags_missing", "unknown_tag"],
    "multiple_choice": _LABEL_COLUMNS,
}
_TEXT_KEYS: dict[Kind, tuple[str, ...]] = {  # what must not be both in train and dev
    "classification": ("text_a", "text_b"),
    "regression": ("text_a", "text_b"),
    "span": ("context",),
    "tagging": ("words",),
    "multiple_choice": ("text_a", "choices"),
}


def parse(line: str, spec: TaskSpec) -> tuple[dict[str, Any], str]:
    """The record and ``ok``, or an empty record and a complaint."""
    expected = _KEYS[spec.kind]
    try:
        record = json.loads(line)
    except NOT_JSON as error:
        return {}, f"not JSON: {error}"
    optional = _OPTIONAL_KEYS if spec.kind == "span" else {}
    if not isinstance(record, dict) or set(record) - set(optional) != set(expected):
        return {}, f"keys must be {', '.join(expected)}"
    for key, types in {**expected, **optional}.items():
        if key in record and not isinstance(record[key], types):
            return {}, f"{key} is a {type(record[key]).__name__}"
    if spec.kind == "span" and not all(_is_answer(answer) for answer in record["answers"]):
        return {}, "answers must be {text, start}"
    lists = {"tagging": ("words", "tags"), "multiple_choice": ("choices",)}.get(spec.kind, ())
    if not all(isinstance(item, str) for key in lists for item in record[key] or []):
        return {}, f"{' and '.join(lists)} must be lists of strings"
    return record, OK


def text_of(record: dict[str, Any], spec: TaskSpec) -> str:
    """What makes two records the same example."""
    parts = [record[key] or "" for key in _TEXT_KEYS[spec.kind]]
    return "\x1f".join(" ".join(part) if isinstance(part, list) else part for part in parts)


def describe(record: dict[str, Any], spec: TaskSpec, labelled: bool) -> dict[str, Any]:
    """The columns of a record, by the task's kind.

    Args:
        labelled: the split must have labels (train and dev).
    """
    if spec.kind == "span":
        return describe_span(record, labelled)
    if spec.kind == "tagging":
        return describe_tagged(record, spec, labelled)
    return describe_sentences(record, spec, labelled)


def describe_sentences(record: dict[str, Any], spec: TaskSpec, labelled: bool) -> dict[str, Any]:
    """Columns of a classification, regression or multiple-choice record."""
    texts = [record["text_a"]] if spec.text_b is None else [record["text_a"], record["text_b"]]
    if spec.kind == "multiple_choice":
        # Too few or too many choices count as a missing text: the label would mean another choice.
        texts = [record["text_a"], *record["choices"], *([""] if len(record["choices"]) != len(spec.labels) else [])]
    return {
        "id": record["id"],
        "begins": record["text_a"][:40],
        "label": record["label"] if labelled else None,
        "label_missing": labelled and record["label"] is None,
        "text_missing": not all(text and text.strip() for text in texts),
    }


def describe_tagged(record: dict[str, Any], spec: TaskSpec, labelled: bool) -> dict[str, Any]:
    """Columns of a tagged sentence; ``unknown_tag`` is the first that the task does not have."""
    words, tags = record["words"], record["tags"] or []
    return {
        "id": record["id"],
        "begins": " ".join(words)[:40],
        "text_missing": not words or not all(word.strip() for word in words),
        "tags_missing": len(words) - len(tags) if labelled or tags else 0,
        "unknown_tag": next((tag for tag in tags if tag not in spec.row_tags), ""),
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
