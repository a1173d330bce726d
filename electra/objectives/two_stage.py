"""Two-stage training (paper section 3.4): the generator first, then a discriminator that starts from it.

Without that start the discriminator "would sometimes fail to learn at all beyond the majority class".
"""

import torch

from electra import config
from electra.model.encoder import Encoder
from electra.model.heads import DiscriminatorHead
from electra.model.methods import ReplacedTokenDetection
from electra.model.objective import Batch, Outputs, total
from electra.model.shape import EncoderConfig


class TwoStage(ReplacedTokenDetection):
    """Phase 0 trains the generator alone; phase 1 the discriminator, a copy of it at the start; the generator rests.

    The copy needs two encoders of one shape that share nothing: ``generator_width``, ``generator_depth`` and
    ``embedding_sharing`` are not looked at.
    """

    def __init__(self, model: config.Model, vocab_size: int, mask_id: int, method: config.Method | None = None):
        super(ReplacedTokenDetection, self).__init__(
            vocab_size, mask_id, method or config.Method(objective="two_stage")
        )
        shape = EncoderConfig.discriminator(model, vocab_size)
        self.discriminator = Encoder(shape)
        self.discriminator_head = DiscriminatorHead(shape)
        self.add_generator(Encoder(shape))
        self.phase = 1

    def phases(self, num_steps: int) -> list[range]:
        switch = max(1, min(num_steps - 1, round(self.method.two_stage_switch * num_steps)))
        return [range(switch), range(switch, num_steps)]

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
        proposals = self.propose(batch)
        if self.phase == 0:
            correct = {} if self.training else self._correct(batch, proposals)
            sums = {"mlm": total(proposals.losses_BK)}
            return Outputs(sums, correct, sampled_BK=proposals.sampled_BK)
        outputs, _ = self.discriminate(batch, proposals)
        outputs.loss_sums = {"mlm": total(proposals.losses_BK).detach(), **outputs.loss_sums}
        return outputs
