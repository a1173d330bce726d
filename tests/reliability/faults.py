"""Faults injected into commands, which run in processes forked from one that has imported everything already."""

import ctypes
import json
import os
import resource
import runpy
import shutil
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from electra import __main__ as cli
from electra.common import artifacts

CLONE_NEWNS, CLONE_NEWUSER = 0x20000, 0x10000000  # <linux/sched.h>
MEBIBYTE = 2**20


def run(arguments: list[str], root: Path, log: Path, program: str | None = None) -> None:
    """``electra <arguments>`` in a workspace, or a Python program in its place, its output in a file."""
    with open(log, "a") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    os.chdir(root)
    sys.argv = ["electra", *arguments]
    try:
        if program:
            exec(program, {"__name__": "__main__"})
        else:
            cli.main()
    except Exception:
        traceback.print_exc()
        raise SystemExit(1) from None
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


def run_typed(commands: list[list[str]], root: Path, environment: dict[str, str], given: Path, log: Path) -> None:
    """Run command lines in this process, up to the first that fails, with a user's environment (tests/typed.py)."""
    for path, number, flags in ((given, 0, os.O_RDONLY), (log, 1, os.O_WRONLY | os.O_APPEND)):
        os.dup2(os.open(path, flags), number)
    os.dup2(1, 2)
    sys.stdin = open(0, encoding="utf-8")  # noqa: SIM115  # multiprocessing has closed the one there was
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(root)
    sys.path.insert(0, str(root))
    try:
        for words in commands:
            try:
                run_here(words)
            except SystemExit as done:
                if done.code:
                    raise
    except Exception:
        traceback.print_exc()
        raise SystemExit(1) from None
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


def run_here(words: list[str]) -> None:
    """`electra ...`, `dvc ...` or `python -m module ...`, by the function that its script calls."""
    program, *arguments = words
    sys.argv = words
    if program == "python":
        sys.argv = arguments[1:]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    elif program == "dvc":
        from dvc.cli import main as dvc

        sys.exit(dvc(arguments))
    else:
        if arguments[:1] == ["pretrain"]:
            fork_the_ranks()
        cli.main()


def in_a_group(program: str | None, root: Path, log: Path) -> None:
    """Start `electra pretrain`, or a Python program, in a new process group."""
    os.setsid()
    os.environ.update(OMP_NUM_THREADS="1", PYTHONPATH=str(Path(__file__).parents[2]))
    if program is None:
        fork_the_ranks()
    run(["pretrain"], root, log, program)


def fork_the_ranks() -> None:
    """Let torch's agent fork the processes of a run: each would import for longer than it trains.

    The agent, its signals and exit codes stay; tests/launchers and tests/cluster start the real command.
    """
    from torch.distributed.launcher import api

    launch = api.elastic_launch

    def launch_forked(config: Any, _: str) -> Any:
        config.start_method = "fork"
        return lambda *command: launch(config, _rank)(list(command))

    api.elastic_launch = launch_forked  # type: ignore[assignment, misc]


def _rank(command: list[str]) -> None:
    sys.argv = ["electra", *command[command.index("electra") + 1 :]]
    cli.main()


def stopped_before_the_end(arguments: list[str], root: Path, log: Path) -> None:
    """The command writes everything and then waits for ever, instead of giving the first file its name."""
    replace = os.replace

    def wait(made: Any, target: Any) -> bool:
        if "logs" in Path(target).parts:  # a note of what is begun
            replace(made, target)
            return True
        (root / "all-written").touch()
        while True:
            time.sleep(0.05)

    os.replace = artifacts.exchange = wait  # type: ignore[assignment]
    run(arguments, root, log)


def with_little_memory(arguments: list[str], root: Path, log: Path, mebibytes: int) -> None:
    """The process may take only so much more memory than it has now."""
    status = Path("/proc/self/status").read_text()
    now = next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmData"))
    limit = now + mebibytes * MEBIBYTE
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    run(arguments, root, log)


def on_a_full_disk(arguments: list[str], prepared: Path, root: Path, log: Path, kibibytes: int, outcome: Path) -> None:
    """Run on a disk with the given free bytes, then again with enough.

    Writes to ``outcome`` the exit codes, what lies in data/, models/ and results/ in between, and the digests of
    all files at the end; ``null`` where this process may not mount a disk of its own.
    """
    if not _mount(root):
        outcome.write_text("null")
        return
    shutil.copytree(prepared, root, dirs_exist_ok=True)
    filler = root / "filler"
    room = os.statvfs(root)
    with open(filler, "wb") as file:
        os.posix_fallocate(file.fileno(), 0, room.f_bavail * room.f_bsize - kibibytes * 1024)
    before = digests(root)
    first = _forked(arguments, root, log)
    between = digests(root)
    filler.unlink()
    second = _forked(arguments, root, log)
    outcome.write_text(
        json.dumps({"first": first, "second": second, "kept": between == before, "digests": digests(root)})
    )


def digests(root: Path) -> dict[str, str]:
    """sha256 of every artefact's files, by path; what is only there while something is built has a leading dot."""
    from electra.common.artifacts import sha256

    folders = [root / name for name in ("data", "models", "results")]
    files = [path for folder in folders for path in sorted(folder.rglob("*")) if path.is_file()]
    files = [path for path in files if path.name != "machine.json"]  # tells minutes: no two runs have the same
    return {path.relative_to(root).as_posix(): sha256(path) for path in files}


def _mount(root: Path) -> bool:
    """A disk in memory that this process alone sees, and that goes with it."""
    libc = ctypes.CDLL(None, use_errno=True)
    own_user = 0 if os.geteuid() == 0 else CLONE_NEWUSER
    user, group = os.getuid(), os.getgid()
    if libc.unshare(CLONE_NEWNS | own_user):
        return False
    if own_user:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {user} 1")
        Path("/proc/self/gid_map").write_text(f"0 {group} 1")
    private = 1 << 18 | 1 << 14  # MS_PRIVATE | MS_REC: nothing of this is seen outside
    if libc.mount(b"none", b"/", None, private, None):
        return False
    return libc.mount(b"tmpfs", str(root).encode(), b"tmpfs", 0, b"size=24m") == 0


def _forked(arguments: list[str], root: Path, log: Path) -> int:
    """Run the command in a forked process; return its exit code."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            run(arguments, root, log)
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)
