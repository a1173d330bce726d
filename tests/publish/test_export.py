"""``transformers`` loads our exports and has the same outputs."""

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer, ElectraForMaskedLM, ElectraForPreTraining

from electra.common.artifacts import read_json
from electra.common.errors import ConfigError
from electra.common.paths import Paths
from electra.config import Model
from electra.hub.export.pretrained import export_model
from electra.hub.importing.huggingface import import_huggingface
from electra.model.pretrained import load_encoder, save_pretrained
from electra.objectives.electra import Electra
from electra.objectives.saved import load_electra
from tests.publish import parity
from tests.workspace import Workspace

# of RoFormer, which shares ELECTRA's names, the ends of it; all of them by `make test-transformers`
LEFT_OUT = ("electra-gradient_disentangled", "roformer-none", "roformer-full", "roformer-gradient_disentangled",
            "roformer-bert")  # fmt: skip
COMBINATIONS = [name for name in parity.CASES if name not in LEFT_OUT]


@pytest.fixture(scope="module")
def exported(prepared: Workspace, tmp_path_factory: pytest.TempPathFactory) -> tuple[Electra, Paths]:
    settings, text = prepared.settings(), prepared.paths
    folder = tmp_path_factory.mktemp("exported")
    (folder / "data").symlink_to(text.root / "data")
    paths = Paths(folder)
    torch.manual_seed(1)
    model = Electra(settings.model, vocab_size=600, mask_id=4).initialize(0.2, seed=1)
    with torch.no_grad():  # biases and norms away from their start, so that a swapped one would show
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    save_pretrained(
        paths.pretrained, {n: p.detach() for n, p in model.named_parameters()}, settings.model, 600, text.tokenizer
    )
    export_model(settings, paths)
    return model.eval(), paths


def tokens(paths: Paths) -> dict[str, torch.Tensor]:
    tokenizer = AutoTokenizer.from_pretrained(paths.export / "discriminator")
    return dict(
        tokenizer(
            ["The robin sang.", "A dog slept"], ["It was small.", "in the garden."], padding=True, return_tensors="pt"
        )
    )


