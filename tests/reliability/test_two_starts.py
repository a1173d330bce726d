"""Two starts of one command: the second ends naming the holder of the lock, and leaves the first one's output alone."""

import fcntl
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from multiprocessing.process import BaseProcess
from pathlib import Path

import psutil
import pytest

from electra.cluster.run_facts import machine_file, note_machine
from electra.common.artifacts import building, sha256, write_manifest
from electra.common.errors import InfrastructureError
from electra.common.locks import exclusive, holds
from electra.common.paths import Paths
from tests.fixtures import documents, text_source
from tests.reliability.conftest import Start
from tests.reliability.faults import digests, run, stopped_before_the_end
from tests.workspace import ROOT, Workspace

BUILDERS = {
    "corpus": (["corpus"], "data/corpus"),
    "tokenizer": (["tokenizer"], "data/tokenizer"),
    "shards": (["shards"], "data/shards"),
    "tasks": (["tasks"], "data/tasks"),
    "inputs": (["inputs"], "data/inputs"),
    "evaluation-texts": (["evaluation-texts"], "data/evaluation"),
    "finetune": (["finetune", "--task", "CoLA", "--seed", "1"], "models/finetuned/CoLA-1"),
    "finetune --keep": (["finetune", "--task", "CoLA", "--seed", "1", "--keep"], "models/kept/CoLA-1"),
    "export": (["export"], "models/export"),
    "submission": (["submission", "--seed", "1", "--fill-missing"], "models/submission/1"),
}


def everything(root: Path) -> dict[str, str]:
    """sha256 of all files of the workspace, hidden ones included, but for what is only noted in logs."""
    files = [path for path in sorted(root.rglob("*")) if path.is_file() and "logs" not in path.parts]
    return {path.relative_to(root).as_posix(): sha256(path) for path in files}


@contextmanager
def stopped(start: Start, command: list[str], root: Path, log: Path) -> Iterator[BaseProcess]:
    """The command in a separate process, stopped after it has written everything and before it renames it."""
    process = start(stopped_before_the_end, command, root, log)
    deadline = time.monotonic() + 60
    while not (root / "all-written").exists():
        assert process.is_alive() and time.monotonic() < deadline, log.read_text()
        time.sleep(0.02)
    try:
        yield process
    finally:
        process.kill()
        process.join(30)


@pytest.mark.parametrize("name", BUILDERS)
def test_a_second_start_says_who_is_writing_and_touches_nothing_and_a_killed_one_blocks_nobody(
    copy: Workspace, start: Start, tmp_path: Path, name: str
) -> None:
    command, folder = BUILDERS[name]
    if name == "submission":
        give_test_predictions(copy)
    log, first_log = tmp_path / "second", tmp_path / "first"
    with stopped(start, command, copy.root, first_log) as first:
        before = everything(copy.root)
        assert [path for path in before if path.startswith(f"{Path(folder).parent}/.{Path(folder).name}.building/")]
        second = start(run, command, copy.root, log)
        second.join(60)
        said = log.read_text()
        assert second.exitcode == 5, said
        holder = rf"another process is writing {folder}: process {first.pid} on {socket.gethostname()}, since \d{{4}}-"
        assert re.search(holder, said) and "Traceback" not in said and "next:" in said, said
        assert everything(copy.root) == before
    again = start(run, command, copy.root, log)
    again.join(60)
    assert again.exitcode == 0, log.read_text()
    made = everything(copy.root)
    assert f"{folder}/manifest.json" in made and not [path for path in made if "/." in path]


def give_test_predictions(workspace: Workspace) -> None:
    """Predictions of a test set, which ``submission`` writes a zip of."""
    row = {"id": "0", "text_a": "A sentence."}
    (workspace.paths.tasks / "CoLA/test.jsonl").write_text(json.dumps(row) + "\n")
    cell = workspace.paths.finetuned("CoLA-1")
    with open(cell / "predictions.jsonl", "a") as file:
        file.write(json.dumps({"split": "test", "id": "0", "label": "1"}) + "\n")
    write_manifest(cell, cell="CoLA-1")


