"""Task heads on an encoder: classification, regression, choices, tags, and answer spans.

The paper's span head (google-research/electra, finetune/qa) computes the end's logits from each token and the
representation of the start: the reference start in training, each of the most probable starts in evaluation.

Shape legend: B examples, T tokens, D hidden width, C classes, S starts in the beam, E ends in the beam of one start.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from electra.finetune.encoders import AnyEncoder
from electra.finetune.features import IGNORED, Batch
from electra.finetune.input_format import Layout, Position
from electra.finetune.spans import BestSpan
from electra.model.attention import CuSeqlens, has_kernel
from electra.model.encoder import Encoder
from electra.tasks.catalogue import SpanHeadName, TaskSpec

BEAM = 20  # number of starts, and of ends per start
WIDTH = 512  # width of the two hidden layers


class JointSpans(NamedTuple):
    """Beam of each window; scores are log probabilities, positions count from the window's first token."""

    starts_BS: Tensor
    start_scores_BS: Tensor
    ends_BSE: Tensor
    end_scores_BSE: Tensor  # conditional on the start
    impossible_B: Tensor  # logit of "no answer"


class JointSpanHead(nn.Module):
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


HEAD_DROPOUT = 0.1


class SentenceHead(nn.Module):
    """Dropout and one linear layer on the summary token, [CLS] (google-research/electra, finetune/classification).

    The output has C logits for classification, and one number in units of the target for regression.
    """

    def __init__(self, hidden_size: int, num_outputs: int, layout: Layout):
        super().__init__()
        self.layout = layout
        self.dropout = nn.Dropout(HEAD_DROPOUT)
        self.output = nn.Linear(hidden_size, num_outputs)

    def forward(self, hidden_BTD: Tensor, batch: Batch) -> Tensor:
        """Return logits [B, C]; for regression, values [B, 1]."""
        return self.output(self.dropout(token_at(self.layout.summary, hidden_BTD, batch)))


class SpanHead(nn.Module):
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
        positions_T = torch.arange(hidden_BTD.shape[1], device=hidden_BTD.device)
        end_B1 = batch.mask_BT.sum(1, keepdim=True) - self.layout.num_after  # the closing special tokens
        allowed_BT = (positions_T >= batch.first_B[:, None]) & (positions_T < end_B1)
        logits_BT2 = self.span(hidden_BTD).float()
        null_B2 = token_at(self.layout.null, logits_BT2, batch)
        logits_BT2 = logits_BT2.masked_fill(~allowed_BT[..., None], float("-inf"))
        logits_BT2 = torch.cat([null_B2[:, None], logits_BT2[:, 1:]], 1)
        if self.impossible is None:
            return logits_BT2[..., 0], logits_BT2[..., 1], None
        summary_BD = token_at(self.layout.summary, hidden_BTD, batch)
        return logits_BT2[..., 0], logits_BT2[..., 1], self.impossible(summary_BD).float().squeeze(-1)


class TagHead(nn.Module):
    """One linear layer over the tokens (google-research/electra, finetune/tagging: no dropout)."""

    def __init__(self, hidden_size: int, num_tags: int):
        super().__init__()
        self.output = nn.Linear(hidden_size, num_tags)

    def forward(self, hidden_BTD: Tensor, batch: Batch) -> Tensor:
        """Return logits [B, T, C]."""
        return self.output(hidden_BTD)


class ChoiceHead(SentenceHead):
    """One logit per choice from its [CLS]; the choices of an example are consecutive in the batch."""

    def __init__(self, hidden_size: int, num_choices: int, layout: Layout):
        super().__init__(hidden_size, 1, layout)
        self.num_choices = num_choices

    def forward(self, hidden_BTD: Tensor, batch: Batch) -> Tensor:
        """Return logits [B / C, C], comparable within a row."""
        return super().forward(hidden_BTD, batch).view(-1, self.num_choices)


