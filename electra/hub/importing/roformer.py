"""Convert RoFormer's names to ELECTRA's, which the import uses: the inverse of electra/hub/export/papers.py."""

from typing import Any

import torch

from electra.common.errors import ConfigError, DataError
from electra.hub.importing.weights import Tensors
from electra.model.attention import rotation_of

ANGLES = "electra.encoder.embed_positions.weight"
NAMES = {
    "roformer.": "electra.",
    "cls.predictions.transform.": "generator_predictions.",
    "cls.predictions.decoder.weight": "generator_lm_head.weight",
    "cls.predictions.bias": "generator_lm_head.bias",
}


def electra_tensors(facts: dict[str, Any], tensors: Tensors) -> tuple[Tensors, dict[str, Any]]:
    """Return the tensors by the names of ``transformers``' ELECTRA, and the fields of the shape for positions.

    Rows of query and key are reordered from RoFormer's order, which rotates elements 2i and 2i + 1 of a head together.

    Raises:
        ConfigError: values are rotated as well, or the angles are not rotary positions with one base.
        DataError: there is no table of angles, or a tensor does not fit it.
    """
    if facts.get("rotary_value"):
        raise ConfigError("RoFormer with rotary_value is not supported: it rotates values as well", where=tensors.where)
    found = {_named(name): tensor for name, tensor in tensors.by_name.items()}
    table, heads = Tensors(found, tensors.where).take(ANGLES), facts.get("num_attention_heads", 12)
    (positions, width), base = table.shape, float(facts.get("rotary_base", 10_000.0))
    rotation = rotation_of(torch.arange(positions)[None], width, base)
    expected = torch.cat([rotation.sines_BTh, rotation.cosines_BTh], -1)[0]
    if not torch.allclose(table, expected, atol=1e-3):
        raise ConfigError(f"its table of positions is not that of rotary ones with base {base:g}", where=tensors.where)
    for name, tensor in found.items():
        if ".attention.self.query." in name or ".attention.self.key." in name:
            if len(tensor) != heads * width:
                raise DataError(f"{name} has {len(tensor)} rows, expected {heads * width}", where=tensors.where)
            found[name] = tensor.unflatten(0, (heads, width // 2, 2)).transpose(1, 2).flatten(0, 2)
    rotary = {"positions": "rotary", "rotary_base": base, "max_positions": positions}
    return Tensors(found, tensors.where), rotary


def _named(name: str) -> str:
    for theirs, ours in NAMES.items():
        if name.startswith(theirs):
            return ours + name.removeprefix(theirs)
    return name
