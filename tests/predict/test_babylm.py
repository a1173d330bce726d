"""`electra babylm`: the files of BabyLM's evaluation, as its pipeline computes them on the exported folders."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import torch
from scipy.stats import spearmanr
from transformers import AutoModelForMaskedLM, AutoTokenizer

from electra.__main__ import main
from electra.common.errors import ConfigError, DataError
from electra.common.paths import Paths
from electra.hub.milestones import export_milestones
from electra.model.pretrained import save_pretrained
from electra.predict import babylm
from electra.predict.babylm import find_tasks, write_predictions
from electra.pretrain.data.seen import TextSeen
from electra.results.probe.scores import Probe, read_pairs, score_pairs
from tests import fixtures
from tests.probe.test_scores import workspace_of
from tests.publish import parity
from tests.publish.milestones import run_with_milestones
from tests.workspace import Workspace

CPU = torch.device("cpu")
SEEN = {"chck_1M": TextSeen(4, 32, 1_400_000, 1_000_000), "chck_2M": TextSeen(8, 64, 2_800_000, 2_000_000)}


LONG = " ".join(["the box is in the garden and"] * 200)  # more than the 512 positions of the model


def other_tasks() -> dict[str, list[dict[str, Any]]]:
    """Rows of the tasks beside minimal pairs, by file: the fields that the pipeline reads, and others."""
    pairs = read_pairs([fixtures.PAIRS])
    good, bad = ([pair[side].rstrip(".") for pair in pairs] * 2 for side in ("sentence_good", "sentence_bad"))
    contrasts = [
        {"Domain": f"social-{'properties' if n < 20 else 'relations'}", "ConceptA": "x", "Context1": f"{good[n]}.",
         "Context2": f"{bad[n]}.", "Target1": f"{good[n + 20]}.", "Target2": f"{good[n + 35]}."}
        for n in range(40)
    ]  # fmt: skip
    moves = [
        {"input_prefix": f"{LONG if n in (7, 8) else good[n]}. Box {n} contains", "numops": n // 20, "sentence": "x",
         "options": [f" {good[n + step]}." for step in (40, 30, 20, 10, 5)]}
        for n in range(40)
    ]  # fmt: skip
    concepts = [
        {"prefix_acceptable": good[n], "prefix_unacceptable": good[n + 9], "property_phrase": "does not spot a sheep."}
        for n in range(12)
    ]
    wugs = [{"sentences": f"{good[n]}.\t{bad[n]}.", "ratio": str(n / 9), "word": "wug"} for n in range(10)]
    return {
        "ewok_fast/social-properties": contrasts[:20],
        "ewok_fast/social-relations": contrasts[20:],
        "entity_tracking_fast/regular": moves[:4],
        "entity_tracking_fast/move_contents": moves[2:],
        "comps/comps_base": concepts[:5],
        "comps/comps_wugs_dist-in-between": concepts[5:],
        "wug_adj_nominalization/wug_adj_nominalization": wugs[:5],
        "wug_past_tense/wug_past_tense": wugs[3:],
    }


# task and folder; and of a row and its file: key of the prediction, candidates, what is scored of each
EXPECTED: dict[str, Callable[[dict[str, Any], str], tuple[str, list[str], list[str]]]] = {
    "ewok/ewok_fast": lambda row, file: (
        row["Domain"],
        [f"{row['Context1']} {row['Target1']}", f"{row['Context1']} {row['Target2']}"],
        [f" {row['Target1']}", f" {row['Target2']}"],
    ),
    "entity_tracking/entity_tracking_fast": lambda row, file: (
        f"{file}_{row['numops']}_ops",
        [row["input_prefix"] + option for option in row["options"]],
        row["options"],
    ),
    "comps/comps": lambda row, file: (
        {"comps_base": "base", "comps_wugs_dist-in-between": "wugs_dist_in_between"}[file],
        [f"{row[f'prefix_{side}']} {row['property_phrase']}" for side in ("acceptable", "unacceptable")],
        [row["property_phrase"]] * 2,
    ),
    "wug_adj/wug_adj_nominalization": lambda row, _: ("wug_adj", *[row["sentences"].split("\t")] * 2),
    "wug_past/wug_past_tense": lambda row, _: ("wug_past", *[row["sentences"].split("\t")] * 2),
}  # fmt: skip


def run_of(case: str, prepared: Workspace, root: Path, monkeypatch: pytest.MonkeyPatch) -> Paths:
    """An exported run with two milestones of other weights than the final ones, and pairs in the challenge's layout."""
    random = torch.Generator().manual_seed(2)

    def changed(_: int, weight: torch.Tensor) -> torch.Tensor:
        return weight + 0.1 * torch.randn(weight.shape, generator=random)

    paths = run_with_milestones(case, prepared, root, SEEN, changed)
    rows = [json.loads(line) for line in fixtures.PAIRS.read_text().splitlines()]
    files: dict[str, list[dict[str, Any]]] = {
        "blimp_fast/agreement": [row | {"field": "syntax", "UID": "agreement"} for row in rows[:12]],
        "blimp_fast/mixed": [row | {"field": "syntax", "UID": f"rule_{n % 2}"} for n, row in enumerate(rows[12:20])],
        "supplement_fast/turn_taking": [row | {"UID": "not read"} for row in rows[20:26]],
        **other_tasks(),
        "wug_plural/wug_plural": [{"sentences": "a\tb", "ratio": 1}],
        "vqa_filtered/vqa": [{"question": "a", "target_ans": "b", "distractors": ["c"]}],
    }
    for name, lines in files.items():
        path = root / f"evaluation_data/fast_eval/{name}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    (root / "evaluation_data/fast_eval/blimp_fast/.ipynb_checkpoints").mkdir()
    monkeypatch.chdir(root)
    return paths


