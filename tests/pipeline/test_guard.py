"""No process outlives the one it works for, whichever process is ended and by whatever signal."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from electra.cluster.processes import GRACE

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}
# A stage: it says its process id and that it was asked to end.
STAGE = """
import os, signal, sys, time
from pathlib import Path
def ask(*_):
    Path("asked").touch()
    sys.exit(0)
signal.signal(signal.SIGTERM, ask)
if os.environ.get("WATCHES"):
    from electra.cluster.processes import end_with_parent
    end_with_parent()
Path("pid.new").write_text(str(os.getpid()))
os.replace("pid.new", "pid")
time.sleep(600)
"""
# What DVC does: start the stage, wait for it, and die of SIGTERM without a word.
CALLER = "import subprocess, sys; subprocess.run([*sys.argv[1:]])"


def start(folder: Path, *command: str, **variables: str) -> subprocess.Popen:
    """Start a command that starts a stage, and wait for the stage."""
    (folder / "stage.py").write_text(STAGE)
    process = subprocess.Popen(command, cwd=folder, env={**ENVIRONMENT, **variables}, start_new_session=True)
    wait_until(lambda: (folder / "pid").exists(), "the stage to start")
    return process


def stage_of(folder: Path) -> psutil.Process:
    return psutil.Process(int((folder / "pid").read_text()))


def wait_until(is_so, what: str) -> None:
    deadline = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < deadline, f"waited 30 s for {what}"
        time.sleep(0.05)


def has_ended(process: psutil.Process) -> bool:
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:  # it ended between the two calls
        return True


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("between", [[], ["sh", "-c", '"$@"; exit $?', "sh"]], ids=["directly", "through a shell"])
def test_a_stage_is_asked_to_end_when_its_caller_is_gone(tmp_path, number, between):
    caller = start(tmp_path, sys.executable, "-c", CALLER, *between, sys.executable, "stage.py", WATCHES="1")
    stage = stage_of(tmp_path)
    caller.send_signal(number)
    caller.wait()
    wait_until(lambda: has_ended(stage), "the stage to end")
    assert (tmp_path / "asked").exists(), "it was killed and could not save anything"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_command_ends_with_its_guard(tmp_path, number):
    guard = start(tmp_path, sys.executable, "-m", "flows.guard", sys.executable, "stage.py")
    stage = stage_of(tmp_path)
    guard.send_signal(number)
    guard.wait()
    wait_until(lambda: has_ended(stage), "the stage to end")
    assert (tmp_path / "asked").exists()


def test_a_guard_ends_with_its_caller(tmp_path):
    command = [sys.executable, "-m", "flows.guard", sys.executable, "stage.py"]
    caller = start(tmp_path, sys.executable, "-c", CALLER, *command)
    stage = stage_of(tmp_path)
    caller.kill()
    caller.wait()
    wait_until(lambda: has_ended(stage), "the stage to end")
    assert (tmp_path / "asked").exists()


def test_a_guard_ends_what_its_command_leaves_behind(tmp_path):
    leave = "import subprocess, sys; subprocess.Popen([sys.executable, 'stage.py'], start_new_session=True)"
    wait = "import os, time\nwhile not os.path.exists('seen'): time.sleep(0.05)\nsys.exit(7)"
    guard = start(tmp_path, sys.executable, "-m", "flows.guard", sys.executable, "-c", f"{leave}\n{wait}")
    stage = stage_of(tmp_path)
    (tmp_path / "seen").touch()
    assert guard.wait() == 7, "the command's exit code"
    assert has_ended(stage)


@pytest.mark.parametrize(("program", "code"), [("exit 3", 3), ("kill -KILL $$", 137), ("kill -SEGV $$", 139)])
def test_a_guard_ends_with_its_commands_code_also_where_a_signal_ended_it(program, code):
    """As a shell tells it: a stage that the system killed for its memory is worth another try, a failed one is not."""
    done = subprocess.run([sys.executable, "-m", "flows.guard", "sh", "-c", program], timeout=60)
    assert done.returncode == code


def test_a_command_under_a_guard_has_the_seconds_that_its_stage_was_given(tmp_path):
    """It needs three seconds to end; one is too few."""
    slow = STAGE.replace("    sys.exit(0)", "    time.sleep(3)\n    Path('saved').touch()\n    os._exit(0)")
    for seconds, saves in (("1", False), ("60", True)):
        folder = tmp_path / seconds
        folder.mkdir()
        guard = start(folder, sys.executable, "-m", "flows.guard", sys.executable, "-c", slow, **{GRACE: seconds})
        stage = stage_of(folder)
        guard.terminate()
        guard.wait()
        assert has_ended(stage)
        assert (folder / "saved").exists() == saves


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_transfer_of_dvc_ends_with_its_flow(tmp_path, number):
    (tmp_path / "dvc.py").write_text(f"import sys\nif 'list' in sys.argv:\n    sys.exit(print('origin'))\n{STAGE}")
    push = "from pathlib import Path; from flows.workspace import _dvc_if_remote; _dvc_if_remote(Path(), 'push')"
    flow = start(tmp_path, sys.executable, "-c", push)
    transfer = stage_of(tmp_path)
    flow.send_signal(number)
    flow.wait()
    wait_until(lambda: has_ended(transfer), "the transfer to end")


SERVICE = """
import subprocess, sys, time
from flows.guard import run_guarded
waits = "import signal, subprocess, sys; signal.signal(signal.SIGTERM, signal.SIG_IGN); subprocess.call(sys.argv[1:])"
sys.exit(run_guarded([sys.executable, "-c", waits, sys.executable, "stage.py"], is_service=True))
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_what_a_service_has_started_is_asked_to_end_with_it(tmp_path, number):
    """As a worker does, the service ignores the first SIGTERM while what it has started runs."""
    guard = start(tmp_path, sys.executable, "-c", SERVICE, WATCHES="1")
    stage = stage_of(tmp_path)
    guard.send_signal(number)
    guard.wait()
    wait_until(lambda: has_ended(stage), "the stage to end")
    assert (tmp_path / "asked").exists()


def test_a_service_outlives_who_started_it(tmp_path):
    caller = start(tmp_path, sys.executable, "-c", CALLER, sys.executable, "-c", SERVICE)
    stage = stage_of(tmp_path)
    guard = stage.parent().parent()
    caller.kill()
    caller.wait()
    time.sleep(3)
    assert not has_ended(stage)
    guard.terminate()
    wait_until(lambda: has_ended(stage), "the stage to end")