def test_a_second_pretraining_with_other_settings_is_refused_too(copy: Workspace) -> None:
    """It would train for hours, and then replace models/pretrained and results/pretrain.json of the first."""
    with exclusive(copy.paths.pretrained):
        copy.write(pretrain={"learning_rate": 2e-3})
        second = copy.start()
        output = second.communicate(timeout=240)[0]
    assert second.returncode == 5 and "another process is writing models/pretrained" in output, output
    assert not list((copy.root / "checkpoints").glob("*")), "nothing was begun"


def test_two_real_starts_at_once_leave_one_whole_corpus(tmp_path: Path) -> None:
    """`electra corpus` twice, as typed: whichever comes second is refused or finds the first one done."""
    workspace = Workspace(tmp_path / "w")
    workspace.root.mkdir()
    many = [f"Part {number}. {text}" for number in range(4) for text in documents()]
    (tmp_path / "many.txt").write_text("\n\n".join(many))
    workspace.write({"cluster": {"num_workers": 2}}, corpus={"sources": [text_source(tmp_path / "many.txt")]})
    command = [sys.executable, "-m", "electra", "corpus"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    both = [
        subprocess.Popen(command, cwd=workspace.root, env=environment, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    said = [process.communicate(timeout=120)[1] for process in both]
    codes = sorted(process.returncode for process in both)
    assert codes in ([0, 5], [0, 0]) and "Traceback" not in "".join(said), said
    assert not [path for path in (workspace.root / "data").iterdir() if path.name.startswith(".")]
    third = subprocess.run(command, cwd=workspace.root, env=environment, capture_output=True, text=True)
    assert third.returncode == 0, third.stderr


@pytest.mark.parametrize("command", [["evaluate"], ["report"], ["validate-corpus"]])
def test_stages_that_write_results_can_be_started_twice(
    copy: Workspace, start: Start, tmp_path: Path, command: list[str]
) -> None:
    """Each file is written whole and says the same; cells that nobody asks for are moved away by one of them."""
    for name in ("CoLA-8", "CoLA-9"):
        (copy.paths.finetuned(name)).mkdir()
        (copy.paths.finetuned(name) / "run.json").write_text("{}")
    logs = [tmp_path / "first", tmp_path / "second"]
    both = [start(run, command, copy.root, log) for log in logs]
    for process in both:
        process.join(120)
    said = "".join(log.read_text() for log in logs)
    assert [process.exitcode for process in both] == [0, 0], said
    after = digests(copy.root)
    assert not [path for path in after if "/." in path and not path.startswith("data/gx/")]  # GX's own ids
    if command == ["evaluate"]:
        assert "models/set-aside/CoLA-8/run.json" in after and "models/finetuned/CoLA-8/run.json" not in after


def test_facts_of_stages_that_end_at_the_same_time_are_all_noted(tmp_path: Path) -> None:
    """Baseline cells do not wait for pre-training: both write results/machine.json."""
    script = (
        "import sys; from pathlib import Path; from electra.common.paths import Paths\n"
        "from electra.cluster import run_facts\n"
        "for number in range(40): run_facts.note_machine(Paths(Path('.')), f'{sys.argv[1]}{number}', 'cpu', 60.0)"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    both = [
        subprocess.Popen([sys.executable, "-c", script, name], cwd=tmp_path, env=environment) for name in ("a", "b")
    ]
    assert [process.wait(60) for process in both] == [0, 0]
    noted = json.loads(machine_file(Paths(tmp_path)).read_text())
    assert len(noted) == 80
    note_machine(Paths(tmp_path), "pretrain", "cpu", 60.0)
    assert len(json.loads(machine_file(Paths(tmp_path)).read_text())) == 81


def test_init_and_noise_are_refused_while_another_process_is_at_them(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path).write()
    (tmp_path / "book.txt").write_text("A sentence of some length.\n\n" * 2000)
    before = everything(tmp_path)
    for command, target in (
        (["init", "book.txt", "--like", "test", "--no-time"], "params.yaml"),
        (["noise", "--runs", "2"], "results/noise/test.json"),
    ):
        with exclusive(workspace.root / target):
            done = subprocess.run(
                [sys.executable, "-m", "electra", *command],
                cwd=tmp_path,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                capture_output=True,
                text=True,
            )
        said = f"another process is writing {target}: process {os.getpid()} on "
        assert done.returncode == 5 and said in done.stderr, done.stderr
    assert everything(tmp_path) == before


# ---- the lock itself

HOLDER = """
import multiprocessing, os, subprocess, sys, time
from pathlib import Path
from electra.common.locks import exclusive

def wait():
    time.sleep(600)

def child():
    print(os.getpid(), flush=True)  # by the child: it closes the lock file when it begins to run, not before
    wait()

if __name__ == "__main__":
    with exclusive(Path("artefact")):
        if sys.argv[1] == "os.fork":
            if not os.fork():
                child()
        elif sys.argv[1] == "multiprocessing":
            multiprocessing.get_context("fork").Process(target=child).start()
        elif sys.argv[1] == "subprocess":
            print(subprocess.Popen(["sleep", "600"], close_fds=False).pid, flush=True)  # returns after its exec
        wait()
"""


@pytest.mark.parametrize("kind", ["os.fork", "multiprocessing", "subprocess"])
def test_a_child_does_not_keep_the_lock_of_a_parent_that_was_killed(tmp_path: Path, kind: str) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, kind],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None
    child = psutil.Process(int(holder.stdout.readline()))
    try:
        with pytest.raises(InfrastructureError, match=f"process {holder.pid} on "), exclusive(tmp_path / "artefact"):
            pytest.fail("two processes hold it")
        holder.kill()
        holder.wait(30)
        assert child.is_running()
        assert (tmp_path / ".artefact.lock").exists()
        with exclusive(tmp_path / "artefact"):
            assert child.is_running() and child.status() != psutil.STATUS_ZOMBIE
    finally:
        child.kill()
        holder.kill()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("has_died", [True, False])
def test_a_lock_that_outlives_its_holder_for_a_moment_is_waited_for(tmp_path: Path, has_died: bool) -> None:
    """As a child that has been forked, and has not called exec, holds the lock of a process that was killed."""
    child = subprocess.Popen(["true"])
    child.wait()
    lock = os.open(tmp_path / ".artefact.lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)
    os.write(lock, f"process {child.pid if has_died else os.getpid()} on {socket.gethostname()}, since then\n".encode())
    release = threading.Timer(0.5, os.close, [lock])
    release.start()
    refused = pytest.raises(InfrastructureError, match="another process is writing")
    with nullcontext() if has_died else refused, exclusive(tmp_path / "artefact"):
        pass
    release.join()


@pytest.mark.parametrize("when", ["starting", "working"])
def test_workers_of_a_killed_command_do_not_keep_its_lock_and_end(tmp_path: Path, when: str) -> None:
    log = tmp_path / "log"
    script = (
        "from pathlib import Path\nfrom electra.common.locks import exclusive\nfrom electra.config import Cluster\n"
        "from electra.cluster.executors import open_workers\nfrom tests.reliability.jobs import sleep_for_long\n"
        "if __name__ == '__main__':\n"
        f"    with exclusive(Path('artefact')), open_workers(Cluster(num_workers=2), 2, Path('.'), 'x') as workers:\n"
        f"        list(workers.map(sleep_for_long, [(Path({str(log)!r}),)] * 2))\n"
    )
    (tmp_path / "holder.py").write_text(script)
    holder = subprocess.Popen([sys.executable, "holder.py"], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)})
    deadline = time.monotonic() + 60
    # killed as soon as a worker is there, which has imported nothing yet: it has to end as well
    while not (workers := psutil.Process(holder.pid).children(recursive=True)) and not log.exists():
        assert time.monotonic() < deadline and holder.poll() is None
        time.sleep(0.02)
    if when == "working":
        while not (log.exists() and log.read_text()):
            assert time.monotonic() < deadline and holder.poll() is None
            time.sleep(0.02)
        workers = psutil.Process(holder.pid).children(recursive=True)
    holder.kill()
    holder.wait(30)
    with exclusive(tmp_path / "artefact"):
        pass
    _, alive = psutil.wait_procs(workers, timeout=60)
    for process in alive:
        process.kill()
    assert not alive, "its workers are still there"


def test_a_forked_child_that_leaves_the_block_does_not_free_the_lock(tmp_path: Path) -> None:
    """Its way out runs the same code: the lock is its parent's."""
    with exclusive(tmp_path / "artefact"):
        child = os.fork()
        if child == 0:
            try:
                with exclusive(tmp_path / "other"):
                    pass
                assert not holds(tmp_path / "artefact")
                raise SystemExit(0)
            except SystemExit:
                os._exit(0)
            except BaseException:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert holds(tmp_path / "artefact") and (tmp_path / ".artefact.lock").exists()
    script = (
        "import os\nfrom pathlib import Path\nfrom electra.common.locks import exclusive\n"
        "with exclusive(Path('artefact')):\n"
        "    if child := os.fork():\n"
        "        os.waitpid(child, 0)\n"
        "        assert Path('.artefact.lock').exists()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True
    )
    assert done.returncode == 0, done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_lock_is_of_the_folder_under_whatever_name(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    with exclusive(tmp_path / "real/corpus"):
        for name in ("link/corpus", "real/../link/corpus", "real/corpus"):
            with pytest.raises(InfrastructureError), exclusive(tmp_path / name):
                pytest.fail("two processes hold it")
    assert list((tmp_path / "real").iterdir()) == []


def test_who_waits_for_the_lock_gets_it_when_its_holder_removes_the_file(tmp_path: Path) -> None:
    """The file that was waited for is gone by then: a lock on it would lock nothing."""
    script = (
        "import sys, time\nfrom pathlib import Path\nfrom electra.common.locks import exclusive\n"
        "for _ in range(200):\n"
        "    with exclusive(Path('counter'), wait=True):\n"
        "        number = int(Path('counter').read_text())\n"
        "        Path('counter').write_text(str(number + 1))\n"
    )
    (tmp_path / "counter").write_text("0")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    three = [subprocess.Popen([sys.executable, "-c", script], cwd=tmp_path, env=environment) for _ in range(3)]
    assert [process.wait(60) for process in three] == [0, 0, 0]
    assert (tmp_path / "counter").read_text() == "600"


def test_what_a_killed_start_left_is_removed_by_the_next(tmp_path: Path) -> None:
    for name in (".corpus.building", ".corpus.building.jobs-0123abcd"):
        (tmp_path / name / "inside").mkdir(parents=True)
    (tmp_path / ".corpus.lock").write_text("process 1 on elsewhere\n")
    with building(tmp_path / "corpus") as folder:
        write_manifest(folder)
    assert [path.name for path in tmp_path.iterdir()] == ["corpus"]


KILLED_AFTER_A_RENAME = """
import os, signal, sys
from pathlib import Path
from electra.common import artifacts
from electra.common.artifacts import building, write_manifest

number, can_exchange = int(sys.argv[1]), sys.argv[2] == "exchange"
if not can_exchange:
    artifacts.exchange = lambda one, other: False

def killing(function):
    def rename(*names):
        global number
        done = function(*names)
        number -= done is not False and "corpus" in (Path(name).name for name in names)
        if number == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return done
    return rename

os.rename, os.replace, artifacts.exchange = map(killing, (os.rename, os.replace, artifacts.exchange))
with building(Path("corpus")) as folder:
    (folder / "text").write_text("new")
    write_manifest(folder)
"""


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("how", ["exchange", "two renames"])
def test_a_kill_at_a_rename_loses_neither_the_old_folder_nor_the_new(tmp_path: Path, how: str, number: int) -> None:
    """The system swaps two names at once; where it cannot, the next start brings the old folder back."""
    folder = tmp_path / "corpus"
    with building(folder) as made:
        (made / "text").write_text("old")
        write_manifest(made)
    command = [sys.executable, "-c", KILLED_AFTER_A_RENAME, str(number), how]
    done = subprocess.run(command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert done.returncode == (0 if how == "exchange" and number == 2 else -signal.SIGKILL)
    if how == "exchange":
        assert (folder / "text").read_text() == "new" and (folder / "manifest.json").is_file()
    with suppress(KeyError), building(folder):
        raise KeyError("this start fails")
    assert (folder / "text").read_text() == ("old" if how == "two renames" and number == 1 else "new")
    assert [path.name for path in tmp_path.iterdir()] == ["corpus"]


def test_sigterm_frees_the_lock(copy: Workspace, start: Start, tmp_path: Path) -> None:
    with stopped(start, ["corpus"], copy.root, tmp_path / "log") as first:
        assert first.pid is not None
        os.kill(first.pid, signal.SIGTERM)
        first.join(30)
        assert first.exitcode == 5
    assert not list((copy.root / "data").glob(".*"))
