"""`electra probe`: every figure equals that of a plain ``transformers`` script on the exported folders."""

import json
import re
import shutil
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr
from torch import Tensor
from transformers import (
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForTokenClassification,
    AutoTokenizer,
    ElectraForPreTraining,
)
from typer.testing import CliRunner

from electra import __main__ as cli
from electra.common.artifacts import MANIFEST, read_json, write_json
from electra.common.errors import ConfigError, DataError
from electra.common.paths import Paths
from electra.config import Method, Model, Settings
from electra.hub.export.pretrained import export_model
from electra.model.pretrained import save_pretrained
from electra.objectives.base import build_objective
from electra.results.probe.scores import (
    Probe,
    changed,
    read_pairs,
    read_similar,
    run_probe,
    score_pairs,
)
from electra.results.probe.word_vectors import WordVectors
from electra.text.shards.layout import Shards
from tests import fixtures
from tests.workspace import Workspace

CPU = torch.device("cpu")
PAIRS = read_pairs([fixtures.PAIRS])
RULES = list(dict.fromkeys(pair["UID"] for pair in PAIRS))


def workspace_of(
    prepared: Workspace, root: Path, objective: str = "electra", generator: str = "transformer", **changes: Any
) -> Paths:
    """Random weights far from zero, and their export."""
    root.mkdir()
    (root / "data").symlink_to(prepared.root / "data")
    settings, paths, method = prepared.settings(), Paths(root), Method(objective=objective, generator=generator)
    model = Model(**{**settings.model.model_dump(), **changes})
    module = build_objective(model, 600, 4, method).initialize(0.3, seed=1)
    weights = {name: parameter.detach() for name, parameter in module.named_parameters()}
    save_pretrained(paths.pretrained, weights, model, 600, paths.tokenizer, method)
    export_model(Settings(**{**dict(settings), "model": model}), paths)
    return paths


MODERN = {"architecture": "modern", "positions": "rotary", "norm": "pre", "feed_forward": "geglu"}


@torch.no_grad()
@pytest.mark.parametrize("changes", [{}, MODERN], ids=["electra", "modern"])
def test_accuracies_are_those_of_a_plain_script(changes: dict[str, Any], prepared: Workspace, tmp_path: Path) -> None:
    paths = workspace_of(prepared, tmp_path / "probed", **changes)
    tokenizer = AutoTokenizer.from_pretrained(paths.export / "generator")
    generator = AutoModelForMaskedLM.from_pretrained(paths.export / "generator").eval()

    if changes:
        detector = AutoModelForTokenClassification.from_pretrained(paths.export / "detector").eval()
    else:
        detector = ElectraForPreTraining.from_pretrained(paths.export / "discriminator").eval()

    def real(text: str) -> Tensor:
        """log P(real) without [CLS] and [SEP]."""
        inputs = tokenizer(text, return_tensors="pt")
        if changes:
            return detector(**inputs).logits.log_softmax(-1)[0, 1:-1, 0]
        return (1 - detector(**inputs).logits.sigmoid()).log()[0, 1:-1]

    def masked(text: str) -> Tensor:
        inputs, found = tokenizer(text, return_tensors="pt"), []
        ids = inputs["input_ids"]
        for place in range(1, ids.shape[1] - 1):
            hidden = ids.clone()
            hidden[0, place] = tokenizer.mask_token_id
            logits = generator(**{**inputs, "input_ids": hidden}).logits
            found.append(logits[0, place].log_softmax(-1)[ids[0, place]])
        return torch.stack(found)

    shards = Shards(paths.shards, "train")
    rows, spans = shards.gather(np.arange(len(shards)))
    tokens = [token for row, (length, *_) in zip(rows, spans, strict=True) for token in row[:length] if token > 4]
    counts = torch.bincount(torch.tensor(tokens), minlength=600) + 1  # the first five entries are special

    pairs = PAIRS[::3]
    by_way: dict[str, list[bool]] = {}
    for pair in pairs:
        good, bad = pair["sentence_good"], pair["sentence_bad"]
        one, other = real(good), real(bad)
        by_way.setdefault("discriminator, sum", []).append(bool(one.sum() > other.sum()))
        by_way.setdefault("discriminator, mean", []).append(bool(one.mean() > other.mean()))
        ids = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in (good, bad)]
        blocks = SequenceMatcher(None, *ids, autojunk=False).get_matching_blocks()
        kept = [{block[side] + n for block in blocks for n in range(block.size)} for side in (0, 1)]

        def is_ahead(values: tuple[Tensor, Tensor], kept: list[set[int]] = kept) -> bool:
            """By the sums over changed tokens."""
            first, second = (
                sum(float(v) for n, v in enumerate(row) if n not in kept[side]) for side, row in enumerate(values)
            )
            return first > second

        by_way.setdefault("discriminator, changed tokens", []).append(is_ahead((one, other)))
        by_masks = (masked(good), masked(bad))
        by_way.setdefault("generator, masked", []).append(bool(by_masks[0].sum() > by_masks[1].sum()))
        by_way.setdefault("generator, changed tokens", []).append(is_ahead(by_masks))
        gains = [row - (counts[text] / counts.sum()).log() for row, text in zip(by_masks, ids, strict=True)]
        by_way.setdefault("generator, changed tokens over frequency", []).append(is_ahead((gains[0], gains[1])))
        odds = [row - (1 - row.exp()).log() for row in (one, other)]
        by_way.setdefault("discriminator, log-odds", []).append(bool(odds[0].sum() > odds[1].sum()))
        by_way.setdefault("discriminator, log-odds of changed tokens", []).append(is_ahead((odds[0], odds[1])))
        both = [float(row.sum() + by_mask.sum()) for row, by_mask in zip(odds, by_masks, strict=True)]
        by_way.setdefault("discriminator and generator", []).append(both[0] > both[1])
    found = score_pairs(Probe(paths, CPU, bf16=False), pairs)
    assert found.keys() == by_way.keys()
    for way, right in by_way.items():
        assert found[way]["all"] == pytest.approx(sum(right) / len(right)), way
        for rule in RULES:
            of_rule = [hit for hit, pair in zip(right, pairs, strict=True) if pair["UID"] == rule]
            assert found[way][rule] == pytest.approx(sum(of_rule) / len(of_rule)), (way, rule)