@torch.no_grad()
def scorer(folder: Path) -> Callable[[str, str], float]:
    """A plain ``transformers`` script's log-probability of the tokens of a completion, as the pipeline takes it."""
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForMaskedLM.from_pretrained(folder).eval()

    @torch.no_grad()
    def score(sentence: str, completion: str) -> float:
        found = tokenizer(sentence, return_tensors="pt", return_offsets_mapping=True)
        ids, ends = found["input_ids"], found["offset_mapping"][0, :, 1]
        if ids.shape[1] > 512:  # which the pipeline does not cut
            ids, ends = (torch.cat([values[..., :1], values[..., -511:]], -1) for values in (ids, ends))
        places = (ends > len(sentence) - len(completion)).nonzero()[:, 0]
        copies = ids.repeat(len(places), 1)
        copies[torch.arange(len(places)), places] = tokenizer.mask_token_id
        logits = model(input_ids=copies, attention_mask=torch.ones_like(copies)).logits
        values = logits[torch.arange(len(places)), places].log_softmax(-1)
        return float(values.gather(1, ids[0, places][:, None]).sum())

    return score


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
    assert not ended.value.code and "left out, other tasks: vqa_filtered, wug_plural\n" in printed
    exported = export_milestones(prepared.settings(), paths)
    folders = {"main": paths.export / role, **{name: exported / name / role for name in SEEN}}
    target = paths.exported("babylm") / f"baby-{role}"
    assert sorted(path.name for path in target.iterdir()) == ["chck_1M", "chck_2M", "main", "run.json"]
    answers = set()
    for revision, folder in folders.items():
        score = scorer(folder)
        for data, rules in (("blimp_fast", ["agreement", "rule_0", "rule_1"]), ("supplement_fast", ["turn_taking"])):
            found = json.loads((target / revision / f"zero_shot/mlm/blimp/{data}/predictions.json").read_text())
            pairs = read_pairs(sorted(Path(f"evaluation_data/fast_eval/{data}").glob("*.jsonl")))
            texts = [(pair["sentence_good"], pair["sentence_bad"]) for pair in pairs]
            chosen = {good: max((good, bad), key=lambda text: score(text, text)) for good, bad in texts}
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


