"""ELECTRA (paper section 3): the discriminator learns on all tokens, the generator by masked language modelling."""

from electra.model.methods import ReplacedTokenDetection


class Electra(ReplacedTokenDetection):
    """The method of the paper: :class:`ReplacedTokenDetection` as it is."""
