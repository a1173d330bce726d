"""Features of span and tagging tasks, and answers and tags from the model's scores.

    [CLS] question [SEP] window of the context [SEP]
    [CLS] wordpieces of word 1, of word 2, ... [SEP]

A long context becomes several overlapping windows. Every token keeps its character range in the context, so answers
are cut from the original text. The special tokens are those of the encoder's
:class:`~electra.finetune.input_format.InputFormat`.

A word's tag is learned and predicted at its first wordpiece (google-research/electra, finetune/tagging). Entities are
learned in the scheme BIOES, as there, and written in IOB2.
"""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from electra.common.lines import batches
from electra.config import Finetune
from electra.finetune.features import IGNORED, Feature, Vocabulary
from electra.tasks.catalogue import TaskSpec
from electra.tasks.format import Row, bioes, entities, iob2

Offsets = Sequence[tuple[int, int]]
_CHUNK = 1_000  # rows per tokenizer call


@dataclass
class Window(Feature):
    """A feature that also maps token positions back to text.

    Attributes:
        offsets: character range in the context of each context token of the window, including the nonspacing marks
            that the normaliser drops (see :func:`with_marks`).
    """

    offsets: Offsets

    def text(self, context: str, start: int, end: int) -> str:
        """Return the text from token ``start`` to token ``end`` inclusive, counted from the window's first token."""
        first, last = self.characters(context, start, end)
        return context[first:last]

    def characters(self, context: str, start: int, end: int) -> tuple[int, int]:
        """Return the character range of these tokens, without white space at its ends."""
        first = self.offsets[start - self.first_length][0]
        last = self.offsets[end - self.first_length][1]
        while first < last and context[first].isspace():  # byte-level tokens include the space before their word
            first += 1
        while first < last and context[last - 1].isspace():
            last -= 1
        return first, last


def span_features(rows: list[Row], vocabulary: Vocabulary, settings: Finetune) -> list[Window]:
    """Return the windows of all rows, in order. A target is (start, end, impossible), positions inclusive.

    The target is (0, 0) for windows that do not hold the whole answer and for questions without answer. Only the first
    reference answer is learned.
    """
    windows: list[Window] = []
    number = 0
    for chunk in batches(rows, _CHUNK, lambda row: len(row["context"])):
        questions = vocabulary.encode([row["question"] for row in chunk])
        contexts = _encoded_contexts(chunk, vocabulary)
        for row, question in zip(chunk, questions, strict=True):
            ids, offsets = contexts[row["context"]]
            windows.extend(_row_windows(number, row, question, ids, offsets, vocabulary, settings))
            number += 1
    return windows


def _encoded_contexts(rows: list[Row], vocabulary: Vocabulary) -> dict[str, tuple[list[int], Offsets]]:
    """Return ids and offsets of each distinct context: in SQuAD about five questions share one."""
    contexts = list(dict.fromkeys(row["context"] for row in rows))
    found = vocabulary.tokenizer.encode_batch(contexts, add_special_tokens=False)
    return {text: (vocabulary.ids_of(e), with_marks(text, e.offsets)) for text, e in zip(contexts, found, strict=True)}


def with_marks(text: str, offsets: Offsets) -> Offsets:
    """Extend each token's range by the dropped characters that belong to its last letter.

    Composing text (NFC) makes one letter of several characters. Stripping accents drops nonspacing marks, as in
    google-research/electra: accents, and vowel signs of Hindi, Thai and other scripts. They belong to the letter before
    them, also behind a joiner (category Cf), which is dropped too.
    """
    if text.isascii():
        return offsets
    begins = [*(first for first, _ in offsets[1:]), len(text)]
    return [(first, _end_of_marks(text, last, limit)) for (first, last), limit in zip(offsets, begins, strict=True)]


def _end_of_marks(text: str, end: int, limit: int) -> int:
    for position in range(end, limit):
        if belongs_to_the_letter_before(text[position]):
            end = position + 1
        elif unicodedata.category(text[position]) != "Cf":
            break
    return end


def belongs_to_the_letter_before(character: str) -> bool:
    """Return True for nonspacing marks (category Mn) and the non-initial jamo of a decomposed Korean syllable."""
    return unicodedata.category(character) == "Mn" or "\u1160" <= character <= "\u11ff"


def _row_windows(
    number: int,
    row: Row,
    question: list[int],
    context_ids: list[int],
    offsets: Offsets,
    vocabulary: Vocabulary,
    settings: Finetune,
) -> list[Window]:
    # A window must fit at least one context token beside the question and the special tokens.
    inputs = vocabulary.inputs
    room = settings.span_max_length - inputs.num_special(pair=True) - 1
    longest = min(settings.max_question_length, room)
    first = inputs.first_part(question[:longest])
    size = settings.span_max_length - len(first) - len(inputs.after)
    span = answer_tokens(row, offsets)
    windows = []
    for begin in window_starts(len(context_ids), size, settings.span_stride):
        end = min(begin + size, len(context_ids))
        position = (0, 0)
        if span and begin <= span[0] and span[1] < end:
            position = (len(first) + span[0] - begin, len(first) + span[1] - begin)
        windows.append(
            Window(
                token_ids=[*first, *inputs.second_part(context_ids[begin:end])],
                first_length=len(first),
                target=(*position, int(row["impossible"])),
                row=number,
                offsets=offsets[begin:end],
                is_cut=len(question) > longest,
            )
        )
    return windows


def window_starts(length: int, size: int, stride: int) -> list[int]:
    """Return the starts of windows: every ``stride`` tokens until the end is covered, without gaps."""
    starts = [0]
    while starts[-1] + size < length:
        starts.append(starts[-1] + min(stride, size))
    return starts


