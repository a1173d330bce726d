"""Atomic writing of files: through links, and never over an input."""

import ctypes
import errno
import fcntl
import hashlib
import os
import re
import socket
import stat
import sys
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
        _remove_abandoned(target)


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
    reason = getattr(error, "strerror", None) or error
    return ConfigError(f"{path} cannot be written: {reason}", next_step="name another file, or repair its folder")


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


def _remove_abandoned(path: Path) -> None:
    """Remove the temporary files for ``path`` that killed processes of this machine have left."""
    start = beside(path, f".{_host()}-").name
    with suppress(OSError):
        for left in os.scandir(path.parent):
            process = left.name.removeprefix(start).partition("-")[0]
            if left.name.startswith(start) and process.isdigit() and not Path("/proc", process).exists():
                os.unlink(left)
