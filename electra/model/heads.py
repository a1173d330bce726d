"""What generator and discriminator put on top of their encoders during pre-training.

Shape legend: as in encoder.py; K masked slots per example, G generator width.
"""

import torch.nn.functional as F
from torch import Tensor, nn

from electra.model.encoder import Embeddings, EncoderConfig


class GeneratorHead(nn.Module):
    """Hidden states of masked positions to logits over the vocabulary; the output matrix is the word table."""

    def __init__(self, config: EncoderConfig, embeddings: Embeddings):
        super().__init__()
        self.transform = nn.Linear(config.hidden_size, config.embedding_size)
        self.norm = nn.LayerNorm(config.embedding_size, eps=config.layer_norm_eps)
        self.weight = embeddings.word.weight  # the same parameter, so that ZeRO-3 gathers it for this module too
        self.bias = nn.Parameter(self.weight.new_zeros(config.vocab_size))

    def forward(self, hidden_BKG: Tensor) -> Tensor:
        """Logits [B, K, V]."""
        transformed_BKE = self.norm(F.gelu(self.transform(hidden_BKG)))
        return F.linear(transformed_BKE, self.weight, self.bias)


class DiscriminatorHead(nn.Module):
    """Hidden states to one logit per token: above zero means replaced."""

    def __init__(self, config: EncoderConfig):
        super().__init__()
        self.transform = nn.Linear(config.hidden_size, config.hidden_size)
        self.output = nn.Linear(config.hidden_size, 1)

    def forward(self, hidden_BTD: Tensor) -> Tensor:
        """Logits [B, T]."""
        return self.output(F.gelu(self.transform(hidden_BTD))).squeeze(-1)