def test_predictions_of_the_other_tasks_are_the_pipelines(
    prepared: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = run_of("electra-narrow", prepared, tmp_path / "run", monkeypatch)
    compute, scores = babylm._scores, list[list[float]]()
    monkeypatch.setattr(babylm, "_scores", lambda *texts: scores.append(compute(*texts)) or scores[-1])
    target, lines = write_predictions(paths, Path("evaluation_data/fast_eval"), "baby", CPU, final_only=True)
    assert lines.pop(0) == "left out, other tasks: vqa_filtered, wug_plural"
    found_by_folder = {line.split()[1]: (line, values) for line, values in zip(lines, scores, strict=True)}
    score, chosen = scorer(paths.export / "generator"), set()
    for folder, expected in EXPECTED.items():
        predictions: dict[str, dict[str, list[dict[str, Any]]]] = {}
        right: dict[str, list[bool]] = {}
        ratios, all_values = [], list[float]()
        for file, rows in sorted(other_tasks().items()):
            if file.split("/")[0] != Path(folder).name:
                continue
            for row in rows:
                rule, sentences, completions = expected(row, Path(file).name)
                values = [score(*texts) for texts in zip(sentences, completions, strict=True)]
                all_values += values
                best = values.index(max(values))
                entries = predictions.setdefault(rule, {"predictions": []})["predictions"]
                entry: dict[str, Any] = {"id": f"{rule}_{len(entries)}"}
                entry["pred"] = sentences[best] if folder == "comps/comps" else completions[best]
                if "ratio" in row:
                    entry["prob"] = pytest.approx(float(torch.tensor(values).softmax(0)[0]), abs=1e-4)
                    ratios.append((float(row["ratio"]), values[0] - values[1]))
                entries.append(entry)
                right.setdefault(rule, []).append(best == 0)
                chosen.add((folder, best))
        found = json.loads((target / f"main/zero_shot/mlm/{folder}/predictions.json").read_text())
        assert found == predictions
        figure = spearmanr(*zip(*ratios, strict=True))[0] if ratios else fmean(map(fmean, right.values()))
        line, computed = found_by_folder[Path(folder).name]
        assert computed == pytest.approx(all_values, abs=1e-3)
        assert float(line.split()[2]) == pytest.approx(100 * figure, abs=0.06)
        assert ("10 candidates are too long" in line) == ("entity" in folder)
    assert len(chosen) > len(EXPECTED), "not always the same candidate"


@pytest.mark.parametrize(
    ("file", "row", "task"),
    [
        ("blimp_fast/agreement", {"sentence_good": "A b.", "sentence_bad": " "}, "blimp"),
        ("ewok_fast/social-properties", {"Domain": "social", "Context1": "A.", "Target1": "B."}, "ewok"),
        ("ewok_fast/social-properties", {"Domain": 1, "Context1": "A.", "Target1": "B.", "Target2": "C."}, "ewok"),
        ("entity_tracking_fast/regular", {"input_prefix": "A", "numops": 1, "options": "abc"}, "entity_tracking"),
        ("entity_tracking_fast/regular", {"input_prefix": "A", "numops": 1, "options": ["b"]}, "entity_tracking"),
        ("entity_tracking_fast/regular", {"input_prefix": 1, "numops": 1, "options": ["b", "c"]}, "entity_tracking"),
        ("comps/comps_base", ["prefix_acceptable"], "comps"),
        ("wug_past_tense/wug_past_tense", {"sentences": "A b.", "ratio": 0.5}, "wug_past"),
        ("wug_past_tense/wug_past_tense", {"sentences": "A b.\tA c.", "ratio": "half"}, "wug_past"),
    ],
)
def test_a_damaged_row_is_named_before_anything_is_written(
    file: str, row: Any, task: str, prepared: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = run_of("electra-narrow", prepared, tmp_path / "run", monkeypatch)
    path = Path(f"evaluation_data/fast_eval/{file}.jsonl")
    number = len(path.read_text().splitlines()) + 1
    with open(path, "a") as opened:
        opened.write(json.dumps(row) + "\n")
    with pytest.raises(DataError, match=f"is no row of {task}, which has") as raised:
        write_predictions(paths, Path("evaluation_data/fast_eval"), "baby", CPU, final_only=True)
    assert f"{path}:{number}" in str(raised.value) and not paths.exported("babylm").exists()


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
    with pytest.raises(DataError, match="there is no data of blimp, ewok, "):
        find_tasks(Path("evaluation_data/fast_eval/vqa_filtered"))
    with pytest.raises(DataError, match="is no folder"):
        find_tasks(Path("nowhere"))
    monkeypatch.setattr("electra.objectives.base.Objective.language_model", lambda _: None)
    with pytest.raises(ConfigError, match="no masked language model"):
        write_predictions(paths, Path("evaluation_data/fast_eval"), "baby", CPU)
    assert not paths.exported("babylm").exists()


def test_equal_candidates_are_a_tie_whatever_else_is_in_their_batches(prepared: Workspace, tmp_path: Path) -> None:
    probe = Probe(workspace_of(prepared, tmp_path / "probed"), CPU, bf16=False)
    texts = [(probe.ids(pair["sentence_good"]), 1) for pair in read_pairs([fixtures.PAIRS])[:40]]
    scores = babylm._scores(probe, [*texts, *reversed(texts)])
    assert scores[:40] == scores[:39:-1] and len(set(scores)) > 20
