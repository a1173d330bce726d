"""Pre-training from given initial weights, and texts scored by a trained model."""

import shutil
import subprocess
import sys

import pytest
import torch
from safetensors.numpy import load_file
from safetensors.numpy import save_file as save_arrays
from safetensors.torch import save_file

from electra.common.errors import DataError
from electra.common.paths import Paths
from electra.objectives.base import build_objective
from electra.pretrain.inputs import load_initial_weights
from electra.text.corpus.build import build_corpus
from electra.text.shards.build import build_shards
from electra.text.tokenizer.build import build_tokenizer
from tests.workspace import ROOT, Workspace


def test_training_starts_from_the_folder_and_says_so(workspace: Workspace, uninterrupted: Workspace) -> None:
    folder = str(uninterrupted.paths.pretrained)
    workspace.write(pretrain={"initialize_from": folder, "num_steps": 4, "warmup_steps": 1, "learning_rate": 1e-9})
    output = workspace.pretrain()
    assert f"starting from {folder}: " in output
    before = load_file(uninterrupted.paths.pretrained / "model.safetensors")
    after = load_file(workspace.paths.pretrained / "model.safetensors")
    assert all(abs(after[name] - before[name]).max() < 1e-6 for name in before)


def test_an_encoder_is_trained_further_as_the_page_says(uninterrupted: Workspace) -> None:
    """The commands and settings of docs/methods.md, on other text."""
    further = uninterrupted.copy("further")
    section = (ROOT / "docs/methods.md").read_text(encoding="utf-8").partition("### Train an encoder further")[2]
    commands = section.partition("```bash\n")[2].partition("```")[0]
    subprocess.run(["bash", "-e", "-c", commands], cwd=further.root, check=True)
    recipe, vocabulary = "`pretrain.initialize_from: start`", "`tokenizer.vocab_file: start/tokenizer/tokenizer.json`"
    assert recipe in section and vocabulary in section
    start = str(further.root / "start")
    further.write(
        corpus={"held_out_fraction": 0.3},
        tokenizer={"vocab_file": f"{start}/tokenizer/tokenizer.json"},
        pretrain={"initialize_from": start, "num_steps": 4, "warmup_steps": 1, "learning_rate": 1e-9},
    )
    for stage in (build_corpus, build_tokenizer, build_shards):
        stage(further.settings(), further.paths)
    assert f"starting from {start}: " in further.pretrain()
    before, after = (load_file(done.paths.pretrained / "model.safetensors") for done in (uninterrupted, further))
    assert all(abs(after[name] - before[name]).max() < 1e-6 for name in before)


def test_a_generator_of_another_size_starts_at_random(workspace: Workspace, uninterrupted: Workspace) -> None:
    recipe = {"initialize_from": str(uninterrupted.paths.pretrained)}
    settings = workspace.write(pretrain=recipe, model={"generator_width": 1.0}).settings()
    model = build_objective(settings.model, 600, 4, settings.pretrain).initialize(0.02, seed=1)
    drawn = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    load_initial_weights(model, settings.pretrain, workspace.paths)
    before = load_file(uninterrupted.paths.pretrained / "model.safetensors")
    other_shape = [name for name, weight in drawn.items() if name in before and before[name].shape != weight.shape]
    assert len(other_shape) > 10 and all(name.startswith("generator") for name in other_shape)
    for name, weight in model.named_parameters():
        if name in other_shape:
            assert torch.equal(weight, drawn[name]), name
        elif name.startswith("discriminator"):
            assert (weight.detach().numpy() == before[name]).all(), name


@pytest.mark.parametrize("first, then", [("electra", "bert"), ("bert", "electra"), ("bert", "mlm_then_rtd")])
def test_an_encoder_goes_on_with_another_method(workspace: Workspace, first: str, then: str) -> None:
    folder = workspace.root / "start"
    settings = workspace.write(pretrain={"objective": first}).settings()
    before = build_objective(settings.model, 600, 4, settings.pretrain).initialize(0.02, seed=1)
    folder.mkdir()
    save_file({name: weight.detach() for name, weight in before.named_parameters()}, folder / "model.safetensors")
    settings = workspace.write(pretrain={"objective": then, "initialize_from": str(folder)}).settings()
    after = build_objective(settings.model, 600, 4, settings.pretrain).initialize(0.02, seed=2)
    load_initial_weights(after, settings.pretrain, workspace.paths)
    expected = dict(before.encoder_to_publish().named_parameters())
    assert len(expected) > 20
    for name, weight in after.encoder_to_publish().named_parameters():
        assert torch.equal(weight, expected[name]), name


