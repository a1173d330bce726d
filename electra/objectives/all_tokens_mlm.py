"""All-Tokens MLM (paper section 3.5): like Replace MLM, but every token is predicted, with a copy mechanism.

Shape legend: B examples, T tokens, V vocabulary.
"""

from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from electra import config
from electra.model.generator import WithGenerator, build_encoders, guesses, num_correct
from electra.model.heads import VocabularyHead
from electra.model.objective import Batch, Outputs, total


class AllTokensMlm(WithGenerator):
    """p(token) = D [token = input] + (1 - D) softmax(token), with the copy probability D = sigmoid(w . h).

    Logits over the vocabulary at all positions: the most memory and, for a small encoder, the most work of all methods.
    """

    main: ClassVar[str] = "encoder"

    def __init__(self, model: config.Model, vocab_size: int, mask_id: int, method: config.Method | None = None):
        super().__init__(vocab_size, mask_id, method or config.Method(objective="all_tokens_mlm"))
        self.encoder, generator = build_encoders(model, vocab_size)
        self.head = VocabularyHead(
            self.encoder.config, self.encoder.plain_embeddings, projection=self.encoder.projection
        )
        if self.method.copy_mechanism:
            self.copy = nn.Linear(self.encoder.config.hidden_size, 1)
        self.add_generator(generator)

    @property
    def loss_weights(self) -> dict[str, float]:
        return {**self.generator_terms, "all_tokens_mlm": 1.0}

    def counts(self, batch: Batch) -> dict[str, Tensor]:
        return {"mlm": batch.weights_BK.sum(), "all_tokens_mlm": batch.mask_BT.sum()}

    def forward(self, batch: Batch) -> Outputs:
        proposals = self.propose(batch)
        hidden_BTD = self.encoder(proposals.corrupted_BT, batch.segments_BT, batch.attended_BT)
        losses_BT, right_BT = guesses(self.head, hidden_BTD, batch.tokens_BT)
        if self.method.copy_mechanism:
            copy_BT = self.copy(hidden_BTD).float().squeeze(-1)
            generated_BT = F.logsigmoid(-copy_BT) - losses_BT
            copied_BT = torch.logaddexp(F.logsigmoid(copy_BT), generated_BT)
            losses_BT = -torch.where(proposals.corrupted_BT == batch.tokens_BT, copied_BT, generated_BT)
        correct = {}
        if not self.training:
            correct = {
                "mlm": num_correct(proposals.right_BK, batch.weights_BK),
                "all_tokens_mlm": num_correct(right_BT, batch.mask_BT),
            }
        sums = {"mlm": total(proposals.losses_BK), "all_tokens_mlm": total(losses_BT * batch.mask_BT)}
        return Outputs(sums, correct, sampled_BK=proposals.sampled_BK)
