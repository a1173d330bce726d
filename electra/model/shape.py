"""The shape of an encoder, and how the generator's follows from the discriminator's (paper section 3.2)."""

from dataclasses import dataclass

from electra import config


@dataclass(frozen=True)
class EncoderConfig:
    """Shape of one encoder."""

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

    @classmethod
    def discriminator(cls, model: config.Model, vocab_size: int) -> "EncoderConfig":
        return cls(
            vocab_size=vocab_size,
            embedding_size=model.embedding_size,
            hidden_size=model.hidden_size,
            num_layers=model.num_layers,
            num_heads=model.num_heads,
            intermediate_size=model.intermediate_size,
            max_positions=model.max_positions,
            dropout=model.dropout,
            attention_dropout=model.attention_dropout,
            layer_norm_eps=model.layer_norm_eps,
        )

    @classmethod
    def generator(cls, model: config.Model, vocab_size: int) -> "EncoderConfig":
        """The discriminator's shape scaled as in the paper: narrower, 64-wide heads, feed-forward four times as wide.

        Where the discriminator's own heads are narrower than 64, the generator keeps their width. Embeddings of its own
        (embedding_sharing: none) are as wide as its layers, as in the original.
        """
        hidden = round(model.hidden_size * model.generator_width)
        head_width = min(64, model.hidden_size // model.num_heads)
        return cls(
            vocab_size=vocab_size,
            embedding_size=hidden if model.embedding_sharing == "none" else model.embedding_size,
            hidden_size=hidden,
            num_layers=max(1, round(model.num_layers * model.generator_depth)),
            num_heads=max(1, hidden // head_width),
            intermediate_size=4 * hidden,
            max_positions=model.max_positions,
            dropout=model.dropout,
            attention_dropout=model.attention_dropout,
            layer_norm_eps=model.layer_norm_eps,
        )
