"""Every method through the same command: its files, its loss, its resume."""

import json
import shutil
import signal
from collections.abc import Callable
from functools import cache
from typing import get_args

import numpy as np
import pytest
from safetensors.numpy import load_file

from electra.common.errors import ConfigError
from electra.config import ObjectiveName
from electra.config.methods import METHODS
from electra.hub.export.pretrained import export_model
from electra.model.pretrained import load_encoder
from electra.objectives.saved import load_objective
from tests.pretrain.test_resume import EVERY_STEP, assert_curves_close, kill_at, weights
from tests.workspace import Workspace

OTHERS = [name for name in get_args(ObjectiveName) if name != "electra"]


@pytest.mark.parametrize("objective", OTHERS)
def test_method_trains_validates_and_exports(workspace: Workspace, objective: str) -> None:
    workspace.write(
        pretrain={"objective": objective, "num_steps": 40, "eval_every": 20, "learning_rate": 3e-3},
        model={"initializer_range": 0.1},
    )
    output = workspace.pretrain()
    assert f"starting {objective}" in output
    curve = workspace.curve()
    term = {"electric": "cloze_loss", "adversarial": "disc_loss", "two_stage": "mlm_loss"}.get(objective)
    column = f"train_{term or ('mlm_loss' if objective != 'replace_mlm' else 'replace_mlm_loss')}"
    losses = [float(row[column]) for row in curve if row[column]]
    assert sum(losses[-5:]) < sum(losses[:5]), "its loss falls"
    facts = json.loads((workspace.root / "results/pretrain.json").read_text())
    assert facts["step"] == 40
    assert ("fake_rate" in facts) == METHODS[objective].has_discriminator
    assert ("disc_auc" in facts) == (0 < facts.get("fake_rate", 0) < 1), "there is none of one label alone"
    assert load_objective(workspace.paths.pretrained).method.objective == objective
    assert load_encoder(workspace.paths.pretrained).config.num_layers == 2
    export_model(workspace.settings(), workspace.paths)
    exported = {path.name for path in workspace.paths.export.iterdir() if path.is_dir()}
    assert exported == {
        "bert": {"encoder"}, "bert_nsp": {"encoder"}, "electric": {"discriminator"},
        "replace_mlm": {"encoder", "generator"}, "all_tokens_mlm": {"encoder", "generator"},
    }.get(objective, {"discriminator", "generator"})  # fmt: skip


TWO_PHASES = [name for name in OTHERS if METHODS[name].two_phases]


@pytest.fixture(scope="module")
def in_one_process(prepared: Workspace, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Workspace]:
    """Returns the workspace of a method of two phases, trained from start to end in one process."""

    @cache
    def trained(objective: str) -> Workspace:
        folder = tmp_path_factory.mktemp(objective) / "workspace"
        shutil.copytree(prepared.root, folder)
        done = Workspace(folder).write(pretrain={"objective": objective})
        done.pretrain()
        return done

    return trained


@pytest.mark.parametrize("objective", TWO_PHASES)
@pytest.mark.parametrize("killed_after", [3, 14])
def test_two_phases_resume_in_either_to_the_last_bit(
    workspace: Workspace, in_one_process: Callable[[str], Workspace], objective: str, killed_after: int
) -> None:
    workspace.write({"cluster": {"checkpoint_minutes": EVERY_STEP}}, pretrain={"objective": objective})
    kill_at(workspace, killed_after, signal.SIGKILL)
    workspace.pretrain()
    assert weights(workspace) == weights(in_one_process(objective))
    tensors = load_file(workspace.paths.pretrained / "model.safetensors")
    first = load_file(workspace.paths.milestones / "50/model.safetensors")
    rests = "head." if objective == "mlm_then_rtd" else "generator"
    assert all((tensors[name] == first[name]).all() for name in tensors if name.startswith(rests)), "it rests"


@pytest.mark.parametrize("stage", [1, 3])
@pytest.mark.parametrize("objective", TWO_PHASES)
def test_two_phases_learn_the_same_under_zero(
    workspace: Workspace, in_one_process: Callable[[str], Workspace], objective: str, stage: int
) -> None:
    workspace.write({"cluster": {"zero_stage": stage}}, pretrain={"objective": objective})
    workspace.pretrain()
    assert_curves_close(workspace, in_one_process(objective), 1e-5)


