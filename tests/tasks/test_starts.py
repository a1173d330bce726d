"""Fine-tuning from another task's encoder or a third-party encoder, and the folders of the results."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml

from electra.common.artifacts import read_json, read_manifest
from electra.common.errors import ConfigError, DataError
from electra.common.paths import Paths
from electra.config import Cells, Settings
from electra.finetune.encoders import EncoderSource
from electra.finetune.run import finetune_task
from electra.finetune.saved import load_model
from electra.model.pretrained import save_pretrained
from electra.objectives.electra import Electra
from electra.predict.submission import write_submission
from electra.results.evaluate import evaluate_runs
from electra.results.report.facts import read_scores
from tests.fixtures import exchange_two_entries
from tests.foreign_encoders import write_encoder
from tests.small_tasks import VOCAB

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def pretrained(paths: Paths, workspace):
    """Settings for CoLA and STS-B with pre-trained weights that the cells can start from."""

    def prepare(**cells) -> Settings:
        settings = workspace(["CoLA", "STS-B"], epochs=1, learning_rate=5e-3)
        electra = Electra(settings.model, len(VOCAB), mask_id=4).initialize(0.02, seed=7)
        weights = {name: parameter.detach() for name, parameter in electra.named_parameters()}
        save_pretrained(paths.pretrained, weights, settings.model, len(VOCAB), paths.tokenizer)
        changed = Cells.model_validate({**settings.cells.model_dump(), "seeds": [1, 2], **cells})
        return settings.model_copy(update={"cells": changed})

    return prepare


def both_starts(settings: Settings, paths: Paths) -> None:
    """The cells that every card has."""
    for task in settings.cells.tasks:
        for seed in settings.cells.seeds:
            finetune_task(settings, paths, task=task, seed=seed)
            finetune_task(settings, paths, task=task, seed=seed, scratch=True)


def test_a_task_starts_from_the_encoder_of_another_with_a_head_of_its_own(paths, pretrained, monkeypatch):
    settings = pretrained()
    with pytest.raises(DataError, match="electra finetune --task CoLA --seed 1 --intermediate"):
        finetune_task(settings, paths, task="STS-B", seed=1, start_from="CoLA")
    finetune_task(settings, paths, task="CoLA", seed=1, intermediate=True)
    assert not paths.finetuned("CoLA-1").exists()
    kept = load_model(paths.intermediate("CoLA-1"))
    starts = []
    monkeypatch.setattr("electra.finetune.run.train", lambda model, *_, **__: starts.append(model) or 0.0)
    finetune_task(settings, paths, task="STS-B", seed=1, start_from="CoLA")
    (start,) = starts
    expected, found = kept.model.encoder.state_dict(), start.encoder.state_dict()
    assert all(torch.equal(found[name], value) for name, value in expected.items())
    plain = load_plain(paths)
    assert any(not torch.equal(value, expected[name]) for name, value in plain.items())
    assert start.head.output.weight.shape == (1, 16)
    assert {m.p for m in start.modules() if isinstance(m, torch.nn.Dropout)} == {0.1}
    run = read_json(paths.finetuned("STS-B-1-from-CoLA") / "run.json")
    assert (run["init"], run["task"]) == ("from-CoLA", "STS-B")
    assert not (paths.finetuned("STS-B-1-from-CoLA") / "model.safetensors").exists()


def test_an_encoder_of_another_tokenizer_is_no_start(paths, pretrained):
    settings = pretrained()
    finetune_task(settings, paths, task="CoLA", seed=1, intermediate=True)
    exchange_two_entries(paths.tokenizer)
    with pytest.raises(DataError, match=r"(?s)fine-tuned on CoLA has another tokenizer.*--task CoLA .*--intermediate"):
        finetune_task(settings, paths, task="STS-B", seed=1, start_from="CoLA")


def load_plain(paths: Paths) -> dict[str, torch.Tensor]:
    """The pre-trained encoder's weights."""
    from electra.model.pretrained import load_encoder

    return load_encoder(paths.pretrained).state_dict()


def test_a_fine_tuning_run_has_one_initial_encoder(paths, pretrained):
    settings = pretrained()
    with pytest.raises(ConfigError, match="one initial encoder"):
        finetune_task(settings, paths, task="STS-B", seed=1, start_from="CoLA", scratch=True)
    for name in ("from-CoLA", "scratch", "6.25"):
        with pytest.raises(ConfigError, match="cannot be an encoder's name"):
            EncoderSource.named(Path("x"), name)


def test_other_starts_are_on_the_card_by_median_and_deviation(paths, pretrained, tmp_path):
    settings = pretrained(intermediate=["CoLA"], from_intermediate=["STS-B"], encoders=["other"])
    both_starts(settings, paths)
    with pytest.raises(DataError, match="--task CoLA --seed 1 --encoder encoders/other"):
        evaluate_runs(settings, paths)
    source = EncoderSource.named(write_encoder(tmp_path / "encoders/other", "bert"))
    for seed in (1, 2):
        for task in ("CoLA", "STS-B"):
            finetune_task(settings, paths, task=task, seed=seed, encoder=source)
    with pytest.raises(DataError, match="--task STS-B --seed 1 --start-from CoLA"):
        evaluate_runs(settings, paths)
    for seed in (1, 2):
        finetune_task(settings, paths, task="CoLA", seed=seed, intermediate=True)
        finetune_task(settings, paths, task="STS-B", seed=seed, start_from="CoLA")
    evaluate_runs(settings, paths)
    card = read_scores(paths)
    assert card
    cola, sts = card["tasks"]["CoLA"], card["tasks"]["STS-B"]
    assert "intermediate" not in cola and set(sts["intermediate"]) == {"CoLA"}
    assert "intermediate" not in card, "a mean over one task is none"
    for found in (sts["intermediate"]["CoLA"], sts["encoders"]["other"]):
        values = [found["seeds"][seed]["spearman"] for seed in ("1", "2")]
        assert found["median"] == pytest.approx(sum(values) / 2, abs=1e-3)
        assert found["sd"] == pytest.approx(abs(values[0] - values[1]) / 2**0.5, abs=2e-3)
        assert set(found["other_metrics"]) == {"pearson"}
    mean = (cola["encoders"]["other"]["median"] + sts["encoders"]["other"]["median"]) / 2
    assert card["encoders"] == {"other": {"mean": pytest.approx(mean, abs=1e-3)}}


