"""The stage embed: pairs of each kind, the same bytes again, what is refused, and the folder it writes."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from electra.common.artifacts import listed_files, read_json, verify_folder
from electra.common.errors import ConfigError, DataError, TrainingError
from electra.common.paths import Paths
from electra.config import Embed, Model, Settings
from electra.embed.contrastive import SentenceEncoder
from electra.embed.run import Embedder, embed
from electra.finetune.features import Vocabulary
from electra.hub.export.pretrained import export_model
from electra.kinds import KINDS
from electra.model.pretrained import load_encoder
from electra.readers.build import prepare_tasks
from electra.results.probe.embeddings import score_embeddings
from electra.results.probe.scores import Probe
from electra.tasks.catalogue import TASKS
from tests.fixtures import exchange_two_entries
from tests.probe.test_scores import MODERN, workspace_of
from tests.publish.parity import BLOCKS
from tests.workspace import Workspace

TASK_NAMES = ["STS-B", "MRPC", "CoLA", "SQuAD1.1", "SQuAD2.0"]
QUICK: dict[str, Any] = {"num_steps": 3, "batch_size": 4, "max_length": 32}
TEXTS = ["The robin sang.", "A dog slept in the garden, and nobody came.", "it rained " * 60, "cat"]


def settings_of(workspace: Workspace, *, model: dict[str, Any] | None = None, **options: Any) -> Settings:
    settings = workspace.settings()
    return settings.model_copy(
        update={
            "cells": settings.cells.model_copy(update={"tasks": TASK_NAMES}),
            "embed": Embed(**{**QUICK, **options}),
            "model": Model(**{**settings.model.model_dump(), **(model or {})}),
        }
    )


def workspace_with_tasks(prepared: Workspace, root: Path, **model: Any) -> Paths:
    paths = workspace_of(prepared, root, **model)
    (root / "data").unlink()
    (root / "data").mkdir()
    for name in ("corpus", "tokenizer", "shards"):
        (root / "data" / name).symlink_to(prepared.root / "data" / name)
    prepare_tasks(settings_of(prepared), paths)
    return paths


@pytest.fixture(scope="module")
def paths(prepared: Workspace, tmp_path_factory: pytest.TempPathFactory) -> Paths:
    return workspace_with_tasks(prepared, tmp_path_factory.mktemp("embed") / "root")


def digests(folder: Path) -> dict[str, str]:
    return {str(file.path.relative_to(folder)): file.sha256 for file in listed_files(folder)}


@pytest.mark.parametrize("source", ["sentences", "SQuAD1.1", "MRPC", "STS-B"])
def test_each_source_trains_is_scored_and_gives_the_same_bytes_again(
    source: str, prepared: Workspace, paths: Paths
) -> None:
    settings = settings_of(prepared, sizes=[16], min_score=0.5)
    folder = embed(settings, paths, source=source, seed=1)
    assert folder == paths.embedding(f"{source}-1")
    first = digests(folder)
    assert digests(embed(settings, paths, source=source, seed=1)) == first
    verify_folder(folder)
    found = read_json(folder / "run.json")
    assert found["source"] == source and found["loss"] > 0 and found["embed"]["sizes"] == [16]
    for scores in (found["before"], found["after"], found["word_vectors"]):
        assert set(scores) == {"similarity_spearman", "retrieval"}
    card = (folder / "README.md").read_text()
    assert f"{100 * found['after']['similarity_spearman']:.1f}" in card and "averaged word vectors" in card
    another = digests(embed(settings, paths, source=source, seed=2))
    assert another["model.safetensors"] != first["model.safetensors"]


def test_training_brings_texts_of_a_pair_together(prepared: Workspace, paths: Paths) -> None:
    """By heart: at each question of the fixture, its own paragraph is found among those of the batch."""
    settings = settings_of(prepared, num_steps=60, batch_size=16, learning_rate=3e-3, dropout=0.0, max_length=64)
    folder = embed(settings, paths, source="SQuAD1.1", seed=1)
    assert read_json(folder / "run.json")["loss"] < 0.5


@pytest.mark.parametrize(
    ("task", "row", "pair"),
    [
        ("MRPC", {"text_a": "a", "text_b": "b", "label": "1"}, ("a", "b")),
        ("MRPC", {"text_a": "a", "text_b": "b", "label": "0"}, None),
        ("MNLI", {"text_a": "a", "text_b": "b", "label": "entailment"}, ("a", "b")),
        ("MNLI", {"text_a": "a", "text_b": "b", "label": "neutral"}, None),
        ("CoLA", {"text_a": "a", "text_b": None, "label": "1"}, None),
        ("STS-B", {"text_a": "a", "text_b": "b", "label": 4.0}, ("a", "b")),
        ("STS-B", {"text_a": "a", "text_b": "b", "label": 3.9}, None),
        ("SQuAD2.0", {"question": "q", "context": "c", "impossible": False}, ("q", "c")),
        ("SQuAD2.0", {"question": "q", "context": "c", "impossible": True}, None),
        ("CoNLL-2003", {"words": ["a"], "tags": ["O"]}, None),
    ],
)
def test_rows_that_belong_together(task: str, row: dict[str, Any], pair: tuple[str, str] | None) -> None:
    options, spec = Embed(), TASKS[task]
    assert KINDS[spec.kind].positive_pair(spec, row, options.positive_labels, options.min_score) == pair


def test_what_cannot_be_trained_is_refused_and_leaves_nothing(prepared: Workspace, paths: Paths) -> None:
    settings = settings_of(prepared)
    with pytest.raises(ConfigError, match="CoLA: 0 of .* training rows are pairs"):
        embed(settings, paths, source="CoLA", seed=7)
    with pytest.raises(ConfigError, match="no task 'COLA'|COLA"):
        embed(settings, paths, source="COLA", seed=7)
    with pytest.raises(ConfigError, match="embed.sizes"):
        embed(settings_of(prepared, sizes=[64]), paths, source="sentences", seed=7)
    with pytest.raises(TrainingError, match=r"not finite at step 1"):
        embed(settings_of(prepared, temperature=1e-40, num_steps=5), paths, source="sentences", seed=7)
    with pytest.raises(DataError):
        embed(settings, Paths(paths.root / "nowhere"), source="sentences", seed=7)
    assert not list(paths.embedding("x").parent.glob("*-7*"))


def test_weights_of_another_tokenizer_are_not_trained_probed_or_exported(prepared: Workspace, tmp_path: Path) -> None:
    paths = workspace_with_tasks(prepared, tmp_path / "root")
    settings = settings_of(prepared)
    (paths.root / "data/tokenizer").unlink()
    shutil.copytree(prepared.paths.tokenizer, paths.tokenizer)
    Probe(paths, torch.device("cpu"), bf16=False)
    exchange_two_entries(paths.tokenizer)
    exported = digests(paths.export)
    for use in (
        lambda: embed(settings, paths, source="sentences", seed=1),
        lambda: Probe(paths, torch.device("cpu"), bf16=False),
        lambda: export_model(settings, paths),
    ):
        with pytest.raises(DataError, match=r"(?s)pre-trained with another tokenizer.*dvc repro pretrain"):
            use()
    assert digests(paths.export) == exported and not paths.embedding("sentences-1").exists()


def test_sizes_and_lengths_beyond_the_model_are_refused_with_the_settings(prepared: Workspace) -> None:
    values = prepared.settings().model_dump()
    for change, message in (({"sizes": [33]}, "hidden_size"), ({"max_length": 129}, "max_positions")):
        with pytest.raises(ValueError, match=message):
            Settings.model_validate({**values, "embed": change})
    cells = {**values["cells"], "embeddings": ["sentences", "MNLI"]}
    with pytest.raises(ValueError, match="MNLI must be sentences or among cells.tasks"):
        Settings.model_validate({**values, "cells": cells})


def test_the_probe_before_training_has_the_figures_of_the_stage_probe(prepared: Workspace, paths: Paths) -> None:
    settings = settings_of(prepared, max_length=128)
    found = read_json(embed(settings, paths, source="sentences", seed=3) / "run.json")
    probe = Probe(paths, torch.device("cpu"), bf16=False)
    assert found["before"] == score_embeddings(settings, paths, probe.embed_texts)


@pytest.mark.parametrize("blocks", BLOCKS)
@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_sentence_transformers_loads_the_folder_and_gives_our_embeddings(
    blocks: str, pooling: str, prepared: Workspace, tmp_path: Path
) -> None:
    library = pytest.importorskip("sentence_transformers", reason="pip install -e '.[embeddings]'")
    changes = {"embedding_size": 16, **BLOCKS[blocks], **(MODERN if blocks == "modern" else {})}
    paths = workspace_with_tasks(prepared, tmp_path / "root", **changes)
    folder = embed(settings_of(prepared, model=changes, pooling=pooling), paths, source="sentences", seed=1)
    theirs = library.SentenceTransformer(str(folder), device="cpu")
    assert theirs.max_seq_length == 32

    ours = embedder_of(paths, folder, pooling)
    expected = ours(TEXTS).numpy()
    assert np.abs(theirs.encode(TEXTS) - expected).max() < 1e-5, "in one batch, the shorter ones padded"
    for text, row in zip(TEXTS, expected, strict=True):
        assert np.abs(theirs.encode(text) - row).max() < 1e-5, "without padding"
    cut = library.SentenceTransformer(str(folder), device="cpu", truncate_dim=16).encode(TEXTS)
    assert cut.shape == (4, 16) and np.abs(cut - expected[:, :16]).max() < 1e-5
    unit = expected / np.linalg.norm(expected, axis=1, keepdims=True)
    assert np.abs(np.asarray(theirs.similarity(expected, expected)) - unit @ unit.T).max() < 1e-5


def embedder_of(paths: Paths, folder: Path, pooling: Any) -> Embedder:
    """Our encoder with the folder's weights, read by the names of transformers."""
    from electra.hub.importing.huggingface import import_huggingface

    target = paths.root / "weights"
    import_huggingface(folder, None, target)
    encoder = load_encoder(target)
    return Embedder(SentenceEncoder(encoder, pooling), Vocabulary.load(paths), 32, bf16=False)
