"""`electra publish --onnx`: the graphs lie where the users' libraries look for them, and run from there."""

# ruff: noqa: F811

import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from huggingface_hub import hf_hub_download

from electra.__main__ import main
from electra.common.artifacts import building, write_manifest
from electra.common.paths import Paths
from electra.hub.onnx import PACKAGES
from electra.hub.publish import Upload, plan_uploads, upload_all
from tests.predict.test_upload import NAME, Hub, hub  # noqa: F401
from tests.publish import parity
from tests.workspace import Workspace

pytestmark = pytest.mark.skipif(
    any(find_spec(name) is None for name in PACKAGES), reason="the extra onnx is not installed"
)
FILES = ["onnx/model.onnx", "onnx/model_quantized.onnx", "onnx/check.json"]


@pytest.fixture
def run(prepared: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Paths:
    """A workspace with models/export of random weights; the current folder."""
    objective, shape = parity.CASES["electra-narrow"]
    _, paths = parity.write((objective, {**shape, "num_layers": 1}), prepared, tmp_path / "run")
    monkeypatch.chdir(paths.root)
    return paths


def publish(monkeypatch: pytest.MonkeyPatch, *options: str) -> int:
    monkeypatch.setattr(sys, "argv", ["electra", "publish", NAME, "--license", "mit", *options])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


def test_graphs_are_downloaded_from_the_hub_and_run_by_the_lines_of_the_card(
    run: Paths, hub: Hub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import onnxruntime

    assert publish(monkeypatch, "--onnx") == 0
    repo = f"{NAME}-discriminator"
    assert set(FILES) <= set(hub.repos[repo]) and not any("onnx" in name for name in hub.repos[f"{NAME}-generator"])
    assert "manifest.json" not in hub.repos[repo]
    for name in FILES[:2]:
        file = hf_hub_download(repo, name, endpoint=hub.url, cache_dir=tmp_path / "cache")
        outputs = [one.name for one in onnxruntime.InferenceSession(file).get_outputs()]
        assert outputs == ["last_hidden_state", "logits"]
        assert Path(file).read_bytes() == (run.exported("discriminator") / name).read_bytes()
    assert json.loads(hub.repos[repo]["onnx/check.json"])["graphs"]["model.onnx"]["difference"] < 1e-4
    *_, lines = re.findall(r"```python\n(.*?)```", hub.repos[repo]["README.md"].decode(), re.DOTALL)
    assert f'cached_file("{repo}", "onnx/model.onnx")' in lines
    done = subprocess.run(
        [sys.executable, "-c", lines + "\nprint(last_hidden_state.shape, logits.shape)"],
        env=os.environ | {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "home"), "HF_HUB_OFFLINE": "0"},
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"\(1, (\d+), 32\) \(1, \1\)\n", done.stdout)


def test_graphs_of_an_earlier_upload_do_not_stay_beside_other_weights(
    run: Paths, hub: Hub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert publish(monkeypatch, "--onnx") == 0
    (tmp_path / "weights").write_bytes(b"others")
    milestone = Upload(
        f"{NAME}-discriminator", {"weights": tmp_path / "weights"}, "---\nlicense: mit\n---\n", "words-1M"
    )
    upload_all([milestone])
    at = hub.repos[f"{NAME}-discriminator@words-1M"]
    assert at["weights"] == b"others" and not any(name.startswith("onnx/") for name in at)
    assert set(FILES) <= set(hub.repos[f"{NAME}-discriminator"])
    assert publish(monkeypatch) == 0
    assert not any(name.startswith("onnx/") for name in hub.repos[f"{NAME}-discriminator"])


def test_graphs_of_a_task_are_published_with_its_folder(run: Paths) -> None:
    with building(run.exported("CoLA-1")) as scratch:
        (scratch / "onnx").mkdir()
        (scratch / "onnx/model.onnx").write_bytes(b"a graph")
        (scratch / "README.md").write_text("---\ntags: [electra]\n---\n# A model\n")
        write_manifest(scratch, task="CoLA")
    (plan,) = [one for one in plan_uploads(run, NAME, "mit", [run.exported("CoLA-1")]) if one.repo.endswith("-cola")]
    assert plan.files == {"onnx/model.onnx": run.exported("CoLA-1") / "onnx/model.onnx"}
