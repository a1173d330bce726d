"""Names of tensors in the classes of ``transformers``, for export and import: modeling_electra.py and its like.

A table maps the name of a parameter of the project to the names there; several hold its rows, one below the other.
What is more than a name is beside the tables: RoFormer's order of rows here, ModernBERT's folded word table in
electra/hub/export/modernbert.py.
"""

from collections.abc import Callable, Mapping
from typing import Literal

import torch
from torch import Tensor

from electra.model.shape import EncoderConfig

Names = dict[str, tuple[str, ...]]
Family = Literal["Electra", "RoFormer", "ModernBert"]  # prefix of the names of classes

# of the paper's blocks, in ELECTRA and RoFormer
_EMBEDDINGS = {
    "word.weight": "word_embeddings.weight",
    "position.weight": "position_embeddings.weight",
    "segment.weight": "token_type_embeddings.weight",
    "norm.weight": "LayerNorm.weight",
    "norm.bias": "LayerNorm.bias",
}
_LAYER = {
    "attention.qkv": ("attention.self.query", "attention.self.key", "attention.self.value"),
    "attention.output": ("attention.output.dense",),
    "attention_norm": ("attention.output.LayerNorm",),
    "feed_forward_in": ("intermediate.dense",),
    "feed_forward_out": ("output.dense",),
    "feed_forward_norm": ("output.LayerNorm",),
}
_MODERN_LAYER = {  # all but the norm after the feed-forward part
    "attention.qkv": "attn.Wqkv",
    "attention.output": "attn.Wo",
    "attention_norm": "mlp_norm",
    "feed_forward_in": "mlp.Wi",
    "feed_forward_out": "mlp.Wo",
}
DISCRIMINATOR_HEAD: Names = {  # of ElectraForPreTraining; RoFormer and ModernBERT have no such class
    f"{ours}.{kind}": (f"discriminator_predictions.{theirs}.{kind}",)
    for ours, theirs in (("transform", "dense"), ("output", "dense_prediction"))
    for kind in ("weight", "bias")
}
MODERN_TRANSFORM: Names = {"transform.weight": ("head.dense.weight",), "norm.weight": ("head.norm.weight",)}
WORD_HEADS: dict[Family, Names] = {  # heads for masked words
    "Electra": {
        "transform.weight": ("generator_predictions.dense.weight",),
        "transform.bias": ("generator_predictions.dense.bias",),
        "norm.weight": ("generator_predictions.LayerNorm.weight",),
        "norm.bias": ("generator_predictions.LayerNorm.bias",),
        "bias": ("generator_lm_head.bias",),
    },
    "RoFormer": {
        "transform.weight": ("cls.predictions.transform.dense.weight",),
        "transform.bias": ("cls.predictions.transform.dense.bias",),
        "norm.weight": ("cls.predictions.transform.LayerNorm.weight",),
        "norm.bias": ("cls.predictions.transform.LayerNorm.bias",),
        "bias": ("cls.predictions.bias",),
    },
    "ModernBert": {**MODERN_TRANSFORM, "bias": ("decoder.bias",)},
}


def embedding_names(shape: EncoderConfig) -> Names:
    """Return the names of the embeddings of the paper's blocks; rotary positions have no table."""
    return {
        f"embeddings.{ours}": (f"embeddings.{theirs}",)
        for ours, theirs in _EMBEDDINGS.items()
        if shape.positions == "learned" or ours != "position.weight"
    }


def encoder_names(shape: EncoderConfig) -> Names:
    """Return the names of the encoder's parameters in the bare model; for ModernBERT, without the word table."""
    return _modern_names(shape) if shape.is_modern else _paper_names(shape)


def _paper_names(shape: EncoderConfig) -> Names:
    names = embedding_names(shape)
    for kind in ("weight", "bias"):
        if shape.embedding_size != shape.hidden_size:
            names[f"projection.{kind}"] = (f"embeddings_project.{kind}",)
        for number in range(shape.num_layers):
            for ours, theirs in _LAYER.items():
                there = tuple(f"encoder.layer.{number}.{part}.{kind}" for part in theirs)
                names[f"layers.{number}.{ours}.{kind}"] = there
    return names


def _modern_names(shape: EncoderConfig) -> Names:
    names: Names = {"embedding_norm.weight": ("embeddings.norm.weight",)}
    for number in range(shape.num_layers):
        for ours, theirs in _MODERN_LAYER.items():
            names[f"layers.{number}.{ours}.weight"] = (f"layers.{number}.{theirs}.weight",)
        # the project's norms follow a part, ModernBERT's precede the next one
        after = "final_norm" if number == shape.num_layers - 1 else f"layers.{number + 1}.attn_norm"
        names[f"layers.{number}.feed_forward_norm.weight"] = (f"{after}.weight",)
    return names


def exported(parameters: Mapping[str, Tensor], names: Names, prefix: str = "") -> dict[str, Tensor]:
    """Return the parameters by the names of ``transformers``, each with ``prefix`` before it."""
    return {
        prefix + theirs: rows
        for ours, parts in names.items()
        for theirs, rows in zip(parts, parameters[ours].chunk(len(parts)), strict=True)
    }


def imported(take: Callable[[str], Tensor], names: Names, prefix: str = "") -> dict[str, Tensor]:
    """Return the parameters by the project's names: the inverse of :func:`exported`.

    Args:
        take: function of a name of ``transformers`` that returns the tensor.
    """
    found = {ours: [take(prefix + theirs) for theirs in parts] for ours, parts in names.items()}
    return {ours: rows[0] if len(rows) == 1 else torch.cat(rows) for ours, rows in found.items()}


def is_rotated(name: str) -> bool:
    """Return True for the rows of query and key, which rotary positions rotate."""
    return ".attention.self.query." in name or ".attention.self.key." in name


def interleaved(rows: Tensor, num_heads: int) -> Tensor:
    """Return rows of query or key in RoFormer's order: it rotates elements 2i and 2i + 1 of a head together.

    This project rotates i and i + d/2, with d the width of a head.
    """
    return rows.unflatten(0, (num_heads, 2, -1)).transpose(1, 2).flatten(0, 2)


def halved(rows: Tensor, num_heads: int) -> Tensor:
    """Return rows of query or key in this project's order: the inverse of :func:`interleaved`."""
    return rows.unflatten(0, (num_heads, -1, 2)).transpose(1, 2).flatten(0, 2)