def answer_tokens(row: Row, offsets: Offsets) -> tuple[int, int] | None:
    """Return the first and last context token that overlap the first reference answer; None if there is none."""
    if row["impossible"]:
        return None
    begin = row["answers"][0]["start"]
    end = begin + len(row["answers"][0]["text"])
    inside = [i for i, (first, last) in enumerate(offsets) if first < end and last > begin]
    return (inside[0], inside[-1]) if inside else None


@dataclass
class BestSpan:
    """The best answer in one window; start and end are token positions, inclusive."""

    start: int
    end: int
    score: float  # log probability
    null_score: float


def best_spans(start_BT: Tensor, end_BT: Tensor, impossible_B: Tensor | None, max_answer_length: int) -> list[BestSpan]:
    """Return each window's most probable span of at most ``max_answer_length`` tokens, by exact search.

    Log probabilities are over the window's tokens and [CLS]: a window that assigns its answer to [CLS] (elsewhere)
    scores low, so that windows can be compared.
    """
    start_BT, end_BT = start_BT.log_softmax(-1), end_BT.log_softmax(-1)
    T = start_BT.shape[1]
    scores = []
    for length in range(min(max_answer_length, T - 1)):
        score_BT = torch.full_like(start_BT, float("-inf"))
        score_BT[:, 1 : T - length] = start_BT[:, 1 : T - length] + end_BT[:, 1 + length :]
        scores.append(score_BT)
    scores_BLT = torch.stack(scores, 1)
    best_B = scores_BLT.flatten(1).argmax(1)
    starts_B, ends_B = best_B % T, best_B % T + best_B // T
    best_scores_B = scores_BLT.flatten(1).gather(1, best_B[:, None]).squeeze(1)
    nulls_B = impossible_B if impossible_B is not None else torch.zeros_like(best_scores_B)
    columns = (values.tolist() for values in (starts_B, ends_B, best_scores_B, nulls_B))
    return [BestSpan(*values) for values in zip(*columns, strict=True)]


@dataclass
class Answer:
    """A row's best answer.

    Attributes:
        start: first character in the context.
        score: log probability within its window.
        null_score: logit of "no answer"; above 0 no answer is given.
    """

    text: str
    start: int
    score: float
    null_score: float


def answers(rows: list[Row], windows: list[Window], spans: list[BestSpan]) -> list[dict[str, object]]:
    """Return each row's best answer as the fields that metrics use."""
    best = best_answers(rows, windows, spans)
    return [{"id": row["id"], "text": a.text, "null_score": a.null_score} for row, a in zip(rows, best, strict=True)]


def best_answers(rows: list[Row], windows: list[Window], spans: list[BestSpan]) -> list[Answer]:
    """Return each row's best span over all its windows, as text; unanswerable only if all its windows are."""
    best: dict[int, tuple[Window, BestSpan]] = {}
    nulls: dict[int, float] = {}
    for window, span in zip(windows, spans, strict=True):
        nulls[window.row] = min(span.null_score, nulls.get(window.row, float("inf")))
        if window.row not in best or span.score > best[window.row][1].score:
            best[window.row] = window, span
    found = []
    for number, row in enumerate(rows):
        window, span = best[number]
        # A context without tokens has no span; neither has a beam in which no start has a valid end.
        is_found = window.offsets and span.start
        start, end = window.characters(row["context"], span.start, span.end) if is_found else (0, 0)
        found.append(Answer(row["context"][start:end], start, span.score, nulls[number]))
    return found


_TAGGED_CHUNK = 10_000  # sentences per tokenizer call
NO_TAG = {True: "O", False: ""}  # of truncated words: no entity; or the empty tag, if every word has a tag


@dataclass
class TaggedFeature(Feature):
    """A sentence; its target is a class number per token, ``IGNORED`` except at first wordpieces.

    Attributes:
        positions: position of each word's first wordpiece; words beyond ``max_length`` tokens have none.
    """

    positions: list[int]


def tagging_features(spec: TaskSpec, rows: list[Row], vocabulary: Vocabulary, max_length: int) -> list[TaggedFeature]:
    """Return one feature per row, in order; sentences that are too long lose their last wordpieces."""
    classes = {label: number for number, label in enumerate(spec.labels)}
    inputs = vocabulary.inputs
    features: list[TaggedFeature] = []
    end = max_length - len(inputs.after)  # limit of the last wordpiece
    for chunk in batches(rows, _TAGGED_CHUNK, lambda row: sum(map(len, row["words"]))):
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
    """Return token ids per word and sentence; a word without tokens, such as a control character, is unknown."""
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
    """Return a row's tags as the model's classes."""
    return bioes(entities(tags), len(tags)) if spec.has_entities else tags


def words_cut(rows: list[Row], features: Sequence[Feature]) -> int:
    """Return the number of truncated words, which are neither learned nor predicted."""
    kept = sum(len(feature.positions) for feature in features if isinstance(feature, TaggedFeature))
    return sum(len(row["words"]) for row in rows) - kept


def tag_predictions(
    spec: TaskSpec, rows: list[Row], features: list[TaggedFeature], classes: list[list[int]]
) -> list[dict[str, Any]]:
    """Return one prediction per row with a tag per word, in IOB2 for entities.

    Args:
        classes: the most probable class of each token, padding included.
    """
    found = []
    for row, feature, numbers in zip(rows, features, classes, strict=True):
        tags = [spec.labels[numbers[position]] for position in feature.positions]
        tags += [NO_TAG[spec.has_entities]] * (len(row["words"]) - len(tags))
        found.append({"id": row["id"], "tags": iob2(entities(tags), len(tags)) if spec.has_entities else tags})
    return found
