"""Answers to questions as spans of a context, such as SQuAD (google-research/electra, finetune/qa).

    [CLS] question [SEP] window of the context [SEP]

A long context becomes several overlapping windows. Every token keeps its character range in the context, so answers
are cut from the original text. In the order of this file: windows; the paper's head, whose end depends on the start;
a plain head of two linear layers; the best span of each window, and the best answer of each question.

Shape legend: B examples, T tokens, D hidden width, S starts in the beam, E ends in the beam of one start.
"""

import math
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from electra.common.lines import batches
from electra.config import Finetune
from electra.finetune.base import Finetuning, Head, Record, rounded, token_at
from electra.finetune.features import Batch, Feature, Vocabulary
from electra.finetune.input_format import Layout
from electra.tasks.catalogue import SpanHeadName, TaskSpec
from electra.tasks.format import Row

Offsets = Sequence[tuple[int, int]]
_CHUNK = 1_000  # rows per tokenizer call
BEAM = 20  # number of starts, and of ends per start
WIDTH = 512  # width of the two hidden layers


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


@dataclass
class BestSpan:
    """The best answer in one window; start and end are token positions, inclusive."""

    start: int
    end: int
    score: float  # log probability
    null_score: float


class Span(Finetuning[Window]):
    """An answer per question, or none; each feature is a window."""

    unlabelled = {"answers": [], "impossible": True}
    window = 512
    cut_part = "have a question longer than its part"

    def fields(self, spec: TaskSpec) -> tuple[str, ...]:
        return ("question", "context")

    def max_length(self, options: Finetune) -> int:
        return options.span_max_length

    def features(self, spec: TaskSpec, rows: list[Row], vocabulary: Vocabulary, options: Finetune) -> Sequence[Window]:
        return span_features(rows, vocabulary, options)

    def unlearnable(self, rows: list[Row], features: Sequence[Window]) -> dict[str, int]:
        return {"answers_not_recoverable": len(answers_not_recoverable(rows, features))}

    def head(self, spec: TaskSpec, hidden_size: int, layout: Layout, span_head: SpanHeadName) -> Head:
        if span_head == "joint" and layout == Layout():  # this head needs the summary token first
            return JointSpanHead(hidden_size)
        return SpanHead(hidden_size, spec.has_unanswerable, layout)

    def predictions(
        self, spec: TaskSpec, rows: list[Row], features: Sequence[Window], decoded: list[BestSpan]
    ) -> list[Record]:
        """Return each question's best answer, and the score of having none."""
        return answers(rows, features, decoded)

    def records(
        self, spec: TaskSpec, rows: list[Row], features: Sequence[Window], decoded: list[BestSpan]
    ) -> list[Record]:
        """Return each question's answer with its place and probability; None if it has no answer."""
        found = best_answers(rows, features, decoded)
        return [answer_record(spec, row["id"], answer) for row, answer in zip(rows, found, strict=True)]

    def demo_help(self, spec: TaskSpec) -> str:
        return "a question, and its context as second text"


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
    if text.isascii() or not offsets:  # a text of nothing but dropped characters has no token
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


def answers_not_recoverable(rows: list[Row], windows: Sequence[Window]) -> list[str]:
    """Return the ids of questions whose reference answer no window can reproduce exactly.

    The answer begins or ends inside a wordpiece ("Japan" in "Japanese"), or is longer than every window.
    """
    recovered = set()
    for window in windows:
        if window.target[0]:
            row, (start, end, _) = rows[window.row], window.target
            if window.text(row["context"], start, end) == row["answers"][0]["text"]:
                recovered.add(window.row)
    return [row["id"] for number, row in enumerate(rows) if not row["impossible"] and number not in recovered]


class JointSpans(NamedTuple):
    """Beam of each window; scores are log probabilities, positions count from the window's first token."""

    starts_BS: Tensor
    start_scores_BS: Tensor
    ends_BSE: Tensor
    end_scores_BSE: Tensor  # conditional on the start
    impossible_B: Tensor  # logit of "no answer"


