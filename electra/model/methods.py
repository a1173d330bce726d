"""The two models that all methods build on: replaced token detection, and masked language modelling by one encoder.

Replaced token detection: Clark et al. (2020). Masked language modelling: Devlin et al. (2019).
"""

import math
from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor

from electra import config
from electra.model.encoder import Encoder
from electra.model.generator import (
    Proposals,
    WithGenerator,
    at_positions,
    build_encoders,
    guesses,
    masked_input,
    num_correct,
)
from electra.model.heads import DiscriminatorHead, VocabularyHead
from electra.model.objective import Batch, Objective, Outputs, total
from electra.model.shape import EncoderConfig


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
    def loss_weights(self) -> dict[str, float]:
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
        return {"mlm": num_correct(proposals.right_BK, batch.weights_BK)}


def binary_entropy(rate: float) -> float:
    """Loss of a discriminator that knows only how many tokens are replaced, nats: the majority-class plateau."""
    return -sum(p * math.log(p) for p in (rate, 1 - rate) if p > 0)


class MaskedLanguageModel(Objective):
    """One encoder that predicts the masked tokens; the loader shows 80% of them as [MASK], 10% as random tokens."""

    main: ClassVar[str] = "encoder"
    reads: ClassVar[tuple[str, ...]] = ("random_BK",)

    def __init__(self, model: config.Model, vocab_size: int, mask_id: int, method: config.Method | None = None):
        super().__init__(method or config.Method(objective="bert"))
        self.vocab_size, self.mask_id = vocab_size, mask_id
        self.encoder = Encoder(EncoderConfig.discriminator(model, vocab_size))
        self.head = VocabularyHead(
            self.encoder.config, self.encoder.plain_embeddings, projection=self.encoder.projection
        )

    @property
    def loss_weights(self) -> dict[str, float]:
        return {"mlm": 1.0}

    def counts(self, batch: Batch) -> dict[str, Tensor]:
        return {"mlm": batch.weights_BK.sum()}

    def forward(self, batch: Batch) -> Outputs:
        return self.masked_language_model(batch)[0]

    def masked_language_model(self, batch: Batch) -> tuple[Outputs, Tensor]:
        """Loss and accuracy at the masked positions, and the encoder's states [B, T, D]."""
        shown_BT, originals_BK = masked_input(batch, self.mask_id, self.vocab_size), batch.originals_BK()
        hidden_BTD = self.encoder(shown_BT, batch.segments_BT, batch.attended_BT)
        losses_BK, right_BK = guesses(self.head, at_positions(hidden_BTD, batch.positions_BK), originals_BK)
        correct = {} if self.training else {"mlm": num_correct(right_BK, batch.weights_BK)}
        return Outputs({"mlm": total(losses_BK * batch.weights_BK)}, correct), hidden_BTD