@pytest.mark.parametrize("sharing", ["none", "gradient_disentangled"])
def test_sharing_survives_zero_3_and_two_processes(workspace: Workspace, sharing: str) -> None:
    recipe = {"num_steps": 12, "eval_every": 6, "eval_examples": 9}  # two batches for one process, one for the other
    changes = {"model": {"embedding_sharing": sharing}, "pretrain": recipe}
    reference = workspace.copy("reference").write(**changes)
    reference.pretrain()
    workspace.write({"cluster": {"zero_stage": 3, "num_processes": 2}}, **changes)
    workspace.pretrain()
    assert_curves_close(workspace, reference, 1e-5)


@pytest.fixture(scope="module")
def slow_generator(prepared: Workspace, tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """A generator at a tenth of the rate, from start to end in one process."""
    folder = tmp_path_factory.mktemp("slow-generator") / "workspace"
    shutil.copytree(prepared.root, folder)
    done = Workspace(folder).write(pretrain={"generator_rate": 0.1})
    done.pretrain()
    return done


def test_a_slow_generator_moves_less_and_the_rest_as_before(
    slow_generator: Workspace, uninterrupted: Workspace
) -> None:
    def distances(workspace: Workspace) -> dict[str, float]:
        first = load_file(workspace.paths.milestones / "6.25/model.safetensors")
        last = load_file(workspace.paths.pretrained / "model.safetensors")
        return {name: float(np.abs(last[name] - first[name]).mean()) for name in last}

    slow, plain = distances(slow_generator), distances(uninterrupted)
    shares = {name: slow[name] / plain[name] for name in slow if plain[name] > 0}
    own = {name for name in shares if name.startswith("generator") and name != "generator_head.weight"}
    assert len(own) > 10
    assert all(0.05 < shares[name] < 0.3 for name in own), {name: shares[name] for name in own}
    assert all(0.5 < shares[name] < 2 for name in shares if name.startswith("discriminator"))


def test_the_card_tells_the_generators_rate(slow_generator: Workspace) -> None:
    export_model(slow_generator.settings(), slow_generator.paths)
    card = (slow_generator.paths.export / "discriminator/README.md").read_text()
    assert "of the depth, 0.1 of the learning rate\n" in card


@pytest.mark.parametrize("stage", [2, 3])
def test_a_slow_generator_learns_the_same_on_two_processes_under_zero_and_resumes(
    workspace: Workspace, slow_generator: Workspace, stage: int
) -> None:
    cluster = {"zero_stage": stage, "num_processes": 2, "checkpoint_minutes": EVERY_STEP}
    workspace.write({"cluster": cluster}, pretrain={"generator_rate": 0.1})
    kill_at(workspace, 5, signal.SIGKILL)
    assert "resuming electra at step" in workspace.pretrain()
    assert_curves_close(workspace, slow_generator, 1e-5)


def test_milestones_are_kept_with_their_steps(uninterrupted: Workspace) -> None:
    manifest = json.loads((uninterrupted.paths.milestones / "manifest.json").read_text())
    assert manifest["steps"] == {"6.25": 2, "12.5": 3, "25": 6, "50": 12}
    for percent in manifest["steps"]:
        load_encoder(uninterrupted.paths.milestones / percent)
    first = load_file(uninterrupted.paths.milestones / "6.25/model.safetensors")
    last = load_file(uninterrupted.paths.pretrained / "model.safetensors")
    assert set(first) == set(last) and any((first[name] != last[name]).any() for name in first)


def test_original_fidelity_trains_and_learns_otherwise(workspace: Workspace, uninterrupted: Workspace) -> None:
    workspace.write({"fidelity": "original"})
    assert "starting electra" in workspace.pretrain()
    assert workspace.curve() != uninterrupted.curve()


def test_a_second_table_of_words_is_refused_where_one_encoder_learns_both_losses(workspace: Workspace) -> None:
    workspace.write(model={"embedding_sharing": "gradient_disentangled"}, pretrain={"objective": "mlm_then_rtd"})
    with pytest.raises(ConfigError, match="gradient_disentangled is not for mlm_then_rtd"):
        workspace.settings()
