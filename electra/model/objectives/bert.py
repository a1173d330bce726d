"""BERT (Devlin et al., 2019): masked language modelling, masked anew every epoch, with or without next sentences."""

from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor

from electra import config
from electra.model.batch import Batch, Outputs
from electra.model.corruption import masked_input
from electra.model.encoder import Encoder
from electra.model.heads import NextSentenceHead, VocabularyHead
from electra.model.objective import Objective
from electra.model.pair import at_positions, num_correct, token_losses
from electra.model.shape import EncoderConfig


class Bert(Objective):
    """One encoder that predicts the masked tokens; the loader shows 80% of them as [MASK], 10% as random tokens."""

    main: ClassVar[str] = "encoder"

    def __init__(self, model: config.Model, vocab_size: int, mask_id: int, method: config.Method | None = None):
        super().__init__(method or config.Method(objective="bert"))
        self.vocab_size, self.mask_id = vocab_size, mask_id
        self.encoder = Encoder(EncoderConfig.discriminator(model, vocab_size))
        self.head = VocabularyHead(self.encoder.config, self.encoder.plain_embeddings)

    @property
    def weights(self) -> dict[str, float]:
        return {"mlm": 1.0}

    def counts(self, batch: Batch) -> dict[str, Tensor]:
        return {"mlm": batch.weights_BK.sum()}

    def forward(self, batch: Batch) -> Outputs:
        return self._masked_language_model(batch)[0]

    def _masked_language_model(self, batch: Batch) -> tuple[Outputs, Tensor]:
        shown_BT, originals_BK = masked_input(batch, self.mask_id, self.vocab_size), batch.originals_BK()
        hidden_BTD = self.encoder(shown_BT, batch.segments_BT, batch.attended_BT)
        logits_BKV = self.head(at_positions(hidden_BTD, batch.positions_BK)).float()
        correct = {} if self.training else {"mlm": num_correct(logits_BKV, originals_BK, batch.weights_BK)}
        losses_BK = token_losses(logits_BKV, originals_BK) * batch.weights_BK
        return Outputs({"mlm": losses_BK.sum()}, correct), hidden_BTD


class BertNextSentence(Bert):
    """BERT as published: half of the second segments come from elsewhere, and [CLS] says which."""

    def __init__(self, model: config.Model, vocab_size: int, mask_id: int, method: config.Method | None = None):
        super().__init__(model, vocab_size, mask_id, method or config.Method(objective="bert_nsp"))
        self.next_sentence_head = NextSentenceHead(self.encoder.config)

    @property
    def weights(self) -> dict[str, float]:
        return {"mlm": 1.0, "nsp": 1.0}

    def counts(self, batch: Batch) -> dict[str, Tensor]:
        assert batch.next_B is not None
        return {"mlm": batch.weights_BK.sum(), "nsp": (batch.next_B >= 0).sum()}

    def forward(self, batch: Batch) -> Outputs:
        assert batch.next_B is not None
        outputs, hidden_BTD = self._masked_language_model(batch)
        logits_B = self.next_sentence_head(hidden_BTD).float()
        has_second_B = batch.next_B >= 0
        losses_B = F.binary_cross_entropy_with_logits(logits_B, batch.next_B.clamp(min=0), reduction="none")
        outputs.loss_sums["nsp"] = (losses_B * has_second_B).sum()
        if not self.training:
            outputs.correct_sums["nsp"] = (((logits_B > 0) == (batch.next_B > 0)) & has_second_B).sum()
        return outputs
