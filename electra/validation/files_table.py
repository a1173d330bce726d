"""Are the files of an artefact folder those its manifest lists, to the byte?"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd

from electra.artifacts import MANIFEST, sha256
from electra.validation.sample import Table

INTACT = "as listed"


def files_table(
    folder: Path, manifest: dict[str, Any], read: Callable[[Path], object], errors: tuple[type[Exception], ...]
) -> tuple[Table, list[Path]]:
    """One row per file on disk or in the manifest: path and state.

    A file that is as listed can be read, since its writer is trusted. A changed one is tried, so that a suite can name
    the rows that changed where the file still opens.

    Args:
        read: reads one file whole.
        errors: what ``read`` raises where it cannot.

    Returns:
        The table, and the paths that can be read, sorted.
    """
    listed = {entry["path"]: entry for entry in manifest["files"]}
    on_disk = {p.relative_to(folder).as_posix(): p for p in folder.rglob("*") if p.is_file() and p.name != MANIFEST}
    rows, readable = [], []
    for name in sorted(listed | on_disk):
        path = on_disk.get(name)
        if path is None:
            rows.append((name, "missing"))
            continue
        state = _compare(path, listed.get(name))
        if state != INTACT:
            try:
                read(path)
            except errors as error:
                rows.append((name, f"{state}; cannot be read: {str(error).splitlines()[0]:.160}"))
                continue
        rows.append((name, state))
        readable.append(path)
    return Table(pd.DataFrame(rows, columns=["file", "state"]), named_by=["file"]), readable


def _compare(path: Path, entry: dict[str, Any] | None) -> str:
    if entry is None:
        return "not in the manifest"
    if path.stat().st_size != entry["bytes"] or sha256(path) != entry["sha256"]:
        return "changed since it was written"
    return INTACT
