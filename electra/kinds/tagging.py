"""Tags of words: rows, entity scores as conlleval computes them, and how predictions are written."""

from collections.abc import Sequence
from typing import Any

from electra.kinds.base import Prediction, Rule, TaskKind, most_frequent
from electra.tasks.catalogue import TaskSpec
from electra.tasks.format import Row, entities


class Tagging(TaskKind):
    """One tag per word."""

    keys = {"id": str, "words": list, "tags": (list, type(None))}
    lists = ("words", "tags")
    example_keys = ("words",)
    checked = ("tags_missing", "unknown_tag")
    outside_format = "columns"
    transformers_class = "ForTokenClassification"
    pipeline = "token-classification"

    def columns(self, spec: TaskSpec, record: Row, labelled: bool) -> dict[str, Any]:
        """``unknown_tag`` is the first tag that the task does not have."""
        words, tags = record["words"], record["tags"] or []
        return {
            "begins": " ".join(words)[:40],
            "text_missing": not words or not all(word.strip() for word in words),
            "tags_missing": len(words) - len(tags) if labelled or tags else 0,
            "unknown_tag": next((tag for tag in tags if tag not in spec.row_tags), ""),
        }

    def rules(self, spec: TaskSpec) -> list[Rule]:
        return [
            Rule("unknown_tag", f"tags are {', '.join(spec.row_tags)}", values=("",)),
            Rule("tags_missing", "every word of train and dev has a tag", values=(0,)),
        ]

    def scores(self, spec: TaskSpec, rows: list[Row], predictions: list[Prediction]) -> dict[str, float]:
        gold, predicted = [row["tags"] for row in rows], [prediction["tags"] for prediction in predictions]
        return entity_scores(gold, predicted) if spec.has_entities else {"accuracy": word_accuracy(gold, predicted)}

    def constant(self, spec: TaskSpec, rows: list[Row]) -> list[Prediction]:
        """Predict no entity; if every word has a tag, the most frequent one."""
        tag = "O" if spec.has_entities else most_frequent(tag for row in rows for tag in row["tags"])
        return [{"id": row["id"], "tags": [tag] * len(row["words"])} for row in rows]

    def is_constant(self, spec: TaskSpec, predictions: list[Prediction]) -> bool:
        return len({tag for prediction in predictions for tag in prediction["tags"]}) <= 1

    def correct(self, spec: TaskSpec, rows: list[Row], predictions: list[Prediction]) -> list[float] | None:
        """Return 1 for each sentence whose tags are all correct."""
        return [float(row["tags"] == found["tags"]) for row, found in zip(rows, predictions, strict=True)]

    def shown_gold(self, row: Row) -> str:
        return " ".join(row["tags"])

    def shown(self, prediction: Prediction) -> str:
        return " ".join(prediction["tags"])


def entity_scores(golds: Sequence[Sequence[str]], predictions: Sequence[Sequence[str]]) -> dict[str, float]:
    """Return entity F1, precision and recall over all sentences; an entity is correct if both ends and its type are.

    Ratios without a denominator are 0, as in ``conlleval``: precision without a predicted entity, recall without a
    reference entity.

    Args:
        golds: tags per sentence, in any scheme of :mod:`electra.tasks.format`.
        predictions: tags of the same lengths; their scheme may differ.
    """
    num_gold = num_predicted = num_correct = 0
    for gold, predicted in zip(golds, predictions, strict=True):
        if len(gold) != len(predicted):
            raise ValueError(f"{len(predicted)} predicted tags for {len(gold)} words")
        reference, found = set(entities(gold)), set(entities(predicted))
        num_gold += len(reference)
        num_predicted += len(found)
        num_correct += len(reference & found)
    return {
        "f1": 2 * num_correct / (num_gold + num_predicted) if num_correct else 0.0,
        "precision": num_correct / num_predicted if num_predicted else 0.0,
        "recall": num_correct / num_gold if num_gold else 0.0,
    }


def word_accuracy(golds: Sequence[Sequence[str]], predictions: Sequence[Sequence[str]]) -> float:
    """Return the share of words with the correct tag."""
    pairs = [
        pair for gold, predicted in zip(golds, predictions, strict=True) for pair in zip(gold, predicted, strict=True)
    ]
    return sum(gold == predicted for gold, predicted in pairs) / len(pairs)