def test_discriminator_logits_agree(exported: tuple[Electra, Paths]) -> None:
    model, paths = exported
    theirs, loading = ElectraForPreTraining.from_pretrained(paths.export / "discriminator", output_loading_info=True)
    assert not any(loading[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    inputs = tokens(paths)
    mask = inputs["attention_mask"].bool()
    with torch.no_grad():
        expected = theirs.eval()(**inputs).logits[mask]
        hidden = model.discriminator(inputs["input_ids"], inputs["token_type_ids"], mask)
        assert (model.discriminator_head(hidden)[mask] - expected).abs().max() < 1e-5


def test_generator_logits_agree(exported: tuple[Electra, Paths]) -> None:
    model, paths = exported
    theirs, loading = ElectraForMaskedLM.from_pretrained(paths.export / "generator", output_loading_info=True)
    assert not any(loading[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    inputs = tokens(paths)
    mask = inputs["attention_mask"].bool()
    with torch.no_grad():
        expected = theirs.eval()(**inputs).logits[mask]
        hidden = model.generator(inputs["input_ids"], inputs["token_type_ids"], mask)
        assert (model.generator_head(hidden)[mask] - expected).abs().max() < 1e-5


def test_both_folders_are_complete(exported: tuple[Electra, Paths]) -> None:
    _, paths = exported
    for name in ("discriminator", "generator"):
        files = {path.name for path in (paths.export / name).iterdir()}
        assert files == {
            "config.json", "model.safetensors", "vocab.txt", "tokenizer.json", "tokenizer_config.json", "README.md"
        }  # fmt: skip


def test_saved_weights_come_back(exported: tuple[Electra, Paths]) -> None:
    model, paths = exported
    for name, parameter in load_electra(paths.pretrained).named_parameters():
        assert torch.equal(parameter, dict(model.named_parameters())[name])
    encoder = load_encoder(paths.pretrained, dropout=0.1)
    assert encoder.config.dropout == 0.1
    assert torch.equal(encoder.layers[1].attention.qkv.weight, model.discriminator.layers[1].attention.qkv.weight)


@pytest.mark.parametrize("hidden", [32, 64])
def test_a_projection_stands_only_where_widths_differ(hidden: int, tmp_path: Path) -> None:
    shape = Model(num_layers=1, hidden_size=hidden, num_heads=1, intermediate_size=64, embedding_size=32)
    names = {name for name, _ in Electra(shape, 20, 4).discriminator.named_parameters()}
    assert ("projection.weight" in names) == (hidden != 32)


def test_tied_tables_are_one_storage_after_loading(exported: tuple[Electra, Paths]) -> None:
    loaded = load_electra(exported[1].pretrained)
    assert loaded.generator.embeddings is loaded.discriminator.embeddings, "word, position, segment and LayerNorm"
    assert loaded.generator_head.weight.data_ptr() == loaded.discriminator.embeddings.word.weight.data_ptr()


@pytest.mark.parametrize("name", COMBINATIONS)
def test_every_folder_computes_the_same_and_comes_back_bit_for_bit(
    name: str, prepared: Workspace, tmp_path: Path
) -> None:
    """At two lengths, padded and not, by both kinds of attention; weights, settings and tokenizer come back."""
    module, paths = parity.write(parity.CASES[name], prepared, tmp_path / "exported")
    folders = {path.name for path in paths.export.iterdir() if path.is_dir()}
    pair = {"discriminator", "generator"} | ({"detector"} if name.startswith("modern") else set())
    assert folders == ({"encoder"} if name.endswith("bert") else pair)
    found = parity.compare(paths.export, parity.expected(module))
    for which, worst in found.items():
        if name.startswith("roformer") and "sdpa" in which:
            assert worst is None, "transformers' RoFormer has learned sdpa: compare it"
        else:
            assert worst is not None and worst < parity.TOLERANCE, (which, worst)
    if name.endswith(("bert", "disentangled")):  # no pair, and tables that were added up
        return
    main = paths.export / ("detector" if "detector" in folders else "discriminator")
    import_huggingface(main, paths.export / "generator", tmp_path / "again")
    again, ours = (dict(load_electra(path).named_parameters()) for path in (tmp_path / "again", paths.pretrained))
    assert again.keys() == ours.keys()
    assert all(torch.equal(again[name], ours[name]) for name in ours)
    assert read_json(tmp_path / "again/config.json") == read_json(paths.pretrained / "config.json")
    for file in ("vocab.txt", "tokenizer.json", "tokenizer_config.json"):
        assert (tmp_path / "again/tokenizer" / file).read_bytes() == (paths.tokenizer / file).read_bytes()


@pytest.mark.parametrize("name", ["electra-narrow", "roformer-narrow"])
def test_the_papers_folders_are_used_as_any(
    name: str, prepared: Workspace, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Of ELECTRA's main folder the head is reported as unused, since there it is the class's own."""
    module, paths = parity.write(parity.CASES[name], prepared, tmp_path / "exported")
    found = parity.use(paths.export)
    said = [record.getMessage() for record in caplog.records]
    if name == "electra-narrow":
        assert len(said) == 1 and "discriminator_predictions" in said[0]
        caplog.clear()
    filled, given = found["fill-mask"], found["inputs"]
    assert len(filled) == 5 and 0 < filled[0]["score"] < 1
    mask = given["attention_mask"].bool()
    with torch.no_grad():
        hidden = module.discriminator(given["input_ids"], given["token_type_ids"], mask)
    ours = (hidden * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
    torch.testing.assert_close(found["pooled"], ours, atol=1e-4, rtol=1e-4)


def test_a_roformer_that_rotates_otherwise_is_refused(prepared: Workspace, tmp_path: Path) -> None:
    _, paths = parity.write(parity.CASES["roformer-narrow"], prepared, tmp_path / "exported")
    config = paths.export / "discriminator/config.json"
    facts = read_json(config)
    for changes, message in (
        ({"rotary_value": True}, "it rotates values as well"),
        ({"rotary_base": 10_000.0}, "not that of rotary ones with base 10000"),
    ):
        config.write_text(json.dumps({**facts, **changes}))
        with pytest.raises(ConfigError, match=message):
            import_huggingface(paths.export / "discriminator", None, tmp_path / "again")
