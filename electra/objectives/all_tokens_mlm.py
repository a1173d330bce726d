"""All-Tokens MLM (paper section 3.5): as Replace MLM, but every token is predicted, with a copy mechanism.

Shape legend: B examples, T tokens, D width.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from electra import config
from electra.model.generator import build_encoders, losses_and_hits, vocabulary_head
from electra.model.shape import EncoderConfig
from electra.objectives.base import Batch, Outputs, num_correct, total
from electra.objectives.electra import Electra
from electra.objectives.flops import vocabulary_head_flops


class AllTokensMlm(Electra):
    """p(token) = D [token = input] + (1 - D) softmax(token), with the copy probability D = sigmoid(w . h).

    Logits over the vocabulary at all positions: the most memory and, for a small encoder, the most work of all methods.
    """

    encoder_name = "encoder"

    def build(self, model: config.Model, vocab_size: int) -> None:
        self.encoder, generator = build_encoders(model, vocab_size)
        self.head = vocabulary_head(self.encoder)
        if self.method.copy_mechanism:
            self.copy = nn.Linear(self.encoder.config.hidden_size, 1)
        self.add_generator(generator)

    @property
    def loss_weights(self) -> dict[str, float]:
        return {**self.generator_weights, "all_tokens_mlm": 1.0}

    def counts(self, batch: Batch) -> dict[str, Tensor]:
        return {"mlm": batch.mask_weights_BK.sum(), "all_tokens_mlm": batch.mask_BT.sum()}

    def forward(self, batch: Batch) -> Outputs:
        generated = self.generate(batch)
        hidden_BTD = self.encoder(generated.corrupted_ids_BT, batch.segments_BT, batch.attended_BT)
        losses_BT, is_right_BT = losses_and_hits(self.head, hidden_BTD, batch.input_ids_BT)
        if self.method.copy_mechanism:
            copy_BT = self.copy(hidden_BTD).float().squeeze(-1)
            generated_BT = F.logsigmoid(-copy_BT) - losses_BT
            copied_BT = torch.logaddexp(F.logsigmoid(copy_BT), generated_BT)
            losses_BT = -torch.where(generated.corrupted_ids_BT == batch.input_ids_BT, copied_BT, generated_BT)
        correct = self.num_right_guesses(batch, generated)
        if not self.training:
            correct["all_tokens_mlm"] = num_correct(is_right_BT, batch.mask_BT)
        sums = {"mlm": total(generated.losses_BK), "all_tokens_mlm": total(losses_BT * batch.mask_BT)}
        return Outputs(sums, correct, sampled_ids_BK=generated.sampled_ids_BK)

    @classmethod
    def head_flops(cls, encoder: EncoderConfig, length: int, masked_share: float) -> float:
        return vocabulary_head_flops(encoder) + 2 * encoder.hidden_size  # and the logit of copying the input
