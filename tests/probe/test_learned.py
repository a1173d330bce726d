"""The stage `probe`: figures without fine-tuning, and held-out sentences with replaced tokens."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoTokenizer
from typer.testing import CliRunner

from electra import __main__ as cli
from electra.common.artifacts import read_json
from electra.common.errors import DataError
from electra.common.paths import Paths
from electra.config import Settings
from electra.inputs import outside
from electra.results.probe.embeddings import score_retrieval
from electra.results.probe.learned import (
    best_and_worst,
    fills,
    held_out_sentences,
    masked_probabilities,
    probe_pretrained,
    replaced,
    show,
)
from electra.results.probe.scores import Probe, read_pairs
from tests.fixtures import PAIRS
from tests.probe.test_scores import MODERN, workspace_of
from tests.workspace import Workspace

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def probed(prepared: Workspace, tmp_path_factory: pytest.TempPathFactory) -> Paths:
    return workspace_of(prepared, tmp_path_factory.mktemp("learned") / "root")


def settings_of(prepared: Workspace, *, cells: dict[str, Any] | None = None, **tasks: Any) -> Settings:
    settings = prepared.settings()
    changes = {
        "cells": settings.cells.model_copy(update=cells or {}),
        "tasks": settings.tasks.model_copy(update=tasks),
    }
    return settings.model_copy(update=changes)


def labelled(paths: Paths) -> None:
    """Rows of STS-B and SQuAD1.1."""
    pairs = [{"text_a": f"the cat {n}", "text_b": "the dog", "label": float(n)} for n in range(5)]
    questions = [{"question": f"who sang {n}?", "context": f"The robin number {n // 2} sang."} for n in range(6)]
    for task, rows in (("STS-B", pairs), ("SQuAD1.1", questions)):
        folder = paths.tasks / task
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "dev.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_the_stage_writes_the_same_bytes_again(prepared: Workspace, tmp_path: Path) -> None:
    paths = workspace_of(prepared, tmp_path / "root")
    (paths.root / "data").unlink()
    (paths.root / "data").mkdir()
    for name in ("corpus", "tokenizer", "shards"):
        (paths.root / "data" / name).symlink_to(prepared.root / "data" / name)
    labelled(paths)
    settings = settings_of(prepared, cells={"tasks": ["STS-B", "SQuAD1.1"]}, pairs=[str(PAIRS)])
    probe_pretrained(settings, paths)
    first = (paths.results / "probe.json").read_bytes()
    probe_pretrained(settings, paths)
    assert (paths.results / "probe.json").read_bytes() == first
    found = read_json(paths.results / "probe.json")
    assert found["pairs"] == 48 and set(found) >= {"accuracy", "similarity_spearman", "retrieval", "word_vectors"}
    assert set(found["word_vectors"]) == {"similarity_spearman", "retrieval"}
    assert found["retrieval"]["questions"] == 6 and found["retrieval"]["paragraphs"] == 3
    assert 0 <= found["accuracy"]["discriminator, sum"]["all"] <= 1
    losses = [sentence["loss"] for sentence in found["sentences"]]
    assert len(losses) == 6 and losses == sorted(losses) and found["candidates"] > 6


def test_files_of_pairs_are_probed_and_watched_and_without_them_there_are_no_pairs(
    prepared: Workspace, probed: Paths
) -> None:
    pair = {"sentence_good": "The cat sleeps.", "sentence_bad": "The cat sleep.", "UID": "number"}
    (probed.root / "pairs.jsonl").write_text(json.dumps(pair) + "\n")
    settings = settings_of(prepared, pairs=["pairs.jsonl"])
    probe_pretrained(settings, probed)
    found = read_json(probed.results / "probe.json")
    assert found["pairs"] == 1 and "number" in found["accuracy"]["discriminator, sum"]
    assert [item.pattern for item in outside(settings, probed.root)["probe"]] == ["pairs.jsonl"]

    probe_pretrained(settings_of(prepared), probed)
    found = read_json(probed.results / "probe.json")
    assert set(found) == {"candidates", "sentences"}


def test_a_sentence_is_shown_with_what_the_model_says_of_it(probed: Paths) -> None:
    probe = Probe(probed, CPU, bf16=False)
    sentences = held_out_sentences(probe, probed)
    assert len(set(sentences)) == 6 and all(8 <= len(probe.ids(text)) <= 32 for text in sentences)
    changed = 0
    for number, text in enumerate(sentences):
        found = show(probe, text, number)
        tokens = found["tokens"].split(" ")
        ids = [probe.tokenizer.token_to_id(token) for token in tokens]
        original = list(ids)
        for place, was in found["was"].items():
            original[int(place)] = probe.tokenizer.token_to_id(was)
            assert was != tokens[int(place)] and place in found["fills"]
        assert original == probe.ids(text)
        scores = replaced(probe, ids)
        assert scores and [f"{score:.2f}" for score in scores] == found["replaced"].split(" ")
        places = sorted(map(int, found["fills"]))
        best = fills(probe, masked_probabilities(probe, original, places), 1)
        for place, options in zip(places, best, strict=True):
            assert found["fills"][str(place)].startswith(f"{options[0][0]} {options[0][1]:.2f}")
        changed += len(found["was"])
    assert changed > 6


@pytest.mark.parametrize(("objective", "has_scores", "has_fills"), [("bert", False, True), ("electric", False, False)])
def test_methods_without_a_discriminator_or_a_language_model_show_what_they_have(
    objective: str, has_scores: bool, has_fills: bool, prepared: Workspace, tmp_path: Path
) -> None:
    probe = Probe(workspace_of(prepared, tmp_path / "root", objective), CPU, bf16=False)
    found = show(probe, "The robin sang in the old garden.", 1)
    assert (found["replaced"] is not None, bool(found["fills"])) == (has_scores, has_fills)
    assert (found["loss"] is not None) == has_fills


def test_without_a_language_model_frequent_tokens_are_put_in_and_scored(prepared: Workspace, tmp_path: Path) -> None:
    probe = Probe(workspace_of(prepared, tmp_path / "root", generator="unigram"), CPU, bf16=False)
    token = probe.tokenizer.token_to_id("##q")
    found = show(probe, "The old garden was quiet when nobody sang in it at all.", 1, [token])
    tokens, places = found["tokens"].split(), [int(place) for place in found["was"]]
    assert places and {tokens[place] for place in places} == {"##q"} and not found["fills"]
    scores = replaced(probe, [probe.tokenizer.token_to_id(name) for name in tokens])
    assert scores and found["replaced"].split() == [f"{score:.2f}" for score in scores]


def test_without_a_discriminator_the_best_guess_stands_in_the_sentence_and_its_loss_orders_them(
    prepared: Workspace, tmp_path: Path
) -> None:
    probe = Probe(workspace_of(prepared, tmp_path / "root", "bert"), CPU, bf16=False)
    text = "The robin sang in the old garden."
    found, ids = show(probe, text, 1), probe.ids(text)
    places = sorted(map(int, found["fills"]))
    shares = masked_probabilities(probe, ids, places)
    assert shares is not None and shares.sum(1).tolist() == pytest.approx([1.0] * len(places))
    guessed = [str(probe.tokenizer.id_to_token(token)) for token in shares.argmax(1).tolist()]
    assert [found["tokens"].split()[place] for place in places] == guessed
    own = [-math.log(shares[number, ids[place]]) for number, place in enumerate(places)]
    assert found["loss"] == pytest.approx(sum(own) / len(own), abs=1e-4)
    shown = [{"loss": float(loss), "was": {}, "replaced": None} for loss in (5, 1, 4, 8, 3, 2, 7, 6)]
    assert [one["loss"] for one in best_and_worst(shown)] == [1, 2, 3, 6, 7, 8]


def test_retrieval_is_ndcg_and_reciprocal_rank_of_the_own_paragraph(
    probed: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By vectors whose order is known: the question's paragraph comes first, second, third, and eleventh and later."""
    probe = Probe(probed, CPU, bf16=False)
    paragraphs = [f"p{number}" for number in range(14)]
    vectors = {name: torch.tensor([1.0, number / 4]) for number, name in enumerate(paragraphs)}
    vectors |= {"q": torch.tensor([1.0, 0.0])}
    monkeypatch.setattr(probe, "ids", lambda text: [text])
    monkeypatch.setattr(probe, "embed", lambda rows: torch.stack([vectors[row[0]] for row in rows]))
    rows = [{"question": "q", "context": name} for name in paragraphs]
    found = score_retrieval(probe.embed_texts, rows)
    assert found["mrr"] == pytest.approx(sum(1 / rank for rank in range(1, 15)) / 14)
    assert found["ndcg_at_10"] == pytest.approx(sum(1 / math.log2(rank + 1) for rank in range(1, 11)) / 14)
    same = score_retrieval(probe.embed_texts, [{"question": "q", "context": "p0"}, {"question": "q", "context": "q"}])
    assert same["mrr"] == pytest.approx(0.5), "a tie counts as behind"


