"""The modern architecture as ModernBERT's folders: the same logits, loaded without a word, and back again."""

import copy
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor
from transformers import (
    AutoModel,
    AutoTokenizer,
    ModernBertForMaskedLM,
    ModernBertForTokenClassification,
    ModernBertModel,
    pipeline,
)

from electra.common.artifacts import read_json
from electra.common.errors import ConfigError, DataError
from electra.common.paths import Paths
from electra.config import Method, Model, Settings
from electra.importing.huggingface import import_huggingface
from electra.model.objective import Objective, build_objective
from electra.model.pretrained import load_electra, load_objective, save_pretrained
from electra.objectives.electra import Electra
from electra.publish.export import export_model
from tests.workspace import Workspace

SHAPE: dict[str, Any] = {
    "architecture": "modern", "num_layers": 3, "hidden_size": 32, "num_heads": 2, "intermediate_size": 48,
    "embedding_size": 16, "generator_width": 0.5, "max_positions": 512, "dropout": 0.0, "attention_dropout": 0.0,
    "layer_norm_eps": 1e-5, "rotary_base": 20_000.0, "local_rotary_base": 5_000.0,
}  # fmt: skip
LOCAL = {"local_attention": 16, "global_every": 2}
FULL = {"generator_width": 1.0, "embedding_size": 32}
Export = Callable[..., tuple[Any, Paths]]