class TaskModel(nn.Module):
    """Encoder and head of one task.

    Args:
        layout: position of the encoder's summary token; BERT's layout by default.
        span_head: name of the span head. The joint head needs the summary token first; other layouts get the plain
            head.
    """

    def __init__(
        self,
        spec: TaskSpec,
        encoder: AnyEncoder,
        generator: torch.Generator,
        layout: Layout | None = None,
        *,
        span_head: SpanHeadName = "plain",
    ):
        super().__init__()
        self.kind = spec.kind
        self.encoder = encoder
        hidden_size, layout = encoder.config.hidden_size, layout or Layout()
        self.head: SentenceHead | SpanHead | JointSpanHead | TagHead
        if spec.kind == "span" and span_head == "joint" and layout == Layout():
            self.head = JointSpanHead(hidden_size)
        elif spec.kind == "span":
            self.head = SpanHead(hidden_size, spec.has_unanswerable, layout)
        elif spec.kind == "tagging":
            self.head = TagHead(hidden_size, len(spec.labels))
        elif spec.kind == "multiple_choice":
            self.head = ChoiceHead(hidden_size, len(spec.labels), layout)
        else:
            self.head = SentenceHead(hidden_size, len(spec.labels) or 1, layout)
        initialize_head(self.head, generator)

    def forward(self, batch: Batch):
        """Return the output of the head."""
        return self.head(self._hidden(batch), batch)

    def loss(self, batch: Batch) -> Tensor:
        """Return the mean loss over a labelled batch, a scalar."""
        assert batch.targets is not None
        if isinstance(self.head, JointSpanHead):  # trained with the reference starts
            return self.head.loss(self._hidden(batch), batch)
        outputs = self(batch)
        if self.kind in ("classification", "multiple_choice"):
            return F.cross_entropy(outputs.float(), batch.targets)
        if self.kind == "tagging":  # mean over words: longer sentences weigh more, as in the original's sum
            return F.cross_entropy(outputs.float().flatten(0, 1), batch.targets.flatten(), ignore_index=IGNORED)
        if self.kind == "regression":
            return F.mse_loss(outputs.float().squeeze(-1), batch.targets.float())
        start_BT, end_BT, impossible_B = outputs
        starts_B, ends_B, is_impossible_B = batch.targets.unbind(1)
        loss = (F.cross_entropy(start_BT, starts_B) + F.cross_entropy(end_BT, ends_B)) / 2
        if impossible_B is not None:
            # Weight 0.5 as in the original; the label belongs to the question, also in windows without its answer.
            loss = loss + 0.5 * F.binary_cross_entropy_with_logits(impossible_B, is_impossible_B.float())
        return loss

    def _hidden(self, batch: Batch) -> Tensor:
        mask_BT: Tensor | CuSeqlens = batch.mask_BT
        if batch.ends_N is not None and isinstance(self.encoder, Encoder):
            device = batch.ends_N.device
            if has_kernel(device, bf16=torch.is_autocast_enabled(device.type)):
                mask_BT = CuSeqlens(batch.ends_N, batch.mask_BT)
        inputs = (batch.tokens_BT, batch.segments_BT, mask_BT)
        if isinstance(self.encoder, Encoder) and isinstance(self.head, SentenceHead):
            return self.encoder(*inputs, first_only=True)  # this head reads no other token
        return self.encoder(*inputs)


def token_at(position: Position, values_BTD: Tensor, batch: Batch) -> Tensor:
    """Return the values [B, D] at each example's first token, or at its last real token."""
    if position == "first":
        return values_BTD[:, 0]
    last_B = batch.mask_BT.sum(1) - 1
    return values_BTD[torch.arange(len(last_B), device=last_B.device), last_B]


def initialize_head(head: nn.Module, generator: torch.Generator) -> None:
    """Initialise weights Glorot-uniform and biases with zeros: TensorFlow's default, which the original uses."""
    for module in head.modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight, generator=generator)
            nn.init.zeros_(module.bias)
