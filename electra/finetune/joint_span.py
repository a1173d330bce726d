"""The paper's span head (google-research/electra, finetune/qa): where an answer ends depends on where it starts.

The end's logits are made from each token beside the start's representation: in training the reference start's, in
evaluation each of the most probable starts'. A classifier beside them says whether the question has an answer.

Shape legend: B windows, T tokens, D hidden width, S starts in the beam, E ends in the beam of one start.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from electra.finetune.batching import Batch
from electra.finetune.spans import BestSpan

BEAM = 20  # starts, and ends for each of them
WIDTH = 512  # of the two hidden layers


class JointSpans(NamedTuple):
    """The beam of each window; scores are log probabilities, positions count from the window's first token."""

    starts_BS: Tensor
    start_scores_BS: Tensor
    ends_BSE: Tensor
    end_scores_BSE: Tensor  # given the start
    impossible_B: Tensor  # logit of having no answer


class JointSpanHead(nn.Module):
    """Start, end given the start, and answerability; no dropout, as in the original.

    Positions that cannot be part of an answer have probability 0, but for [CLS]: it stands for an answer outside the
    window. The label of the answerability is the question's, also in windows without its answer.
    """

    def __init__(self, hidden_size: int):
        super().__init__()
        self.start = nn.Linear(hidden_size, 1)
        self.end_hidden = nn.Linear(2 * hidden_size, WIDTH)
        self.end = nn.Linear(WIDTH, 1)
        self.impossible_hidden = nn.Linear(2 * hidden_size, WIDTH)
        self.impossible = nn.Linear(WIDTH, 1)

    def forward(self, hidden_BTD: Tensor, batch: Batch) -> JointSpans:
        """The most probable starts, and for each of them the most probable ends."""
        allowed_BT = answer_positions(batch)
        start_BT = self._start(hidden_BTD, allowed_BT)
        beam = min(BEAM, start_BT.shape[1])
        start_scores_BS, starts_BS = start_BT.log_softmax(-1).topk(beam, -1)
        ends, scores = [], []
        for start_B in starts_BS.unbind(1):  # one by one: all at once would take a hidden layer of T x S
            end_scores_BE, ends_BE = self._end(hidden_BTD, start_B, allowed_BT).log_softmax(-1).topk(beam, -1)
            ends.append(ends_BE)
            scores.append(end_scores_BE)
        impossible_B = self._impossible(hidden_BTD, start_BT)
        return JointSpans(starts_BS, start_scores_BS, torch.stack(ends, 1), torch.stack(scores, 1), impossible_B)

    def loss(self, hidden_BTD: Tensor, batch: Batch) -> Tensor:
        """Mean loss of a labelled batch: the mean of start and end, and half the answerability's."""
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
        """End logits [B, T] of (start, token) pairs; the layer is applied to both halves apart, which is the same."""
        start_BD = hidden_BTD[torch.arange(len(start_B), device=start_B.device), start_B]
        of_start, of_token = self.end_hidden.weight.chunk(2, 1)
        mixed_BTW = F.linear(hidden_BTD, of_token, self.end_hidden.bias) + F.linear(start_BD, of_start)[:, None]
        return self.end(F.gelu(mixed_BTW)).squeeze(-1).float().masked_fill(~allowed_BT, float("-inf"))

    def _impossible(self, hidden_BTD: Tensor, start_BT: Tensor) -> Tensor:
        expected_BD = torch.einsum("bt,btd->bd", start_BT.softmax(-1).to(hidden_BTD.dtype), hidden_BTD)
        both_B2D = torch.cat([hidden_BTD[:, 0], expected_BD], -1)
        return self.impossible(F.gelu(self.impossible_hidden(both_B2D))).squeeze(-1).float()


def answer_positions(batch: Batch) -> Tensor:
    """True [B, T] at tokens of the context and at [CLS]."""
    positions_T = torch.arange(batch.tokens_BT.shape[1], device=batch.tokens_BT.device)
    last_B1 = batch.mask_BT.sum(1, keepdim=True) - 1  # the closing [SEP]
    return (positions_T >= batch.first_B[:, None]) & (positions_T < last_B1) | (positions_T == 0)


def best_joint_spans(spans: JointSpans, max_answer_length: int) -> list[BestSpan]:
    """The most probable pair in each beam that is an answer; [CLS] to [CLS] with score -inf where there is none."""
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
