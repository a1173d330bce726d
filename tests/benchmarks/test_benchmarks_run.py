"""Every benchmark runs from its command line, in miniature; nothing is asserted on time."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import inference, input, measure, pipeline, probe, scaling
from benchmarks.training_run import Watch
from benchmarks.workspace import copy_text
from electra.common.errors import ConfigError
from electra.config.text import SPECIAL_TOKENS
from tests import fixtures
from tests.probe.test_scores import PAIRS, workspace_of
from tests.reliability import faults
from tests.workspace import Workspace, forked

WORDS = "the a cat dog sat ran big small red blue on in park house".split()


@pytest.fixture
def text(tmp_path: Path) -> Path:
    lines = [" ".join(WORDS[(i * k + k) % len(WORDS)] for k in range(1, 12)) for i in range(600)]
    documents = ["\n".join([f"Document {number}.", *lines[number * 20 :][:20]]) for number in range(30)]
    path = tmp_path / "given.txt"
    path.write_text("\n\n".join(documents) + "\n")
    return path


@pytest.fixture
def vocab(tmp_path: Path) -> Path:
    letters = "abcdefghijklmnopqrstuvwxyz0123456789."
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join([*SPECIAL_TOKENS, *letters, *("##" + c for c in letters), *WORDS[:1], *WORDS[2:]]) + "\n")
    return path


@pytest.fixture
def stages_forked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stages before the measured one come from a process that has imported them: nothing is measured there."""

    def run_stage(folder: Path, *arguments: str) -> None:
        process = forked(faults.run, list(arguments), folder, folder / "log")
        process.join()
        assert process.exitcode == 0, (folder / "log").read_text()

    for module in (input, scaling):
        monkeypatch.setattr(module, "run_stage", run_stage)


def run(module, tmp_path: Path, monkeypatch, *arguments: str) -> dict:
    target = tmp_path / "result.json"
    command = [module.__name__, "--repeats", "1", "--device", "cpu", "--write", str(target), *arguments]
    monkeypatch.setattr(sys, "argv", command)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    module.main()
    found = json.loads(target.read_text())
    assert found["machine"]["torch"] and found["machine"]["date"]
    return found


@pytest.mark.usefixtures("stages_forked")
def test_input(text, vocab, tmp_path, monkeypatch, capsys):
    found = run(
        input, tmp_path, monkeypatch, "--text", str(text), "--vocab", str(vocab), "--bytes", "40000", "--workers", "1",
        "--profiles", "books", "--max-steps", "2",
    )  # fmt: skip
    assert set(found["shards"]["tokens_per_second"]) == {f"{side}, 1" for side in input.SIDES}
    assert 0 <= found["training"]["books"]["share_of_waiting"] < 1
    assert "| datasets.map as run_mlm, 1 |" in capsys.readouterr().out


def test_inference_compares_equal_outputs(text, vocab, tmp_path, monkeypatch):
    found = run(
        inference, tmp_path, monkeypatch, "--texts", str(text), "--vocab", str(vocab), "--num-texts", "12",
        "--batch-size", "4",
    )  # fmt: skip
    peers = {name: outputs for name, outputs in found["outputs"].items() if "fp32" in name}
    assert len(peers) == 3
    for outputs in peers.values():
        assert outputs["largest_difference"] < 1e-4 and outputs["other_labels"] == 0


def test_pipeline(text, tmp_path, monkeypatch):
    found = run(
        pipeline, tmp_path, monkeypatch, "--text", str(text), "--bytes", "20000", "--factors", "1", "4",
        "--stages", "corpus",
    )  # fmt: skip
    assert set(found["seconds"]) == {"python alone", "electra --help", "dvc repro, nothing to do"}
    sizes = {size: entry["text_bytes"] for size, entry in found["memory"]["corpus"].items()}
    assert sizes["4x"] > 3.9 * sizes["1x"]
    assert all(entry["peak_bytes"] > 2**20 for entry in found["memory"]["corpus"].values())


@pytest.mark.usefixtures("stages_forked")
def test_scaling_counts_the_bytes_that_the_method_must_move(text, vocab, tmp_path, monkeypatch):
    found = run(
        scaling, tmp_path, monkeypatch, "--text", str(text), "--vocab", str(vocab), "--bytes", "40000",
        "--profile", "books", "--micro-batch-size", "2", "--steps", "2", "--processes", "2", "--stages", "0",
    )  # fmt: skip
    (name,) = found["runs"]
    expected, counted = found["expected_bytes"][name], found["runs"][name]["bytes_per_step_in_all"]
    assert expected <= counted < 1.01 * expected


@pytest.mark.parametrize("module", [input, inference, pipeline, scaling])
def test_cuda_is_refused_where_there_is_none(module, monkeypatch, capsys, tmp_path):
    needed = {
        input: ["--text", "x", "--vocab", "x"],
        inference: ["--texts", "x", "--vocab", "x"],
        scaling: ["--text", "x", "--vocab", "x"],
    }
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr(sys, "argv", [module.__name__, "--device", "cuda", *needed.get(module, [])])
    with pytest.raises(SystemExit) as ended:
        measure.run(module.main)
    assert ended.value.code == 2 and "there is no CUDA device" in capsys.readouterr().err


def test_text_is_repeated_without_a_document_twice(text, tmp_path):
    written = copy_text(text, tmp_path / "long.txt", 5 * text.stat().st_size)
    assert (tmp_path / "long.txt").stat().st_size == written
    documents = (tmp_path / "long.txt").read_text().split("\n\n")
    assert len(documents) > 120 and len({document.strip() for document in documents}) == len(documents)


def test_a_watched_loader_gives_the_same_batches_and_counts_bytes_between_them():
    import torch

    watch = Watch()
    reduce = watch.collective("all_reduce", lambda tensor, **_: tensor)
    reduce(torch.zeros(100))  # before the first step: not counted
    seen = []
    for batch in watch.loader(lambda first, last: iter(range(first, last)))(3, 6):
        seen.append(batch)
        reduce(tensor=torch.zeros(batch))
        reduce(torch.zeros(2), group=None)
    assert seen == [3, 4, 5]
    assert watch.bytes == [{"all_reduce": 4 * (n + 2)} for n in (3, 4, 5)]
    assert len(watch.steps) == len(watch.waits) == 3


def test_help_tells_what_a_benchmark_needs():
    done = subprocess.run([sys.executable, "-m", "benchmarks.scaling", "--help"], capture_output=True, text=True)
    assert done.returncode == 0 and "--micro-batch-size" in done.stdout


def test_probe_scores_the_same_sentences_on_every_side(prepared: Workspace, tmp_path: Path, monkeypatch) -> None:
    paths, pairs = workspace_of(prepared, tmp_path / "probed"), tmp_path / "pairs.jsonl"
    pairs.write_text("".join(json.dumps(pair) + "\n" for pair in PAIRS[:4]))
    result = run(probe, tmp_path, monkeypatch, "--root", str(paths.root), "--pairs", str(pairs))
    sides = [probe.ONE_PASS, probe.GENERATOR, probe.EQUAL]
    assert result["sentences"] == 8 and list(result["sentences_per_second"]) == sides
    assert list(result["seconds_over_one_pass"]) == sides[1:]


def test_probe_needs_a_discriminator(prepared: Workspace, tmp_path: Path, monkeypatch) -> None:
    paths = workspace_of(prepared, tmp_path / "probed", "bert")
    with pytest.raises(ConfigError, match="no discriminator"):
        run(probe, tmp_path, monkeypatch, "--root", str(paths.root), "--pairs", str(fixtures.PAIRS))
