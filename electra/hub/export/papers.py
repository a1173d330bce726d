"""The paper's blocks as ``transformers``' ELECTRA, with rotary positions as its RoFormer: weights and configuration.

RoFormer's angles are a table in the file, so any base is possible.
"""

from typing import Any

import torch
from torch import Tensor

from electra.hub.export.names import (
    DISCRIMINATOR_HEAD,
    WORD_HEADS,
    Family,
    encoder_names,
    exported,
    interleaved,
    is_rotated,
)
from electra.model.attention import rotation_of
from electra.model.encoder import Encoder
from electra.model.heads import DiscriminatorHead, VocabularyHead
from electra.model.shape import EncoderConfig


def is_roformer(shape: EncoderConfig) -> bool:
    """Return True if the blocks are RoFormer's: the paper's, with rotary positions in every layer."""
    parts = (shape.architecture, shape.positions, shape.norm, shape.feed_forward, shape.local_attention)
    return parts == ("electra", "rotary", "post", "gelu", None)


def family(shape: EncoderConfig) -> Family:
    """Return the prefix of the ``transformers`` classes for these blocks."""
    return "RoFormer" if is_roformer(shape) else "Electra"


def discriminator_weights(encoder: Encoder, head: DiscriminatorHead) -> dict[str, Tensor]:
    """Return the state of ``ElectraForPreTraining``; RoFormer has no class with this head (:func:`head_weights`)."""
    return encoder_weights(encoder) | head_weights(head)


def head_weights(head: DiscriminatorHead) -> dict[str, Tensor]:
    """Return the discriminator's head by the names of ``ElectraForPreTraining``."""
    return exported(dict(head.named_parameters()), DISCRIMINATOR_HEAD)


def masked_language_model_weights(encoder: Encoder, head: VocabularyHead) -> dict[str, Tensor]:
    """Return the state of ``ElectraForMaskedLM`` or ``RoFormerForMaskedLM``.

    The output matrix is the word table. It is written once, as ``save_pretrained`` writes tied tables: version 5.0
    unties tables it finds twice.
    """
    return encoder_weights(encoder) | exported(dict(head.named_parameters()), WORD_HEADS[family(encoder.config)])


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
    shape = encoder.config
    prefix = f"{family(shape).lower()}." if prefix is None else prefix
    weights = exported(dict(encoder.named_parameters()), encoder_names(shape), prefix)
    if shape.positions == "rotary":
        weights |= {name: interleaved(rows, shape.num_heads) for name, rows in weights.items() if is_rotated(name)}
        weights[f"{prefix}encoder.embed_positions.weight"] = angles(shape)
    return weights


def own_parts(encoder: Encoder) -> dict[str, Tensor]:
    """Return no tensors: both families hold the whole encoder and the head for masked words."""
    return {}


def angles(shape: EncoderConfig) -> Tensor:
    """Return RoFormer's table [positions, d]: sines of all pairs, then their cosines."""
    places, width = torch.arange(shape.max_positions)[None], shape.hidden_size // shape.num_heads
    rotation = rotation_of(places, width, shape.rotary_base)
    return torch.cat([rotation.sines_BTh, rotation.cosines_BTh], -1)[0]
