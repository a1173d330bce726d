"""Corrective language modelling (COCO-LM, Meng et al. 2021), without its sequence contrast.

Replaced token detection on all tokens; the originals are predicted at the masked positions from the same states.
"""

from electra import config
from electra.model.generator import at_positions, guesses, num_correct
from electra.model.heads import VocabularyHead
from electra.model.methods import ReplacedTokenDetection
from electra.model.objective import Batch, Outputs, total

import torch.nn.functional as F
from torch import Tensor


class Corrective(ReplacedTokenDetection):
    """L = L_MLM + 50 L_disc + L_corrective."""

    def __init__(self, model: config.Model, vocab_size: int, mask_id: int, method: config.Method | None = None):
        super().__init__(model, vocab_size, mask_id, method or config.Method(objective="corrective"))
        encoder = self.discriminator
        self.word_head = VocabularyHead(encoder.config, encoder.plain_embeddings, projection=encoder.projection)

    @property
    def loss_weights(self) -> dict[str, float]:
        return {**self.generator_terms, "corrective": 1.0, "disc": self.method.discriminator_weight}

    def counts(self, batch: Batch) -> dict[str, Tensor]:
        return {**super().counts(batch), "corrective": batch.weights_BK.sum()}

    def forward(self, batch: Batch) -> Outputs:
        proposals = self.propose(batch)
        labels_BT, judged_BT = self.labels(batch, proposals.corrupted_BT), self.judged(batch)
        hidden_BTD = self.discriminator(proposals.corrupted_BT, batch.segments_BT, batch.attended_BT)
        logits_BT = self.discriminator_head(hidden_BTD).float()
        losses_BT = F.binary_cross_entropy_with_logits(logits_BT, labels_BT.float(), reduction="none")
        losses_BK, right_BK = guesses(
            self.word_head, at_positions(hidden_BTD, batch.positions_BK), batch.originals_BK()
        )
        correct = {} if self.training else {
            **self._correct(batch, proposals), "corrective": num_correct(right_BK, batch.weights_BK)
        }
        return Outputs(
            loss_sums={
                "mlm": total(proposals.losses_BK),
                "corrective": total(losses_BK * batch.weights_BK),
                "disc": total(losses_BT * judged_BT),
            },
            correct_sums=correct,
            sampled_BK=proposals.sampled_BK,
            labels_BT=labels_BT,
            discriminator_logits_BT=logits_BT.detach(),
            judged_BT=judged_BT,
        )
