"""BERT as published (Devlin et al., 2019): masked language modelling and next sentence prediction.

Shape legend: B examples, T tokens, D width.
"""

import torch.nn.functional as F
from torch import Tensor

from electra import config
from electra.model.heads import NextSentenceHead
from electra.model.shape import EncoderConfig
from electra.objectives.base import Batch, Outputs
from electra.objectives.bert import Bert
from electra.objectives.flops import binary_head_flops


class BertNsp(Bert):
    """Half of the second segments are random ones, and the state of [CLS] predicts which."""

    def build(self, model: config.Model, vocab_size: int) -> None:
        super().build(model, vocab_size)
        self.next_sentence_head = NextSentenceHead(self.encoder.config)

    @property
    def loss_weights(self) -> dict[str, float]:
        return {"mlm": 1.0, "nsp": 1.0}

    def counts(self, batch: Batch) -> dict[str, Tensor]:
        assert batch.next_B is not None
        return {**super().counts(batch), "nsp": (batch.next_B >= 0).sum()}

    def forward(self, batch: Batch) -> Outputs:
        assert batch.next_B is not None
        outputs, hidden_BTD = self.masked_language_model(batch)
        logits_B = self.next_sentence_head(hidden_BTD).float()
        has_second_B = batch.next_B >= 0
        losses_B = F.binary_cross_entropy_with_logits(logits_B, batch.next_B.clamp(min=0), reduction="none")
        outputs.loss_sums["nsp"] = (losses_B * has_second_B).sum()
        if not self.training:
            outputs.correct_sums["nsp"] = (((logits_B > 0) == (batch.next_B > 0)) & has_second_B).sum()
        return outputs

    @classmethod
    def head_flops(cls, encoder: EncoderConfig, length: int, masked_share: float) -> float:
        return super().head_flops(encoder, length, masked_share) + binary_head_flops(encoder) / length  # one [CLS]
