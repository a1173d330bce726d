"""Atomic writing of files: through links, never over an input, and by one process at a time."""

import ctypes
import errno
import fcntl
import hashlib
import os
import re
import socket
import stat
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO, cast
from uuid import uuid4

from electra.common.errors import ConfigError, ElectraError, InfrastructureError

LONGEST_NAME = 255  # bytes of a file's name, on nearly all file systems
LONGEST_SUFFIX = 48
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2  # <fcntl.h>, <linux/fs.h>
NEXT_STEPS = {
    errno.EFBIG: "raise the limit on the size of a file (ulimit -f; some file systems have one of their own) "
    "and run the same command again",
} | dict.fromkeys(
    (errno.ENOSPC, errno.EDQUOT, errno.EROFS),
    "free some space (dvc gc -w removes unused cache entries) and run the same command again",
)


@contextmanager
def disk_errors(where: Path) -> Iterator[None]:
    """Convert errors of a full or read-only disk and of a file size limit; other errors pass through.

    Raises:
        InfrastructureError: the disk is full or read-only, or a file reached the size limit; with advice.
    """
    try:
        yield
    except Exception as error:
        number = _system_error(error)
        if number in NEXT_STEPS:
            raise InfrastructureError(
                f"cannot write: {os.strerror(number)}", where=str(where), next_step=NEXT_STEPS[number]
            ) from error
        raise


def _system_error(error: Exception) -> int | None:
    """Return the errno of an error; tokenizers and safetensors, written in Rust, mention it only in the message."""
    if isinstance(error, OSError):
        return error.errno
    mentioned = re.search(r"\(os error (\d+)\)", str(error))
    return int(mentioned[1]) if mentioned else None


def beside(path: Path, suffix: str) -> Path:
    """Return a hidden path in the same folder for a temporary file or folder.

    Args:
        suffix: at most :data:`LONGEST_SUFFIX` characters. A name that would become too long is cut and gets a hash, so
            that it stays unique.
    """
    name = os.fsencode(path.name)
    if 1 + len(name) + LONGEST_SUFFIX > LONGEST_NAME:
        name = name[:160].decode(errors="ignore").encode() + b"~" + hashlib.sha256(name).hexdigest()[:16].encode()
    return path.with_name(f".{os.fsdecode(name)}{suffix}")


def exchange(one: Path, other: Path) -> bool:
    """Swap the names of two files or folders in one step.

    Returns:
        Whether it was done: not where either is missing, or the system cannot do it.
    """
    renameat2 = getattr(ctypes.CDLL(None), "renameat2", None)
    return renameat2 is not None and not renameat2(
        _AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE
    )


# ---- one process at a time

_held: dict[Path, int] = {}  # lock files that this process holds, and their descriptors


def _let_go_after_fork() -> None:
    """Close the locks in a forked child; otherwise they would outlive a parent that is killed."""
    for descriptor in _held.values():
        if descriptor >= 0:
            os.close(descriptor)
    _held.clear()


os.register_at_fork(after_in_child=_let_go_after_fork)


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


# ---- one file


def refuse_input(output: Path | int, inputs: Iterable[Path | int]) -> None:
    """Refuse to overwrite an input file, also through symbolic and hard links.

    Args:
        output, inputs: paths, or descriptors such as 0 for standard input; missing files are ignored.

    Raises:
        ConfigError: the output is one of the inputs.
    """
    if (found := _regular(output)) is None:
        return
    for source in inputs:
        if (facts := _regular(source)) and os.path.samestat(found, facts):
            raise ConfigError(
                f"{_named(output)} is {_named(source)}, which this command reads: it would be lost",
                next_step="name another file to write",
            )


def _named(file: Path | int) -> str:
    return {0: "standard input", 1: "standard output"}.get(file, str(file)) if isinstance(file, int) else str(file)


def _regular(file: Path | int) -> os.stat_result | None:
    """Return the status of a regular file; None for anything else."""
    try:
        facts = os.stat(file)
    except OSError:
        return None
    return facts if stat.S_ISREG(facts.st_mode) else None