def test_two_stages_begin_with_the_encoder_in_the_generator_which_the_discriminator_will_be(
    workspace: Workspace,
) -> None:
    folder = workspace.root / "start"
    settings = workspace.write(pretrain={"objective": "bert"}).settings()
    before = build_objective(settings.model, 600, 4, settings.pretrain).initialize(0.02, seed=1)
    folder.mkdir()
    save_file({name: weight.detach() for name, weight in before.named_parameters()}, folder / "model.safetensors")
    settings = workspace.write(pretrain={"objective": "two_stage", "initialize_from": str(folder)}).settings()
    after = build_objective(settings.model, 600, 4, settings.pretrain).initialize(0.02, seed=2)
    load_initial_weights(after, settings.pretrain, workspace.paths)
    after.enter_phase(1)
    expected = dict(before.encoder_to_publish().named_parameters())
    assert all(torch.equal(weight, expected[name]) for name, weight in after.main_encoder.named_parameters())


@pytest.mark.parametrize("sharing", [("embeddings", "gradient_disentangled"), ("gradient_disentangled", "embeddings")])
def test_embeddings_of_either_form_start_those_of_the_other(workspace: Workspace, sharing: tuple[str, str]) -> None:
    folder = workspace.root / "start"
    settings = workspace.write(model={"embedding_sharing": sharing[0]}).settings()
    before = build_objective(settings.model, 600, 4, settings.pretrain).initialize(0.02, seed=1)
    with torch.no_grad():
        for name, weight in before.named_parameters():
            weight.add_(0.1 if "_difference" in name else 0.0)
    folder.mkdir()
    save_file({name: weight.detach() for name, weight in before.named_parameters()}, folder / "model.safetensors")
    recipe = {"initialize_from": str(folder)}
    settings = workspace.write(pretrain=recipe, model={"embedding_sharing": sharing[1]}).settings()
    after = build_objective(settings.model, 600, 4, settings.pretrain).initialize(0.02, seed=2)
    load_initial_weights(after, settings.pretrain, workspace.paths)
    tokens = torch.arange(40).view(2, 20)
    rows = (tokens, torch.zeros_like(tokens), torch.ones_like(tokens, dtype=torch.bool))
    with torch.no_grad():
        torch.testing.assert_close(after.eval().main_encoder(*rows), before.eval().main_encoder(*rows))


def test_weights_of_another_tokenizer_of_the_same_size_are_refused(
    workspace: Workspace, uninterrupted: Workspace
) -> None:
    """`models/pretrained` of a run has no vocabulary, only the checksum of its tokenizer."""
    settings = workspace.write(pretrain={"initialize_from": str(uninterrupted.paths.pretrained)}).settings()
    model = build_objective(settings.model, 600, 4, settings.pretrain)
    load_initial_weights(model, settings.pretrain, workspace.paths)
    file = workspace.paths.tokenizer / "tokenizer.json"
    file.write_text(file.read_text() + "\n")
    with pytest.raises(DataError, match=r"(?s)belong to another vocabulary.*tokenizer\.vocab_file"):
        load_initial_weights(model, settings.pretrain, workspace.paths)


SAID = {"no folder": "model.safetensors", "no encoder": "is missing", "other shape": "by the settings",
        "other vocabulary": "belong to another vocabulary"}  # fmt: skip


@pytest.mark.parametrize("fault", SAID)
def test_what_does_not_fit_is_refused(workspace: Workspace, uninterrupted: Workspace, fault: str) -> None:
    folder = workspace.root / "start"
    if fault != "no folder":
        folder.mkdir()
        weights = load_file(uninterrupted.paths.pretrained / "model.safetensors")
        if fault == "no encoder":
            weights = {name: value for name, value in weights.items() if name.startswith("generator")}
        save_arrays(weights, folder / "model.safetensors")
    if fault == "other vocabulary":
        shutil.copy(uninterrupted.paths.pretrained / "config.json", folder)
        shutil.copytree(workspace.paths.tokenizer, folder / "tokenizer")
        vocabulary = folder / "tokenizer/vocab.txt"
        vocabulary.write_text("".join(reversed(vocabulary.read_text().splitlines(keepends=True))))
    sizes = {"hidden_size": 64} if fault == "other shape" else {}
    settings = workspace.write(pretrain={"initialize_from": str(folder)}, model=sizes).settings()
    model = build_objective(settings.model, 600, 4, settings.pretrain)
    with pytest.raises(DataError) as raised:
        load_initial_weights(model, settings.pretrain, Paths(workspace.root))
    assert str(folder) in str(raised.value) and SAID[fault] in str(raised.value)


def test_electric_scores_lines_and_others_say_they_cannot(workspace: Workspace, uninterrupted: Workspace) -> None:
    def score(root: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "electra", "score"],
            cwd=root,
            env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
            input="The robin sang.\n\nA dog.\n",
            capture_output=True,
            text=True,
            timeout=60,
        )

    refused = score(uninterrupted.root)
    assert refused.returncode == 3 and "does not score texts" in refused.stderr
    workspace.write(pretrain={"objective": "electric", "num_steps": 8, "eval_every": 8}).pretrain()
    done = score(workspace.root)
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    assert [row[2] for row in rows] == ["The robin sang.", "", "A dog."], done.stderr
    assert float(rows[1][0]) == 0 and int(rows[1][1]) == 0, "no tokens, nothing to score"
    assert float(rows[0][0]) != 0 and int(rows[0][1]) > int(rows[2][1])
