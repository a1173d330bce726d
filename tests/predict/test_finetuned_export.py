"""`electra export --task`: transformers' class has the same outputs as our fine-tuned model."""

import copy
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub import ModelCard
from transformers import (
    AutoModelForMultipleChoice,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
    pipeline,
)
from typer.testing import CliRunner

import electra.__main__  # noqa: F401  # adds the commands
from electra.cli import app
from electra.common.artifacts import read_json, read_manifest, sha256, write_json, write_manifest
from electra.common.errors import ConfigError
from electra.common.paths import Paths
from electra.finetune.features import Batch, Vocabulary
from electra.finetune.model import TaskModel
from electra.finetune.saved import SavedModel, load_model, save_model
from electra.hub.finetuned import export_task, transformers_model
from electra.model.encoder import Encoder
from electra.model.shape import EncoderConfig
from electra.tasks.catalogue import TASKS
from electra.tasks.matrix import read_lines, read_rows
from electra.text.tokenizer.byte_level import train_byte_level
from tests.publish.conftest import silence  # noqa: F401  # no test here may make transformers warn
from tests.small_tasks import VOCAB, make_settings, predict

SHAPE: dict[str, Any] = {
    "vocab_size": len(VOCAB), "embedding_size": 16, "hidden_size": 32, "num_layers": 2, "num_heads": 2,
    "intermediate_size": 48, "max_positions": 64, "dropout": 0.1, "attention_dropout": 0.1,
}  # fmt: skip
PAPERS = {"architecture": "electra", "positions": "learned", "norm": "post", "feed_forward": "gelu"}
MODERN = {"architecture": "modern", "positions": "rotary", "norm": "pre", "feed_forward": "geglu",
          "layer_norm_eps": 1e-5, "local_attention": 4, "global_every": 2}  # fmt: skip
ROTARY = {**PAPERS, "positions": "rotary", "rotary_base": 20_000.0}
SHAPES = pytest.mark.parametrize("parts", [PAPERS, MODERN], ids=["electra", "modern"])
AUTO = {
    "classification": AutoModelForSequenceClassification,
    "regression": AutoModelForSequenceClassification,
    "tagging": AutoModelForTokenClassification,
    "span": AutoModelForQuestionAnswering,
    "multiple_choice": AutoModelForMultipleChoice,
}
Keep = Callable[..., SavedModel]


@pytest.fixture
def keep(paths: Paths) -> Keep:
    """Write models/kept/<task>-<seed>: random weights, norms and biases away from their start."""

    def write(task: str, parts: dict[str, Any], seed: int = 1, **finetune: Any) -> SavedModel:
        random, vocabulary = torch.Generator().manual_seed(seed), Vocabulary.load(paths)
        options = make_settings(
            {"kind": "files"}, ["CoLA"], **{"max_length": 32, "span_max_length": 32, **finetune}
        ).finetune
        spec = TASKS[task]
        torch.manual_seed(seed)  # the encoder's own start
        model = TaskModel(spec, Encoder(EncoderConfig(**{**SHAPE, **parts})), random, span_head=options.span_head)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.2 * torch.randn(parameter.shape, generator=random))
        cell = paths.kept(f"{task}-{seed}")
        cell.mkdir(parents=True)
        save_model(cell, model, spec, vocabulary, options)
        return load_model(cell)

    return write


def batch_of(saved: SavedModel, *, padded: bool) -> Batch:
    """Four pairs of random tokens, of three lengths where padded."""
    random = torch.Generator().manual_seed(5)
    tokens_BT = torch.randint(5, len(VOCAB), (4, 20), generator=random)
    lengths_B1 = torch.tensor([[20], [13], [20], [9]] if padded else [[20]] * 4)
    positions_T = torch.arange(20)
    mask_BT = positions_T < lengths_B1
    has_pair = saved.spec.kind != "tagging"
    segments_BT = (mask_BT & (positions_T >= 8)).long() if has_pair else torch.zeros_like(tokens_BT)
    return Batch(tokens_BT.masked_fill(~mask_BT, 0), segments_BT, mask_BT, torch.tensor([8] * 4), None)


