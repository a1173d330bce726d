"""Questions with their contexts to token ids: long contexts become several overlapping windows.

    [CLS] question [SEP] window of the context [SEP]

Every token keeps its character range in the context, so an answer is always cut from the original text. The special
tokens are those of the encoder's :class:`~electra.finetune.input_format.InputFormat`.
"""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from electra.config import Finetune
from electra.finetune.features import Feature, Vocabulary
from electra.finetune.rows import Row

Offsets = Sequence[tuple[int, int]]
_CHUNK = 1_000  # rows tokenised at a time


@dataclass
class Window(Feature):
    """A feature with what is needed to turn token positions back into text.

    Attributes:
        offsets: character range in the context of each context token of the window.
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
        # The normaliser drops combining accents, and no token's range has them; they belong to the letter before.
        while last < len(context) and unicodedata.combining(context[last]):
            last += 1
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
    for begin in range(0, len(rows), _CHUNK):
        chunk = rows[begin : begin + _CHUNK]
        questions = vocabulary.encode([row["question"] for row in chunk])
        contexts = _encoded_contexts(chunk, vocabulary)
        for number, (row, question) in enumerate(zip(chunk, questions, strict=True), start=begin):
            ids, offsets = contexts[row["context"]]
            windows.extend(_row_windows(number, row, question, ids, offsets, vocabulary, settings))
    return windows


def _encoded_contexts(rows: list[Row], vocabulary: Vocabulary) -> dict[str, tuple[list[int], Offsets]]:
    """Ids and offsets of every distinct context: in SQuAD some five questions share one."""
    contexts = list(dict.fromkeys(row["context"] for row in rows))
    found = vocabulary.tokenizer.encode_batch(contexts, add_special_tokens=False)
    return {text: (encoding.ids, encoding.offsets) for text, encoding in zip(contexts, found, strict=True)}


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
    first = inputs.first_part(question[: min(settings.max_question_length, room)])
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
