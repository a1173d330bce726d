"""Globs with ``**`` that read each folder once, also if symbolic links lead to it again."""

import glob
import os
from collections.abc import Iterator

from electra.common.errors import DataError


def expanded(pattern: str, root: str | os.PathLike[str] = ".") -> list[str]:
    """Return what ``glob.glob`` with ``recursive=True`` finds below ``root``, links included, but each folder once.

    ``glob`` follows links to folders, so a link to a parent folder gives each file 41 names, and with two such links
    the search does not end. A folder is listed by its real path if the pattern reaches it, else by the first link.

    Returns:
        Names relative to ``root``, or absolute if the pattern is absolute; includes dangling links.
    """
    parts = pattern.split("/")
    if "**" not in parts:
        return sorted(glob.glob(pattern, root_dir=root))
    head, rest = "/".join(parts[: parts.index("**")]), "/".join(parts[parts.index("**") + 1 :])
    if pattern.startswith("/") and not head:
        head = "/"
    bases = sorted(glob.glob(head, root_dir=root)) if head else [""]
    found: dict[str, None] = {}
    for base in bases:
        for folder in _folders(base, os.fspath(root)):
            inside = os.path.join(glob.escape(folder), rest or "*")
            names = expanded(inside, root)
            found |= dict.fromkeys(names if rest else [n for n in names if not os.path.isdir(os.path.join(root, n))])
    return sorted(found)


def _folders(base: str, root: str) -> Iterator[str]:
    """Yield the folder and all folders below it except hidden ones; folders behind links come last."""
    seen: set[str] = set()
    waiting, linked = [base], list[str]()
    while waiting or linked:
        folder = waiting.pop() if waiting else linked.pop(0)
        path = os.path.join(root, folder)
        real = os.path.realpath(path)
        if real in seen or not os.path.isdir(path):
            continue
        seen.add(real)
        yield folder
        try:
            with os.scandir(path) as entries:
                below = sorted((entry for entry in entries if not entry.name.startswith(".")), key=lambda e: e.name)
        except OSError:
            continue  # like glob, treat an unreadable folder as empty
        linked += [os.path.join(folder, entry.name) for entry in below if entry.is_symlink()]
        waiting += [os.path.join(folder, e.name) for e in reversed(below) if not e.is_symlink() and e.is_dir()]


def files_of(pattern: str, root: str | os.PathLike[str] = ".") -> list[str]:
    """Return the names of the files that a path or glob matches; folders are left out.

    Raises:
        DataError: the path is a folder, or a match is not a regular file, such as a dangling link.
    """
    exists = os.path.lexists(os.path.join(root, pattern))  # file names may contain brackets
    if exists and os.path.isdir(os.path.join(root, pattern)):
        raise DataError("a folder, not a file", where=pattern, next_step=f"name its files: {pattern.rstrip('/')}/*.txt")
    names = [pattern] if exists else expanded(pattern, root)
    files = [name for name in names if not os.path.isdir(os.path.join(root, name))]
    for name in files:
        if not os.path.isfile(os.path.join(root, name)):
            what = "no regular file" if os.path.exists(os.path.join(root, name)) else "a link to nothing"
            raise DataError(what, where=name, next_step="mend or remove it, or narrow the glob in corpus.sources paths")
    return files
