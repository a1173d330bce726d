"""Masked language modelling first, replaced token detection after, by the same encoder.

A discriminator that starts from random weights learns little until its generator proposes plausible tokens. Here the
encoder learns masked language modelling for most of the run, as BERT does; what is left is ELECTRA's joint training with
a small generator. ``two_stage`` has the phases the other way round as to size: its generator is the full encoder.
"""

from electra import config
from electra.model.generator import at_positions, guesses, vocabulary_head
from electra.model.shape import EncoderConfig
from electra.objectives.base import Batch, Outputs, masked_input, num_correct, total
from electra.objectives.electra import Electra
from electra.objectives.flops import TRAINED, encoder_flops, vocabulary_head_flops


class MlmThenRtd(Electra):
    """Phase 0 trains the encoder to predict masked tokens; phase 1 is ELECTRA with this encoder as discriminator.

    The generator starts from random weights in phase 1, with the embeddings that the encoder has learned where they are
    shared. The term ``mlm`` is the encoder's loss in phase 0 and the generator's in phase 1.
    """

    def build(self, model: config.Model, vocab_size: int) -> None:
        super().build(model, vocab_size)
        self.head = vocabulary_head(self.discriminator)
        self.phase = 1

    def set_phase(self, phase: int) -> None:
        self.phase = phase
        resting = ("head.",) if phase == 1 else ("generator", "discriminator_head.")
        for name, parameter in self.named_parameters():  # shared ones are named as the discriminator's
            parameter.requires_grad_(not name.startswith(resting))

    @property
    def generator_weights(self) -> dict[str, float]:
        return {"mlm": self.method.generator_weight}  # also the weight of the encoder's own loss

    def forward(self, batch: Batch) -> Outputs:
        if self.phase == 0:
            return self.masked_language_model(batch)
        outputs = super().forward(batch)
        if self.generator is None:  # fixed frequencies are no model to measure: a token they lack has an infinite loss
            del outputs.loss_sums["mlm"]
        return outputs

    def masked_language_model(self, batch: Batch) -> Outputs:
        """Predict the masked tokens with the encoder itself."""
        masked_ids_BT = masked_input(batch, self.mask_id, self.vocab_size)
        hidden_BTD = self.discriminator(masked_ids_BT, batch.segments_BT, batch.attended_BT)
        hidden_BKD = at_positions(hidden_BTD, batch.mask_positions_BK)
        losses_BK, is_right_BK = guesses(self.head, hidden_BKD, batch.original_ids_BK())
        correct = {} if self.training else {"mlm": num_correct(is_right_BK, batch.mask_weights_BK)}
        return Outputs({"mlm": total(losses_BK * batch.mask_weights_BK)}, correct)

    @classmethod
    def training_flops(
        cls,
        generator: EncoderConfig | None,
        encoder: EncoderConfig,
        length: int,
        masked_share: float,
        two_stage_switch: float = 0.5,
    ) -> float:
        """Return the average over the run."""
        predicting = encoder_flops(encoder, length) + masked_share * vocabulary_head_flops(encoder)
        detecting = super().training_flops(generator, encoder, length, masked_share)
        return two_stage_switch * TRAINED * predicting + (1 - two_stage_switch) * detecting
