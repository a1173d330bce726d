"""The benchmark of the pre-training step, tried with one layer."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytest.importorskip("transformers", reason="the peers are of transformers (extra dev)")

ROOT = Path(__file__).resolve().parents[2]
TINY = ["--layers", "1", "--batch-size", "1", "--length", "16", "--repeats", "2", "--precision", "fp32"]


def benchmark(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks.pretrain_step", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


def test_all_sides_are_timed_and_compared(tmp_path: Path) -> None:
    file = tmp_path / "step.json"
    done = benchmark(*TINY, "--device", "cpu", "--write", str(file))
    assert done.returncode == 0, done.stderr
    result = json.loads(file.read_text())
    peers = {"transformers, all positions", "transformers, masked positions"}
    sides = {"ours", *peers, *(f"{peer}, allocator as ours" for peer in peers)}
    assert set(result["tokens_per_second"]) == sides
    assert all(len(rate["repeats"]) == 2 and rate["median"] > 0 for rate in result["tokens_per_second"].values())
    assert set(result["seconds_over_ours"]) == sides - {"ours"}
    assert result["shape"]["masked"] == 2 and result["matrix_peak_flops"] > 1e8
    assert "| ours |" in done.stdout


@pytest.mark.cluster
def test_modern_is_timed_beside_the_papers_blocks_and_modernbert(tmp_path: Path) -> None:
    file = tmp_path / "step.json"
    done = benchmark(*TINY, "--architecture", "modern", "--peers", "masked", "--device", "cpu", "--write", str(file))
    assert done.returncode == 0, done.stderr
    result, peer = json.loads(file.read_text()), "transformers, masked positions"
    assert set(result["tokens_per_second"]) == {"ours", "ours, the paper's blocks", peer, f"{peer}, allocator as ours"}
    assert result["shape"]["profile"] == "modern-small"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_cuda_is_refused_where_there_is_none() -> None:
    done = benchmark(*TINY, "--device", "cuda")
    assert done.returncode == 2
    assert "no CUDA device" in done.stderr