@torch.no_grad()
@pytest.mark.parametrize("changes", [{}, MODERN], ids=["electra", "modern"])
def test_retrieval_is_that_of_a_plain_script(changes: dict[str, Any], prepared: Workspace, tmp_path: Path) -> None:
    paths = workspace_of(prepared, tmp_path / "root", **changes)
    rows = [
        {"question": f"who {pair['sentence_bad'].lower()}", "context": f"{pair['sentence_good']} It was {number // 2}."}
        for number, pair in enumerate(read_pairs([PAIRS]))
    ]
    tokenizer, encoder = (kind.from_pretrained(paths.export / "discriminator") for kind in (AutoTokenizer, AutoModel))

    def embed(text: str) -> Any:
        return encoder.eval()(**tokenizer(text, return_tensors="pt")).last_hidden_state[0].mean(0).numpy()

    contexts = list(dict.fromkeys(row["context"] for row in rows))
    there = np.stack([embed(text) for text in contexts])
    gains, ranks = [], []
    for row in rows:
        asked = embed(row["question"])
        cosines = there @ asked / np.linalg.norm(there, axis=1) / np.linalg.norm(asked)
        order = [contexts[place] for place in np.argsort(-cosines)]
        ranks.append(order.index(row["context"]) + 1)
        gains.append(sum((text == row["context"]) / np.log2(n + 2) for n, text in enumerate(order[:10])))
    found = score_retrieval(Probe(paths, CPU, bf16=False).embed_texts, rows)
    assert (found["questions"], found["paragraphs"]) == (len(rows), len(contexts)) and max(ranks) > 10
    assert found["ndcg_at_10"] == pytest.approx(np.mean(gains))
    assert found["mrr"] == pytest.approx(np.mean([1 / rank for rank in ranks]))


def test_no_held_out_text_is_said(probed: Paths, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no held-out text"):
        held_out_sentences(Probe(probed, CPU, bf16=False), Paths(tmp_path))


def test_the_command_without_arguments_is_the_stage(
    prepared: Workspace, probed: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Path] = []
    monkeypatch.chdir(prepared.root)
    monkeypatch.setattr(
        "electra.results.probe.learned.probe_pretrained", lambda settings, paths: asked.append(paths.root)
    )
    assert CliRunner().invoke(cli.app, ["probe"]).exit_code == 0 and asked
