"""The inputs stage: what the files from outside hold now, a JSON file for each stage that reads some."""

import glob
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from electra.common.artifacts import building, write_json, write_manifest
from electra.common.errors import DataError, InfrastructureError
from electra.common.paths import Paths
from electra.config import Settings
from electra.corpus.files import find_files, without_secrets
from electra.inputs.hashes import RememberedHashes
from electra.inputs.outside import Outside, outside
from electra.inputs.watch import watched, write_watched

VERSIONS = ("ETag", "etag", "VersionId", "version_id", "generation", "LastModified", "mtime")


def list_inputs(settings: Settings, paths: Paths) -> None:
    """Write ``data/inputs/<stage>.json``: path, bytes and sha256 of every file (for a URL: what its server tells).

    A stage depends on its own file, so that it runs again when one of its inputs was changed, added or removed, and
    only then. Also keeps the dependencies of ``dvc.yaml`` in step with the settings (:mod:`electra.inputs.watch`).

    Raises:
        DataError: a pattern matches nothing, or a file cannot be read.
        InfrastructureError: a URL cannot be asked, or the disk is full.
    """
    found = outside(settings, paths.root)
    hashes = RememberedHashes(paths.logs / "inputs.json")
    files = {stage: _files(items, paths.root) for stage, items in found.items()}
    local = sorted({name for of_stage in files.values() for name, facts in of_stage.items() if facts is None})
    try:
        known = dict(zip(local, hashes.of(paths.root / name for name in local), strict=True))
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror or error}", where=str(error.filename)) from error
    with building(paths.inputs) as folder:
        for stage, of_stage in files.items():
            listed = [
                {"path": without_secrets(name), **(facts or {"bytes": known[name][0], "sha256": known[name][1]})}
                for name, facts in sorted(of_stage.items())
            ]
            write_json(folder / f"{stage}.json", listed)
        write_manifest(folder, files_of={stage: len(of_stage) for stage, of_stage in files.items()})
    counts = ", ".join(f"{len(of_stage):,} of {stage}" for stage, of_stage in files.items() if of_stage)
    print(f"inputs: {counts or 'no files from outside'}")
    watch_inputs(settings, paths)


def watch_inputs(settings: Settings, paths: Paths) -> None:
    """Bring the dependencies in ``dvc.yaml`` into step with the settings, and say what DVC cannot watch."""
    file = paths.root / "dvc.yaml"
    if not file.is_file():
        return
    names, notes = watched((item for items in outside(settings, paths.root).values() for item in items), paths.root)
    if write_watched(file, names):
        print(f"inputs: dvc.yaml now watches {', '.join(names) or 'no files from outside'}")
    for note in notes:
        print(f"inputs: {note}")


def _files(items: Iterable[Outside], root: Path) -> dict[str, dict[str, Any] | None]:
    """Names of all files, with what the server tells of those behind URLs."""
    found: dict[str, dict[str, Any] | None] = {}
    for item in items:
        if item.is_folder:
            found |= {
                str(path.relative_to(root)): None for path in sorted((root / item.pattern).rglob("*")) if path.is_file()
            }
        elif item.key == "corpus.sources paths":
            for file in find_files([item.pattern]):
                found[file.name] = None if file.is_local else _ask(file.filesystem, file.path, file.name)
        elif (root / item.pattern).is_file():  # a file may have brackets in its name
            found[item.pattern] = None
        elif names := [n for n in glob.glob(item.pattern, root_dir=root, recursive=True) if (root / n).is_file()]:
            found |= dict.fromkeys(names)
        else:
            raise DataError("there is no such file", where=f"{item.key}: {item.pattern}", next_step="correct the path")
    return found


def _ask(filesystem: Any, path: str, name: str) -> dict[str, Any]:
    try:
        info = filesystem.info(path)
    except FileNotFoundError as error:
        raise DataError("there is no such file", where=without_secrets(name)) from error
    except (OSError, ValueError) as error:
        shown = without_secrets(name)
        raise InfrastructureError(
            f"cannot be asked: {str(error).replace(name, shown)}", where=shown, next_step="check the network"
        ) from error
    told = {key.lower(): str(info[key]) for key in VERSIONS if info.get(key)}
    return {"bytes": info.get("size"), **told}