@torch.no_grad()
def test_changed_tokens_are_the_ones_that_the_other_sentence_has_not(prepared: Workspace, tmp_path: Path) -> None:
    assert (changed([5, 6, 7, 8], [5, 9, 8]), changed([5, 9, 8], [5, 6, 7, 8])) == ([1, 2], [1])
    assert changed([5, 6], [5, 6]) == []
    probe = Probe(workspace_of(prepared, tmp_path / "probed"), CPU, bf16=False)
    swapped = [pair for pair in PAIRS if pair["UID"] in ("agreement", "anaphora")]
    right = []
    for pair in swapped:
        good, bad = (probe.ids(pair[name]) for name in ("sentence_good", "sentence_bad"))
        values = probe.one_pass([good, bad])
        assert values is not None
        sums = [values[side][changed(*ids)].sum() for side, ids in enumerate(((good, bad), (bad, good)))]
        right.append(bool(sums[0] > sums[1]))
    assert score_pairs(probe, swapped)["discriminator, changed tokens"]["all"] == pytest.approx(sum(right) / len(right))


@torch.no_grad()
def test_a_sentence_longer_than_the_encoder_has_positions_is_cut_and_scored(
    prepared: Workspace, tmp_path: Path
) -> None:
    probe = Probe(workspace_of(prepared, tmp_path / "probed"), CPU, bf16=False)
    room = probe.encoder.config.max_positions - 2  # [CLS] and [SEP] take two
    good, bad = f"The robin sang {'in the garden ' * room}", f"A robin sang {'in the garden ' * room}"
    assert len(probe.ids(good)) == room
    found = score_pairs(probe, [{"sentence_good": good, "sentence_bad": bad, "UID": "long"}])
    assert {values["long"] for values in found.values()} <= {0.0, 1.0} and "generator, masked" in found


def test_without_the_training_text_no_score_is_over_frequency(prepared: Workspace, tmp_path: Path) -> None:
    paths = workspace_of(prepared, tmp_path / "probed", "bert")
    (paths.root / "data").unlink()
    (paths.root / "data").mkdir()
    (paths.root / "data/tokenizer").symlink_to(prepared.root / "data/tokenizer")
    ways = {f"masked language model, {way}" for way in ("masked", "changed tokens")}
    assert score_pairs(Probe(paths, CPU, bf16=False), PAIRS[:4]).keys() == ways


def test_the_text_of_another_tokenizer_is_no_training_text(prepared: Workspace, tmp_path: Path) -> None:
    paths = with_stale_shards(workspace_of(prepared, tmp_path / "probed", "bert"), prepared)
    ways = {f"masked language model, {way}" for way in ("masked", "changed tokens")}
    assert score_pairs(Probe(paths, CPU, bf16=False), PAIRS[:4]).keys() == ways
    with pytest.raises(DataError, match="another tokenizer") as raised:
        WordVectors.learn(paths)
    assert raised.value.next_step == "run: dvc repro shards"


def with_stale_shards(paths: Paths, prepared: Workspace) -> Paths:
    """Replace the shards by ones whose manifest names another tokenizer."""
    (paths.root / "data").unlink()
    shutil.copytree(prepared.root / "data/shards", paths.shards)
    (paths.root / "data/tokenizer").symlink_to(prepared.root / "data/tokenizer")
    manifest = read_json(paths.shards / MANIFEST)
    write_json(paths.shards / MANIFEST, manifest | {"tokenizer_sha256": "0" * 64})
    return paths


