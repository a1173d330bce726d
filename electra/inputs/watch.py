"""The paths that DVC watches: dependencies of the stage ``inputs``, kept between two comments of ``dvc.yaml``.

DVC compares a folder or a file with what it was (sizes and times first, then content) whenever it is asked for the
state of the pipeline. It knows no globs, and settings of a profile cannot make a list of dependencies, so the list is
written into ``dvc.yaml``: for a glob the folder it looks into.
"""

import glob
import json
import os
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

from electra.common.artifacts import write_text
from electra.corpus.files import without_secrets
from electra.inputs.outside import Outside

BEGIN = "# files from outside, by `electra inputs`:"
END = "# (end of files from outside)"
PLUGINS = {"http": "dvc_http", "https": "dvc_http", "s3": "dvc_s3", "gs": "dvc_gs", "azure": "dvc_azure"}


def watched(found: Iterable[Outside], root: Path) -> tuple[list[str], list[str]]:
    """The dependencies for what is read, none inside another, sorted; and what cannot be watched, a line each."""
    paths: set[str] = set()
    notes: list[str] = []
    for item in found:
        if "://" in item.pattern:
            reason = _cannot_watch(item.pattern)
            if reason:
                notes.append(f"{without_secrets(item.pattern)}: {reason}")
            else:
                paths.add(_folder_of(item.pattern))
        elif (root / item.pattern).exists():  # a file may have brackets in its name
            paths.add(os.path.normpath(item.pattern))
        else:
            paths |= _of_glob(item.pattern, root, notes)
    return sorted(path for path in paths if not any(_is_inside(path, other) for other in paths)), notes


def write_watched(file: Path, paths: list[str]) -> bool:
    """Put the dependencies between the two comments of ``dvc.yaml``.

    Returns:
        Whether the file was changed; a file without the comments never is.
    """
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
    stripped = [line.strip() for line in lines]
    if BEGIN not in stripped or END not in stripped:
        return False
    begin, end = stripped.index(BEGIN), stripped.index(END)
    indent = lines[begin][: -len(lines[begin].lstrip())]
    # a JSON string is a YAML string; DVC would take ${ for a parameter
    entries = [f"{indent}- {json.dumps(path.replace('${', chr(92) + '${'), ensure_ascii=False)}\n" for path in paths]
    if lines[begin + 1 : end] == entries:
        return False
    write_text(file, "".join([*lines[: begin + 1], *entries, *lines[end:]]))
    return True


def _of_glob(pattern: str, root: Path, notes: list[str]) -> set[str]:
    parts = Path(pattern).parts
    plain = next(number for number, part in enumerate((*parts, "*")) if glob.has_magic(part))
    base = os.path.normpath(Path(*parts[:plain])) if plain else "."
    here = root.resolve()
    if (root / base).resolve() in (here, *here.parents):  # stages write there: it cannot be a dependency
        notes.append(
            f"{pattern}: changed and removed files are noticed, added ones are not; put the files into a folder"
        )
        return {os.path.normpath(name) for name in glob.glob(pattern, root_dir=root, recursive=True)}
    if not (root / base).is_dir():
        return set()
    # DVC does not follow links to folders inside a folder
    folders = {Path(name).parent for name in glob.glob(pattern, root_dir=root, recursive=True)}
    linked = {part for folder in folders for part in (folder, *folder.parents) if (root / part).is_symlink()}
    return {base} | {os.path.normpath(folder) for folder in linked if str(folder) != base}


def _is_inside(path: str, other: str) -> bool:
    if "://" in path or "://" in other or Path(other) not in Path(path).parents:
        return False
    between = [part for part in (Path(path), *Path(path).parents) if Path(other) in part.parents]
    return not any(part.is_symlink() for part in between)


def _cannot_watch(url: str) -> str | None:
    parts = urlsplit(url)
    if parts.username or parts.password or parts.query:
        return "not watched: the URL may hold a secret, which dvc.yaml must not"
    if PLUGINS.get(parts.scheme) is None or find_spec(PLUGINS[parts.scheme]) is None:
        return f"not watched: DVC here knows no {parts.scheme}:// (pip install dvc-{parts.scheme} may help)"
    if parts.scheme.startswith("http") and glob.has_magic(parts.path):
        return "not watched: DVC knows no globs of web pages"
    return None


def _folder_of(url: str) -> str:
    return url[: url.index("*")].rpartition("/")[0] if "*" in url else url