def test_every_family_has_a_file_and_no_figure_stands_twice(paths, pretrained):
    settings = pretrained()
    both_starts(settings, paths)
    evaluate_runs(settings, paths)
    names = {path.name: json.loads(path.read_text()) for path in paths.results.glob("*.json")}
    assert set(names) == {"scores.json", "glue.json", "squad.json", "tagging.json", "other.json"}
    assert set(names["glue.json"]) == {"CoLA", "STS-B"}
    assert names["squad.json"] == names["tagging.json"] == names["other.json"] == {}
    assert "tasks" not in names["scores.json"]
    metrics = json.loads((paths.metrics / "scores.json").read_text())
    assert set(metrics) == {"mean", "scratch", "CoLA", "STS-B"}, "what a reviewer compares: the means and every task"
    mean = names["scores.json"]["mean"]
    assert (metrics["mean"], metrics["scratch"]) == (mean["pretrained"], mean["scratch"])
    plotted = ["run\tscore"]
    for task in ("CoLA", "STS-B"):
        entry = names["glue.json"][task]
        assert metrics[task] == entry["pretrained"]
        plotted += [f"{task}\t{entry['pretrained']}", f"{task}, scratch\t{entry['scratch']}"]
    assert (paths.results / "scores.tsv").read_text().splitlines() == plotted
    assert {"pretrained", "pretrained_sd", "data", "train_rows", "dev_rows", "seeds"} <= names["glue.json"][
        "CoLA"
    ].keys()


def test_a_submission_may_take_tasks_from_their_cells_after_another(paths, pretrained):
    settings = pretrained()
    row = {"id": "7", "text_a": "cat", "text_b": "cat", "label": None}
    (paths.tasks / "STS-B/test.jsonl").write_text(json.dumps(row) + "\n")
    finetune_task(settings, paths, task="STS-B", seed=1)
    finetune_task(settings, paths, task="CoLA", seed=1, intermediate=True)
    finetune_task(settings, paths, task="STS-B", seed=1, start_from="CoLA")
    write_submission(paths, seed=1, fill_missing=True)
    assert "started_from" not in read_manifest(paths.submission(1))
    plain = (paths.submission(1) / "glue.zip").read_bytes()
    write_submission(paths, seed=1, fill_missing=True, start_from="CoLA")
    assert read_manifest(paths.submission(1))["started_from"] == {"CoLA": ["STS-B.tsv"]}
    assert (paths.submission(1) / "glue.zip").read_bytes() != plain


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        ({"intermediate": ["MNLI"]}, "belong together"),
        ({"intermediate": ["SST-2"], "from_intermediate": ["RTE"]}, "SST-2 must be among tasks"),
        ({"intermediate": ["MNLI"], "from_intermediate": ["RTE", "MNLI"]}, "MNLI cannot start from its own"),
        ({"encoders": ["../x"]}, "pattern"),
        ({"encoders": ["x", "x"]}, "listed twice"),
    ],
)
def test_cells_that_cannot_be_are_refused(cells, said):
    with pytest.raises(ValueError, match=said):
        Cells.model_validate({"tasks": ["MNLI", "RTE"], "seeds": [1], **cells})


def test_dvc_has_stages_for_other_starts_only_where_they_are_asked_for(tmp_path):
    def dvc(*arguments: str) -> str:
        done = subprocess.run([sys.executable, "-m", "dvc", *arguments], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    (tmp_path / "dvc.yaml").write_text((ROOT / "dvc.yaml").read_text())
    params = yaml.safe_load((ROOT / "params.yaml").read_text())
    params["cells"]["tasks"] = ["CoLA"]
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(params))
    dvc("init", "--quiet", "--no-scm")
    matrix = ("finetune_intermediate@", "finetune_from@", "finetune_encoder@")
    assert not [name for name in dvc("stage", "list", "--name-only").split() if name.startswith(matrix)]
    params["cells"] |= {"intermediate": ["MNLI"], "from_intermediate": ["RTE", "STS-B"], "encoders": ["roberta-base"]}
    params["cells"] |= {"seeds": [1, 2]}
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(params))
    graph = dvc("dag", "--dot")
    for seed in (1, 2):
        for task in ("RTE", "STS-B"):
            assert f'"finetune_intermediate@MNLI-{seed}" -> "finetune_from@{task}-{seed}-MNLI"' in graph
            assert f'"finetune_from@{task}-{seed}-MNLI" -> "evaluate"' in graph
        assert f'"pretrain" -> "finetune_intermediate@MNLI-{seed}"' in graph
        assert f'"finetune_encoder@CoLA-{seed}-roberta-base" -> "evaluate"' in graph
    assert '"pretrain" -> "finetune_encoder' not in graph
