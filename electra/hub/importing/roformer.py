"""Convert RoFormer's names to ELECTRA's, which the import uses: the inverse of electra/hub/export/papers.py."""

import re
from typing import Any

import torch

from electra.common.errors import ConfigError, DataError
from electra.hub.export.names import WORD_HEADS, halved, is_rotated
from electra.hub.importing.weights import Tensors
from electra.model.attention import rotation_of

ANGLES = "electra.encoder.embed_positions.weight"
HEAD = {
    **{theirs: WORD_HEADS["Electra"][ours][0] for ours, (theirs,) in WORD_HEADS["RoFormer"].items()},
    "cls.predictions.decoder.weight": "generator_lm_head.weight",
}


def electra_tensors(facts: dict[str, Any], tensors: Tensors) -> tuple[Tensors, dict[str, Any]]:
    """Return the tensors by the names of ``transformers``' ELECTRA, and the fields of the shape for positions.

    Rows of query and key are reordered.

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
        if is_rotated(name):
            if len(tensor) != heads * width:
                raise DataError(f"{name} has {len(tensor)} rows, expected {heads * width}", where=tensors.where)
            found[name] = halved(tensor, heads)
    rotary = {"positions": "rotary", "rotary_base": base, "max_positions": positions}
    return Tensors(found, tensors.where), rotary


def _named(name: str) -> str:
    """Return a name of RoFormer as ELECTRA's."""
    return HEAD.get(name) or re.sub(r"^roformer\.", "electra.", name)
