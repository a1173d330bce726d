"""`electra babylm`: the files of BabyLM's evaluation, as its pipeline computes them on the exported folders."""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForMaskedLM, AutoTokenizer

from electra.__main__ import main
from electra.common.artifacts import building, sha256, write_manifest
from electra.common.errors import ConfigError, DataError
from electra.common.paths import Paths
from electra.hub.milestones import export_milestones
from electra.model.pretrained import save_pretrained
from electra.predict.babylm import find_pairs, write_predictions
from electra.pretrain.data.seen import Order, TextSeen
from electra.results.probe.scores import Probe, read_pairs, score_pairs
from tests import fixtures
from tests.publish import parity
from tests.workspace import Workspace

CPU = torch.device("cpu")
SEEN = {"chck_1M": TextSeen(4, 32, 1_400_000, 1_000_000), "chck_2M": TextSeen(8, 64, 2_800_000, 2_000_000)}


def run_of(case: str, prepared: Workspace, root: Path, monkeypatch: pytest.MonkeyPatch) -> Paths:
    """An exported run with two milestones of other weights than the final ones, and pairs in the challenge's layout."""
    module, paths = parity.write(parity.CASES[case], prepared, root)
    for name in ("params.yaml", "params"):
        (paths.root / name).symlink_to(prepared.root / name)
    model = parity.build(parity.CASES[case])[0]
    random = torch.Generator().manual_seed(2)
    with building(paths.milestones) as scratch:
        for name in SEEN:
            weights = {key: value.detach() + 0.1 * torch.randn(value.shape, generator=random)
                       for key, value in module.named_parameters()}  # fmt: skip
            save_pretrained(scratch / name, weights, model, 600, paths.tokenizer, module.method)
        write_manifest(
            scratch,
            steps={name: seen.step for name, seen in SEEN.items()},
            order=Order(1, 8, 24).facts(),
            seen={name: asdict(seen) for name, seen in SEEN.items()},
            final=sha256(paths.pretrained / "model.safetensors"),
        )
    rows = [json.loads(line) for line in fixtures.PAIRS.read_text().splitlines()]
    files: dict[str, list[dict[str, Any]]] = {
        "blimp_fast/agreement": [row | {"field": "syntax", "UID": "agreement"} for row in rows[:12]],
        "blimp_fast/mixed": [row | {"field": "syntax", "UID": f"rule_{n % 2}"} for n, row in enumerate(rows[12:20])],
        "supplement_fast/turn_taking": [row | {"UID": "not read"} for row in rows[20:26]],
        "ewok_fast/social": [{"Context1": "a", "Target1": "b"}],
    }
    for name, lines in files.items():
        path = root / f"evaluation_data/fast_eval/{name}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    (root / "evaluation_data/fast_eval/blimp_fast/.ipynb_checkpoints").mkdir()
    monkeypatch.chdir(root)
    return paths


@torch.no_grad()
def preferred(folder: Path, pairs: list[dict[str, str]]) -> list[str]:
    """The sentence of each pair that a plain ``transformers`` script finds likelier, as the pipeline does."""
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForMaskedLM.from_pretrained(folder).eval()

    def score(text: str) -> float:
        ids = tokenizer(text, return_tensors="pt")["input_ids"]
        places = torch.arange(1, ids.shape[1] - 1)
        copies = ids.repeat(len(places), 1)
        copies[torch.arange(len(places)), places] = tokenizer.mask_token_id
        logits = model(input_ids=copies, attention_mask=torch.ones_like(copies)).logits
        values = logits[torch.arange(len(places)), places].log_softmax(-1)
        return float(values.gather(1, ids[0, places][:, None]).sum())

    return [max((pair["sentence_good"], pair["sentence_bad"]), key=score) for pair in pairs]


