"""The paper's blocks as ``transformers``' ELECTRA, and with rotary positions as its RoFormer: names and configuration.

Names are those of modeling_electra.py and modeling_roformer.py. Besides the heads, RoFormer differs in two ways: it
rotates elements 2i and 2i + 1 of a head together where this project rotates i and i + d/2, so rows of query and key are
reordered; and its angles are a table in the file, so any base is possible.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from electra.model.attention import rotation_of
from electra.model.encoder import Encoder, Layer
from electra.model.heads import DiscriminatorHead, VocabularyHead
from electra.model.layers import Embeddings
from electra.model.shape import EncoderConfig


def is_roformer(shape: EncoderConfig) -> bool:
    """Return True if the blocks are RoFormer's: the paper's, with rotary positions in every layer."""
    parts = (shape.architecture, shape.positions, shape.norm, shape.feed_forward, shape.local_attention)
    return parts == ("electra", "rotary", "post", "gelu", None)


def family(shape: EncoderConfig) -> str:
    """Return the prefix of the ``transformers`` classes for these blocks."""
    return "RoFormer" if is_roformer(shape) else "Electra"


def discriminator_weights(encoder: Encoder, head: DiscriminatorHead) -> dict[str, Tensor]:
    """Return the state of ``ElectraForPreTraining``; RoFormer has no class with this head (:func:`head_weights`)."""
    return encoder_weights(encoder) | head_weights(head)


def head_weights(head: DiscriminatorHead) -> dict[str, Tensor]:
    """Return the discriminator's head by the names of ``ElectraForPreTraining``."""
    return {
        f"discriminator_predictions.{theirs}.{kind}": getattr(getattr(head, ours), kind)
        for ours, theirs in (("transform", "dense"), ("output", "dense_prediction"))
        for kind in ("weight", "bias")
    }


def masked_language_model_weights(encoder: Encoder, head: VocabularyHead) -> dict[str, Tensor]:
    """Return the state of ``ElectraForMaskedLM`` or ``RoFormerForMaskedLM``.

    The output matrix is the word table. It is written once, as ``save_pretrained`` writes tied tables: version 5.0
    unties tables it finds twice.
    """
    transform, norm, bias = ROFORMER_HEAD if is_roformer(encoder.config) else ELECTRA_HEAD
    return encoder_weights(encoder) | {
        **dict(_both(transform, head.transform)),
        **dict(_both(norm, head.norm)),
        bias: head.bias,
    }


# Heads for masked words: two modules, and the bias of the output
ELECTRA_HEAD = ("generator_predictions.dense", "generator_predictions.LayerNorm", "generator_lm_head.bias")
ROFORMER_HEAD = (
    "cls.predictions.transform.dense",
    "cls.predictions.transform.LayerNorm",
    "cls.predictions.bias",
)


def huggingface_config(
    config: EncoderConfig, architecture: str, initializer_range: float, pad_id: int
) -> dict[str, Any]:
    """Return the ``config.json`` of a class of either family."""
    own = {"rotary_value": False, "rotary_base": config.rotary_base} if is_roformer(config) else {}
    return {
        "architectures": [architecture],
        "model_type": family(config).lower(),
        "vocab_size": config.vocab_size,
        "embedding_size": config.embedding_size,
        "hidden_size": config.hidden_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "intermediate_size": config.intermediate_size,
        "hidden_act": "gelu",
        "hidden_dropout_prob": config.dropout,
        "attention_probs_dropout_prob": config.attention_dropout,
        "max_position_embeddings": config.max_positions,
        "type_vocab_size": config.num_segments,
        "initializer_range": initializer_range,
        "layer_norm_eps": config.layer_norm_eps,
        **own,
        "pad_token_id": pad_id,
        "tie_word_embeddings": True,
        "summary_type": "first",
        "summary_use_proj": True,
        "summary_activation": "gelu",
        "summary_last_dropout": 0.1,
        "dtype": "float32",
    }


def encoder_weights(encoder: Encoder, prefix: str | None = None) -> dict[str, Tensor]:
    """Return the encoder's part of the state of any class.

    Args:
        prefix: prefix of all names; ``electra.`` or ``roformer.`` if None. Bare models have none.
    """
    prefix = f"{family(encoder.config).lower()}." if prefix is None else prefix
    return {prefix + name: tensor for name, tensor in _encoder(encoder)}


def own_parts(encoder: Encoder) -> dict[str, Tensor]:
    """Return no tensors: both families hold the whole encoder and the head for masked words."""
    return {}


def interleaved(width: int) -> Tensor:
    """Return the indices of RoFormer's rows of a head in ours: 0, d/2, 1, d/2 + 1, ... with d = ``width``."""
    return torch.arange(width).view(2, -1).t().flatten()


def angles(shape: EncoderConfig) -> Tensor:
    """Return RoFormer's table [positions, d]: sines of all pairs, then their cosines."""
    places, width = torch.arange(shape.max_positions)[None], shape.hidden_size // shape.num_heads
    rotation = rotation_of(places, width, shape.rotary_base)
    return torch.cat([rotation.sines_BTh, rotation.cosines_BTh], -1)[0]


def _encoder(encoder: Encoder) -> Iterator[tuple[str, Tensor]]:
    embeddings, shape = encoder.embeddings, encoder.config
    assert isinstance(embeddings, Embeddings)
    yield "embeddings.word_embeddings.weight", embeddings.word.weight
    if shape.positions == "learned":
        yield "embeddings.position_embeddings.weight", embeddings.position.weight
    else:
        yield "encoder.embed_positions.weight", angles(shape)
    yield "embeddings.token_type_embeddings.weight", embeddings.segment.weight
    yield from _both("embeddings.LayerNorm", embeddings.norm)
    if isinstance(encoder.projection, torch.nn.Linear):
        yield from _both("embeddings_project", encoder.projection)
    for number, layer in enumerate(encoder.layers):
        assert isinstance(layer, Layer)
        prefix = f"encoder.layer.{number}"
        for kind in ("weight", "bias"):
            for name, part in zip(("query", "key", "value"), getattr(layer.attention.qkv, kind).chunk(3), strict=True):
                rotated = shape.positions == "rotary" and name != "value"
                yield f"{prefix}.attention.self.{name}.{kind}", _in_their_order(part, shape) if rotated else part
        yield from _both(f"{prefix}.attention.output.dense", layer.attention.output)
        yield from _both(f"{prefix}.attention.output.LayerNorm", layer.attention_norm)
        yield from _both(f"{prefix}.intermediate.dense", layer.feed_forward_in)
        yield from _both(f"{prefix}.output.dense", layer.feed_forward_out)
        yield from _both(f"{prefix}.output.LayerNorm", layer.feed_forward_norm)


def _in_their_order(part: Tensor, shape: EncoderConfig) -> Tensor:
    order = interleaved(shape.hidden_size // shape.num_heads)
    return part.unflatten(0, (shape.num_heads, -1))[:, order].flatten(0, 1)


def _both(name: str, module: Any) -> Iterator[tuple[str, Tensor]]:
    yield f"{name}.weight", module.weight
    yield f"{name}.bias", module.bias
