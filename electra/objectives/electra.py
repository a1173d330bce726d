"""ELECTRA: replaced token detection (Clark et al., 2020, section 2).

Shape legend: B examples, T tokens, K masked positions of an example, V vocabulary, G and D widths of generator and
discriminator.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor

from electra import config
from electra.model.generator import at_positions, build_encoders, predict, prediction_from
from electra.model.heads import DiscriminatorHead
from electra.model.shape import EncoderConfig
from electra.objectives.base import Batch, Objective, Outputs, masked_input, num_correct, put_samples, total
from electra.objectives.flops import binary_head_flops, encoder_flops, vocabulary_head_flops


class Electra(Objective):
    """A small generator fills in masked tokens; the discriminator detects at every token whether it was replaced.

    Both are trained jointly, L = L_MLM + 50 L_disc. No gradient flows through the samples, so the generator learns by
    masked language modelling alone; what the two share (the embeddings) learns from both losses.
    """

    needs_logits: ClassVar[bool] = False  # of the generator, all at once

    def build(self, model: config.Model, vocab_size: int) -> None:
        self.discriminator, self.generator = build_encoders(model, vocab_size)  # they share the embeddings
        self.discriminator_head = DiscriminatorHead(self.discriminator.config)
        self.add_generator(self.generator)

    def forward(self, batch: Batch) -> Outputs:
        generated = self.generate(batch)  # masked language modelling, and samples in place of the masked tokens
        outputs, _ = self.discriminate(batch, generated)  # original or replaced, at every token
        outputs.loss_sums = {"mlm": total(generated.losses_BK), **outputs.loss_sums}
        return outputs

    def generate(self, batch: Batch) -> "Generated":
        """Predict the masked tokens, and put a sample of each prediction in its place."""
        original_ids_BK = batch.original_ids_BK()
        if self.generator is None or self.generator_head is None:  # frequencies, the same at every position
            hidden_BKG = None
            logits_BKV = self.frequencies_V.expand(*original_ids_BK.shape, -1)
            predicted = prediction_from(
                logits_BKV, original_ids_BK, batch.uniforms_BK, self.sampler, with_guesses=not self.training
            )
        else:
            masked_ids_BT = masked_input(batch, self.mask_id, self.vocab_size)
            hidden_BTG = self.generator(masked_ids_BT, batch.segments_BT, batch.attended_BT)
            hidden_BKG = at_positions(hidden_BTG, batch.mask_positions_BK)
            predicted = predict(
                self.generator_head, hidden_BKG, original_ids_BK, batch.uniforms_BK, self.sampler, self.needs_logits
            )
        return Generated(
            losses_BK=predicted.losses_BK * batch.mask_weights_BK,
            is_right_BK=predicted.is_right_BK,
            sampled_ids_BK=predicted.sampled_ids_BK,
            corrupted_ids_BT=put_samples(batch, predicted.sampled_ids_BK),
            hidden_BKG=hidden_BKG,
            logits_BKV=predicted.logits_BKV,
        )

    def discriminate(self, batch: Batch, generated: "Generated") -> tuple[Outputs, Tensor]:
        """Detect the replaced tokens. Also returns the losses of all tokens [B, T], nats."""
        is_replaced_BT = self.is_replaced(batch, generated.corrupted_ids_BT)
        hidden_BTD = self.discriminator(generated.corrupted_ids_BT, batch.segments_BT, batch.attended_BT)
        logits_BT = self.discriminator_head(hidden_BTD).float()
        losses_BT = F.binary_cross_entropy_with_logits(logits_BT, is_replaced_BT.float(), reduction="none")
        loss_mask_BT = self.loss_mask(batch)
        outputs = Outputs(
            loss_sums={"disc": total(losses_BT * loss_mask_BT)},
            correct_sums=self.num_right_guesses(batch, generated),
            sampled_ids_BK=generated.sampled_ids_BK,
            is_replaced_BT=is_replaced_BT,
            discriminator_logits_BT=logits_BT.detach(),
            loss_mask_BT=loss_mask_BT,
        )
        return outputs, losses_BT

    def is_replaced(self, batch: Batch, corrupted_ids_BT: Tensor) -> Tensor:
        """Return the labels [B, T]. A sample that is the original token counts as original, as in the paper."""
        if self.method.correct_samples_are_fake:
            return batch.is_masked_BT()
        return corrupted_ids_BT != batch.input_ids_BT

    def loss_mask(self, batch: Batch) -> Tensor:
        """Return where the discriminator learns [B, T]: on all tokens, which is what makes ELECTRA efficient."""
        return batch.mask_BT

    @property
    def loss_weights(self) -> dict[str, float]:
        return {**self.generator_weights, "disc": self.method.discriminator_weight}

    @property
    def generator_weights(self) -> dict[str, float]:
        """Weight of the generator's loss; nothing where it is not trained."""
        return {} if self.generator is None else {"mlm": self.method.generator_weight}

    def counts(self, batch: Batch) -> dict[str, Tensor]:
        return {"mlm": batch.mask_weights_BK.sum(), "disc": self.loss_mask(batch).sum()}

    def num_right_guesses(self, batch: Batch, generated: "Generated") -> dict[str, Tensor]:
        """Return the number of right first guesses of the generator; in evaluation only."""
        return {} if self.training else {"mlm": num_correct(generated.is_right_BK, batch.mask_weights_BK)}

    @classmethod
    def generator_flops(
        cls, generator: EncoderConfig | None, encoder: EncoderConfig, length: int, masked_share: float
    ) -> float:
        if generator is None:
            return 0.0
        return encoder_flops(generator, length) + masked_share * vocabulary_head_flops(generator)

    @classmethod
    def head_flops(cls, encoder: EncoderConfig, length: int, masked_share: float) -> float:
        return binary_head_flops(encoder)


@dataclass
class Generated:
    """Output of the generator for a batch."""

    losses_BK: Tensor  # of masked language modelling, nats; 0 at slots without weight
    is_right_BK: Tensor | None  # bool, True where the first guess is the original; None in training
    sampled_ids_BK: Tensor  # one token drawn from each prediction
    corrupted_ids_BT: Tensor  # the text with these tokens in it
    hidden_BKG: Tensor | None  # the generator's states at the masked positions; None where it has none
    logits_BKV: Tensor | None  # None where they were computed in chunks
