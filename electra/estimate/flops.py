"""Hardware FLOPs of one training token: matrix products only, backward twice the forward.

Multiply-adds count two, lookups are free. The paper's own way of counting is in paper_flops.py.
"""

from electra import config
from electra.model.shape import EncoderConfig

_TRAINED = 3  # forward passes that a trained part costs: itself, and the products for its weights and its inputs


def forward_flops_per_token(encoder: EncoderConfig, length: int) -> float:
    """Multiply-adds count two; lookups are free."""
    width = encoder.hidden_size
    per_layer = 2 * (4 * width**2 + 2 * width * encoder.intermediate_size) + 4 * length * width
    projection = 2 * encoder.embedding_size * width if encoder.embedding_size != width else 0
    return encoder.num_layers * per_layer + projection


def flops_per_token(settings: config.Settings, vocab_size: int) -> float:
    """Hardware FLOPs of training per token with these settings; the average over the lengths of a curriculum."""
    model, recipe = settings.model, settings.pretrain
    shares = {settings.shards.max_length: 1.0}
    if curriculum := recipe.length_curriculum:
        shares = {curriculum.length: curriculum.share, settings.shards.max_length: 1 - curriculum.share}
    generator = EncoderConfig.generator(model, vocab_size) if recipe.generator == "transformer" else None
    discriminator = EncoderConfig.discriminator(model, vocab_size)
    return sum(
        share
        * objective_flops_per_token(
            recipe.objective, generator, discriminator, length, recipe.mask_probability, recipe.two_stage_switch
        )
        for length, share in shares.items()
    )


def objective_flops_per_token(
    objective: str,
    generator: EncoderConfig | None,
    discriminator: EncoderConfig,
    length: int,
    masked_share: float,
    two_stage_switch: float = 0.5,
) -> float:
    """Hardware FLOPs of training per token, by pre-training method (names as in ``pretrain.objective``).

    Args:
        objective: the method.
        generator: None where replacements are drawn from fixed frequencies; not looked at by ``bert``, ``bert_nsp``
            and ``two_stage``, whose generator has the discriminator's shape.
        discriminator: the main encoder, whatever its head.
        length: tokens per example.
        masked_share: of the tokens, masked and predicted.
        two_stage_switch: share of the steps of ``two_stage`` that train the generator alone. In the others it only
            proposes; the figure is the average over the run.

    Raises:
        ValueError: the method is unknown, or ``electric`` (whose noise is always a trained one) has no generator.
    """
    proposing = _generator_forward(objective, generator, discriminator, length, masked_share)
    judging = forward_flops_per_token(discriminator, length)
    judging += _main_head_forward(objective, discriminator, length, masked_share)
    if objective == "two_stage":
        return two_stage_switch * _TRAINED * proposing + (1 - two_stage_switch) * (proposing + _TRAINED * judging)
    return _TRAINED * (proposing + judging)


def _generator_forward(
    objective: str, generator: EncoderConfig | None, discriminator: EncoderConfig, length: int, masked_share: float
) -> float:
    """The generator and its head, per token of the example."""
    if objective == "electric":
        if generator is None:
            raise ValueError("electric trains its generator")
        # two causal towers side by side; they predict every token
        return 2 * forward_flops_per_token(generator, length) + _vocabulary_head(generator, 2 * generator.hidden_size)
    if objective == "two_stage":
        generator = discriminator
    if generator is None or objective in ("bert", "bert_nsp"):
        return 0
    head = _vocabulary_head(generator, generator.hidden_size)
    if objective == "adversarial":
        head += 2 * generator.hidden_size  # the learned baseline of the reward
    return forward_flops_per_token(generator, length) + masked_share * head


def _main_head_forward(objective: str, encoder: EncoderConfig, length: int, masked_share: float) -> float:
    """FLOPs of the heads on the main encoder, per token of the example."""
    width = encoder.hidden_size
    real_or_replaced = 2 * (width**2 + width)
    words = _vocabulary_head(encoder, width)
    match objective:
        case "electra" | "two_stage" | "adversarial" | "electric":
            return real_or_replaced
        case "electra_15":
            return masked_share * real_or_replaced
        case "replace_mlm" | "bert":
            return masked_share * words
        case "bert_nsp":
            return masked_share * words + 2 * (width**2 + width) / length  # one pooled [CLS] an example
        case "all_tokens_mlm":
            return words + 2 * width  # and the logit of copying the input
    raise ValueError(f"unknown pre-training method {objective!r}")


def _vocabulary_head(encoder: EncoderConfig, width: int) -> float:
    """One predicted token: from ``width`` to the embeddings' width, and the word table."""
    return 2 * encoder.embedding_size * (width + encoder.vocab_size)
