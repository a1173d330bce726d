"""FLOPs of the parts of a method, per token of a forward pass: matrix products only, a multiply-add counts two."""

from electra.model.shape import EncoderConfig

TRAINED = 3  # cost of training in forward passes: the forward pass, and the gradients of weights and of inputs


def encoder_flops(encoder: EncoderConfig, length: int) -> float:
    """Return the FLOPs of the encoder's forward pass per token; lookups are free.

    In a local layer only the scores inside the window count, as the flash kernel computes it; without that kernel all
    scores are computed.
    """
    width = encoder.hidden_size
    products = 3 if encoder.is_gated else 2
    per_layer = 2 * (4 * width**2 + products * width * encoder.intermediate_size)
    window = min(length, (encoder.local_attention or 0) + 1)
    seen = sum(window if encoder.is_local(layer) else length for layer in range(encoder.num_layers))
    projection = 2 * encoder.embedding_size * width if encoder.embedding_size != width else 0
    return encoder.num_layers * per_layer + 4 * seen * width + projection


def vocabulary_head_flops(encoder: EncoderConfig, width: int | None = None) -> float:
    """Return the forward FLOPs of predicting one token: from ``width`` to the embeddings' width, then the word table.

    ``modern`` has another dense layer before the projection back to the embeddings' width.

    Args:
        width: of the hidden states, where it is not the encoder's.
    """
    width = width or encoder.hidden_size
    dense = 2 * width**2 if encoder.is_modern and encoder.embedding_size != encoder.hidden_size == width else 0
    return dense + 2 * encoder.embedding_size * (width + encoder.vocab_size)


def binary_head_flops(encoder: EncoderConfig) -> float:
    """Return the FLOPs of a dense layer and one logit."""
    return 2 * (encoder.hidden_size**2 + encoder.hidden_size)
