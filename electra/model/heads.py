"""Heads of the pre-training methods.

Shape legend: as in encoder.py; N positions of an example (its masked ones, or all), V vocabulary.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from electra.model.layers import Embeddings, Gelu, LayerNorm, glorot, truncated_normal
from electra.model.shape import EncoderConfig

MOST_LOGITS = 2**27  # largest tensor of logits on CUDA: 0.5 GiB in fp32; the loss needs several times that


class VocabularyHead(nn.Module):
    """Hidden states to logits over the vocabulary; the output matrix is the word table.

    Args:
        config: the encoder below.
        embeddings: whose word table the output matrix is.
        hidden_size: width of the hidden states where it is not the encoder's.
        projection: the encoder's. ``modern`` goes back through it to the table's width, so that projection and table
            fold into one matrix at either end; the paper's dense layer narrows by itself.
    """

    def __init__(
        self,
        config: EncoderConfig,
        embeddings: Embeddings,
        hidden_size: int | None = None,
        projection: nn.Module | None = None,
    ):
        super().__init__()
        back = projection.weight if config.is_modern and isinstance(projection, nn.Linear) else None
        width = config.embedding_size if back is None else config.hidden_size
        self.transform = nn.Linear(hidden_size or config.hidden_size, width, bias=config.has_bias)
        self.activation = Gelu()
        self.norm = LayerNorm(width, eps=config.layer_norm_eps, bias=config.has_bias)
        self.back = back  # the same parameter, as the table is
        self.weight = embeddings.word.weight  # the same parameter, so that ZeRO-3 gathers it for this module too
        self.bias = nn.Parameter(self.weight.new_zeros(config.vocab_size))

    def forward(self, hidden_BND: Tensor, use: Callable[[Tensor, Tensor, Tensor], Any] | None = None) -> Any:
        """Logits [B, N, V].

        Args:
            use: gets the states [B, N, E] below the output matrix, the matrix [V, E] and its bias [V]; what it returns
                takes the place of the logits.
        """
        transformed_BNE = self.norm(self.activation(self.transform(hidden_BND)))
        if self.back is not None:
            transformed_BNE = F.linear(transformed_BNE, self.back.t())
        return (use or F.linear)(transformed_BNE, self.weight, self.bias)

    def init_weights(self, std: float, generator: torch.Generator | None = None) -> None:
        truncated_normal(self.transform, std, generator)

    def exceeds_memory(self, hidden_BND: Tensor) -> bool:
        """Return whether the logits should not lie in memory all at once; never on a CPU."""
        rows = hidden_BND.shape[0] * hidden_BND.shape[1]
        return hidden_BND.is_cuda and rows * self.bias.numel() > MOST_LOGITS


class DiscriminatorHead(nn.Module):
    """Hidden states to one logit per token: above zero means replaced."""

    def __init__(self, config: EncoderConfig):
        super().__init__()
        self.transform = nn.Linear(config.hidden_size, config.hidden_size, bias=config.has_bias)
        self.activation = Gelu()
        self.norm: nn.Module = nn.Identity()
        if config.is_modern:
            self.norm = LayerNorm(config.hidden_size, eps=config.layer_norm_eps, bias=False)
        self.output = nn.Linear(config.hidden_size, 1)

    def forward(self, hidden_BTD: Tensor) -> Tensor:
        """Logits [B, T]."""
        return self.output(self.norm(self.activation(self.transform(hidden_BTD)))).squeeze(-1)

    def init_weights(self, std: float, generator: torch.Generator | None = None) -> None:
        """Both layers; the output's weights are drawn again by :meth:`init_output` when all others have been."""
        truncated_normal(self.transform, std, generator)
        truncated_normal(self.output, std, generator)

    def init_output(self, generator: torch.Generator | None = None) -> None:
        glorot(self.output, generator)  # TensorFlow's default, which the original leaves in place


class NextSentenceHead(nn.Module):
    """BERT's pooled [CLS] to one logit per example: above zero means that the second segment is a random one."""

    def __init__(self, config: EncoderConfig):
        super().__init__()
        self.pool = nn.Linear(config.hidden_size, config.hidden_size)
        self.output = nn.Linear(config.hidden_size, 1)

    def forward(self, hidden_BTD: Tensor) -> Tensor:
        """Logits [B]."""
        return self.output(self.pool(hidden_BTD[:, 0]).tanh()).squeeze(-1)

    def init_weights(self, std: float, generator: torch.Generator | None = None) -> None:
        truncated_normal(self.pool, std, generator)
        truncated_normal(self.output, std, generator)
