"""Convert ModernBERT's names and configuration to the project's: the inverse of electra/hub/export/modernbert.py."""

import json
import re
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from electra.common.errors import ConfigError, DataError
from electra.hub.export.modernbert import PROJECTION, TABLE, WORDS
from electra.hub.export.names import MODERN_TRANSFORM, WORD_HEADS, encoder_names, imported
from electra.hub.importing.weights import Half, Tensors
from electra.model.shape import EncoderConfig

FOLDED = f"model.{TABLE}"
THETA = {"full_attention": ("global_rope_theta", 160_000.0), "sliding_attention": ("local_rope_theta", 10_000.0)}


@dataclass(frozen=True)
class ModernHalf(Half):
    """A bare ``ModernBertModel``, its token classifier of original and replaced, or its masked language model.

    A table that was folded with its projection is read as two if the folder has both (``own_parts.safetensors``).
    """

    def embeddings(self) -> dict[str, Tensor]:
        return {WORDS: self.encoder()[WORDS]}

    def encoder(self) -> dict[str, Tensor]:
        take = self.tensors.take
        if self.shape.embedding_size == self.shape.hidden_size:
            table = {WORDS: take(FOLDED)}
        else:
            table = {name: take(name) for name in (WORDS, PROJECTION)}
        return table | imported(take, encoder_names(self.shape), "model.")

    def discriminator_head(self) -> dict[str, Tensor] | None:
        """Return the head; None if there is none, or if its two labels are not one logit's (another classifier)."""
        if not self.tensors.holds("classifier."):
            return None
        weight, bias = self.tensors.take("classifier.weight"), self.tensors.take("classifier.bias")
        if len(weight) != 2 or not (torch.equal(weight[0], -weight[1]) and torch.equal(bias[0], -bias[1])):
            return None
        output = {"output.weight": 2 * weight[1:], "output.bias": 2 * bias[1:]}
        return imported(self.tensors.take, MODERN_TRANSFORM) | output

    def generator_head(self) -> dict[str, Tensor]:
        decoder = self.tensors.by_name.get("decoder.weight")
        if decoder is not None and not torch.equal(decoder, self.tensors.take(FOLDED)):
            raise DataError("the generator's output matrix must be its word table", where=self.tensors.where)
        return imported(self.tensors.take, WORD_HEADS["ModernBert"])


def modernbert_half(facts: dict[str, Any], tensors: Tensors, where: str) -> ModernHalf:
    """Return weights and shape; checks that the sizes in config.json match the tensors.

    Raises:
        ConfigError: the model has biases, another activation, scaled rotary positions or an irregular layer pattern.
        DataError: config.json and the tensors contradict each other.
    """
    biased = [name for name in ("norm_bias", "attention_bias", "mlp_bias", "classifier_bias") if facts.get(name)]
    if biased or facts.get("hidden_activation", "gelu") != "gelu":
        raise ConfigError(
            f"only ModernBERT without biases and with gelu is supported, this has {', '.join(biased) or 'another one'}",
            where=where,
        )
    vocab_size, hidden_size = tensors.take(FOLDED).shape
    numbers = [re.match(r"model\.layers\.(\d+)\.", name) for name in tensors.by_name]
    sizes = {
        "vocab_size": vocab_size,
        "hidden_size": hidden_size,
        "intermediate_size": tensors.take("model.layers.0.mlp.Wo.weight").shape[1],
        "num_hidden_layers": 1 + max(int(number[1]) for number in numbers if number),
    }
    if wrong := [
        f"{n} {facts[n]} but the tensors have {sizes[n]}" for n in sizes if facts.get(n, sizes[n]) != sizes[n]
    ]:
        raise DataError(f"config.json says {'; '.join(wrong)}", where=where)
    local, every = _local(facts, sizes["num_hidden_layers"], where)
    shape = EncoderConfig(
        vocab_size=vocab_size,
        embedding_size=_narrow_width(tensors),
        hidden_size=hidden_size,
        num_layers=sizes["num_hidden_layers"],
        num_heads=facts.get("num_attention_heads", 12),  # defaults of transformers' ModernBertConfig
        intermediate_size=sizes["intermediate_size"],
        max_positions=facts.get("max_position_embeddings", 8192),
        dropout=facts.get("embedding_dropout", 0.0),
        attention_dropout=facts.get("attention_dropout", 0.0),
        layer_norm_eps=facts.get("norm_eps", 1e-5),
        architecture="modern",
        positions="rotary",
        norm="pre",
        feed_forward="geglu",
        rotary_base=_base(facts, "full_attention", where),
        local_rotary_base=_base(facts, "sliding_attention", where),
        local_attention=local,
        global_every=every,
    )
    return ModernHalf(tensors, shape)


def _narrow_width(tensors: Tensors) -> int:
    """Return the width of the table before folding; the layers' width if it was not folded or was trained since."""
    folded, words, projection = (tensors.by_name.get(name) for name in (FOLDED, WORDS, PROJECTION))
    assert folded is not None
    if words is not None and projection is not None:
        again = (words.double() @ projection.double().t()).to(folded.dtype)
        if again.shape == folded.shape and torch.allclose(again, folded, rtol=1e-5, atol=1e-7):
            return words.shape[1]
    return folded.shape[1]


def restore_segments(files: dict[str, str]) -> dict[str, str]:
    """Return tokenizer files as the tokenizer stage writes them: with segments, which this architecture ignores."""
    facts = json.loads(files["tokenizer_config.json"])
    facts["model_input_names"] = ["input_ids", "token_type_ids", "attention_mask"]
    return {**files, "tokenizer_config.json": json.dumps(facts, indent=2, ensure_ascii=False) + "\n"}


def _base(facts: dict[str, Any], kind: str, where: str) -> float:
    rope = (facts.get("rope_parameters") or {}).get(kind) or {}
    if rope.get("rope_type", "default") != "default":
        raise ConfigError(f"rotary positions of type {rope['rope_type']} are not supported", where=where)
    older, default = THETA[kind]
    return float(rope.get("rope_theta", facts.get(older, default)))


def _local(facts: dict[str, Any], num_layers: int, where: str) -> tuple[int | None, int]:
    """Return ``model.local_attention`` and ``global_every``."""
    given, every = facts.get("layer_types"), facts.get("global_attn_every_n_layers", 3)
    local = [kind == "sliding_attention" for kind in given] if given else [bool(n % every) for n in range(num_layers)]
    if not any(local):
        return None, 3
    for number in range(2, num_layers + 1):
        if local == [layer % number != 0 for layer in range(num_layers)]:
            return facts.get("local_attention", 128), number
    raise ConfigError("its local layers do not come in a regular pattern", where=where)