class JointSpanHead(Head):
    """Predict start, end given the start, and answerability; no dropout, as in the original.

    Positions that cannot be part of an answer have probability 0, except [CLS]: it represents an answer outside the
    window. The answerability label belongs to the question, also in windows without its answer.
    """

    def __init__(self, hidden_size: int):
        super().__init__()
        self.start = nn.Linear(hidden_size, 1)
        self.end_hidden = nn.Linear(2 * hidden_size, WIDTH)
        self.end = nn.Linear(WIDTH, 1)
        self.impossible_hidden = nn.Linear(2 * hidden_size, WIDTH)
        self.impossible = nn.Linear(WIDTH, 1)

    def forward(self, hidden_BTD: Tensor, batch: Batch) -> JointSpans:
        """Return the most probable starts, and the most probable ends of each."""
        allowed_BT = answer_positions(batch)
        start_BT = self._start(hidden_BTD, allowed_BT)
        beam = min(BEAM, start_BT.shape[1])
        start_scores_BS, starts_BS = start_BT.log_softmax(-1).topk(beam, -1)
        ends, scores = [], []
        for start_B in starts_BS.unbind(1):  # one start at a time: all at once would need hidden states for T x S pairs
            end_scores_BE, ends_BE = self._end(hidden_BTD, start_B, allowed_BT).log_softmax(-1).topk(beam, -1)
            ends.append(ends_BE)
            scores.append(end_scores_BE)
        impossible_B = self._impossible(hidden_BTD, start_BT)
        return JointSpans(starts_BS, start_scores_BS, torch.stack(ends, 1), torch.stack(scores, 1), impossible_B)

    def loss(self, hidden_BTD: Tensor, batch: Batch) -> Tensor:
        """Return the mean loss of a labelled batch: mean of start and end losses, plus half the answerability loss."""
        assert batch.targets is not None
        starts_B, ends_B, is_impossible_B = batch.targets.unbind(1)
        allowed_BT = answer_positions(batch)
        start_BT = self._start(hidden_BTD, allowed_BT)
        end_BT = self._end(hidden_BTD, starts_B, allowed_BT)
        span = (F.cross_entropy(start_BT, starts_B) + F.cross_entropy(end_BT, ends_B)) / 2
        impossible_B = self._impossible(hidden_BTD, start_BT)
        return span + 0.5 * F.binary_cross_entropy_with_logits(impossible_B, is_impossible_B.float())

    def decode(self, outputs: JointSpans, options: Finetune) -> list[BestSpan]:
        return best_joint_spans(outputs, options.max_answer_length)

    def _start(self, hidden_BTD: Tensor, allowed_BT: Tensor) -> Tensor:
        return self.start(hidden_BTD).squeeze(-1).float().masked_fill(~allowed_BT, float("-inf"))

    def _end(self, hidden_BTD: Tensor, start_B: Tensor, allowed_BT: Tensor) -> Tensor:
        """Return the end logits [B, T]; start and token go through the layer separately instead of concatenated."""
        start_BD = hidden_BTD[torch.arange(len(start_B), device=start_B.device), start_B]
        of_start, of_token = self.end_hidden.weight.chunk(2, 1)
        mixed_BTW = F.linear(hidden_BTD, of_token, self.end_hidden.bias) + F.linear(start_BD, of_start)[:, None]
        return self.end(F.gelu(mixed_BTW)).squeeze(-1).float().masked_fill(~allowed_BT, float("-inf"))

    def _impossible(self, hidden_BTD: Tensor, start_BT: Tensor) -> Tensor:
        shares_BT = start_BT.log_softmax(-1).exp()  # gradients of softmax itself depend on the number of threads
        expected_BD = torch.einsum("bt,btd->bd", shares_BT.to(hidden_BTD.dtype), hidden_BTD)
        both_B2D = torch.cat([hidden_BTD[:, 0], expected_BD], -1)
        return self.impossible(F.gelu(self.impossible_hidden(both_B2D))).squeeze(-1).float()


def answer_positions(batch: Batch) -> Tensor:
    """Return a mask [B, T] that is True at tokens of the context and at [CLS]."""
    positions_T = torch.arange(batch.tokens_BT.shape[1], device=batch.tokens_BT.device)
    last_B1 = batch.mask_BT.sum(1, keepdim=True) - 1  # the closing [SEP]
    return (positions_T >= batch.first_B[:, None]) & (positions_T < last_B1) | (positions_T == 0)


