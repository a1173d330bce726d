"""The pretended device, built once, and runs on it in separate processes."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from electra.text.shards.build import build_shards
from tests.gpu.build import build
from tests.workspace import ROOT, Workspace

Environment = dict[str, str]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.gpu)
            item.add_marker(pytest.mark.timeout(1800))
            if torch.version.cuda is None:
                item.add_marker(pytest.mark.skip(reason="needs the CUDA build of PyTorch: make test-gpu"))


@pytest.fixture(scope="session")
def on_device(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """The environment of a process on the pretended device."""
    pretended = build(tmp_path_factory.mktemp("device"))
    return {**os.environ, **pretended, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}


@pytest.fixture
def probe(on_device: Environment, workspace: Workspace) -> Callable[..., dict[str, Any]]:
    """Pre-trains on the device with changed settings; returns the report of :mod:`tests.gpu.probe`."""

    def run(cluster: dict[str, Any], ranks: int = 1, *options: str, **sections: dict[str, Any]) -> dict[str, Any]:
        cluster = {"device": "cuda", "precision": "bf16", "num_processes": ranks, **cluster}
        recipe = {"num_steps": 8, "eval_every": 8, "warmup_steps": 2, "batch_size": 16, "alarm_after": 1000}
        sections = {**sections, "pretrain": {**recipe, **sections.get("pretrain", {})}}
        sections["model"] = {"dropout": 0.1, "attention_dropout": 0.1, **sections.get("model", {})}
        workspace.write({"cluster": cluster}, **sections)
        return run_probe(workspace, on_device, f"--ranks={ranks}", *options)

    return run


def run_probe(workspace: Workspace, environment: Environment, *options: str) -> dict[str, Any]:
    """Report of :mod:`tests.gpu.probe` on a workspace."""
    report = workspace.root / "report.json"
    command = [sys.executable, "-m", "tests.gpu.probe", str(workspace.root), str(report), *options]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=1500)
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(report.read_text())
    return {**found, "output": done.stdout}


@pytest.fixture
def full_size(on_device: Environment, workspace: Workspace) -> Callable[..., dict[str, Any]]:
    """Takes some steps of a profile's model with its vocabulary; nothing is logged or validated in them.

    Large tensors are not touched (``PRETENDED_FAST``), so that a device of 79 GiB needs no such memory here.
    """

    def run(
        profile: str, cluster: dict[str, Any], *, steps: int = 4, ranks: int = 1, length: int = 128, **recipe: Any
    ) -> dict[str, Any]:
        written = yaml.safe_load((ROOT / "params" / f"{profile}.yaml").read_text())
        cluster = {"device": "cuda", "precision": "bf16", "num_processes": ranks, **cluster}
        workspace.write(
            {"cluster": cluster},
            shards={"max_length": length},
            model=written["model"],
            pretrain={**written["pretrain"], "num_steps": 40_000, "length_curriculum": None, **recipe},
        )
        build_shards(workspace.settings(), workspace.paths)
        vocabulary = f"--vocabulary={written['tokenizer']['vocab_size']}"
        environment = {**on_device, "PRETENDED_FAST": "1"}
        return run_probe(workspace, environment, f"--ranks={ranks}", f"--steps={steps}", vocabulary)

    return run
