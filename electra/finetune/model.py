"""The model of a task: an encoder with the head of the task's kind."""

import torch
from torch import Tensor, nn

from electra.finetune.base import initialize_head
from electra.finetune.encoders import AnyEncoder
from electra.finetune.features import Batch
from electra.finetune.input_format import Layout
from electra.finetune.kinds import FINETUNING
from electra.model.attention import CuSeqlens, has_kernel
from electra.model.encoder import Encoder
from electra.tasks.catalogue import SpanHeadName, TaskSpec


class TaskModel(nn.Module):
    """Encoder and head of one task.

    Args:
        layout: position of the encoder's summary token; BERT's layout by default.
        span_head: name of the head of span tasks; see :class:`electra.finetune.span.Span`.
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
        self.encoder = encoder
        self.head = FINETUNING[spec.kind].head(spec, encoder.config.hidden_size, layout or Layout(), span_head)
        initialize_head(self.head, generator)

    def forward(self, batch: Batch):
        """Return the output of the head."""
        return self.head(self._hidden(batch), batch)

    def loss(self, batch: Batch) -> Tensor:
        """Return the mean loss over a labelled batch, a scalar."""
        return self.head.loss(self._hidden(batch), batch)

    def _hidden(self, batch: Batch) -> Tensor:
        mask_BT: Tensor | CuSeqlens = batch.mask_BT
        if batch.ends_N is not None and isinstance(self.encoder, Encoder):
            device = batch.ends_N.device
            if has_kernel(device, bf16=torch.is_autocast_enabled(device.type)):
                mask_BT = CuSeqlens(batch.ends_N, batch.mask_BT)
        inputs = (batch.tokens_BT, batch.segments_BT, mask_BT)
        if isinstance(self.encoder, Encoder) and self.head.reads_summary_only:
            return self.encoder(*inputs, first_only=True)
        return self.encoder(*inputs)
