"""Two-stage training (paper section 3.2): the generator first, then a discriminator that starts from it.

Without that start the discriminator "would sometimes fail to learn at all beyond the majority class".
"""

import torch

from electra import config
from electra.model.encoder import Encoder
from electra.model.heads import DiscriminatorHead
from electra.model.shape import EncoderConfig
from electra.objectives.base import Batch, Outputs, total
from electra.objectives.electra import Electra
from electra.objectives.flops import TRAINED, encoder_flops


class TwoStage(Electra):
    """Phase 0 trains the generator; phase 1 the discriminator, which starts as its copy, while the generator rests.

    The copy needs two encoders of one shape that share nothing: ``generator_width``, ``generator_depth`` and
    ``embedding_sharing`` are not looked at.
    """

    also_initialized = ("generator",)  # phase 1 begins with its copy

    def build(self, model: config.Model, vocab_size: int) -> None:
        shape = EncoderConfig.discriminator(model, vocab_size)
        self.discriminator = Encoder(shape)
        self.discriminator_head = DiscriminatorHead(shape)
        self.add_generator(Encoder(shape))
        self.phase = 1  # a model that is loaded is in its last phase; training calls set_phase

    @torch.no_grad()
    def enter_phase(self, phase: int) -> None:
        if phase == 1:
            assert self.generator is not None
            self.discriminator.load_state_dict(self.generator.state_dict())

    def set_phase(self, phase: int) -> None:
        self.phase = phase
        for name, parameter in self.named_parameters():
            parameter.requires_grad_(name.startswith("generator") == (phase == 0))

    def part_of(self, parameter: str) -> str:
        return "generator" if parameter.startswith("generator") else "discriminator"

    def forward(self, batch: Batch) -> Outputs:
        generated = self.generate(batch)
        if self.phase == 0:
            sums = {"mlm": total(generated.losses_BK)}
            return Outputs(sums, self.num_right_guesses(batch, generated), sampled_ids_BK=generated.sampled_ids_BK)
        outputs, _ = self.discriminate(batch, generated)
        outputs.loss_sums = {"mlm": total(generated.losses_BK).detach(), **outputs.loss_sums}
        return outputs

    @classmethod
    def training_flops(
        cls,
        generator: EncoderConfig | None,
        encoder: EncoderConfig,
        length: int,
        masked_share: float,
        two_stage_switch: float = 0.5,
    ) -> float:
        """Return the average over the run; in phase 1 the generator has a forward pass only."""
        proposing = cls.generator_flops(encoder, encoder, length, masked_share)
        detecting = encoder_flops(encoder, length) + cls.head_flops(encoder, length, masked_share)
        return two_stage_switch * TRAINED * proposing + (1 - two_stage_switch) * (proposing + TRAINED * detecting)
