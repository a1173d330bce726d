"""The modern architecture as ``transformers``' own ModernBERT: weights, configuration and folded tables.

ModernBERT has one embedding table as wide as its layers: a narrower table and its projection are written as their
product, which is exact, since there is no norm between them.
"""

from typing import Any

from torch import Tensor

from electra.common.errors import ConfigError
from electra.hub.export.names import MODERN_TRANSFORM, WORD_HEADS, encoder_names, exported
from electra.hub.export.papers import is_roformer
from electra.model.encoder import Encoder
from electra.model.heads import DiscriminatorHead, VocabularyHead
from electra.model.shape import EncoderConfig

TABLE = "embeddings.tok_embeddings.weight"  # the word table, folded with its projection
WORDS, PROJECTION = "embeddings.word.weight", "projection.weight"  # its two factors by the project's names
LABELS = ("original", "replaced")  # labels of the token classifier


def check_home(shape: EncoderConfig) -> None:
    """Refuse architectures that no model class of ``transformers`` computes.

    Raises:
        ConfigError: there is no such class; the message gives the reason.
    """
    parts = (shape.architecture, shape.positions, shape.norm, shape.feed_forward)
    if shape.is_the_papers or is_roformer(shape) or parts == ("modern", "rotary", "pre", "geglu"):
        return
    named = ", ".join(["architecture {}", "positions {}", "norm {}", "feed_forward {}"]).format(*parts)
    reason = (
        "transformers has no model of these parts: ELECTRA's are learned, post, gelu; RoFormer's rotary, post, gelu; "
        "ModernBERT's rotary, pre, geglu"
    )
    if shape.local_attention is not None and parts[0] == "electra":
        reason = "transformers' ELECTRA and RoFormer have no local layers"
    raise ConfigError(
        f"there is nothing to export {named} as: {reason}",
        where="model",
        next_step="use the weights in models/pretrained, or pre-train with the parts of one of these",
    )


def encoder_weights(encoder: Encoder, prefix: str = "") -> dict[str, Tensor]:
    """Return the state of ``ModernBertModel``; with prefix ``model.``, the encoder part of the other classes."""
    weights = exported(dict(encoder.named_parameters()), encoder_names(encoder.config), prefix)
    return {prefix + TABLE: folded_table(encoder), **weights}


def detector_weights(encoder: Encoder, head: DiscriminatorHead) -> dict[str, Tensor]:
    """Return the state of ``ModernBertForTokenClassification``, whose softmax over two labels equals our sigmoid."""
    weight, bias = head.output.weight / 2, head.output.bias / 2  # halves are exact
    return {
        **encoder_weights(encoder, "model."),
        **exported(dict(head.named_parameters()), MODERN_TRANSFORM),
        "classifier.weight": weight.repeat(2, 1) * weight.new_tensor([[-1.0], [1.0]]),
        "classifier.bias": bias.repeat(2) * bias.new_tensor([-1.0, 1.0]),
    }


def masked_language_model_weights(encoder: Encoder, head: VocabularyHead) -> dict[str, Tensor]:
    """Return the state of ``ModernBertForMaskedLM``; its output matrix is the folded table, as in the project's head.

    The table is written once, as ``save_pretrained`` writes tied tables: version 5.0 unties tables it finds twice.
    """
    return encoder_weights(encoder, "model.") | exported(dict(head.named_parameters()), WORD_HEADS["ModernBert"])


def folded_table(encoder: Encoder) -> Tensor:
    """Return the word table, multiplied by the projection if there is one [V, D]."""
    table, projection = encoder.plain_embeddings.word.weight, getattr(encoder.projection, "weight", None)
    return table if projection is None else (table.double() @ projection.double().t()).to(table.dtype)


def own_parts(encoder: Encoder) -> dict[str, Tensor]:
    """Return the two factors of :func:`folded_table`, if there is a projection."""
    projection = getattr(encoder.projection, "weight", None)
    if projection is None:
        return {}
    return {WORDS: encoder.plain_embeddings.word.weight, PROJECTION: projection}


def modernbert_config(
    shape: EncoderConfig, architecture: str, initializer_range: float, special_ids: dict[str, int]
) -> dict[str, Any]:
    """Return ``config.json``; values are also written under the names that versions before 5 read.

    Args:
        special_ids: ids of pad, cls and sep. ModernBERT's defaults are outside of smaller vocabularies.
    """
    local = [shape.is_local(layer) for layer in range(shape.num_layers)]
    ids = {**special_ids, "bos": special_ids["cls"], "eos": special_ids["sep"]}
    labels = {} if architecture != "ModernBertForTokenClassification" else dict(enumerate(LABELS))
    return {
        "architectures": [architecture],
        "model_type": "modernbert",
        "vocab_size": shape.vocab_size,
        "hidden_size": shape.hidden_size,
        "intermediate_size": shape.intermediate_size,
        "num_hidden_layers": shape.num_layers,
        "num_attention_heads": shape.num_heads,
        "hidden_activation": "gelu",
        "max_position_embeddings": shape.max_positions,
        "initializer_range": initializer_range,
        "norm_eps": shape.layer_norm_eps,
        "layer_types": ["sliding_attention" if is_local else "full_attention" for is_local in local],
        "global_attn_every_n_layers": shape.global_every if any(local) else 1,
        "local_attention": shape.local_attention or shape.max_positions,
        "rope_parameters": {
            "full_attention": {"rope_type": "default", "rope_theta": shape.rotary_base},
            "sliding_attention": {"rope_type": "default", "rope_theta": shape.local_rotary_base},
        },
        "global_rope_theta": shape.rotary_base,
        "local_rope_theta": shape.local_rotary_base,
        **dict.fromkeys(("norm_bias", "attention_bias", "mlp_bias", "classifier_bias"), False),
        "decoder_bias": True,
        "embedding_dropout": shape.dropout,
        "mlp_dropout": shape.dropout,
        "attention_dropout": shape.attention_dropout,
        "classifier_pooling": "cls",
        "classifier_activation": "gelu",
        **{f"{name}_token_id": number for name, number in ids.items()},
        "tie_word_embeddings": True,
        **({"id2label": labels, "label2id": {label: n for n, label in labels.items()}} if labels else {}),
        "dtype": "float32",
    }


def tokenizer_facts(facts: dict[str, Any]) -> dict[str, Any]:
    """Return ``tokenizer_config.json`` for a model without segments."""
    return {**facts, "model_input_names": ["input_ids", "attention_mask"]}
