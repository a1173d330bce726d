"""COCO-LM (Meng et al. 2021): replaced token detection, corrective language modelling and a contrast of sequences."""

import torch
import torch.nn.functional as F
from torch import Tensor

from electra import config
from electra.model.generator import at_positions, guesses, num_correct
from electra.model.objective import Batch, Outputs, total
from electra.objectives.corrective import Corrective

KEPT = 0.9  # of the tokens, in the crop


def cropped(batch: Batch) -> tuple[Tensor, Tensor]:
    """A contiguous part of each example's original tokens behind its first one [B, T], and where it has tokens."""
    lengths_B = batch.mask_BT.sum(1)
    kept_B = (KEPT * lengths_B).long().clamp(min=2)
    first_B = (batch.uniforms_BK[:, 0] * (lengths_B - kept_B + 1)).long()
    places_T = torch.arange(batch.tokens_BT.shape[1], device=batch.tokens_BT.device)
    from_BT = (places_T + first_B[:, None] * (places_T > 0)).clamp(max=batch.tokens_BT.shape[1] - 1)
    mask_BT = places_T < kept_B[:, None]
    return batch.tokens_BT.gather(1, from_BT) * mask_BT, mask_BT


class Coco(Corrective):
    """L = L_MLM + 50 L_disc + L_corrective + L_contrast: a corrupted example and its crop are each other's pair."""

    @property
    def loss_weights(self) -> dict[str, float]:
        weight = self.method.discriminator_weight
        return {**self.generator_terms, "corrective": 1.0, "contrast": 1.0, "disc": weight}

    def counts(self, batch: Batch) -> dict[str, Tensor]:
        return {**super().counts(batch), "contrast": torch.tensor(float(len(batch.tokens_BT)))}

    def forward(self, batch: Batch) -> Outputs:
        proposals = self.propose(batch)
        labels_BT, judged_BT = self.labels(batch, proposals.corrupted_BT), self.judged(batch)
        hidden_BTD = self.discriminator(proposals.corrupted_BT, batch.segments_BT, batch.attended_BT)
        logits_BT = self.discriminator_head(hidden_BTD).float()
        losses_BT = F.binary_cross_entropy_with_logits(logits_BT, labels_BT.float(), reduction="none")
        losses_BK, right_BK = guesses(self.word_head, at_positions(hidden_BTD, batch.positions_BK), batch.originals_BK())
        tokens_BT, mask_BT = cropped(batch)
        crop_BTD = self.discriminator(tokens_BT, torch.zeros_like(tokens_BT), mask_BT)
        both_ND = F.normalize(torch.cat([hidden_BTD[:, 0], crop_BTD[:, 0]]).float(), dim=-1)
        size = len(tokens_BT)
        scores_NN = (both_ND @ both_ND.T).masked_fill(torch.eye(2 * size, dtype=torch.bool), -torch.inf)
        partner_N = torch.arange(2 * size).roll(size)
        contrast = F.cross_entropy(scores_NN, partner_N, reduction="sum") / 2
        correct = {} if self.training else {
            **self._correct(batch, proposals), "corrective": num_correct(right_BK, batch.weights_BK)
        }  # fmt: skip
        return Outputs(
            loss_sums={
                "mlm": total(proposals.losses_BK),
                "corrective": total(losses_BK * batch.weights_BK),
                "contrast": contrast,
                "disc": total(losses_BT * judged_BT),
            },
            correct_sums=correct,
            sampled_BK=proposals.sampled_BK,
            labels_BT=labels_BT,
            discriminator_logits_BT=logits_BT.detach(),
            judged_BT=judged_BT,
        )
