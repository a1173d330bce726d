"""Questions with their contexts to token ids, and the answers from the model's scores.

    [CLS] question [SEP] window of the context [SEP]

A long context becomes several overlapping windows. Every token keeps its character range in the context, so an answer
is always cut from the original text. The special tokens are those of the encoder's
:class:`~electra.finetune.saved.InputFormat`."""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from electra.common.lines import batches
from electra.config import Finetune
from electra.finetune.features import Feature, Vocabulary
from electra.tasks.rows import Row

Offsets = Sequence[tuple[int, int]]
_CHUNK = 1_000  # rows tokenised at a time


@dataclass
class Window(Feature):
    """A feature with what is needed to turn token positions back into text.

    Attributes:
        offsets: character range in the context of each context token of the window, with the nonspacing marks that
            the normaliser drops (see :func:`with_marks`).
    """

    offsets: Offsets

    def text(self, context: str, start: int, end: int) -> str:
        """The text from token ``start`` to token ``end`` inclusive; both count from the window's first token."""
        first, last = self.characters(context, start, end)
        return context[first:last]

    def characters(self, context: str, start: int, end: int) -> tuple[int, int]:
        """The character range of these tokens, without white space at its ends."""
        first = self.offsets[start - self.first_length][0]
        last = self.offsets[end - self.first_length][1]
        while first < last and context[first].isspace():  # byte-level tokens begin with the space before their word
            first += 1
        while first < last and context[last - 1].isspace():
            last -= 1
        return first, last


def span_features(rows: list[Row], vocabulary: Vocabulary, settings: Finetune) -> list[Window]:
    """The windows of all rows, in order. A target is (start, end, impossible), positions inclusive.

    A window that does not hold the whole answer points at (0, 0), as do questions without answer. The first
    reference answer is the one that is learned.
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
    """Ids and offsets of every distinct context: in SQuAD some five questions share one."""
    contexts = list(dict.fromkeys(row["context"] for row in rows))
    found = vocabulary.tokenizer.encode_batch(contexts, add_special_tokens=False)
    return {text: (vocabulary.ids_of(e), with_marks(text, e.offsets)) for text, e in zip(contexts, found, strict=True)}


def with_marks(text: str, offsets: Offsets) -> Offsets:
    """The ranges of tokens, each with what belongs to its last letter and is in no token's range.

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
    """True for nonspacing marks (category Mn), and the vowel and last consonant of a decomposed Korean syllable."""
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
    # A window needs room for at least one context token beside the question and the special tokens.
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
    """Where windows begin: every ``stride`` tokens, until one reaches the end; never a gap between two."""
    starts = [0]
    while starts[-1] + size < length:
        starts.append(starts[-1] + min(stride, size))
    return starts


def answer_tokens(row: Row, offsets: Offsets) -> tuple[int, int] | None:
    """First and last context token that overlap the first reference answer; None where there is none."""
    if row["impossible"]:
        return None
    begin = row["answers"][0]["start"]
    end = begin + len(row["answers"][0]["text"])
    inside = [i for i, (first, last) in enumerate(offsets) if first < end and last > begin]
    return (inside[0], inside[-1]) if inside else None


@dataclass
class BestSpan:
    """The best answer inside one window; start and end are token positions, inclusive."""

    start: int
    end: int
    score: float  # log probability
    null_score: float


def best_spans(start_BT: Tensor, end_BT: Tensor, impossible_B: Tensor | None, max_answer_length: int) -> list[BestSpan]:
    """The most probable span of at most ``max_answer_length`` tokens of each window, found exactly.

    Log probabilities are over the window's tokens and [CLS], so a window that holds its answer to be elsewhere scores
    low and windows can be compared.
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
        null_score: how much the row is held to have no answer; above 0 none is given.
    """

    text: str
    start: int
    score: float
    null_score: float


def answers(rows: list[Row], windows: list[Window], spans: list[BestSpan]) -> list[dict[str, object]]:
    """The best answer of each row: the fields that its score is computed from."""
    best = best_answers(rows, windows, spans)
    return [{"id": row["id"], "text": a.text, "null_score": a.null_score} for row, a in zip(rows, best, strict=True)]


def best_answers(rows: list[Row], windows: list[Window], spans: list[BestSpan]) -> list[Answer]:
    """The best span over all windows of each row, as text; a row is held unanswerable only if all its windows are."""
    best: dict[int, tuple[Window, BestSpan]] = {}
    nulls: dict[int, float] = {}
    for window, span in zip(windows, spans, strict=True):
        nulls[window.row] = min(span.null_score, nulls.get(window.row, float("inf")))
        if window.row not in best or span.score > best[window.row][1].score:
            best[window.row] = window, span
    found = []
    for number, row in enumerate(rows):
        window, span = best[number]
        # A context without a single token has no span, nor has a beam in which no start has an end.
        is_found = window.offsets and span.start
        start, end = window.characters(row["context"], span.start, span.end) if is_found else (0, 0)
        found.append(Answer(row["context"][start:end], start, span.score, nulls[number]))
    return found
