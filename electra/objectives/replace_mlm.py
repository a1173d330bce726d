"""Replace MLM (paper section 3.5): masked language modelling on the generator's samples instead of on [MASK]."""

from torch import Tensor

from electra import config
from electra.model.generator import at_positions, build_encoders, losses_and_hits, vocabulary_head
from electra.model.shape import EncoderConfig
from electra.objectives.base import Batch, Outputs, num_correct, total
from electra.objectives.electra import Electra
from electra.objectives.flops import vocabulary_head_flops


class ReplaceMlm(Electra):
    """As ELECTRA, but the main encoder predicts the original tokens at the masked positions: L = L_MLM + L_replace."""

    encoder_name = "encoder"

    def build(self, model: config.Model, vocab_size: int) -> None:
        self.encoder, generator = build_encoders(model, vocab_size)
        self.head = vocabulary_head(self.encoder)
        self.add_generator(generator)

    @property
    def loss_weights(self) -> dict[str, float]:
        return {**self.generator_weights, "replace_mlm": 1.0}

    def counts(self, batch: Batch) -> dict[str, Tensor]:
        slots = batch.mask_weights_BK.sum()
        return {"mlm": slots, "replace_mlm": slots}

    def forward(self, batch: Batch) -> Outputs:
        generated = self.generate(batch)
        hidden_BTD = self.encoder(generated.corrupted_ids_BT, batch.segments_BT, batch.attended_BT)
        hidden_BKD = at_positions(hidden_BTD, batch.mask_positions_BK)
        losses_BK, is_right_BK = losses_and_hits(self.head, hidden_BKD, batch.original_ids_BK())
        correct = self.num_right_guesses(batch, generated)
        if not self.training:
            correct["replace_mlm"] = num_correct(is_right_BK, batch.mask_weights_BK)
        sums = {"mlm": total(generated.losses_BK), "replace_mlm": total(losses_BK * batch.mask_weights_BK)}
        return Outputs(sums, correct, sampled_ids_BK=generated.sampled_ids_BK)

    @classmethod
    def head_flops(cls, encoder: EncoderConfig, length: int, masked_share: float) -> float:
        return masked_share * vocabulary_head_flops(encoder)
