"""``transformers`` loads what we export and computes what we compute."""

from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer, ElectraForMaskedLM, ElectraForPreTraining

from electra.common.paths import Paths
from electra.config import Model
from electra.model.pretrained import load_electra, load_encoder, save_pretrained
from electra.objectives.electra import Electra
from electra.publish.export import export_model
from tests.workspace import Workspace


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


def test_import_of_an_export_is_bit_for_bit_the_model(exported: tuple[Electra, Paths], tmp_path: Path) -> None:
    from electra.importing.huggingface import import_huggingface

    model, paths = exported
    import_huggingface(paths.export / "discriminator", paths.export / "generator", tmp_path / "again")
    again = dict(load_electra(tmp_path / "again").named_parameters())
    assert set(again) == {name for name, _ in model.named_parameters()}
    assert all(torch.equal(parameter, again[name]) for name, parameter in model.named_parameters())