def test_a_tie_is_wrong(prepared: Workspace, tmp_path: Path) -> None:
    probe = Probe(workspace_of(prepared, tmp_path / "probed"), CPU, bf16=False)
    same = {"sentence_good": "The robin sang.", "sentence_bad": "The robin sang.", "UID": "none"}
    assert {values["all"] for values in score_pairs(probe, [same]).values()} == {0.0}


def test_sentences_of_the_same_wordpieces_are_a_tie_whatever_else_is_in_their_batches(
    prepared: Workspace, tmp_path: Path
) -> None:
    probe = Probe(workspace_of(prepared, tmp_path / "probed"), CPU, bf16=False)
    texts = [pair["sentence_good"] for pair in PAIRS[:40]]
    pairs = [{"sentence_good": text, "sentence_bad": text.upper(), "UID": "case"} for text in texts]
    assert all(probe.ids(text) == probe.ids(text.upper()) for text in texts)
    assert {values["all"] for values in score_pairs(probe, pairs).values()} == {0.0}


@pytest.mark.parametrize(
    ("objective", "ways"),
    [
        (
            "bert",
            {f"masked language model, {way}" for way in ("masked", "changed tokens", "changed tokens over frequency")},
        ),
        ("electric", {f"Electric, {way}" for way in ("sum", "mean", "changed tokens")}),
    ],
)
def test_other_objectives_are_probed_by_what_they_have(
    objective: str, ways: set[str], prepared: Workspace, tmp_path: Path
) -> None:
    probe = Probe(workspace_of(prepared, tmp_path / "probed", objective), CPU, bf16=False)
    assert score_pairs(probe, PAIRS[:4]).keys() == ways
    if objective == "electric":
        from electra.predict.pseudo_likelihood import score_lines

        text = PAIRS[0]["sentence_good"]
        ((_, expected, _),) = score_lines(Paths(tmp_path / "probed"), [text], CPU, False)
        values = probe.one_pass([probe.ids(text)])
        assert values is not None and values[0].sum().item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("changes", [{}, MODERN], ids=["electra", "modern"])
def test_similarity_is_that_of_a_plain_script(changes: dict[str, Any], prepared: Workspace, tmp_path: Path) -> None:
    paths, file = workspace_of(prepared, tmp_path / "probed", **changes), tmp_path / "sts.jsonl"
    rows = [
        {"text_a": pair["sentence_good"], "text_b": other["sentence_bad"], "label": str(number % 5)}
        for number, (pair, other) in enumerate(zip(PAIRS, PAIRS[::-1], strict=True))
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    tokenizer, encoder = (kind.from_pretrained(paths.export / "discriminator") for kind in (AutoTokenizer, AutoModel))

    @torch.no_grad()
    def embed(text: str) -> Tensor:
        return encoder.eval()(**tokenizer(text, return_tensors="pt")).last_hidden_state[0].mean(0)

    cosines = [float(torch.cosine_similarity(embed(row["text_a"]), embed(row["text_b"]), 0)) for row in rows]
    expected = spearmanr([float(row["label"]) for row in rows], cosines).statistic
    found = run_probe(paths, [fixtures.PAIRS], file, CPU, False)
    assert found["pairs"] == len(PAIRS) and found["similarity_spearman"] == pytest.approx(expected, abs=1e-6)
    file.write_text('{"text_a": "one"}\n')
    with pytest.raises(DataError, match="no sentence pair with a score"):
        read_similar(file)


@pytest.mark.parametrize(
    ("text", "message"), [('{"sentence_good": "One."}\n', r"pairs\.jsonl:1"), ("", "there are no pairs"), ("{", "JSON")]
)
def test_files_that_hold_no_pairs_are_refused(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "pairs.jsonl").write_text(text)
    with pytest.raises(DataError) as refused:
        read_pairs([tmp_path / "pairs.jsonl"])
    assert re.search(message, str(refused.value))


def test_the_command_prints_a_row_for_each_way(
    prepared: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = Workspace(tmp_path / "probed")
    workspace_of(prepared, workspace.root)
    workspace.write()
    (tmp_path / "one.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in PAIRS[:4]))
    monkeypatch.chdir(workspace.root)
    done = CliRunner().invoke(cli.app, ["probe", str(tmp_path / "one.jsonl")])
    assert done.exit_code == 0, done.output
    assert "4 minimal pairs" in done.output and "generator, masked" in done.output
    as_json = CliRunner().invoke(cli.app, ["probe", "--json", str(tmp_path / "one.jsonl")])
    assert json.loads(as_json.output)["pairs"] == 4
    workspace.write(tasks={"pairs": [str(tmp_path / "one.jsonl")]})
    as_json = CliRunner().invoke(cli.app, ["probe", "--json"])
    assert json.loads(as_json.output)["pairs"] == 4


def test_the_command_says_that_there_is_nothing_to_probe(prepared: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(prepared.root)
    refused = CliRunner().invoke(cli.app, ["probe", "--json"])
    assert isinstance(refused.exception, ConfigError) and "nothing to probe" in str(refused.exception)
