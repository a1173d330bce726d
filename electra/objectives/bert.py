"""BERT without next sentences: masked language modelling, masked anew every epoch."""

from electra.model.methods import MaskedLanguageModel


class Bert(MaskedLanguageModel):
    """Masked language modelling as it is."""
