"""ELECTRA 15% (paper section 3.5): the discriminator learns on the masked positions only."""

from torch import Tensor

from electra.model.methods import ReplacedTokenDetection
from electra.model.objective import Batch


class Electra15(ReplacedTokenDetection):
    """Replaced token detection with the discriminator's loss on the masked positions only."""

    def judged(self, batch: Batch) -> Tensor:
        return batch.is_masked_BT()