@torch.no_grad()
def logits_of(saved: SavedModel, folder: Path, batch: Batch) -> tuple[Any, Any]:
    """Ours and theirs; every weight of the folder is used, and none is missing."""
    theirs, loading = AUTO[saved.spec.kind].from_pretrained(folder, output_loading_info=True)
    assert not any(loading[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys")), loading
    inputs = {"input_ids": batch.tokens_BT, "attention_mask": batch.mask_BT.long()}
    if theirs.config.model_type != "modernbert":
        inputs["token_type_ids"] = batch.segments_BT
    if saved.spec.kind == "multiple_choice":
        inputs = {name: tensor[None] for name, tensor in inputs.items()}
    return saved.model(batch), theirs.eval()(**inputs)


@pytest.mark.parametrize("parts", [PAPERS, ROTARY, MODERN], ids=["electra", "roformer", "modern"])
@pytest.mark.parametrize("task", ["CoLA", "MNLI", "STS-B", "CoNLL-2003", "SQuAD1.1", "SWAG"])
def test_logits_agree_padded_and_not(task: str, parts: dict[str, Any], keep: Keep, paths: Paths) -> None:
    saved = keep(task, parts)
    folder = export_task(paths, task)
    for padded in (False, True):
        batch = batch_of(saved, padded=padded)
        ours, theirs = logits_of(saved, folder, batch)
        if saved.spec.kind == "span":
            context = ours[0].isfinite()  # the question and padding can be no answer: nothing to compare
            ours = torch.stack([ours[0][context], ours[1][context]])
            theirs = torch.stack([theirs.start_logits[context], theirs.end_logits[context]])
        else:
            theirs = theirs.logits
        if saved.spec.kind == "tagging":
            ours, theirs = ours[batch.mask_BT], theirs[batch.mask_BT]
        if saved.spec.kind == "regression":  # in the units of the score
            ours = 5 * ours
        assert ours.shape == theirs.shape and ours.abs().max() > 0.1
        assert (ours - theirs).abs().max() < 1e-4


def test_a_wrong_weight_would_show(keep: Keep, paths: Paths) -> None:
    """The tolerance is not so wide that any export passes."""
    saved = keep("CoLA", MODERN)
    folder, other = export_task(paths, "CoLA"), copy.deepcopy(saved)
    with torch.no_grad():
        other.model.encoder.layers[-1].feed_forward_norm.weight[0] += 0.01
    ours, theirs = logits_of(other, folder, batch_of(saved, padded=True))
    assert (ours - theirs.logits).abs().max() > 1e-4


def test_a_norm_with_a_zero_is_exported_exactly(keep: Keep, paths: Paths) -> None:
    saved = keep("CoLA", MODERN)
    with torch.no_grad():
        saved.model.encoder.layers[-1].feed_forward_norm.weight[3] = 0.0
    save_model(paths.kept("CoLA-1"), saved.model, saved.spec, saved.vocabulary, saved.options)
    ours, theirs = logits_of(saved, export_task(paths, "CoLA"), batch_of(saved, padded=True))
    assert (ours - theirs.logits).abs().max() < 1e-4


@SHAPES
def test_pipelines_give_our_labels_and_probabilities(parts: dict[str, Any], keep: Keep, paths: Paths) -> None:
    keep("CoLA", parts), keep("STS-B", parts), keep("CoNLL-2003", parts)
    (paths.root / "in.txt").write_text("the cat is good\n")
    (ours,) = predict(paths, "CoLA-1", paths.root / "in.txt")
    (theirs,) = pipeline("text-classification", str(export_task(paths, "CoLA")))("the cat is good")
    assert theirs["label"] == ours["label"]
    assert theirs["score"] == pytest.approx(ours["probabilities"][ours["label"]], abs=1e-5)

    pair = {"text": "the cat sat", "text_pair": "a big dog"}
    (paths.root / "in.jsonl").write_text(json.dumps({"text_a": pair["text"], "text_b": pair["text_pair"]}) + "\n")
    (ours,) = predict(paths, "STS-B-1", paths.root / "in.jsonl")
    theirs = pipeline("text-classification", str(export_task(paths, "STS-B")))(pair)
    assert (theirs["label"], theirs["score"]) == ("score", pytest.approx(ours["score"], abs=1e-4))

    words = "mary sat in the park".split()
    (paths.root / "words.txt").write_text(" ".join(words) + "\n")
    (ours,) = predict(paths, "CoNLL-2003-1", paths.root / "words.txt")
    tagger = pipeline("token-classification", str(export_task(paths, "CoNLL-2003")), ignore_labels=[])
    theirs = tagger(" ".join(words))
    assert [token["word"] for token in theirs] == words and {token["entity"] for token in theirs} <= set(
        TASKS["CoNLL-2003"].labels
    )
    assert [token["score"] for token in theirs] == pytest.approx(ours["probabilities"], abs=1e-5)


@SHAPES
def test_byte_level_bpe_keeps_the_space_before_the_first_word(parts: dict[str, Any], keep: Keep, paths: Paths) -> None:
    """``transformers`` 4.48 takes it from tokenizer_config.json alone, later versions also from tokenizer.json."""
    texts = ["the cat sat on the mat", "a dog sat on the cat"]
    bpe = train_byte_level(iter([texts * 10]), size=300, min_frequency=1, lowercase=True)
    bpe.save(str(paths.tokenizer / "tokenizer.json"))
    saved = keep("CoLA", parts)
    folder = export_task(paths, "CoLA")
    facts = read_json(folder / "tokenizer_config.json")
    assert facts["add_prefix_space"] is True
    found = AutoTokenizer.from_pretrained(folder)(texts[0], add_special_tokens=False)["input_ids"]
    assert found == saved.vocabulary.tokenizer.encode(texts[0], add_special_tokens=False).ids


def test_the_answer_of_the_question_class_is_ours(keep: Keep, paths: Paths) -> None:
    """``transformers`` 5 has no question-answering pipeline: its class and tokenizer, as the card shows."""
    keep("SQuAD1.1", PAPERS)
    question, context = "what cat?", "the red cat sat on a blue house."
    (paths.root / "in.jsonl").write_text(json.dumps({"question": question, "context": context}) + "\n")
    (ours,) = predict(paths, "SQuAD1.1-1", paths.root / "in.jsonl")
    folder = export_task(paths, "SQuAD1.1")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForQuestionAnswering.from_pretrained(folder)
    batch = tokenizer(question, context, return_offsets_mapping=True, return_tensors="pt")
    offsets, places = batch.pop("offset_mapping")[0], [n for n, of in enumerate(batch.sequence_ids()) if of == 1]
    with torch.no_grad():
        found = model(**batch)
    pairs = [(a, b) for a in places for b in places if a <= b]
    first, last = max(pairs, key=lambda pair: float(found.start_logits[0, pair[0]] + found.end_logits[0, pair[1]]))
    assert context[offsets[first][0] : offsets[last][1]] == ours["answer"]


def test_the_card_has_the_hubs_metadata_and_code_that_fits(keep: Keep, paths: Paths) -> None:
    tags = {"CoLA": "text-classification", "CoNLL-2003": "token-classification", "SQuAD2.0": "question-answering",
            "SWAG": "multiple-choice"}  # fmt: skip
    for task, tag in tags.items():
        keep(task, PAPERS)
        folder = export_task(paths, task)
        card = ModelCard.load(folder / "README.md")
        assert (card.data.pipeline_tag, card.data.library_name) == (tag, "transformers")
        (code,) = re.findall(r"```python\n(.*?)```", card.text, re.DOTALL)
        exec(code.replace("path/to/this/folder", str(folder)))  # the project's own text
        assert "texts are cut at" in card.text
    assert (
        "the logit of having no answer is left out" in ModelCard.load(paths.exported("SQuAD2.0-1") / "README.md").text
    )


def test_the_card_has_the_scores_on_the_development_set(paths: Paths, kept: Callable[..., str]) -> None:
    folder = export_task(paths, kept("CoLA"))
    assert "An encoder with random weights, fine-tuned on CoLA" in (folder / "README.md").read_text()
    (entry,) = [r for r in ModelCard.load(folder / "README.md").data.eval_results if r.metric_type == "accuracy"]
    rows = read_rows(paths, "CoLA", "dev")
    lines = {
        r["id"]: r for r in read_lines(paths.kept("CoLA-1-scratch") / "predictions.jsonl", "") if r["split"] == "dev"
    }
    assert entry.metric_value == pytest.approx(
        100 * sum(lines[r["id"]]["label"] == r["label"] for r in rows) / len(rows), abs=0.01
    )


def test_the_card_has_no_scores_of_rows_that_were_not_predicted(
    paths: Paths, kept: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    run, dev = kept("CoLA"), paths.tasks / "CoLA/dev.jsonl"
    facts = read_json(paths.kept(run) / "run.json")
    assert facts["rows_sha256"] == {"dev": sha256(dev)}
    dev.write_text("".join(json.dumps({**row, "label": "1"}) + "\n" for row in read_lines(dev, "")))
    card = ModelCard.load(export_task(paths, run) / "README.md")
    assert not card.data.eval_results and "## Scores" not in card.text
    assert "CoLA/dev.jsonl has changed since CoLA-1-scratch predicted it: the card has no scores" in (
        capsys.readouterr().out
    )
    del facts["rows_sha256"]  # an earlier run
    write_json(paths.kept(run) / "run.json", facts)
    assert ModelCard.load(export_task(paths, run) / "README.md").data.eval_results


def test_the_card_of_a_run_from_random_weights_states_no_pre_training(
    keep: Keep, paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("electra.hub.finetuned._is_of_this_workspace", lambda paths, saved: True)
    monkeypatch.setattr("electra.hub.finetuned.load_settings", lambda root: make_settings({"kind": "files"}, ["CoLA"]))
    keep("CoLA", PAPERS)
    shutil.copytree(paths.kept("CoLA-1"), paths.kept("CoLA-1-scratch"))
    found = {}
    for run in ("CoLA-1", "CoLA-1-scratch"):
        folder = export_task(paths, run)
        found[read_manifest(folder)["start"]] = ModelCard.load(folder / "README.md").data.tags
    assert found == {"pretrained": ["electra", "replaced-token-detection"], "scratch": ["electra"]}


def test_what_a_run_started_from_is_not_read_off_its_folders_name(keep: Keep, paths: Paths, tmp_path: Path) -> None:
    keep("CoLA", PAPERS)
    renamed = {"best": "scratch", "CoLA-1-scratch": "pretrained", "CoLA-2": "from-MNLI", "CoLA-4-final": "25"}
    for name, init in renamed.items():
        shutil.copytree(paths.kept("CoLA-1"), tmp_path / name)
        write_json(tmp_path / name / "run.json", {"init": init})
        folder = export_task(paths, str(tmp_path / name))
        assert read_manifest(folder)["start"] == init
        assert ("An encoder with random weights" in (folder / "README.md").read_text()) == (init == "scratch")


def test_seed_folder_and_missing_models(keep: Keep, paths: Paths, tmp_path: Path) -> None:
    keep("CoLA", PAPERS, seed=12), keep("CoLA", PAPERS, seed=3)
    assert export_task(paths, "CoLA") == paths.exported("CoLA-3")
    assert export_task(paths, "CoLA", seed=12) == paths.exported("CoLA-12")
    assert export_task(paths, "CoLA-12", out=tmp_path / "mine") == tmp_path / "mine"
    assert (tmp_path / "mine/config.json").read_bytes() == (paths.exported("CoLA-12") / "config.json").read_bytes()
    for task, seed in (("CoLA", 4), ("RTE", None)):
        with pytest.raises(
            ConfigError, match=r"there is no fine-tuning run[\s\S]*runs with a model are: CoLA-12, CoLA-3"
        ):
            export_task(paths, task, seed)
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs/notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match="exists and has no manifest.json"):
        export_task(paths, "CoLA", out=tmp_path / "theirs")


def test_a_folder_is_exported_by_its_path_and_brackets_in_a_name_are_no_pattern(
    keep: Keep, paths: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep("CoLA", PAPERS, seed=3)
    elsewhere = tmp_path / "elsewhere/mine"
    shutil.copytree(paths.kept("CoLA-3"), elsewhere)
    assert export_task(paths, str(elsewhere)) == paths.exported("mine")
    monkeypatch.chdir(tmp_path)
    assert export_task(paths, "elsewhere/mine/", out=tmp_path / "out") == tmp_path / "out"
    for missing in (str(elsewhere.with_name("none")), "[C]oLA", "Co*"):
        with pytest.raises(ConfigError, match="there is no fine-tuning run and no folder"):
            export_task(paths, missing)


@pytest.mark.parametrize(
    ("task", "changes", "message"),
    [
        ("SQuAD2.0", {"span_head": "joint"}, "no class for this span head"),
        ("CoLA", {"parts": {**PAPERS, "norm": "pre"}}, "transformers has no model of these parts"),
        ("CoLA", {"parts": {**PAPERS, "hidden_size": 2, "num_heads": 1}}, "can compute 1 classes from 2 hidden units"),
    ],
)
def test_what_no_class_computes_is_refused(
    task: str, changes: dict[str, Any], message: str, keep: Keep, paths: Paths
) -> None:
    keep(task, **{"parts": PAPERS, **changes})
    with pytest.raises(ConfigError, match=message):
        export_task(paths, task)
    assert not paths.exported(f"{task}-1").exists()


def test_encoders_of_other_makes_are_refused(keep: Keep, paths: Paths) -> None:
    saved = keep("CoLA", PAPERS)
    saved.model.encoder = torch.nn.Identity()
    with pytest.raises(ConfigError, match="third-party"):
        transformers_model(saved)


def test_the_command_exports_a_task_and_refuses_a_seed_without_one(
    keep: Keep, paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep("CoLA", PAPERS)
    monkeypatch.chdir(paths.root)
    found = CliRunner().invoke(app, ["export", "--task", "CoLA", "--seed", "1", "--out", "out"])
    assert found.exit_code == 0 and "ElectraForSequenceClassification" in found.output
    assert (paths.root / "out/model.safetensors").is_file()
    assert CliRunner().invoke(app, ["export", "--seed", "1"]).exit_code == 2


def test_an_export_replaces_an_earlier_one_and_nothing_else(
    keep: Keep, paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not the model it is made of, no other artefact, and not what somebody has put into the folder since."""
    keep("CoLA", PAPERS)
    monkeypatch.chdir(paths.root)
    here = Paths()
    cell = next(path.parent for path in here.kept("x").parent.glob("CoLA-*/model.safetensors"))
    write_manifest(cell, cell=cell.name)
    Path("link").symlink_to(cell)
    weights = (cell / "model.safetensors").read_bytes()
    for out in (cell, Path("link"), here.tokenizer, here.pretrained, here.finetuned("CoLA-9")):
        with pytest.raises(ConfigError, match="where the pipeline writes"):
            export_task(here, "CoLA", out=out)
    assert (cell / "model.safetensors").read_bytes() == weights and not here.pretrained.exists()
    for out in (Path("out"), here.exported("mine")):
        export_task(here, "CoLA", out=out)
        export_task(here, "CoLA", out=out)
        (out / "notes.txt").write_text("mine")
        with pytest.raises(ConfigError, match="put there later: notes.txt"):
            export_task(here, "CoLA", out=out)
