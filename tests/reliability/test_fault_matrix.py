"""Each stage under each fault: a clear error or the same result at the next run, never a wrong or half-written one.

docs/reliability.md lists the cells. Pre-training that is killed or ended by SIGTERM: tests/pretrain/test_resume.py;
damaged raw text: tests/corpus/test_corpus_errors.py.
"""

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from electra.common.artifacts import write_manifest
from electra.common.errors import DataError
from electra.common.paths import Paths
from electra.config import Settings
from electra.embed.run import embed
from electra.finetune.run import finetune_task
from electra.results.evaluate import evaluate_runs
from electra.text.corpus.build import build_corpus
from electra.text.shards.build import build_shards
from electra.text.tokenizer.build import build_tokenizer
from tests.reliability.conftest import Start
from tests.reliability.faults import (
    digests,
    on_a_full_disk,
    run,
    stopped_before_the_end,
    with_little_memory,
)
from tests.workspace import Workspace

COMMANDS = {
    "corpus": ["corpus"],
    "tokenizer": ["tokenizer"],
    "shards": ["shards"],
    "pretrain": ["pretrain"],
    "finetune": ["finetune", "--task", "CoLA", "--seed", "1"],
    "embed": ["embed", "--seed", "1"],
    "evaluate": ["evaluate"],
}
OUTPUTS = {
    "corpus": "data/corpus",
    "tokenizer": "data/tokenizer",
    "shards": "data/shards",
    "pretrain": "models/pretrained",
    "finetune": "models/finetuned/CoLA-1",
    "embed": "models/embeddings/sentences-1",
    "evaluate": "results/scores.json",
}
TEXT_AND_TASKS = [stage for stage in COMMANDS if stage != "pretrain"]


# ---- processes that are ended


@pytest.mark.parametrize("stage", TEXT_AND_TASKS)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_an_ended_command_leaves_what_was_there_and_the_next_run_gives_the_same(
    copy: Workspace, start: Start, tmp_path: Path, stage: str, number: signal.Signals
) -> None:
    before, log = digests(copy.root), tmp_path / "log"
    process = start(stopped_before_the_end, COMMANDS[stage], copy.root, log)
    deadline = time.monotonic() + 60
    while not (copy.root / "all-written").exists():
        assert process.is_alive() and time.monotonic() < deadline, log.read_text()
        time.sleep(0.02)
    assert process.pid is not None
    os.kill(process.pid, number)
    process.join(30)
    after = {path: digest for path, digest in digests(copy.root).items() if "/." not in path}
    assert after == before, "the finished artefacts are whole"
    if number == signal.SIGTERM:
        assert process.exitcode == 5
        assert "ended by SIGTERM" in log.read_text() and "Traceback" not in log.read_text()
        assert not [path for path in (copy.root / "data").iterdir() if path.name.startswith(".")]
    again = start(run, COMMANDS[stage], copy.root, log)
    again.join(60)
    assert again.exitcode == 0, log.read_text()
    assert digests(copy.root) == before


# ---- a full disk


@pytest.mark.parametrize("stage", COMMANDS)
def test_a_full_disk_is_said_and_the_next_run_gives_the_same(
    finished: Workspace, start: Start, tmp_path: Path, stage: str, request: pytest.FixtureRequest
) -> None:
    root, log, outcome = tmp_path / "disk", tmp_path / "log", tmp_path / "outcome"
    root.mkdir()
    kibibytes = 0 if stage == "evaluate" else 4  # what it writes is small
    process = start(on_a_full_disk, COMMANDS[stage], finished.root, root, log, kibibytes, outcome)
    process.join(120)
    assert process.exitcode == 0, log.read_text()
    found = json.loads(outcome.read_text())
    if found is None:
        pytest.skip("this system lets nobody but root mount a disk in memory")
    output = log.read_text()
    assert (found["first"], found["second"]) == (5, 0), output
    assert "No space left on device" in output and "free some space" in output and "Traceback" not in output
    assert found["kept"], "nothing half-written, nothing lost"
    expected = finished if stage != "pretrain" else request.getfixturevalue("uninterrupted")
    out = OUTPUTS[stage]
    assert {path: digest for path, digest in found["digests"].items() if path.startswith(out)} == {
        path: digest for path, digest in digests(expected.root).items() if path.startswith(out)
    }


