"""Words with tags to token ids, and back.

    [CLS] pieces of word 1, of word 2, ... [SEP]

A word's tag is learned and predicted at its first wordpiece (google-research/electra, finetune/tagging). Entities are
learned in the scheme BIOES, as there, and written in IOB2.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from electra.common.lines import batches
from electra.finetune.features import IGNORED, Feature, Vocabulary
from electra.tasks.catalogue import TaskSpec
from electra.tasks.rows import Row, bioes, entities, iob2

_CHUNK = 10_000  # sentences tokenised at a time
NO_TAG = {True: "O", False: ""}  # of words beyond the cut: no entity; where every word has a tag, none of them


@dataclass
class TaggedFeature(Feature):
    """A sentence; its target is a class number per token, ``IGNORED`` but at first wordpieces.

    Attributes:
        positions: of each word's first wordpiece; words beyond ``max_length`` tokens have none.
    """

    positions: list[int]


def tagging_features(spec: TaskSpec, rows: list[Row], vocabulary: Vocabulary, max_length: int) -> list[TaggedFeature]:
    """One feature per row, in order; sentences that are too long lose their last wordpieces."""
    classes = {label: number for number, label in enumerate(spec.labels)}
    inputs = vocabulary.inputs
    features: list[TaggedFeature] = []
    end = max_length - len(inputs.after)  # where the last wordpiece must have ended
    for chunk in batches(rows, _CHUNK, lambda row: sum(map(len, row["words"]))):
        pieces = _wordpieces([row["words"] for row in chunk], vocabulary)
        for row, words in zip(chunk, pieces, strict=True):
            ids, positions = list(inputs.before), []
            for word in words:
                positions.append(len(ids))
                ids.extend(word)
            is_cut = len(ids) > end
            ids = [*ids[:end], *inputs.after]
            positions = [position for position in positions if position < end]
            target = None
            if row["tags"] is not None:
                target = [IGNORED] * len(ids)
                for position, tag in zip(positions, learned_tags(spec, row["tags"]), strict=False):
                    target[position] = classes[tag]
            features.append(TaggedFeature(ids, len(ids), target, len(features), positions, is_cut=is_cut))
    return features


def _wordpieces(sentences: list[list[str]], vocabulary: Vocabulary) -> list[list[list[int]]]:
    """Token ids per word and sentence. A word of which nothing is left, such as a control character, is unknown."""
    unknown = vocabulary.unknown
    encodings = vocabulary.tokenizer.encode_batch(sentences, is_pretokenized=True, add_special_tokens=False)
    found = []
    for words, encoding in zip(sentences, encodings, strict=True):
        pieces: list[list[int]] = [[] for _ in words]
        for word, token in zip(encoding.word_ids, vocabulary.ids_of(encoding), strict=True):
            assert word is not None  # only special tokens belong to no word
            pieces[word].append(token)
        found.append([word or unknown for word in pieces])
    return found


def learned_tags(spec: TaskSpec, tags: list[str]) -> list[str]:
    """A row's tags as the classes of the model."""
    return bioes(entities(tags), len(tags)) if spec.has_entities else tags


def words_cut(rows: list[Row], features: Sequence[Feature]) -> int:
    """Words beyond the longest input: they are neither learned nor predicted."""
    kept = sum(len(feature.positions) for feature in features if isinstance(feature, TaggedFeature))
    return sum(len(row["words"]) for row in rows) - kept


def tag_predictions(
    spec: TaskSpec, rows: list[Row], features: list[TaggedFeature], classes: list[list[int]]
) -> list[dict[str, Any]]:
    """Tags per word, in IOB2 for entities.

    Args:
        classes: the most probable class of each token, padding included.
    """
    found = []
    for row, feature, numbers in zip(rows, features, classes, strict=True):
        tags = [spec.labels[numbers[position]] for position in feature.positions]
        tags += [NO_TAG[spec.has_entities]] * (len(row["words"]) - len(tags))
        found.append({"id": row["id"], "tags": iob2(entities(tags), len(tags)) if spec.has_entities else tags})
    return found
