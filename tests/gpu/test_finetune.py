"""Steps of fine-tuning an encoder of Small's shape on the pretended device."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.gpu.conftest import Environment
from tests.workspace import ROOT

LAUNCHES = 1_100


def run_cell(environment: Environment, folder: Path, *arguments: str) -> Any:
    """Report of :mod:`tests.gpu.cell`."""
    report = folder / "report.json"
    command = [sys.executable, "-m", "tests.gpu.cell", arguments[0], str(report), *arguments[1:]]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=1500)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(report.read_text())


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "gigabytes", "cells"), [("classification", 79.1, 4), ("span", 79.1, 4), ("span", 9, 1)]
)
def test_predicted_memory_of_a_cell_is_within_10_percent_and_says_how_many_share_a_gpu(
    on_device: Environment, tmp_path: Path, kind: str, gigabytes: float, cells: int
) -> None:
    environment = {**on_device, "PRETENDED_FAST": "1", "PRETENDED_GB": str(gigabytes)}
    found = run_cell(environment, tmp_path, kind, "--full")
    print(f"{kind}: {found['allocated']:,} allocated, {found['predicted']:,} predicted")
    assert found["predicted"] == pytest.approx(found["allocated"], rel=0.1)
    assert found["cells_per_gpu"] == cells


@pytest.mark.parametrize("kind", ["classification", "span"])
def test_a_cells_step_launches_at_most_1100_kernels_and_waits_for_nothing(
    on_device: Environment, tmp_path: Path, kind: str
) -> None:
    steps = run_cell(on_device, tmp_path, kind)[1:]  # the first one follows the copy of the model
    print(f"{kind}: {max(step['launches'] for step in steps)} launches")
    for step in steps:
        assert step["launches"] <= LAUNCHES
        assert step["pageable"] == 0, step["told"]
        reports = sum("finetune/trainer.py train" in place for place in step["told"])  # every fifth of the run
        assert step["waits"] == reports, step["told"]
        assert sum(count for name, count in step["by_name"].items() if "flash_fwd_kernel" in name) == 12
        fills = sum(count for name, count in step["by_name"].items() if "FillFunctor" in name)
        assert fills < 20, "tensors that are written anyway are filled"