# ---- damaged inputs

Stage = Callable[[Settings, Paths], None]


def finetune(settings: Settings, paths: Paths) -> None:
    finetune_task(settings, paths, task="CoLA", seed=1)


def embed_sentences(settings: Settings, paths: Paths) -> None:
    embed(settings, paths, source="sentences", seed=1)


READERS: list[tuple[str, Stage, str]] = [
    ("tokenizer", build_tokenizer, "data/corpus/train-00000.parquet"),
    ("tokenizer", build_tokenizer, "data/corpus/heldout-00000.parquet"),
    ("shards", build_shards, "data/corpus/train-00000.parquet"),
    ("shards", build_shards, "data/corpus/heldout-00000.parquet"),
    ("shards", build_shards, "data/tokenizer/tokenizer.json"),
    ("finetune", finetune, "data/tasks/CoLA/train.jsonl"),
    ("finetune", finetune, "data/tasks/CoLA/dev.jsonl"),
    ("finetune", finetune, "data/tokenizer/tokenizer.json"),
    ("finetune", finetune, "models/pretrained/model.safetensors"),
    ("embed", embed_sentences, "data/shards/train-00000-00000.tokens.npy"),
    ("embed", embed_sentences, "data/tokenizer/tokenizer.json"),
    ("embed", embed_sentences, "models/pretrained/model.safetensors"),
    ("evaluate", evaluate_runs, "data/tasks/CoLA/dev.jsonl"),
    ("evaluate", evaluate_runs, "models/finetuned/CoLA-1/predictions.jsonl"),
    ("evaluate", evaluate_runs, "models/finetuned/CoLA-1/run.json"),
    ("evaluate", evaluate_runs, "models/finetuned/CoLA-1-scratch/predictions.jsonl"),
]


def flip(path: Path) -> None:
    """Change one letter or byte in the middle: what the file holds can still be read."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def cut_short(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


DAMAGE = {flip: "checksum of the file is not the manifest's", cut_short: "the manifest says", os.unlink: "is missing"}


@pytest.mark.parametrize(("stage", "reader", "file"), READERS)
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_input_is_named_and_nothing_is_made_of_it(
    copy: Workspace, stage: str, reader: Stage, file: str, damage: Callable[[Path], None]
) -> None:
    if damage is os.unlink and file.endswith("predictions.jsonl"):
        pytest.skip("a missing cell has a message of its own: tests/finetune/test_task_training.py")
    damage(copy.root / file)
    before = digests(copy.root)
    with pytest.raises(DataError, match=DAMAGE[damage]) as error:
        reader(copy.settings(), copy.paths)
    assert error.value.exit_code == 3
    assert file in str(error.value) and "dvc" in str(error.value)
    assert digests(copy.root) == before


@pytest.mark.parametrize("damage", [flip, cut_short])
@pytest.mark.parametrize(
    "file", ["data/shards/train-00000-00000.tokens.npy", "data/shards/heldout-00000-00000.spans.npy"]
)
def test_pretraining_refuses_damaged_shards_before_the_first_step(
    copy: Workspace, start: Start, tmp_path: Path, file: str, damage: Callable[[Path], None]
) -> None:
    damage(copy.root / file)
    before = digests(copy.root)
    process = start(run, ["pretrain"], copy.root, tmp_path / "log")
    process.join(60)
    output = (tmp_path / "log").read_text()
    assert process.exitcode == 3, output
    assert file in output and DAMAGE[damage] in output and "Traceback" not in output
    assert digests(copy.root) == before and not (copy.root / "checkpoints").exists()


def test_known_checksums_of_raw_text_are_compared(
    copy: Workspace, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Plain text has no checksum of its own: without one given, nobody can tell that a letter was changed."""
    import hashlib

    monkeypatch.chdir(copy.root)
    Path("in").mkdir()
    text = "\n\n".join(f"Story {number} has its own number." for number in range(50))
    pq.write_table(pa.table({"text": text.split("\n\n")[:20]}), "in/b.parquet")
    Path("in/a.txt").write_text(text)
    sums = "".join(f"{hashlib.sha256((p).read_bytes()).hexdigest()}  {p.name}\n" for p in Path("in").iterdir())
    Path("in/SHA256SUMS").write_text(sums)
    source = {"kind": "files", "name": "mine", "paths": ["in/a.txt", "in/b.parquet"], "checksums": "in/SHA256SUMS"}
    copy.write(corpus={"sources": [source]})
    build_corpus(copy.settings(), copy.paths)
    before = digests(copy.root)
    elsewhere = source | {"paths": [f"file://{copy.root}/in/a.txt", "params/../in/b.parquet"]}
    copy.write(corpus={"sources": [elsewhere]})
    build_corpus(copy.settings(), copy.paths)  # the same files, written otherwise
    copy.write(corpus={"sources": [source]})
    build_corpus(copy.settings(), copy.paths)
    for file in ("in/a.txt", "in/b.parquet"):
        content = Path(file).read_bytes()
        for damage in (flip, cut_short):
            damage(Path(file))
            with pytest.raises(DataError, match="changed, damaged or cut short") as error:
                build_corpus(copy.settings(), copy.paths)
            assert file in str(error.value)
            assert digests(copy.root) == before
            Path(file).write_bytes(content)
    Path("in/SHA256SUMS").write_text(sums.splitlines()[0] + "\n")
    with pytest.raises(DataError, match="1 input files have no checksum"):
        build_corpus(copy.settings(), copy.paths)


