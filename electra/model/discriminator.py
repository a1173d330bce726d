"""Replaced token detection: a generator proposes tokens, the discriminator tells which are replaced (section 3).

Shape legend: B examples, T tokens, K masked slots per example.
"""

import math

import torch.nn.functional as F
from torch import Tensor

from electra import config
from electra.model.batch import Batch, Outputs, total
from electra.model.generator import Proposals, WithGenerator, build_encoders, num_correct
from electra.model.heads import DiscriminatorHead


class ReplacedTokenDetection(WithGenerator):
    """Generator and discriminator, trained jointly: L = L_MLM + 50 L_disc. The base of every method that has both.

    Args:
        model: shapes.
        vocab_size: entries of the vocabulary.
        mask_id: id of [MASK].
        method: loss weights and choices of the generator; the paper's where none is given.
    """

    def __init__(self, model: config.Model, vocab_size: int, mask_id: int, method: config.Method | None = None):
        super().__init__(vocab_size, mask_id, method or config.Method())
        self.discriminator, generator = build_encoders(model, vocab_size)
        if self.method.generator == "transformer":
            self.generator = generator
        self.discriminator_head = DiscriminatorHead(self.discriminator.config)
        self.add_generator(generator)

    @property
    def weights(self) -> dict[str, float]:
        return {**self.generator_terms, "disc": self.method.discriminator_weight}

    def counts(self, batch: Batch) -> dict[str, Tensor]:
        return {"mlm": batch.weights_BK.sum(), "disc": self.judged(batch).sum()}

    def judged(self, batch: Batch) -> Tensor:
        """Where the discriminator learns [B, T]: on all tokens, which is what makes it efficient."""
        return batch.mask_BT

    def labels(self, batch: Batch, corrupted_BT: Tensor) -> Tensor:
        """True where replaced [B, T]. A sample that hits the original counts as real, unless told otherwise."""
        if self.method.correct_samples_are_fake:
            return batch.is_masked_BT()
        return corrupted_BT != batch.tokens_BT

    def forward(self, batch: Batch) -> Outputs:
        proposals = self.propose(batch)
        outputs, _ = self.discriminate(batch, proposals)
        outputs.loss_sums = {"mlm": total(proposals.losses_BK), **outputs.loss_sums}
        return outputs

    def discriminate(self, batch: Batch, proposals: Proposals) -> tuple[Outputs, Tensor]:
        """Replaced token detection; also the losses of all tokens [B, T], nats."""
        labels_BT, judged_BT = self.labels(batch, proposals.corrupted_BT), self.judged(batch)
        hidden_BTD = self.discriminator(proposals.corrupted_BT, batch.segments_BT, batch.attended_BT)
        logits_BT = self.discriminator_head(hidden_BTD).float()
        losses_BT = F.binary_cross_entropy_with_logits(logits_BT, labels_BT.float(), reduction="none")
        outputs = Outputs(
            loss_sums={"disc": total(losses_BT * judged_BT)},
            correct_sums={} if self.training else self._correct(batch, proposals),
            sampled_BK=proposals.sampled_BK,
            labels_BT=labels_BT,
            discriminator_logits_BT=logits_BT.detach(),
            judged_BT=judged_BT,
        )
        return outputs, losses_BT

    def _correct(self, batch: Batch, proposals: Proposals) -> dict[str, Tensor]:
        return {"mlm": num_correct(proposals.logits_BKV, batch.originals_BK(), batch.weights_BK)}


def binary_entropy(rate: float) -> float:
    """Loss of a discriminator that knows only how many tokens are replaced, nats: the majority-class plateau."""
    return -sum(p * math.log(p) for p in (rate, 1 - rate) if p > 0)
