"""Globs with ``**`` that read each folder once, also if symbolic links lead to it again."""

import glob
import os
from collections.abc import Iterator


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
        place = os.path.join(root, folder)
        real = os.path.realpath(place)
        if real in seen or not os.path.isdir(place):
            continue
        seen.add(real)
        yield folder
        try:
            with os.scandir(place) as entries:
                below = sorted((entry for entry in entries if not entry.name.startswith(".")), key=lambda e: e.name)
        except OSError:
            continue  # like glob, treat an unreadable folder as empty
        linked += [os.path.join(folder, entry.name) for entry in below if entry.is_symlink()]
        waiting += [os.path.join(folder, e.name) for e in reversed(below) if not e.is_symlink() and e.is_dir()]
