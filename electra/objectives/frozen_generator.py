"""A generator that is trained first and then rests (after Fast-ELECTRA, Dong et al. 2023); it shares nothing."""

from electra import config
from electra.model.methods import ReplacedTokenDetection
from electra.model.objective import Batch, Outputs, total


class FrozenGenerator(ReplacedTokenDetection):
    """Phase 0 trains the generator alone; phase 1 the discriminator, from random weights, on its samples."""

    def __init__(self, model: config.Model, vocab_size: int, mask_id: int, method: config.Method | None = None):
        alone = model.model_copy(update={"embedding_sharing": "none"})
        super().__init__(alone, vocab_size, mask_id, method or config.Method(objective="frozen_generator"))
        self.phase = 1

    def phases(self, num_steps: int) -> list[range]:
        switch = max(1, min(num_steps - 1, round(self.method.two_stage_switch * num_steps)))
        return [range(switch), range(switch, num_steps)]

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
            return Outputs({"mlm": total(proposals.losses_BK)}, correct, sampled_BK=proposals.sampled_BK)
        outputs, _ = self.discriminate(batch, proposals)
        outputs.loss_sums = {"mlm": total(proposals.losses_BK).detach(), **outputs.loss_sums}
        return outputs
