"""The shape of an encoder, and how the generator's follows from the discriminator's (paper section 3.2)."""

from dataclasses import dataclass, fields, replace
from typing import Literal

from electra import config


@dataclass(frozen=True)
class EncoderConfig:
    """Shape of one encoder; the last fields as in :class:`electra.config.Model`."""

    vocab_size: int
    embedding_size: int
    hidden_size: int
    num_layers: int
    num_heads: int
    intermediate_size: int
    max_positions: int = 512
    num_segments: int = 2
    dropout: float = 0.1
    attention_dropout: float = 0.1
    layer_norm_eps: float = 1e-12
    architecture: Literal["electra", "modern"] = "electra"
    positions: Literal["learned", "rotary"] = "learned"
    norm: Literal["post", "pre"] = "post"
    feed_forward: Literal["gelu", "geglu"] = "gelu"
    rotary_base: float = 10_000.0
    local_attention: int | None = None
    global_every: int = 3
    local_rotary_base: float = 10_000.0

    @property
    def is_modern(self) -> bool:
        """Without biases and segments; the embeddings' LayerNorm above the projection, and one in both heads."""
        return self.architecture == "modern"

    @property
    def is_the_papers(self) -> bool:
        """BERT's blocks, as in the paper and in ``transformers``' ELECTRA."""
        parts = (self.architecture, self.positions, self.norm, self.feed_forward, self.local_attention)
        return parts == ("electra", "learned", "post", "gelu", None)

    @property
    def has_bias(self) -> bool:
        return not self.is_modern

    @property
    def is_gated(self) -> bool:
        return self.feed_forward == "geglu"

    def is_local(self, layer: int) -> bool:
        """Return whether a layer, counted from 0, sees a window and not all tokens."""
        return self.local_attention is not None and layer % self.global_every != 0

    @classmethod
    def discriminator(cls, model: config.Model, vocab_size: int) -> "EncoderConfig":
        """The shape that the settings name; fields of both have the same names."""
        shared = {field.name: getattr(model, field.name) for field in fields(cls) if hasattr(model, field.name)}
        return cls(vocab_size=vocab_size, **shared)

    @classmethod
    def generator(cls, model: config.Model, vocab_size: int) -> "EncoderConfig":
        """The discriminator's shape scaled as in the paper: narrower, 64-wide heads, feed-forward four times as wide.

        A gated feed-forward part is as many times as wide as the discriminator's. Where the discriminator's own heads
        are narrower than 64, the generator keeps their width. Embeddings of its own (embedding_sharing: none) are as
        wide as its layers, as in the original.
        """
        hidden, num_heads = model.generator_shape
        gated = max(1, round(model.intermediate_size * hidden / model.hidden_size))
        return replace(
            cls.discriminator(model, vocab_size),
            embedding_size=hidden if model.embedding_sharing == "none" else model.embedding_size,
            hidden_size=hidden,
            num_layers=max(1, round(model.num_layers * model.generator_depth)),
            num_heads=num_heads,
            intermediate_size=gated if model.feed_forward == "geglu" else 4 * hidden,
        )
