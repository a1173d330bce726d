"""Replace MLM (paper section 3.5): masked language modelling on the generator's samples instead of on [MASK]."""

from typing import ClassVar

from torch import Tensor

from electra import config
from electra.model.generator import WithGenerator, at_positions, build_encoders, guesses, num_correct
from electra.model.heads import VocabularyHead
from electra.model.objective import Batch, Outputs, total


class ReplaceMlm(WithGenerator):
    """The encoder sees samples at the masked positions and predicts the originals there: L = L_MLM + L_replace."""

    main: ClassVar[str] = "encoder"

    def __init__(self, model: config.Model, vocab_size: int, mask_id: int, method: config.Method | None = None):
        super().__init__(vocab_size, mask_id, method or config.Method(objective="replace_mlm"))
        self.encoder, generator = build_encoders(model, vocab_size)
        self.head = VocabularyHead(
            self.encoder.config, self.encoder.plain_embeddings, projection=self.encoder.projection
        )
        self.add_generator(generator)

    @property
    def loss_weights(self) -> dict[str, float]:
        return {**self.generator_terms, "replace_mlm": 1.0}

    def counts(self, batch: Batch) -> dict[str, Tensor]:
        slots = batch.weights_BK.sum()
        return {"mlm": slots, "replace_mlm": slots}

    def forward(self, batch: Batch) -> Outputs:
        proposals, originals_BK = self.propose(batch), batch.originals_BK()
        hidden_BTD = self.encoder(proposals.corrupted_BT, batch.segments_BT, batch.attended_BT)
        losses_BK, right_BK = guesses(self.head, at_positions(hidden_BTD, batch.positions_BK), originals_BK)
        correct = {}
        if not self.training:
            correct = {
                "mlm": num_correct(proposals.right_BK, batch.weights_BK),
                "replace_mlm": num_correct(right_BK, batch.weights_BK),
            }
        sums = {"mlm": total(proposals.losses_BK), "replace_mlm": total(losses_BK * batch.weights_BK)}
        return Outputs(sums, correct, sampled_BK=proposals.sampled_BK)