# ---- memory that runs out

LARGE_MODEL = {"intermediate_size": 4_000_000}


def give_corpus_a_huge_document(copy: Workspace) -> None:
    (copy.root / "huge.txt").write_text("word " * 12_000_000)
    copy.write(corpus={"sources": [{"kind": "files", "name": "huge", "paths": ["huge.txt"]}]})


def give_a_huge_document(copy: Workspace) -> None:
    table = pa.table({"doc_id": ["0" * 16], "source": ["x"], "text": ["word " * 12_000_000]})
    pq.write_table(table, copy.paths.corpus / "train-00000.parquet")
    write_manifest(copy.paths.corpus)


def enlarge_the_model(copy: Workspace) -> None:
    copy.write(model=LARGE_MODEL)


def make_huge_batches(copy: Workspace) -> None:
    copy.write(embed={"batch_size": 4_000})


def give_evaluate_many_predictions(copy: Workspace) -> None:
    folder = copy.paths.finetuned("CoLA-1")
    with open(folder / "predictions.jsonl", "a") as file:
        file.writelines(f'{{"split": "test", "id": "{number}", "label": "0"}}\n' for number in range(200_000))
    write_manifest(folder, cell="CoLA-1")


HUNGER: dict[str, Callable[[Workspace], None]] = {
    "corpus": give_corpus_a_huge_document,
    "tokenizer": give_a_huge_document,
    "shards": give_a_huge_document,
    "pretrain": enlarge_the_model,
    "finetune": enlarge_the_model,
    "embed": make_huge_batches,
    "evaluate": give_evaluate_many_predictions,
}


@pytest.mark.parametrize("stage", HUNGER)
def test_memory_that_runs_out_is_said_with_what_to_lower(
    copy: Workspace, start: Start, tmp_path: Path, stage: str
) -> None:
    HUNGER[stage](copy)
    before, log = digests(copy.root), tmp_path / "log"
    command = [*COMMANDS[stage], *(["--scratch"] if stage == "finetune" else [])]
    process = start(with_little_memory, command, copy.root, log, 50)
    process.join(60)
    output = log.read_text()
    assert process.exitcode == 5, output
    assert "memory ran out" in output and "Traceback" not in output
    assert stage == "evaluate" or "lower" in output
    assert digests(copy.root) == before
