"""Entity-level precision, recall and F1 as the script ``conlleval`` of the CoNLL shared tasks counts them."""

from collections.abc import Sequence

from electra.finetune.tag_schemes import entities


def entity_scores(golds: Sequence[Sequence[str]], predictions: Sequence[Sequence[str]]) -> dict[str, float]:
    """Fractions over all entities of all sentences; an entity is right where both ends and the type are.

    What has no denominator is 0, as in ``conlleval``: precision without a predicted entity, recall without a
    reference entity.

    Args:
        golds: tags per sentence, in any scheme of :mod:`electra.finetune.tag_schemes`.
        predictions: the same, of the same lengths; the scheme may be another.
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
    """Share of words with the right tag."""
    pairs = [
        pair for gold, predicted in zip(golds, predictions, strict=True) for pair in zip(gold, predicted, strict=True)
    ]
    return sum(gold == predicted for gold, predicted in pairs) / len(pairs)