@pytest.mark.parametrize(
    ("case", "role"), [("electra-narrow", "generator"), ("modern-narrow", "generator"), ("electra-bert", "encoder")]
)
def test_predictions_are_the_pipelines_on_the_model_to_submit_and_agree_with_the_probe(
    case: str, role: str, prepared: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    paths = run_of(case, prepared, tmp_path / "run", monkeypatch)
    monkeypatch.setattr(sys, "argv", ["electra", "babylm", "evaluation_data/fast_eval", "--name", "me/baby"])
    with pytest.raises(SystemExit) as ended:
        main()
    printed = capsys.readouterr().out
    assert not ended.value.code and "other tasks than minimal pairs: ewok_fast" in printed
    exported = export_milestones(prepared.settings(), paths)
    folders = {"main": paths.export / role, **{name: exported / name / role for name in SEEN}}
    target = paths.exported("babylm") / f"baby-{role}"
    assert sorted(path.name for path in target.iterdir()) == ["chck_1M", "chck_2M", "main", "run.json"]
    answers = set()
    for revision, folder in folders.items():
        for data, rules in (("blimp_fast", ["agreement", "rule_0", "rule_1"]), ("supplement_fast", ["turn_taking"])):
            found = json.loads((target / revision / f"zero_shot/mlm/blimp/{data}/predictions.json").read_text())
            pairs = read_pairs(sorted(Path(f"evaluation_data/fast_eval/{data}").glob("*.jsonl")))
            chosen = dict(zip((pair["sentence_good"] for pair in pairs), preferred(folder, pairs), strict=True))
            assert list(found) == rules
            flat = [entry for rule in rules for entry in found[rule]["predictions"]]
            for rule in rules:
                entries = found[rule]["predictions"]
                assert [entry["id"] for entry in entries] == [f"{rule}_{number}" for number in range(len(entries))]
            assert sorted(entry["pred"] for entry in flat) == sorted(chosen.values())
            answers.add((data, tuple(entry["pred"] for entry in flat)))
            weights = paths.pretrained if revision == "main" else paths.milestones / revision
            ways = score_pairs(Probe(paths, CPU, False, weights), pairs)
            (way,) = [way for way in ways if way.endswith(", masked")]
            good = {pair["sentence_good"] for pair in pairs}
            assert sum(entry["pred"] in good for entry in flat) / len(flat) == pytest.approx(ways[way]["all"])
    assert len(answers) > 3, "the revisions are different models"


def test_the_final_weights_alone_and_predictions_of_other_weights(
    prepared: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = run_of("electra-narrow", prepared, tmp_path / "run", monkeypatch)
    data = Path("evaluation_data/fast_eval/blimp_fast")
    target, lines = write_predictions(paths, data, "baby", CPU, final_only=True)
    assert sorted(path.name for path in target.iterdir()) == ["main", "run.json"] and len(lines) == 1
    write_predictions(paths, data, "baby", CPU)  # more of the same weights
    before = {path: path.read_bytes() for path in target.rglob("*.json")}
    module, _ = parity.write(parity.CASES["electra-full"], prepared, tmp_path / "other")
    model = parity.build(parity.CASES["electra-full"])[0]
    weights = {key: value.detach() for key, value in module.named_parameters()}
    save_pretrained(paths.pretrained, weights, model, 600, paths.tokenizer, module.method)
    with pytest.raises(DataError, match="the milestones are of another run"):
        write_predictions(paths, data, "baby", CPU)
    with pytest.raises(DataError, match="predictions of other weights"):
        write_predictions(paths, data, "baby", CPU, final_only=True)
    assert before == {path: path.read_bytes() for path in target.rglob("*.json")}


def test_what_cannot_be_scored_is_refused(prepared: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = run_of("electra-narrow", prepared, tmp_path / "run", monkeypatch)
    with pytest.raises(DataError, match="no minimal pairs"):
        find_pairs(Path("evaluation_data/fast_eval/ewok_fast"))
    with pytest.raises(DataError, match="is no folder"):
        find_pairs(Path("nowhere"))
    monkeypatch.setattr("electra.objectives.base.Objective.language_model", lambda _: None)
    with pytest.raises(ConfigError, match="no masked language model"):
        write_predictions(paths, Path("evaluation_data/fast_eval"), "baby", CPU)
    assert not paths.exported("babylm").exists()
