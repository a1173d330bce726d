"""The modern architecture as ModernBERT's folders: loaded without warnings, used, and imported again."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoModel, AutoTokenizer, ModernBertModel, pipeline

from electra.common.artifacts import read_json
from electra.common.errors import ConfigError, DataError
from electra.common.paths import Paths
from electra.hub.importing.huggingface import import_huggingface
from electra.objectives.saved import load_electra, load_objective
from tests.publish import parity
from tests.workspace import Workspace

LOCAL, FULL = parity.LOCAL, parity.WIDE
Export = Callable[..., tuple[Any, Paths]]


@pytest.fixture
def export(prepared: Workspace, tmp_path: Path) -> Export:
    """Write models/export of a model with random weights, norms and biases away from their start."""

    def write(objective: str = "electra", **changes: Any) -> tuple[Any, Paths]:
        model = {**parity.BLOCKS["modern"], **changes}
        return parity.write((objective, model), prepared, tmp_path / "exported")

    return write


def loaded(kind: type, folder: Path, attention: str = "sdpa") -> Any:
    return parity.model_of(folder, kind.__name__, attention)


def inputs(length: int, padded: bool) -> tuple[Tensor, Tensor]:
    given = parity.inputs(length, padded)
    return given["input_ids"], given["attention_mask"].bool()


def test_a_windows_edge_matters(export: Export) -> None:
    """Off by one token no folder would agree: the window is part of what is compared."""
    electra, paths = export(**LOCAL)
    other = copy.deepcopy(electra)
    for encoder in (other.discriminator, other.generator):
        object.__setattr__(encoder.config, "local_attention", 18)
    differences = parity.compare(paths.export, parity.expected(other), ("sdpa",))
    assert min(differences.values()) > 10 * parity.TOLERANCE


def test_pipelines_and_mean_pooling_run_without_a_warning(export: Export) -> None:
    electra, paths = export()
    filled = pipeline("fill-mask", str(paths.export / "generator"))("The [MASK] sang.")
    assert len(filled) == 5 and 0 < filled[0]["score"] < 1
    judged = pipeline("token-classification", str(paths.export / "detector"))("The robin sang.")
    assert judged and {token["entity"] for token in judged} <= {"original", "replaced"}
    tokenizer = AutoTokenizer.from_pretrained(paths.export / "discriminator")
    encoder = AutoModel.from_pretrained(paths.export / "discriminator").eval()
    batch = tokenizer(["The robin sang.", "A dog slept in the garden."], padding=True, return_tensors="pt")
    assert set(batch) == {"input_ids", "attention_mask"}
    mask = batch["attention_mask"].bool()
    with torch.no_grad():
        hidden = encoder(**batch).last_hidden_state
        ours = electra.discriminator(batch["input_ids"], torch.zeros_like(batch["input_ids"]), mask)
    weights = mask[..., None].float()
    pooled = [(states * weights).sum(1) / weights.sum(1) for states in (hidden, ours)]
    torch.testing.assert_close(*pooled, atol=1e-4, rtol=1e-4)
    assert tokenizer.pad_token_id == encoder.config.pad_token_id == 0
    assert tokenizer.cls_token_id == encoder.config.cls_token_id


def test_passed_segments_are_swallowed(export: Export) -> None:
    _, paths = export()
    encoder, (ids, mask) = loaded(ModernBertModel, paths.export / "discriminator"), inputs(16, True)
    with torch.no_grad():
        plain = encoder(input_ids=ids, attention_mask=mask.long()).last_hidden_state
        assert torch.equal(
            plain, encoder(input_ids=ids, attention_mask=mask.long(), token_type_ids=1 - ids % 2).last_hidden_state
        )


def test_versions_before_5_find_each_base_of_rotary_positions_under_its_own_name(export: Export) -> None:
    """They do not read ``rope_parameters``; `make test-transformers` compares outputs in such a version."""
    _, paths = export(**LOCAL)
    for name in ("discriminator", "detector", "generator"):
        config = read_json(paths.export / name / "config.json")
        bases = {kind: one["rope_theta"] for kind, one in config["rope_parameters"].items()}
        assert bases == {"full_attention": 20_000.0, "sliding_attention": 5_000.0}
        assert (config["global_rope_theta"], config["local_rope_theta"]) == (20_000.0, 5_000.0)


@torch.no_grad()
def test_folded_tables_come_back_as_wide_ones_with_the_same_outputs(export: Export, tmp_path: Path) -> None:
    electra, paths = export()
    for name in ("detector", "generator"):  # as one of another make
        (paths.export / name / "own_parts.safetensors").unlink()
    import_huggingface(paths.export / "detector", paths.export / "generator", tmp_path / "again")
    again = load_electra(tmp_path / "again")
    assert again.discriminator.config.embedding_size == 32 and again.generator.config.embedding_size == 16
    ids, mask = inputs(16, True)
    inputs_of = (ids, torch.zeros_like(ids), mask)
    for one, other in (
        (
            electra.discriminator_head(electra.discriminator(*inputs_of)),
            again.discriminator_head(again.discriminator(*inputs_of)),
        ),
        (electra.generator_head(electra.generator(*inputs_of)), again.generator_head(again.generator(*inputs_of))),
    ):
        assert (one - other)[mask].abs().max() < 1e-5


def test_folders_of_versions_before_5_come_in_with_their_own_bases(export: Export, tmp_path: Path) -> None:
    _, paths = export(**FULL, **LOCAL)
    for name in ("detector", "generator"):
        file = paths.export / name / "config.json"
        facts = read_json(file)
        for newer in ("rope_parameters", "layer_types"):
            del facts[newer]
        file.write_text(json.dumps(facts))
    import_huggingface(paths.export / "detector", paths.export / "generator", tmp_path / "again")
    shape = load_electra(tmp_path / "again").discriminator.config
    assert (shape.rotary_base, shape.local_rotary_base) == (20_000.0, 5_000.0)
    assert (shape.local_attention, shape.global_every) == (16, 2)


def test_a_bare_encoder_comes_back_without_its_head(
    export: Export, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    electra, paths = export(**FULL)
    import_huggingface(paths.export / "discriminator", None, tmp_path / "again")
    assert "no discriminator head; it starts from random" in capsys.readouterr().out
    again = load_objective(tmp_path / "again")
    name = "layers.2.feed_forward_norm.weight"
    assert torch.equal(
        dict(again.discriminator.named_parameters())[name], dict(electra.discriminator.named_parameters())[name]
    )


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"norm_bias": True}, ConfigError, "without biases and with gelu is supported, this has norm_bias"),
        ({"hidden_size": 64}, DataError, "config.json says hidden_size 64 but the tensors have 32"),
        ({"layer_types": ["full_attention", "full_attention", "sliding_attention"]}, ConfigError, "regular pattern"),
        ({"rope_parameters": {"full_attention": {"rope_type": "yarn"}}}, ConfigError, "rotary positions of type yarn"),
    ],
)
def test_other_modernberts_are_refused(
    changes: dict[str, Any], error: type[Exception], message: str, export: Export, tmp_path: Path
) -> None:
    _, paths = export(**FULL)
    config = paths.export / "detector/config.json"
    config.write_text(json.dumps({**read_json(config), **changes}))
    with pytest.raises(error, match=message):
        import_huggingface(paths.export / "detector", None, tmp_path / "again")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"architecture": "electra", "norm": "pre"}, "transformers has no model of these parts"),
        ({"architecture": "electra", "feed_forward": "geglu"}, "transformers has no model of these parts"),
        ({"norm": "post"}, "transformers has no model of these parts"),
        ({"positions": "learned"}, "transformers has no model of these parts"),
        ({"architecture": "electra", "local_attention": 8}, "transformers' ELECTRA and RoFormer have no local layers"),
    ],
)
def test_blocks_without_a_home_are_refused_with_the_reason(
    changes: dict[str, Any], message: str, export: Export, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=message):
        export(**changes)
    assert not (tmp_path / "exported/models/export").exists()
