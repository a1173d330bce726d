"""Inputs and outputs of `electra predict` for each kind of task. A new kind needs one entry in ``KINDS``."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import Tensor

from electra.common.errors import ConfigError
from electra.finetune.run import decode_spans, predict_rows
from electra.finetune.saved import SavedModel
from electra.finetune.spans import best_answers, span_features
from electra.finetune.tagging import tag_predictions, tagging_features
from electra.finetune.trainer import predict
from electra.predict.inputs import text_of, words_of
from electra.tasks.catalogue import TaskSpec
from electra.tasks.rows import Row

Record = dict[str, Any]


@dataclass(frozen=True)
class PredictKind:
    """One kind of task.

    Attributes:
        fields: the texts that a row must have; ``choices.0`` is the first of a list ``choices``.
        records: a saved model, rows, examples per batch and whether matrix products are in bf16 -> one record per row.
        window: rows that are sorted by length together and kept in memory.
        value: what a field of the input is as a value of a row; None where it is nothing.
    """

    fields: Callable[[TaskSpec], tuple[str, ...]]
    records: Callable[[SavedModel, list[Row], int, bool], list[Record]]
    window: int
    value: Callable[[Any], Any | None] = text_of


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


def _tags(saved: SavedModel, rows: list[Row], batch_size: int, bf16: bool) -> list[Record]:
    options, spec = saved.options, saved.spec
    unlabelled = [{**row, "tags": None} for row in rows]
    max_length = options.tagging_max_length or options.max_length
    features = tagging_features(spec, unlabelled, saved.vocabulary, max_length)
    found = predict(saved.model, features, batch_size, _most_probable, pad=saved.vocabulary.pad, bf16=bf16)
    tagged = tag_predictions(spec, unlabelled, features, [classes for classes, _ in found])
    records = []
    for row, feature, prediction, (_, probabilities) in zip(rows, features, tagged, found, strict=True):
        beyond: list[None] = [None] * (len(row["words"]) - len(feature.positions))
        records.append(
            {
                "id": row["id"],
                "words": row["words"],
                "tags": [*prediction["tags"][: len(feature.positions)], *beyond],
                "probabilities": [*(_rounded(probabilities[position]) for position in feature.positions), *beyond],
            }
        )
    return records


def _most_probable(logits_BTC: Tensor) -> list[tuple[list[int], list[float]]]:
    """Per example the best class of each token and its probability."""
    values_BT, classes_BT = logits_BTC.float().softmax(-1).max(-1)
    return list(zip(classes_BT.tolist(), values_BT.tolist(), strict=True))


def _choice_fields(spec: TaskSpec) -> tuple[str, ...]:
    return ("text_a", *(f"choices.{number}" for number in range(len(spec.labels))))


def _choices(saved: SavedModel, rows: list[Row], batch_size: int, bf16: bool) -> list[Record]:
    _, *fields = _choice_fields(saved.spec)
    gathered = [{**row, "choices": [row[field] for field in fields]} for row in rows]
    records = []
    for row, record in zip(gathered, _sentences(saved, gathered, batch_size, bf16), strict=True):
        chosen = row["choices"][saved.spec.labels.index(record["label"])]
        records.append({"id": row["id"], "label": record["label"], "choice": chosen, **record})
    return records


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")


KINDS: dict[str, PredictKind] = {
    "classification": PredictKind(_texts, _sentences, window=4096),
    "regression": PredictKind(_texts, _sentences, window=4096),
    "span": PredictKind(lambda _: ("question", "context"), _answers, window=512),
    "tagging": PredictKind(lambda _: ("words",), _tags, window=4096, value=words_of),
    "multiple_choice": PredictKind(_choice_fields, _choices, window=1024),
}
