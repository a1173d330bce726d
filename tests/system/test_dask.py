"""Text stages on a Dask cluster: a scheduler and two workers, separate processes on the loopback interface."""

import ast
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from electra.checks import corpus as corpus_table
from electra.checks.corpus import validate_corpus
from electra.cluster import dask_workers as dask_cluster
from electra.cluster.executors import open_workers
from electra.common.errors import ConfigError, DataError, InfrastructureError
from electra.common.paths import Paths
from electra.config import Cluster, Settings
from electra.text.corpus import cleaned
from electra.text.corpus.build import build_corpus
from electra.text.corpus.decontamination import collect_evaluation_texts
from electra.text.shards import build as shards
from electra.text.tokenizer import build as tokenizer
from tests.corpus.test_any_number_of_workers import built, every_step, write_inputs
from tests.fixtures import SECOND, documents, text_source
from tests.reliability import jobs
from tests.workspace import ROOT, Workspace

pytest.importorskip("distributed")


@pytest.fixture(scope="module")
def scheduler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a scheduler with two workers, whose current folder is not that of the tests."""
    with running_scheduler(tmp_path_factory.mktemp("dask"), code=ROOT, num_workers=2) as address:
        yield address


@contextmanager
def running_scheduler(folder: Path, code: Path, num_workers: int) -> Iterator[str]:
    """Address of a scheduler in this folder, with workers that import ``electra`` from the folder ``code``."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(code), str(ROOT)]),
        "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "1",
        "DASK_TEMPORARY_DIRECTORY": str(folder),
    }
    address_file = folder / "scheduler.json"
    commands = [
        ["scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", str(address_file)],
        *[["worker", "--scheduler-file", str(address_file), "--host", "127.0.0.1", "--nthreads", "1",
           "--no-dashboard"]] * num_workers,
    ]  # fmt: skip
    with open(folder / "log", "w") as log:
        processes = [
            subprocess.Popen(
                [sys.executable, "-m", "dask", *command],
                cwd=folder,
                env=environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
            for command in commands
        ]
        try:
            deadline = time.monotonic() + 60
            while not (address_file.exists() and address_file.read_text().endswith("}")):
                assert time.monotonic() < deadline and processes[0].poll() is None, (folder / "log").read_text()
                time.sleep(0.05)
            yield json.loads(address_file.read_text())["address"]
        finally:
            for process in processes:
                os.killpg(process.pid, signal.SIGKILL)  # asked to end, they take their time
                process.wait(30)


def settings(workspace: Workspace, **cluster: Any) -> Settings:
    workspace.write(
        {"cluster": {"num_workers": 1, **cluster}},
        corpus={
            "sources": [
                {"kind": "files", "name": "mine", "paths": ["in/*.txt"]},
                text_source(SECOND, weight=0.5),
            ],
            "documents_per_file": 60,
        },
        tokenizer={"max_training_chars": 8000},
        shards={"max_shard_bytes": 2**16},
    )
    return workspace.settings()


@pytest.fixture
def texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """A workspace with four input files; the fourth repeats documents of the first."""
    stories = documents()
    workspace = Workspace(tmp_path)
    (tmp_path / "in").mkdir()
    for number in range(4):
        chosen = stories[number * 60 : number * 60 + 60] + (stories[:20] if number == 3 else [])
        (tmp_path / f"in/{number}.txt").write_text("\n\n".join(chosen))
    monkeypatch.chdir(tmp_path)
    return workspace


def build(settings: Settings) -> str:
    """Corpus, its report, tokenizer and shards in the current folder; the digest of all their files.

    Great Expectations gives its project in data/gx random ids and dates; the report is in results/.
    """
    paths = Paths(Path("."))
    for stage in (build_corpus, validate_corpus, tokenizer.build_tokenizer, shards.build_shards):
        stage(settings, paths)
    digest = hashlib.sha256()
    files = [path for folder in ("data", "results") for path in sorted(Path(folder).rglob("*")) if path.is_file()]
    files = [path for path in files if Path("data/gx") not in path.parents]
    assert len(files) > 12 and not [path for path in files if path.name.startswith(".")]
    for path in files:
        digest.update(path.as_posix().encode() + path.read_bytes())
    return digest.hexdigest()


def test_dask_writes_the_same_bytes_as_one_process_even_when_workers_are_killed(
    texts: Workspace, scheduler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = build(settings(texts))
    on_dask = settings(texts, executor="dask", dask_scheduler=scheduler)
    assert build(on_dask) == alone
    monkeypatch.setattr(cleaned, "write_cleaned", jobs.clean_or_die)
    monkeypatch.setattr(corpus_table, "count_file", jobs.describe_or_die)
    monkeypatch.setattr(tokenizer, "count_file", jobs.count_or_die)
    monkeypatch.setattr(shards, "shard_file", jobs.shard_or_die)
    assert build(on_dask) == alone
    assert sorted(path.name for path in Path(".").glob("killed-*")) == [
        "killed-in-corpus",
        "killed-in-shards",
        "killed-in-tokenizer",
        "killed-in-validate_corpus",
    ]


def test_cleaning_near_duplicates_and_decontamination_on_dask_with_a_killed_worker_write_the_same_bytes(
    tmp_path: Path, scheduler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_inputs()
    collect_evaluation_texts(every_step(), Paths())
    alone = built(every_step())
    monkeypatch.setattr(cleaned, "write_cleaned", jobs.clean_or_die)
    assert built(every_step(executor="dask", dask_scheduler=scheduler)) == alone
    assert Path("killed-in-corpus").exists()
    assert b"near_duplicates.document" in alone["cleaning.json"]


def test_a_failure_of_the_data_is_the_same_as_local_and_not_tried_again(texts: Workspace, scheduler: str) -> None:
    with open(texts.root / "in/2.txt", "ab") as file:
        file.write(b"\nnot \xff text")
    messages = []
    for cluster in ({}, {"executor": "dask", "dask_scheduler": scheduler}):
        with pytest.raises(DataError, match="not UTF-8 text") as error:
            build_corpus(settings(texts, **cluster), texts.paths)
        messages.append(str(error.value))
        assert not list((texts.root / "data").iterdir())
    assert messages[0] == messages[1]
    log = texts.root / "log"
    cluster_settings = Cluster(executor="dask", dask_scheduler=scheduler)
    with open_workers(cluster_settings, 1, texts.root, "x") as workers, pytest.raises(DataError, match="row is wrong"):
        list(workers.map(jobs.refuse, [(log,)]))
    assert log.read_text() == "called\n"


def test_a_job_that_kills_every_worker_ends_with_what_to_lower(texts: Workspace, scheduler: str) -> None:
    cluster = Cluster(executor="dask", dask_scheduler=scheduler)
    with (
        open_workers(cluster, 1, texts.root, "shards.max_shard_bytes") as workers,
        pytest.raises(InfrastructureError, match=r"2 Dask workers died .* memory") as error,
    ):
        list(workers.map(jobs.die, [(1,)]))
    assert "shards.max_shard_bytes" in str(error.value)


def test_a_scheduler_that_cannot_be_reached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask_cluster, "CONNECT_SECONDS", 0.5)
    cluster = Cluster(executor="dask", dask_scheduler="tcp://127.0.0.1:9")
    with pytest.raises(InfrastructureError, match="cannot be reached"), open_workers(cluster, 1, tmp_path, "x"):
        pass


def test_a_worker_with_other_software_or_another_disk_is_refused(tmp_path: Path) -> None:
    ours = dask_cluster.software()
    assert dask_cluster.run_job(lambda: 7, tmp_path, ours) == 7
    with pytest.raises(ConfigError, match="pyarrow .* here, 1.0 there"):
        dask_cluster.run_job(lambda: 7, tmp_path, {**ours, "pyarrow": "1.0"})
    with pytest.raises(InfrastructureError, match="does not see the folder"):
        dask_cluster.run_job(lambda: 7, tmp_path / "elsewhere", ours)


def test_a_worker_whose_cleaning_code_differs_is_refused(texts: Workspace, tmp_path: Path) -> None:
    """A real worker that imports a copy of the package with one changed file."""
    theirs = tmp_path / "theirs"
    shutil.copytree(ROOT / "electra", theirs / "electra", ignore=shutil.ignore_patterns("__pycache__"))
    changed = theirs / "electra/text/corpus/cleaned.py"
    changed.write_text(changed.read_text() + "\n# another version\n")
    with running_scheduler(tmp_path, theirs, num_workers=1) as address, pytest.raises(ConfigError) as error:
        build_corpus(settings(texts, executor="dask", dask_scheduler=address), texts.paths)
    assert "a worker has other software than the command: electra " in str(error.value)
    assert not list((texts.root / "data").iterdir())


def test_every_file_of_the_package_counts_as_its_version(tmp_path: Path) -> None:
    package = tmp_path / "electra"
    shutil.copytree(ROOT / "electra", package, ignore=shutil.ignore_patterns("__pycache__"))
    ours = dask_cluster.software()["electra"]
    assert dask_cluster.hash_of_code(package) == ours, "the same files elsewhere are the same version"
    (package / "text/corpus/__pycache__").mkdir()
    (package / "text/corpus/__pycache__/cleaned.cpython-311.pyc").write_bytes(b"compiled here")
    (package / "text/corpus/.cleaned.py.swp").write_bytes(b"an editor's")
    assert dask_cluster.hash_of_code(package) == ours
    files = [path for path in sorted(package.rglob("*")) if path.is_file()]
    kept = [path for path in files if path.suffix != ".pyc" and not path.name.startswith(".")]
    assert {".py", ".cpp", ".yaml", ".j2"} <= {path.suffix for path in kept}
    for path in [*kept[::20], *(path for path in kept if path.suffix != ".py")]:
        before = path.read_bytes()
        path.write_bytes(before + b" ")
        assert dask_cluster.hash_of_code(package) != ours, path
        path.write_bytes(before)
    assert dask_cluster.hash_of_code(package) == ours


def test_a_cluster_without_workers_is_given_up_after_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = {"tcp://a": 2}
    client = SimpleNamespace(nthreads=lambda: threads, get_executor=lambda **_: None)
    backend = dask_cluster.DaskBackend(client, "tcp://x:1", tmp_path, "x")
    assert backend.num_in_flight() == 4
    threads.clear()
    backend.watch()
    monkeypatch.setattr(dask_cluster, "NO_WORKER_SECONDS", 0)
    time.sleep(0.01)
    with pytest.raises(InfrastructureError, match="no worker"):
        backend.watch()


def test_a_cluster_that_had_a_worker_a_moment_ago_is_not_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit counts from the last worker that was seen, not from the start of a stage that takes hours."""
    now, threads = [0.0], {"tcp://a": 2}
    monkeypatch.setattr(dask_cluster, "time", SimpleNamespace(monotonic=lambda: now[0]))
    client = SimpleNamespace(nthreads=lambda: threads, get_executor=lambda **_: None)
    backend = dask_cluster.DaskBackend(client, "tcp://x:1", tmp_path, "x")
    now[0] = 10_000.0
    backend.watch()
    threads.clear()
    now[0] += dask_cluster.NO_WORKER_SECONDS - 1
    backend.watch()
    now[0] += 2
    with pytest.raises(InfrastructureError, match="no worker"):
        backend.watch()


# Imported beside the text stages, or without a part in the bytes that are written.
NO_PART = {"pydantic", "rich", "safetensors", "torch", "yaml"}


def test_every_library_that_the_text_stages_import_counts_as_software() -> None:
    paths = [*ROOT.glob("electra/common/*.py"), *ROOT.glob("electra/text/**/*.py")]
    nodes = [node for path in paths for node in ast.walk(ast.parse(path.read_text()))]
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    roots = {name.split(".")[0] for name in names} - set(sys.stdlib_module_names) - {"electra"}
    assert roots - NO_PART == set(dask_cluster.LIBRARIES) and set(dask_cluster.LIBRARIES) < set(dask_cluster.software())
