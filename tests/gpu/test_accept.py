"""The acceptance run on a pretended device, which computes nothing: it runs to its end, and checks that can pass do."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.gpu.conftest import Environment
from tests.workspace import ROOT

pytestmark = pytest.mark.long


def accepted(environment: Environment, folder: Path, *arguments: str) -> tuple[subprocess.CompletedProcess[str], Any]:
    command = [sys.executable, "-m", "benchmarks.accept_gpu", "--shapes", "tiny", "--write", str(folder), *arguments]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=3900)
    (file,) = folder.glob("accept-*.json")
    assert file.with_suffix(".md").exists()
    return done, json.loads(file.read_text())


def test_all_reduce_of_two_devices_is_timed_and_its_wrong_sum_fails(on_device: Environment, tmp_path: Path) -> None:
    """Nothing is sent there: a sum that nobody adds up must not pass."""
    done, result = accepted({**on_device, "PRETENDED_DEVICES": "2"}, tmp_path, "--only", "bandwidth")
    assert done.returncode == 4, done.stdout + done.stderr
    bandwidth = result["parts"]["bandwidth"]
    assert bandwidth["verdict"] == "failed" and bandwidth["reasons"] == ["the sum of an all-reduce is wrong"]
    assert result["parts"]["preflight"]["verdict"] == "passed" and result["devices"] == 2
    assert len(bandwidth["found"]["rows"]) == 2


@pytest.mark.timeout(4000)
@pytest.mark.parametrize("names", ["zero", "bandwidth resume silence", "cells", "speed memory"])
def test_parts_run_to_their_end(on_device: Environment, tmp_path: Path, names: str) -> None:
    """Each ends with a verdict, none with a defect of the command; what can be true on this device passes."""
    asked = names.split()
    done, result = accepted(on_device, tmp_path, "--minutes", "60", "--only", *asked)
    parts = result["parts"]
    told = json.dumps({name: (part["verdict"], part["reasons"]) for name, part in parts.items()}, indent=1)
    assert done.returncode in (0, 4) and result["devices"] == 1, done.stdout + done.stderr
    assert "defect of this command" not in told and "time was over" not in told, told + done.stderr
    assert list(parts) == ["preflight", *asked] and parts["preflight"]["verdict"] == "passed", told
    for name in {"bandwidth", "silence"} & parts.keys():
        assert parts[name]["verdict"] == "not possible here", told  # there is one device
    if "speed" in asked:
        (step,) = parts["speed"]["found"]["steps"].values()
        assert len(step["tokens_per_second"]) == 2 and parts["speed"]["verdict"] == "passed", told
        assert parts["memory"]["verdict"] == "passed", told  # memory is counted as on a real one
