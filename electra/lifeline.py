"""No process works on for nobody: it ends when the one that it works for has ended, however that one ended.

DVC dies of SIGTERM without passing it on, and after ``kill -9`` nobody can pass anything on. So it is the child that
looks: when its parent is gone, it asks itself to end as ``kill`` would, and pre-training writes a checkpoint first.
"""

import os
import signal
import threading
import time

SHELLS = {"sh", "bash", "dash", "fish", "ksh", "zsh"}
NAME = "lifeline"
SECONDS_BETWEEN_LOOKS = 1.0
GRACE = "ELECTRA_STAGE_GRACE_SECONDS"  # environment: what the flow gives a stage, where that is another time


def seconds_to_end() -> float:
    """From SIGTERM to SIGKILL: so long a process has to write its checkpoint."""
    return float(os.environ.get(GRACE, 25.0))


def end_with_parent() -> None:
    """Watch, in a thread, the process that this one works for; when it is gone, SIGTERM, and SIGKILL later.

    Asked again, it does nothing: it watches already.

    A shell between the two (``sh -c`` of a stage's command) waits for nobody but its child: the link from the shell to
    its parent is watched as well.
    """
    if not any(thread.name == NAME for thread in threading.enumerate()):
        threading.Thread(target=_watch, args=(_links(),), name=NAME, daemon=True).start()


def _links() -> list[tuple[int, int]]:
    """(process, its parent) from this one up to the first that is no shell."""
    import psutil

    links = []
    process = psutil.Process()
    while (parent := process.parent()) is not None:
        links.append((process.pid, parent.pid))
        if parent.name() not in SHELLS:
            break
        process = parent
    return links


def _watch(links: list[tuple[int, int]]) -> None:
    while all(_parent_of(child) == parent for child, parent in links):
        time.sleep(SECONDS_BETWEEN_LOOKS)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(seconds_to_end())
    os.kill(os.getpid(), signal.SIGKILL)


def _parent_of(pid: int) -> int | None:
    """None where the process has ended. A process whose parent has ended gets another one at once."""
    import psutil

    if pid == os.getpid():
        return os.getppid()
    try:
        return psutil.Process(pid).ppid()
    except psutil.NoSuchProcess:
        return None
