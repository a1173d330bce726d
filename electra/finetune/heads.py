"""What stands on the encoder in fine-tuning, with its loss.

Shape legend: B examples, T tokens, D hidden width, C classes.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from electra.finetune.batching import IGNORED, Batch
from electra.finetune.joint_span import JointSpanHead
from electra.finetune.tasks import SpanHeadName, TaskSpec
from electra.model.encoder import Encoder

HEAD_DROPOUT = 0.1


class SentenceHead(nn.Module):
    """Dropout and one linear layer on [CLS] (google-research/electra, finetune/classification).

    Classification gives C logits; regression gives one number in units of the target.
    """

    def __init__(self, hidden_size: int, num_outputs: int):
        super().__init__()
        self.dropout = nn.Dropout(HEAD_DROPOUT)
        self.output = nn.Linear(hidden_size, num_outputs)

    def forward(self, hidden_BTD: Tensor, batch: Batch) -> Tensor:
        """Logits [B, C]; for regression values [B, 1]."""
        return self.output(self.dropout(hidden_BTD[:, 0]))


class SpanHead(nn.Module):
    """Start and end of the answer as two linear layers over the tokens; one on [CLS] says whether there is none.

    Positions that cannot be part of an answer (question, special tokens, padding) have logit -inf, but for [CLS]:
    it stands for an answer outside the window.
    """

    def __init__(self, hidden_size: int, has_unanswerable: bool):
        super().__init__()
        self.span = nn.Linear(hidden_size, 2)
        self.impossible = nn.Linear(hidden_size, 1) if has_unanswerable else None

    def forward(self, hidden_BTD: Tensor, batch: Batch) -> tuple[Tensor, Tensor, Tensor | None]:
        """Start and end logits, each [B, T], and the no-answer logit [B] (None where all have answers)."""
        positions_T = torch.arange(hidden_BTD.shape[1], device=hidden_BTD.device)
        last_B1 = batch.mask_BT.sum(1, keepdim=True) - 1  # the closing [SEP]
        allowed_BT = (positions_T >= batch.first_B[:, None]) & (positions_T < last_B1) | (positions_T == 0)
        logits_BT2 = self.span(hidden_BTD).float().masked_fill(~allowed_BT[..., None], float("-inf"))
        if self.impossible is None:
            return logits_BT2[..., 0], logits_BT2[..., 1], None
        return logits_BT2[..., 0], logits_BT2[..., 1], self.impossible(hidden_BTD[:, 0]).float().squeeze(-1)


class TagHead(nn.Module):
    """One linear layer over the tokens (google-research/electra, finetune/tagging: no dropout)."""

    def __init__(self, hidden_size: int, num_tags: int):
        super().__init__()
        self.output = nn.Linear(hidden_size, num_tags)

    def forward(self, hidden_BTD: Tensor, batch: Batch) -> Tensor:
        """Logits [B, T, C]."""
        return self.output(hidden_BTD)


class ChoiceHead(SentenceHead):
    """One logit per choice from its [CLS]; the batch holds the choices of an example one after the other."""

    def __init__(self, hidden_size: int, num_choices: int):
        super().__init__(hidden_size, 1)
        self.num_choices = num_choices

    def forward(self, hidden_BTD: Tensor, batch: Batch) -> Tensor:
        """Logits [B / C, C], to be compared with each other."""
        return super().forward(hidden_BTD, batch).view(-1, self.num_choices)


class TaskModel(nn.Module):
    """Encoder and head of one task.

    Args:
        span_head: which of the two heads for spans.
    """

    def __init__(
        self, spec: TaskSpec, encoder: Encoder, generator: torch.Generator, *, span_head: SpanHeadName = "plain"
    ):
        super().__init__()
        self.kind = spec.kind
        self.encoder = encoder
        hidden_size = encoder.config.hidden_size
        self.head: SentenceHead | SpanHead | JointSpanHead | TagHead
        if spec.kind == "span" and span_head == "joint":
            self.head = JointSpanHead(hidden_size)
        elif spec.kind == "span":
            self.head = SpanHead(hidden_size, spec.has_unanswerable)
        elif spec.kind == "tagging":
            self.head = TagHead(hidden_size, len(spec.labels))
        elif spec.kind == "multiple_choice":
            self.head = ChoiceHead(hidden_size, len(spec.labels))
        else:
            self.head = SentenceHead(hidden_size, len(spec.labels) or 1)
        initialize_head(self.head, generator)

    def forward(self, batch: Batch):
        """What the head returns."""
        return self.head(self._hidden(batch), batch)

    def loss(self, batch: Batch) -> Tensor:
        """Mean loss over a labelled batch, a scalar."""
        assert batch.targets is not None
        if isinstance(self.head, JointSpanHead):  # its ends are learned from the reference starts
            return self.head.loss(self._hidden(batch), batch)
        outputs = self(batch)
        if self.kind in ("classification", "multiple_choice"):
            return F.cross_entropy(outputs.float(), batch.targets)
        if self.kind == "tagging":  # the mean over words: longer sentences weigh more, as in the original's sum
            return F.cross_entropy(outputs.float().flatten(0, 1), batch.targets.flatten(), ignore_index=IGNORED)
        if self.kind == "regression":
            return F.mse_loss(outputs.float().squeeze(-1), batch.targets.float())
        start_BT, end_BT, impossible_B = outputs
        starts_B, ends_B, is_impossible_B = batch.targets.unbind(1)
        loss = (F.cross_entropy(start_BT, starts_B) + F.cross_entropy(end_BT, ends_B)) / 2
        if impossible_B is not None:
            # Weight 0.5 as in the original; the label is the question's, also in windows without its answer.
            loss = loss + 0.5 * F.binary_cross_entropy_with_logits(impossible_B, is_impossible_B.float())
        return loss

    def _hidden(self, batch: Batch) -> Tensor:
        return self.encoder(batch.tokens_BT, batch.segments_BT, batch.mask_BT)


def initialize_head(head: nn.Module, generator: torch.Generator) -> None:
    """Glorot-uniform kernels and zero biases, TensorFlow's default that the original leaves in place."""
    for module in head.modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight, generator=generator)
            nn.init.zeros_(module.bias)
