"""Steps of fine-tuning an encoder of Small's shape on the pretended device."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.gpu.conftest import Environment
from tests.workspace import ROOT

LAUNCHES = 1_100


@pytest.mark.parametrize("kind", ["classification", "span"])
def test_a_cells_step_launches_at_most_1100_kernels_and_waits_for_nothing(
    on_device: Environment, tmp_path: Path, kind: str
) -> None:
    report = tmp_path / "report.json"
    command = [sys.executable, "-m", "tests.gpu.cell", kind, str(report)]
    done = subprocess.run(command, cwd=ROOT, env=on_device, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    steps = json.loads(report.read_text())[1:]  # the first one follows the copy of the model
    print(f"{kind}: {max(step['launches'] for step in steps)} launches")
    for step in steps:
        assert step["launches"] <= LAUNCHES
        assert step["pageable"] == 0, step["told"]
        reports = sum("finetune/trainer.py train" in place for place in step["told"])  # every fifth of the run
        assert step["waits"] == reports, step["told"]
        assert sum(count for name, count in step["by_name"].items() if "flash_fwd_kernel" in name) == 12
        fills = sum(count for name, count in step["by_name"].items() if "FillFunctor" in name)
        assert fills < 20, "tensors that are written anyway are filled"
