"""Adversarial training (paper section 3.2 and appendix F): the generator is rewarded where the discriminator errs.

Shape legend: B examples, T tokens, K masked positions of an example, V vocabulary, G generator width.
"""

import math

import torch.nn.functional as F
from torch import Tensor, nn

from electra import config
from electra.model.shape import EncoderConfig
from electra.objectives.base import Batch, Outputs, total
from electra.objectives.electra import Electra


class Adversarial(Electra):
    """REINFORCE with a learned baseline instead of the generator's masked language modelling.

    The reward R of a sample is the discriminator's loss at its position. The policy gradient is
    (R - b) * grad log p(sample), with b = -log sigmoid(w . h) predicted from the generator's state h; sigmoid(w . h)
    is trained by cross entropy towards exp(-R), the probability the discriminator gave the truth.
    """

    needs_logits = True  # of a sample's probability

    def build(self, model: config.Model, vocab_size: int) -> None:
        super().build(model, vocab_size)
        assert self.generator is not None
        self.generator_baseline = nn.Linear(self.generator.config.hidden_size, 1)

    @property
    def loss_weights(self) -> dict[str, float]:
        return {
            "mlm": 0.0,  # reported, not trained on
            "reinforce": self.method.generator_weight,
            "baseline": self.method.generator_weight,
            "disc": self.method.discriminator_weight,
        }

    def counts(self, batch: Batch) -> dict[str, Tensor]:
        slots = batch.mask_weights_BK.sum()
        return {"mlm": slots, "reinforce": slots, "baseline": slots, "disc": self.loss_mask(batch).sum()}

    def forward(self, batch: Batch) -> Outputs:
        generated = self.generate(batch)
        outputs, losses_BT = self.discriminate(batch, generated)
        assert generated.hidden_BKG is not None and generated.logits_BKV is not None
        rewards_BK = losses_BT.detach().gather(1, batch.mask_positions_BK)
        # the baseline learns from the generator's states and must not shape them
        baseline_BK = self.generator_baseline(generated.hidden_BKG.detach()).float().squeeze(-1)
        advantages_BK = rewards_BK + F.logsigmoid(baseline_BK.detach())
        logits_BKV = generated.logits_BKV.float() / self.method.temperature
        if self.method.disallow_correct:  # as the samples were drawn
            logits_BKV = logits_BKV.scatter(-1, batch.original_ids_BK()[..., None], -math.inf)
        log_probabilities_BKV = logits_BKV.log_softmax(-1)
        chosen_BK = log_probabilities_BKV.gather(-1, generated.sampled_ids_BK[..., None]).squeeze(-1)
        target_BK = (-rewards_BK).exp()
        baseline_losses_BK = F.binary_cross_entropy_with_logits(baseline_BK, target_BK, reduction="none")
        outputs.loss_sums = {
            "mlm": total(generated.losses_BK).detach(),
            "reinforce": -total(advantages_BK * chosen_BK * batch.mask_weights_BK),
            "baseline": total(baseline_losses_BK * batch.mask_weights_BK),
            **outputs.loss_sums,
        }
        return outputs

    @classmethod
    def generator_flops(
        cls, generator: EncoderConfig | None, encoder: EncoderConfig, length: int, masked_share: float
    ) -> float:
        assert generator is not None
        baseline = 2 * generator.hidden_size
        return super().generator_flops(generator, encoder, length, masked_share) + masked_share * baseline
