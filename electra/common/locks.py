"""Locks between processes: one at a time writes a file or folder."""

import errno
import fcntl
import os
import re
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from electra.common.errors import InfrastructureError
from electra.common.output import beside, cannot_write, disk_errors

# A child that a killed process has just forked holds its lock until it calls exec.
SECONDS_AFTER_DEATH = 5.0

_held: dict[Path, int] = {}  # lock files that this process holds, and their descriptors


def _close_after_fork() -> None:
    """Close the lock files in a forked child, which would otherwise hold them after its parent was killed."""
    for descriptor in _held.values():
        if descriptor >= 0:
            os.close(descriptor)
    _held.clear()


os.register_at_fork(after_in_child=_close_after_fork)


@contextmanager
def exclusive(path: Path, *, wait: bool = False) -> Iterator[bool]:
    """Hold an exclusive lock for ``path`` during the block; the system releases it if this process dies.

    The lock is a file next to ``path`` that names its holder and is removed with the lock.

    Yields:
        False where the file system has no locks.

    Args:
        path: a file or folder, which need not exist; links are followed.
        wait: wait for the other process to end instead of raising an error.

    Raises:
        InfrastructureError: another process, or another block of this process, holds the lock.
    """
    file = _lock_file(path)
    with disk_errors(path):
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            descriptor = _locked(file, path, wait)
        except (PermissionError, NotADirectoryError, FileExistsError) as error:
            raise cannot_write(path, error) from None
        _held[file] = descriptor
        try:
            if descriptor >= 0:
                holder = f"process {os.getpid()} on {socket.gethostname()}, since {time.strftime('%F %T %z')}\n"
                os.truncate(descriptor, 0)
                os.write(descriptor, holder.encode())
            yield descriptor >= 0
        finally:
            if _held.pop(file, -1) >= 0:  # a forked child that leaves the block holds no lock
                file.unlink(missing_ok=True)  # before the release: another process may have opened the file already
                os.close(descriptor)


def holds(path: Path) -> bool:
    """Return whether this process is in a block of :func:`exclusive` for this path."""
    return _lock_file(path) in _held


def _lock_file(path: Path) -> Path:
    return beside(Path(os.path.realpath(path)), ".lock")


def _locked(file: Path, path: Path, wait: bool) -> int:
    """Return the descriptor of the locked file; -1 if the file system has no locks."""
    deadline = time.monotonic() + SECONDS_AFTER_DEATH
    while True:
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(descriptor), os.stat(file)):
                    return descriptor
            os.close(descriptor)  # its holder removed the file meanwhile: try again with a new file
        except BlockingIOError:
            holder = os.pread(descriptor, 1000, 0).decode(errors="replace").strip() or "it has only just started"
            os.close(descriptor)
            if _has_died(holder) and time.monotonic() < deadline:
                time.sleep(0.05)
                continue
            raise InfrastructureError(
                f"another process is writing {path}: {holder}",
                where=str(file),
                next_step="wait for it, or end it, then run the same command again",
            ) from None
        except OSError as error:
            os.close(descriptor)
            if error.errno not in (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK):
                raise
            file.unlink(missing_ok=True)
            print(
                f"warning: the file system of {path} has no locks ({error.strerror}): "
                "do not run the same command there twice at a time",
                file=sys.stderr,
            )
            return -1


def _has_died(holder: str) -> bool:
    """Return whether the process that a lock file names was one of this machine and has ended."""
    named = re.match(r"process (\d+) on (\S+),", holder)
    if named is None or named[2] != socket.gethostname():
        return False
    try:
        os.kill(int(named[1]), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    return False
