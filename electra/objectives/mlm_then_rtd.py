"""Masked language modelling first, replaced token detection after, by the same encoder.

The encoder first learns masked language modelling, as BERT does, and then goes on as ELECTRA's discriminator. Unlike
that of ``two_stage``, the generator is no copy of the encoder, but a small one, or fixed token frequencies, whose
samples cost nothing (``pretrain.generator``).
"""

from electra import config
from electra.model.encoder import Encoder
from electra.model.generator import vocabulary_head
from electra.model.heads import VocabularyHead
from electra.model.shape import EncoderConfig
from electra.objectives.base import Batch, Outputs
from electra.objectives.bert import predict_masked
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
        self.phase = 1  # a model that is loaded is in its last phase; training calls set_phase

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
            return predict_masked(self.discriminator, self.head, batch, self.mask_id)[0]
        outputs = super().forward(batch)
        if self.generator is None:  # fixed frequencies are no model to measure: a token they lack has an infinite loss
            del outputs.loss_sums["mlm"]
        return outputs

    def language_model(self) -> tuple[Encoder, VocabularyHead] | None:
        """Return the generator; without one None, since the encoder has changed since its head was trained."""
        return None if self.generator is None else super().language_model()

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
