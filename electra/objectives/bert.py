"""BERT without next sentences (Devlin et al., 2019): masked language modelling, masked anew every epoch.

Shape legend: B examples, T tokens, K masked positions of an example, D width.
"""

from torch import Tensor

from electra import config
from electra.model.encoder import Encoder
from electra.model.generator import at_positions, losses_and_hits, vocabulary_head
from electra.model.heads import VocabularyHead
from electra.model.shape import EncoderConfig
from electra.objectives.base import Batch, Objective, Outputs, masked_input, num_correct, total
from electra.objectives.flops import vocabulary_head_flops


class Bert(Objective):
    """One encoder that predicts the masked tokens; it sees 80% of them as [MASK], 10% as random tokens, 10% as is."""

    encoder_name = "encoder"
    batch_fields = ("random_BK",)
    masking = (0.8, 0.1)

    def build(self, model: config.Model, vocab_size: int) -> None:
        self.encoder = Encoder(EncoderConfig.discriminator(model, vocab_size))
        self.head = vocabulary_head(self.encoder)

    @property
    def loss_weights(self) -> dict[str, float]:
        return {"mlm": 1.0}

    def counts(self, batch: Batch) -> dict[str, Tensor]:
        return {"mlm": batch.mask_weights_BK.sum()}

    def forward(self, batch: Batch) -> Outputs:
        return self.masked_language_model(batch)[0]

    def masked_language_model(self, batch: Batch) -> tuple[Outputs, Tensor]:
        """Return loss and accuracy at the masked positions, and the encoder's states [B, T, D]."""
        return predict_masked(self.encoder, self.head, batch, self.mask_id)

    @classmethod
    def head_flops(cls, encoder: EncoderConfig, length: int, masked_share: float) -> float:
        return masked_share * vocabulary_head_flops(encoder)


def predict_masked(encoder: Encoder, head: VocabularyHead, batch: Batch, mask_id: int) -> tuple[Outputs, Tensor]:
    """Predict the masked tokens with an encoder.

    Returns:
        The term ``mlm``, in evaluation with the number of right first guesses; and the encoder's states [B, T, D].
    """
    masked_ids_BT = masked_input(batch, mask_id, encoder.config.vocab_size)
    hidden_BTD = encoder(masked_ids_BT, batch.segments_BT, batch.attended_BT)
    hidden_BKD = at_positions(hidden_BTD, batch.mask_positions_BK)
    losses_BK, is_right_BK = losses_and_hits(head, hidden_BKD, batch.original_ids_BK())
    correct = {} if is_right_BK is None else {"mlm": num_correct(is_right_BK, batch.mask_weights_BK)}
    return Outputs({"mlm": total(losses_BK * batch.mask_weights_BK)}, correct), hidden_BTD
