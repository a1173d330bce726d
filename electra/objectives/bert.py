"""BERT without next sentences: masked language modelling, masked anew every epoch."""

from electra.model.masked_lm import MaskedLanguageModel


class Bert(MaskedLanguageModel):
    """Masked language modelling as it is."""
