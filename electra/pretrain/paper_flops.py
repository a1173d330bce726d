"""The FLOPs of the ELECTRA paper's tables, by the rules of its authors' script (google-research/electra,
flops_computation.py), re-derived.

A multiply-add counts two. A step costs twice its forward pass (the backward pass is counted as dear as the forward
one, not twice as dear), looking up a word costs a product of a one-hot vector with the whole table, and elementwise
operations count. What a machine really computes is in flops.py. Unless said otherwise, a figure is that of one token's
forward pass.
"""

from electra.model.shape import EncoderConfig

PREDICTED_SHARE = 0.15625  # of an example's tokens: 20 of 128, 80 of 512; whatever share the recipe masks
INFERENCE_LENGTH = 128  # tokens of the example that the tables' inference FLOPs are of

_TRAINING = 2  # a training step in forward passes
_DROPOUT, _NORM, _GELU, _SOFTMAX = 4, 5, 8, 5  # elementwise, per element


def layer_flops(encoder: EncoderConfig, length: int) -> float:
    """One layer. The script forgets to multiply the first LayerNorm by the width; so do these figures."""
    width, inner = encoder.hidden_size, encoder.intermediate_size
    attention = 4 * _linear(width, width) + 2 * (2 * length * width)
    attention += encoder.num_heads * length * (1 + _SOFTMAX + _DROPOUT)  # 1: the scores' scaling
    attention += width * (_DROPOUT + 1) + _NORM  # 1: the residual
    feed_forward = _linear(width, inner) + inner * _GELU + _linear(inner, width) + width * (_DROPOUT + 1 + _NORM)
    return attention + feed_forward


def word_lookup_flops(encoder: EncoderConfig) -> float:
    """A one-hot vector times the word table: 40% of ELECTRA-Small's forward pass, and free on most machines."""
    return 2 * encoder.embedding_size * encoder.vocab_size


def input_flops(encoder: EncoderConfig, length: int) -> float:
    """Words, positions (as many rows as the example has tokens) and segments, their sum, LayerNorm, projection."""
    width = encoder.embedding_size
    others = width * (2 * (length + 2) + 2 + _NORM + _DROPOUT)
    projection = _linear(width, encoder.hidden_size) if width != encoder.hidden_size else 0
    return word_lookup_flops(encoder) + others + projection


def encoder_flops(encoder: EncoderConfig, length: int) -> float:
    """Embeddings and all layers."""
    return input_flops(encoder, length) + encoder.num_layers * layer_flops(encoder, length)


def vocabulary_head_flops(encoder: EncoderConfig) -> float:
    """One predicted token: dense layer, LayerNorm, product with the word table, softmax and loss."""
    width, vocab = encoder.embedding_size, encoder.vocab_size
    return _linear(encoder.hidden_size, width) + width * (_GELU + _NORM) + 2 * width * vocab + (_SOFTMAX + 2) * vocab


def discriminator_head_flops(encoder: EncoderConfig) -> float:
    """Dense layer and one logit."""
    width = encoder.hidden_size
    return _linear(width, width) + width * _GELU + 2 * width


def inference_flops(encoder: EncoderConfig, length: int = INFERENCE_LENGTH) -> float:
    """One example of ``length`` tokens through the encoder and, as in the script, a binary head on every token."""
    return length * (encoder_flops(encoder, length) + discriminator_head_flops(encoder))


def mlm_training_flops(
    encoder: EncoderConfig, length: int, examples: float, predicted_share: float = PREDICTED_SHARE
) -> float:
    """A whole run of masked (or, with a share of 1, left-to-right) language modelling.

    Args:
        encoder: the shape.
        length: tokens per example.
        examples: steps x global batch.
        predicted_share: tokens that a softmax over the vocabulary is computed for.
    """
    forward = encoder_flops(encoder, length) + predicted_share * vocabulary_head_flops(encoder)
    return _TRAINING * examples * length * forward


def electra_training_flops(
    generator: EncoderConfig, discriminator: EncoderConfig, length: int, examples: float
) -> float:
    """A whole run of replaced token detection: the generator's masked language modelling and the discriminator."""
    judging = encoder_flops(discriminator, length) + discriminator_head_flops(discriminator)
    return mlm_training_flops(generator, length, examples) + _TRAINING * examples * length * judging


def _linear(inputs: int, outputs: int) -> int:
    """Matrix product and bias."""
    return 2 * inputs * outputs + outputs


# Two networks are built otherwise. The script takes a profiler's totals for them; here they are counted.


def elmo_forward_flops() -> float:
    """ELMo's matrix products per token, 2.04e8 (Peters et al. 2018; the sizes of its 93.6M-parameter network).

    Characters are convolved (50 of a word, 16 wide), two highway layers and a projection follow, then two layers of
    LSTM in both directions with 4096 cells projected to 512. No softmax.
    """
    filters = {1: 32, 2: 32, 3: 64, 4: 128, 5: 256, 6: 512, 7: 1024}  # number by width
    convolved, cells, width = sum(filters.values()), 4096, 512
    convolutions = sum(2 * 16 * size * number * (50 - size + 1) for size, number in filters.items())
    highways = 2 * (2 * convolved * 2 * convolved)  # each computes a gate and a candidate
    projection = 2 * convolved * width
    lstm = 2 * (width + width) * 4 * cells + 2 * cells * width  # four gates of input and state; projection
    return convolutions + highways + projection + 2 * 2 * lstm


def elmo_sampled_softmax_flops() -> float:
    """What ELMo's training computes besides, per word: 8192 sampled words' logits in each direction."""
    return 2 * (2 * 512 * 8192)


def xlnet_forward_flops(encoder: EncoderConfig, length: int, predicted: int, share_positions_over: int) -> float:
    """One example through XLNet with its two streams (Yang et al. 2019), word lookups free.

    The content stream is a transformer that scores relative positions (2 x length of them) and relative segments (one
    of two) too. The query stream has its own queries, outputs and feed-forward for the ``predicted`` tokens, but
    attends with as many rows as the example has tokens: the original spreads the queries over the example and gathers
    the result, by products with a one-hot matrix.

    Args:
        encoder: the shape.
        length: tokens per example.
        predicted: tokens predicted per example.
        share_positions_over: examples of one batch; its relative positions are projected once.
    """
    width, inner, heads = encoder.hidden_size, encoder.intermediate_size, encoder.num_heads
    positions = 2 * length
    segments = 2 * 2 * width + 2 * 2 * length * heads  # a score for either, and its choice by a one-hot product
    relative = 2 * positions * width + segments + 2 * length * heads  # last: both added to the scores
    content = length * (layer_flops(encoder, length) + relative)
    attention = length * (2 * (2 * length * width) + length * heads * (1 + _SOFTMAX + _DROPOUT) + relative)
    spreading = 2 * (2 * length * predicted * width)
    dense = 2 * _linear(width, width) + _linear(width, inner) + inner * _GELU + _linear(inner, width)
    elementwise = 2 * width * (_DROPOUT + 1 + _NORM)
    query = attention + spreading + predicted * (dense + elementwise)
    projected_positions = positions * 2 * width * width / share_positions_over
    softmax = predicted * (2 * width + _SOFTMAX + 2) * encoder.vocab_size
    return encoder.num_layers * (content + query + projected_positions) + softmax
