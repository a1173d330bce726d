"""What stands on the encoder in fine-tuning, with its loss.

Shape legend: B examples, T tokens, D hidden width, C classes.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from electra.finetune.batching import IGNORED, Batch
from electra.finetune.encoders import AnyEncoder
from electra.finetune.input_format import Layout, Position
from electra.finetune.joint_span import JointSpanHead
from electra.finetune.tasks import SpanHeadName, TaskSpec
from electra.model.encoder import Encoder

HEAD_DROPOUT = 0.1


class SentenceHead(nn.Module):
    """Dropout and one linear layer on the summary token, [CLS] (google-research/electra, finetune/classification).

    Classification gives C logits; regression gives one number in units of the target.
    """

    def __init__(self, hidden_size: int, num_outputs: int, layout: Layout):
        super().__init__()
        self.layout = layout
        self.dropout = nn.Dropout(HEAD_DROPOUT)
        self.output = nn.Linear(hidden_size, num_outputs)

    def forward(self, hidden_BTD: Tensor, batch: Batch) -> Tensor:
        """Logits [B, C]; for regression values [B, 1]."""
        return self.output(self.dropout(token_at(self.layout.summary, hidden_BTD, batch)))


class SpanHead(nn.Module):
    """Start and end of the answer as two linear layers over the tokens; one on [CLS] says whether there is none.

    Positions that cannot be part of an answer (question, special tokens, padding) have logit -inf, but for column 0:
    it has the logit of [CLS], wherever that stands, and means an answer outside the window.
    """

    def __init__(self, hidden_size: int, has_unanswerable: bool, layout: Layout):
        super().__init__()
        self.layout = layout
        self.span = nn.Linear(hidden_size, 2)
        self.impossible = nn.Linear(hidden_size, 1) if has_unanswerable else None

    def forward(self, hidden_BTD: Tensor, batch: Batch) -> tuple[Tensor, Tensor, Tensor | None]:
        """Start and end logits, each [B, T], and the no-answer logit [B] (None where all have answers)."""
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
        """Logits [B, T, C]."""
        return self.output(hidden_BTD)


class ChoiceHead(SentenceHead):
    """One logit per choice from its [CLS]; the batch holds the choices of an example one after the other."""

    def __init__(self, hidden_size: int, num_choices: int, layout: Layout):
        super().__init__(hidden_size, 1, layout)
        self.num_choices = num_choices

    def forward(self, hidden_BTD: Tensor, batch: Batch) -> Tensor:
        """Logits [B / C, C], to be compared with each other."""
        return super().forward(hidden_BTD, batch).view(-1, self.num_choices)


class TaskModel(nn.Module):
    """Encoder and head of one task.

    Args:
        layout: where the encoder's summary token stands; first where nothing is said.
        span_head: which of the two heads for spans; the joint one needs the summary token to stand first, and others
            get the plain one.
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
        inputs = (batch.tokens_BT, batch.segments_BT, batch.mask_BT)
        if isinstance(self.encoder, Encoder) and isinstance(self.head, SentenceHead):
            return self.encoder(*inputs, first_only=True)  # all that this head looks at
        return self.encoder(*inputs)


def token_at(position: Position, values_BTD: Tensor, batch: Batch) -> Tensor:
    """The values [B, D] at each example's first token, or at its last one that is not padding."""
    if position == "first":
        return values_BTD[:, 0]
    last_B = batch.mask_BT.sum(1) - 1
    return values_BTD[torch.arange(len(last_B), device=last_B.device), last_B]


def initialize_head(head: nn.Module, generator: torch.Generator) -> None:
    """Glorot-uniform kernels and zero biases, TensorFlow's default that the original leaves in place."""
    for module in head.modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight, generator=generator)
            nn.init.zeros_(module.bias)