def best_joint_spans(spans: JointSpans, max_answer_length: int) -> list[BestSpan]:
    """Return the most probable valid pair of each beam; (0, 0) with score -inf if there is none."""
    starts_BS1 = spans.starts_BS[..., None]
    is_answer_BSE = (starts_BS1 > 0) & (spans.ends_BSE >= starts_BS1)
    is_answer_BSE &= spans.ends_BSE - starts_BS1 < max_answer_length
    scores_BSE = spans.start_scores_BS[..., None] + spans.end_scores_BSE
    scores_B, best_B = scores_BSE.masked_fill(~is_answer_BSE, float("-inf")).flatten(1).max(1)
    starts_B = starts_BS1.expand_as(scores_BSE).flatten(1).gather(1, best_B[:, None]).squeeze(1)
    ends_B = spans.ends_BSE.flatten(1).gather(1, best_B[:, None]).squeeze(1)
    is_found_B = scores_B.isfinite()
    columns = (starts_B * is_found_B, ends_B * is_found_B, scores_B, spans.impossible_B)
    return [BestSpan(*values) for values in zip(*(column.tolist() for column in columns), strict=True)]


class SpanHead(Head):
    """Start and end of the answer as two linear layers over the tokens; a layer on [CLS] predicts answerability.

    Positions that cannot be part of an answer (question, special tokens, padding) have logit -inf, except column 0:
    it holds the logit of [CLS], wherever that token is, and represents an answer outside the window.
    """

    def __init__(self, hidden_size: int, has_unanswerable: bool, layout: Layout):
        super().__init__()
        self.layout = layout
        self.span = nn.Linear(hidden_size, 2)
        self.impossible = nn.Linear(hidden_size, 1) if has_unanswerable else None

    def forward(self, hidden_BTD: Tensor, batch: Batch) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return start and end logits, each [B, T], no-answer logit [B] (None without unanswerable questions)."""
        start_BT, end_BT = self.framed(self.span(hidden_BTD).float(), batch)
        if self.impossible is None:
            return start_BT, end_BT, None
        summary_BD = token_at(self.layout.summary, hidden_BTD, batch)
        return start_BT, end_BT, self.impossible(summary_BD).float().squeeze(-1)

    def framed(self, logits_BT2: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return start and end logits with -inf at what is no answer, and that of [CLS] in column 0."""
        positions_T = torch.arange(logits_BT2.shape[1], device=logits_BT2.device)
        end_B1 = batch.mask_BT.sum(1, keepdim=True) - self.layout.num_after  # the closing special tokens
        allowed_BT = (positions_T >= batch.first_B[:, None]) & (positions_T < end_B1)
        null_B2 = token_at(self.layout.null, logits_BT2, batch)
        logits_BT2 = logits_BT2.masked_fill(~allowed_BT[..., None], float("-inf"))
        logits_BT2 = torch.cat([null_B2[:, None], logits_BT2[:, 1:]], 1)
        return logits_BT2[..., 0], logits_BT2[..., 1]

    def loss(self, hidden_BTD: Tensor, batch: Batch) -> Tensor:
        """Return the mean of start and end losses, plus half the answerability loss as in the original."""
        assert batch.targets is not None
        start_BT, end_BT, impossible_B = self(hidden_BTD, batch)
        starts_B, ends_B, is_impossible_B = batch.targets.unbind(1)
        loss = (F.cross_entropy(start_BT, starts_B) + F.cross_entropy(end_BT, ends_B)) / 2
        if impossible_B is not None:  # its label belongs to the question, also in windows without its answer
            loss = loss + 0.5 * F.binary_cross_entropy_with_logits(impossible_B, is_impossible_B.float())
        return loss

    def decode(self, outputs: tuple[Tensor, Tensor, Tensor | None], options: Finetune) -> list[BestSpan]:
        return best_spans(*outputs, options.max_answer_length)


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


def answers(rows: list[Row], windows: Sequence[Window], spans: list[BestSpan]) -> list[dict[str, object]]:
    """Return each row's best answer as the fields that metrics use."""
    best = best_answers(rows, windows, spans)
    return [{"id": row["id"], "text": a.text, "null_score": a.null_score} for row, a in zip(rows, best, strict=True)]


def best_answers(rows: list[Row], windows: Sequence[Window], spans: list[BestSpan]) -> list[Answer]:
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


def answer_record(spec: TaskSpec, id: str, answer: Answer) -> Record:
    """Return the output of ``electra predict``."""
    is_given = bool(answer.text) and not (spec.has_unanswerable and answer.null_score > 0)
    record: Record = {
        "id": id,
        "answer": answer.text if is_given else None,
        "start": answer.start if is_given else None,
        "probability": rounded(math.exp(answer.score)),
    }
    if spec.has_unanswerable:
        record["no_answer_probability"] = rounded((1 + math.tanh(answer.null_score / 2)) / 2)
    return record
