"""Masked language modelling by one encoder (Devlin et al., 2019): the base of the BERT methods."""

from typing import ClassVar

from torch import Tensor

from electra import config
from electra.model.batch import Batch, Outputs, total
from electra.model.encoder import Encoder
from electra.model.generator import at_positions, masked_input, num_correct, token_losses
from electra.model.heads import VocabularyHead
from electra.model.objective import Objective
from electra.model.shape import EncoderConfig


class MaskedLanguageModel(Objective):
    """One encoder that predicts the masked tokens; the loader shows 80% of them as [MASK], 10% as random tokens."""

    main: ClassVar[str] = "encoder"
    reads: ClassVar[tuple[str, ...]] = ("random_BK",)

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
        return self.masked_language_model(batch)[0]

    def masked_language_model(self, batch: Batch) -> tuple[Outputs, Tensor]:
        """Loss and accuracy at the masked positions, and the encoder's states [B, T, D]."""
        shown_BT, originals_BK = masked_input(batch, self.mask_id, self.vocab_size), batch.originals_BK()
        hidden_BTD = self.encoder(shown_BT, batch.segments_BT, batch.attended_BT)
        logits_BKV = self.head(at_positions(hidden_BTD, batch.positions_BK)).float()
        correct = {} if self.training else {"mlm": num_correct(logits_BKV, originals_BK, batch.weights_BK)}
        losses_BK = token_losses(logits_BKV, originals_BK) * batch.weights_BK
        return Outputs({"mlm": total(losses_BK)}, correct), hidden_BTD
