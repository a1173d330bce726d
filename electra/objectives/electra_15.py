"""ELECTRA 15% (paper section 3.5): the discriminator learns on the masked positions only."""

from torch import Tensor

from electra.model.shape import EncoderConfig
from electra.objectives.base import Batch
from electra.objectives.electra import Electra


class Electra15(Electra):
    """Replaced token detection with the discriminator's loss on the masked positions only."""

    def loss_mask(self, batch: Batch) -> Tensor:
        return batch.is_masked_BT()

    @classmethod
    def head_flops(cls, encoder: EncoderConfig, length: int, masked_share: float) -> float:
        return masked_share * super().head_flops(encoder, length, masked_share)
