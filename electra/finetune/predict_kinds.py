"""What `electra predict` reads and writes for each kind of task. A new kind needs one entry in ``KINDS``."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from electra.errors import ConfigError
from electra.finetune.rows import Row
from electra.finetune.run import decode_spans, predict_rows
from electra.finetune.saved import SavedModel
from electra.finetune.spans import best_answers
from electra.finetune.tasks import TaskSpec
from electra.finetune.trainer import predict
from electra.finetune.windows import span_features

Record = dict[str, Any]


@dataclass(frozen=True)
class PredictKind:
    """One kind of task.

    Attributes:
        fields: the texts that a row must have.
        records: a saved model, rows, examples per batch and whether matrix products are in bf16 -> one record per row.
        window: rows that are sorted by length together and kept in memory.
    """

    fields: Callable[[TaskSpec], tuple[str, ...]]
    records: Callable[[SavedModel, list[Row], int, bool], list[Record]]
    window: int


def kind_of(spec: TaskSpec) -> PredictKind:
    """How a task is predicted.

    Raises:
        ConfigError: tasks of its kind cannot be.
    """
    if spec.kind not in KINDS:
        raise ConfigError(f"{spec.name}: tasks of kind {spec.kind} cannot be predicted from a file")
    return KINDS[spec.kind]


def _texts(spec: TaskSpec) -> tuple[str, ...]:
    return ("text_a", "text_b") if spec.text_b else ("text_a",)


def _sentences(saved: SavedModel, rows: list[Row], batch_size: int, bf16: bool) -> list[Record]:
    unlabelled = [{**row, "label": None} for row in rows]
    found = predict_rows(
        saved.options, saved.spec, saved.model, unlabelled, saved.vocabulary, bf16, batch_size=batch_size
    )
    return [_record(saved.spec, prediction) for prediction in found]


def _record(spec: TaskSpec, prediction: dict[str, Any]) -> Record:
    if "logits" not in prediction:
        return prediction
    logits = prediction["logits"]
    shares = [math.exp(logit - max(logits)) for logit in logits]
    probabilities = {label: _rounded(s / sum(shares)) for label, s in zip(spec.labels, shares, strict=True)}
    return {"id": prediction["id"], "label": prediction["label"], "probabilities": probabilities}


def _answers(saved: SavedModel, rows: list[Row], batch_size: int, bf16: bool) -> list[Record]:
    unlabelled = [{**row, "answers": [], "impossible": True} for row in rows]
    features = span_features(unlabelled, saved.vocabulary, saved.options)
    spans = predict(
        saved.model,
        features,
        batch_size,
        partial(decode_spans, saved.options),
        pad=saved.vocabulary.pad,
        bf16=bf16,
    )
    records = []
    for row, answer in zip(rows, best_answers(unlabelled, features, spans), strict=True):
        is_given = bool(answer.text) and not (saved.spec.has_unanswerable and answer.null_score > 0)
        record: Record = {
            "id": row["id"],
            "answer": answer.text if is_given else None,
            "start": answer.start if is_given else None,
            "probability": _rounded(math.exp(answer.score)),
        }
        if saved.spec.has_unanswerable:
            record["no_answer_probability"] = _rounded((1 + math.tanh(answer.null_score / 2)) / 2)
        records.append(record)
    return records


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")


KINDS: dict[str, PredictKind] = {
    "classification": PredictKind(_texts, _sentences, window=4096),
    "regression": PredictKind(_texts, _sentences, window=4096),
    "span": PredictKind(lambda _: ("question", "context"), _answers, window=512),
}
