"""`electra publish --milestones`: each checkpoint is a branch that `from_pretrained(revision=...)` loads."""

# ruff: noqa: F811

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from huggingface_hub import ModelCard

from electra.__main__ import main
from electra.common.errors import ConfigError
from electra.common.paths import Paths
from electra.hub.milestones import export_milestones
from electra.pretrain.data.seen import TextSeen
from tests.predict.test_upload import NAME, Hub, hub  # noqa: F401
from tests.publish.milestones import run_with_milestones
from tests.workspace import Workspace

SEEN = {"tokens-1k": TextSeen(4, 32, 1_013, 702), "tokens-2k": TextSeen(8, 64, 2_020, 1_400)}
LOAD = """
import json, sys
from transformers import AutoTokenizer, ElectraModel
repo = sys.argv[1]
found = {}
for branch in ("main", "tokens-1k", "tokens-2k"):
    weights = ElectraModel.from_pretrained(repo, revision=branch).embeddings.word_embeddings.weight
    found[branch] = [float(weights[7, 3]), len(AutoTokenizer.from_pretrained(repo, revision=branch))]
print(json.dumps(found))
"""


@pytest.fixture
def run(prepared: Workspace, tmp_path: Path) -> Paths:
    """An exported run with two milestones, whose weights differ from the final ones."""
    return run_with_milestones(
        "electra-narrow", prepared, tmp_path / "run", SEEN, lambda number, weight: weight + number
    )


def publish(paths: Paths, monkeypatch: pytest.MonkeyPatch, *options: str) -> int:
    monkeypatch.chdir(paths.root)
    monkeypatch.setattr(sys, "argv", ["electra", "publish", NAME, "--license", "mit", "--milestones", *options])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


def test_each_milestone_is_a_branch_that_transformers_loads(
    run: Paths,
    hub: Hub,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    assert publish(run, monkeypatch) == 0
    assert set(hub.repos) == {f"{NAME}-{which}{at}" for which in ("discriminator", "generator")
                              for at in ("", "@tokens-1k", "@tokens-2k")}  # fmt: skip
    assert publish(run, monkeypatch) == 0, "branches that exist are written again"
    card = ModelCard(hub.repos[f"{NAME}-discriminator@tokens-2k"]["README.md"].decode())
    for fact in ("step: 8 of 24", "2,020 tokens, 1,400 words", "parent: the branch `tokens-1k`",
                 'revision="tokens-2k"'):  # fmt: skip
        assert fact in card.text
    assert card.data.license == "mit" and card.data.eval_results is None
    assert "parent: random weights" in hub.repos[f"{NAME}-discriminator@tokens-1k"]["README.md"].decode()
    assert "Checkpoint tokens" not in hub.repos[f"{NAME}-discriminator"]["README.md"].decode()
    environment = {**os.environ, "HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "home"), "HF_TOKEN": "x",
                   "HF_HUB_DISABLE_XET": "1"}  # fmt: skip
    done = subprocess.run([sys.executable, "-c", LOAD, f"{NAME}-discriminator"], env=environment,
                          capture_output=True, text=True)  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    first = found["main"][0]
    assert found == {"main": [first, 600], "tokens-1k": [pytest.approx(first + 1, abs=1e-5), 600],
                     "tokens-2k": [pytest.approx(first + 2, abs=1e-5), 600]}  # fmt: skip
    assert torch.tensor(first).isfinite()


def test_a_dry_run_names_the_branches_and_a_run_without_milestones_says_how_to_ask_for_them(
    run: Paths, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], prepared: Workspace
) -> None:
    monkeypatch.delenv("HF_TOKEN", raising=False)
    assert publish(run, monkeypatch, "--dry-run") == 0
    assert f"{NAME}-discriminator at tokens-1k: " in capsys.readouterr().out
    manifest = json.loads((run.milestones / "manifest.json").read_text())
    manifest.pop("seen")
    (run.milestones / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ConfigError, match="set pretrain.milestones"):
        export_milestones(prepared.settings(), run)


def test_the_parent_of_the_first_milestone_is_named_without_its_path(run: Paths, prepared: Workspace) -> None:
    settings = prepared.settings()
    recipe = settings.pretrain.model_copy(update={"initialize_from": "/secret/place/weights"})
    folder = export_milestones(settings.model_copy(update={"pretrain": recipe}), run)
    card = (folder / "tokens-1k/discriminator/README.md").read_text()
    assert "- parent: earlier weights (weights), " in card and "secret" not in card
