"""Hardware FLOPs of one training token: matrix products only, backward twice the forward."""

from electra.model.encoder import EncoderConfig


def forward_flops_per_token(encoder: EncoderConfig, length: int) -> float:
    """Multiply-adds count two; lookups are free."""
    width = encoder.hidden_size
    per_layer = 2 * (4 * width**2 + 2 * width * encoder.intermediate_size) + 4 * length * width
    projection = 2 * encoder.embedding_size * width if encoder.embedding_size != width else 0
    return encoder.num_layers * per_layer + projection


def training_flops_per_token(
    generator: EncoderConfig, discriminator: EncoderConfig, length: int, masked_share: float
) -> float:
    """One joint step per token: both encoders, the generator's head on masked tokens, the discriminator's on all."""
    generator_head = 2 * generator.embedding_size * (generator.hidden_size + generator.vocab_size)
    discriminator_head = 2 * (discriminator.hidden_size**2 + discriminator.hidden_size)
    forward = (
        forward_flops_per_token(generator, length)
        + forward_flops_per_token(discriminator, length)
        + masked_share * generator_head
        + discriminator_head
    )
    return 3 * forward
