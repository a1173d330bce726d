"""BERT as published (Devlin et al., 2019): masked language modelling and next sentence prediction.

Shape legend: as in :mod:`electra.model.objective`.
"""

import torch.nn.functional as F
from torch import Tensor

from electra import config
from electra.model.heads import NextSentenceHead
from electra.model.methods import MaskedLanguageModel
from electra.model.objective import Batch, Outputs


class BertNsp(MaskedLanguageModel):
    """BERT as published: half of the second segments come from elsewhere, and [CLS] says which."""

    def __init__(self, model: config.Model, vocab_size: int, mask_id: int, method: config.Method | None = None):
        super().__init__(model, vocab_size, mask_id, method or config.Method(objective="bert_nsp"))
        self.next_sentence_head = NextSentenceHead(self.encoder.config)

    @property
    def loss_weights(self) -> dict[str, float]:
        return {"mlm": 1.0, "nsp": 1.0}

    def counts(self, batch: Batch) -> dict[str, Tensor]:
        assert batch.next_B is not None
        return {"mlm": batch.weights_BK.sum(), "nsp": (batch.next_B >= 0).sum()}

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