@pytest.fixture(autouse=True)
def silence(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """No warning by either way in which ``transformers`` warns."""
    transformers.logging.enable_propagation()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield
    said = [record.getMessage() for record in caplog.get_records("call") if record.levelname in ("WARNING", "ERROR")]
    assert not said, said


@pytest.fixture
def export(prepared: Workspace, tmp_path: Path) -> Export:
    """Write models/export of a model with random weights, norms and biases away from their start."""

    def write(objective: str = "electra", **changes: Any) -> tuple[Objective, Paths]:
        settings, paths = prepared.settings(), Paths(tmp_path / "exported")
        paths.root.mkdir()
        (paths.root / "data").symlink_to(prepared.root / "data")
        model, method = Model(**{**SHAPE, **changes}), Method(objective=objective)
        module = build_objective(model, 600, 4, method).initialize(0.2, seed=1)
        random = torch.Generator().manual_seed(1)
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.add_(0.05 * torch.randn(parameter.shape, generator=random))
        weights = {name: parameter.detach() for name, parameter in module.named_parameters()}
        save_pretrained(paths.pretrained, weights, model, 600, paths.tokenizer, method)
        export_model(Settings(**{**dict(settings), "model": model}), paths)
        return module.eval(), paths

    return write


def loaded(kind: type, folder: Path, attention: str = "sdpa") -> Any:
    model, loading = kind.from_pretrained(folder, attn_implementation=attention, output_loading_info=True)
    assert not any(loading[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys")), loading
    return model.eval()


def inputs(length: int, padded: bool) -> tuple[Tensor, Tensor]:
    ids = torch.randint(5, 600, (2, length), generator=torch.Generator().manual_seed(length))
    mask = torch.ones(2, length, dtype=torch.bool)
    if padded:
        mask[1, length // 2 :] = False
    return ids, mask


@torch.no_grad()
def assert_logits_agree(electra: Electra, folder: Path) -> None:
    """Of the three folders, at two lengths, padded and not, by both kinds of attention."""
    assert electra.generator is not None and electra.generator_head is not None
    for attention in ("sdpa", "eager"):
        bare = loaded(ModernBertModel, folder / "discriminator", attention)
        detector = loaded(ModernBertForTokenClassification, folder / "detector", attention)
        generator = loaded(ModernBertForMaskedLM, folder / "generator", attention)
        for length in (16, 512):
            for padded in (False, True):
                ids, mask = inputs(length, padded)
                segments, given = torch.zeros_like(ids), {"input_ids": ids, "attention_mask": mask.long()}
                hidden = electra.discriminator(ids, segments, mask)
                assert (bare(**given).last_hidden_state - hidden)[mask].abs().max() < 1e-4
                logits, found = electra.discriminator_head(hidden), detector(**given).logits
                assert (found[..., 1] - found[..., 0] - logits)[mask].abs().max() < 1e-4
                assert (found.softmax(-1)[..., 1] - logits.sigmoid())[mask].abs().max() < 1e-5
                logits = electra.generator_head(electra.generator(ids, segments, mask))
                assert (generator(**given).logits - logits)[mask].abs().max() < 1e-4


@pytest.mark.parametrize(
    "changes",
    [
        {}, LOCAL, {"embedding_sharing": "none"}, FULL, {"embedding_sharing": "all", "generator_width": 1.0},
        {"embedding_sharing": "gradient_disentangled"},
    ],
    ids=["narrow", "local", "none", "full", "all", "gradient_disentangled"],
)  # fmt: skip
def test_logits_of_all_folders_agree(changes: dict[str, Any], export: Export) -> None:
    electra, paths = export(**changes)
    assert {path.name for path in paths.export.iterdir() if path.is_dir()} == {"discriminator", "detector", "generator"}
    assert_logits_agree(electra, paths.export)


def test_a_windows_edge_matters(export: Export) -> None:
    """Off by one token the test above would fail: the window is part of what is compared."""
    electra, paths = export(**LOCAL)
    other = copy.deepcopy(electra)
    for encoder in (other.discriminator, other.generator):
        object.__setattr__(encoder.config, "local_attention", 18)
    with pytest.raises(AssertionError):
        assert_logits_agree(other, paths.export)


def test_a_masked_language_model_is_its_own_folder(export: Export) -> None:
    module, paths = export("bert")
    assert [path.name for path in paths.export.iterdir() if path.is_dir()] == ["encoder"]
    theirs, (ids, mask) = loaded(ModernBertForMaskedLM, paths.export / "encoder"), inputs(16, True)
    with torch.no_grad():
        logits = module.head(module.encoder(ids, torch.zeros_like(ids), mask))
        assert (theirs(input_ids=ids, attention_mask=mask.long()).logits - logits)[mask].abs().max() < 1e-4


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


@pytest.mark.parametrize(
    "changes",
    [
        FULL,
        {**FULL, **LOCAL},
        {**FULL, "embedding_sharing": "all"},
        {"embedding_size": 32, "embedding_sharing": "none"},
    ],
    ids=["embeddings", "local", "all", "none"],
)
def test_what_was_exported_comes_back_bit_for_bit(changes: dict[str, Any], export: Export, tmp_path: Path) -> None:
    electra, paths = export(**changes)
    import_huggingface(paths.export / "detector", paths.export / "generator", tmp_path / "again")
    again = dict(load_electra(tmp_path / "again").named_parameters())
    ours = dict(electra.named_parameters())
    assert again.keys() == ours.keys()
    assert all(torch.equal(again[name], ours[name]) for name in ours)
    assert read_json(tmp_path / "again/config.json") == read_json(paths.pretrained / "config.json")
    for name in ("vocab.txt", "tokenizer.json", "tokenizer_config.json"):
        assert (tmp_path / "again/tokenizer" / name).read_bytes() == (paths.tokenizer / name).read_bytes()


@torch.no_grad()
def test_folded_tables_come_back_as_wide_ones_with_the_same_outputs(export: Export, tmp_path: Path) -> None:
    electra, paths = export()
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
    import json

    _, paths = export(**FULL)
    config = paths.export / "detector/config.json"
    config.write_text(json.dumps({**read_json(config), **changes}))
    with pytest.raises(error, match=message):
        import_huggingface(paths.export / "detector", None, tmp_path / "again")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"architecture": "electra", "positions": "rotary"},
            "RoFormer's blocks, and exporting as RoFormer is not built",
        ),
        ({"architecture": "electra", "norm": "pre"}, "transformers has no model of these parts"),
        ({"architecture": "electra", "feed_forward": "geglu"}, "transformers has no model of these parts"),
        ({"norm": "post"}, "transformers has no model of these parts"),
        ({"positions": "learned"}, "transformers has no model of these parts"),
        ({"architecture": "electra", "local_attention": 8}, "transformers' ELECTRA has no local layers"),
    ],
)
def test_blocks_without_a_home_are_refused_with_the_reason(
    changes: dict[str, Any], message: str, export: Export, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=message):
        export(**changes)
    assert not (tmp_path / "exported/models/export").exists()