@contextmanager
def writing(path: Path, inputs: Iterable[Path | int] = ()) -> Iterator[TextIO]:
    """Yield a UTF-8 text file that replaces ``path`` if the block succeeds; until then the old file stays.

    A symbolic link stays, and its target's content is replaced; permissions stay. A device, pipe or terminal is
    written to directly, and so is a descriptor of this process (``/dev/stdout``). The folder of ``path`` is created.

    Args:
        inputs: files that the command reads; see :func:`refuse_input`.

    Raises:
        ConfigError: ``path`` is a folder or an input, is write-protected, or cannot be written to.
        InfrastructureError: the disk is full or read-only.
    """
    with disk_errors(path):
        try:
            facts = os.stat(path)
        except FileNotFoundError:
            facts = None  # a new file, or a link to one
        except (OSError, ValueError) as error:
            raise cannot_write(path, error) from None
        if facts is not None and stat.S_ISDIR(facts.st_mode):
            raise ConfigError(f"{path} is a folder", next_step="name a file")
        refuse_input(path, inputs)
        number = _descriptor(path)
        if number is not None or (facts is not None and not stat.S_ISREG(facts.st_mode)):
            sys.stdout.flush()  # keep the order with earlier prints
            with _opened(path, path if number is None else number, "w") as file:
                yield file
            return
        if facts is not None and not facts.st_mode & 0o222:
            raise ConfigError(f"{path} is write-protected", next_step="name another file, or allow it: chmod u+w")
        with suppress(OSError):  # opening the file reports it
            path.parent.mkdir(parents=True, exist_ok=True)
        target = Path(os.path.realpath(path))
        unfinished = beside(target, f".{_host()}-{os.getpid()}-{uuid4().hex[:6]}")
        try:
            with _opened(path, unfinished, "x") as file:
                if facts is not None:
                    os.fchmod(file.fileno(), stat.S_IMODE(facts.st_mode))
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(unfinished, target)
        finally:
            with suppress(OSError):
                unfinished.unlink()
        _remove_left_over(target)


def _opened(path: Path, file: Path | int, mode: str) -> TextIO:
    try:
        if isinstance(file, int):
            if fcntl.fcntl(file, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
                raise OSError(errno.EBADF, "it is open for reading only")
            file = os.dup(file)
        return cast(TextIO, open(file, mode, encoding="utf-8", newline="\n"))
    except OSError as error:
        if error.errno in NEXT_STEPS:
            raise
        raise cannot_write(path, error) from None


def cannot_write(path: Path, error: OSError | ValueError) -> ElectraError:
    """Return the error for a path that the system refuses: too long, in no folder, not permitted."""
    said = getattr(error, "strerror", None) or error
    return ConfigError(f"{path} cannot be written: {said}", next_step="name another file, or repair its folder")


def _descriptor(path: Path) -> int | None:
    """Return the descriptor of this process that a path such as ``/dev/stdout`` leads to; None for other paths."""
    for _ in range(40):  # the system follows at most 40 links
        folder = os.path.realpath(path.parent)
        if re.fullmatch(rf"/proc/{os.getpid()}(/task/\d+)?/fd", folder):
            return int(path.name) if path.name.isdigit() else None
        full = Path(folder, path.name)
        if not full.is_symlink():
            return None
        path = Path(folder, os.readlink(full))
    return None


def _host() -> str:
    """Return a short id of this machine: process ids are unique only within one machine."""
    return hashlib.sha256(socket.gethostname().encode()).hexdigest()[:6]


def _remove_left_over(path: Path) -> None:
    """Remove the temporary files for ``path`` that killed processes of this machine have left."""
    start = beside(path, f".{_host()}-").name
    with suppress(OSError):
        for left in os.scandir(path.parent):
            process = left.name.removeprefix(start).partition("-")[0]
            if left.name.startswith(start) and process.isdigit() and not Path("/proc", process).exists():
                os.unlink(left)
