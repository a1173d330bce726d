"""Provenance: ``electra trace`` follows an artefact back to the raw files.

``dvc.lock`` records for each stage the md5 of its dependencies and outputs; ``data/inputs/<stage>.json`` lists the
external files with their sha256.
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from electra.common.artifacts import read_json
from electra.common.errors import ConfigError, DataError
from electra.common.paths import CODE, Paths
from electra.results.review.sides import WORK_TREE, Side

SHOWN_FILES = 20


@dataclass
class Step:
    """An artefact and its origin.

    Attributes:
        path, md5: the artefact, and its md5 as recorded by the stage that reads it; of a file inside an output, which
            no stage has recorded, the md5 and the name of the output.
        stage: the stage that made it.
        code: digest of the paths and contents of the code, and the number of its files or folders.
        settings: the values that the stage depends on, by file.
        files: raw files, {path, and sha256 or the version that the server reports}.
        before: the artefacts it was made from.
        warning: an inconsistency; empty if there is none.
    """

    path: str
    md5: str
    stage: str
    code: tuple[str, int] = ("", 0)
    settings: dict[str, Any] = field(default_factory=dict)
    files: list[dict[str, Any]] = field(default_factory=list)
    before: list["Step"] = field(default_factory=list)
    warning: str = ""


def trace(paths: Paths, artefact: str) -> Step:
    """Return the chain of stages that made an artefact.

    Args:
        artefact: path of a stage's output, or of a file or folder inside one, relative to the workspace.

    Raises:
        DataError: there is no readable ``dvc.lock``, or a list of inputs is damaged.
        ConfigError: no stage makes the artefact.
    """
    lock = paths.root / "dvc.lock"
    try:
        stages = yaml.safe_load(lock.read_text(encoding="utf-8"))["stages"]
    except (OSError, UnicodeDecodeError, yaml.YAMLError, KeyError, TypeError):
        raise DataError("there is no readable dvc.lock", where=str(lock), next_step="run: dvc repro") from None
    return _Tracer(paths.root, stages).step(PurePosixPath(artefact.rstrip("/")).as_posix(), None)


class _Tracer:
    def __init__(self, root: Path, stages: dict[str, Any]):
        self._root, self._stages = root, stages
        self._known: dict[tuple[str, str | None], Step] = {}  # cache: several stages read the same artefact
        self._made_by = {out["path"]: name for name, stage in stages.items() for out in stage.get("outs", [])}

    def step(self, path: str, recorded: str | None) -> Step:
        """Return the chain of one artefact with the content that its reader recorded."""
        if (path, recorded) not in self._known:
            self._known[path, recorded] = self._step(path, recorded)
        return self._known[path, recorded]

    def _step(self, path: str, recorded: str | None) -> Step:
        out = next((p for p in (path, *map(str, PurePosixPath(path).parents)) if p in self._made_by), None)
        if out is None:
            raise ConfigError(
                f"no stage of dvc.lock makes {path}", next_step=f"choose among: {', '.join(sorted(self._made_by))}"
            )
        name = self._made_by[out]
        stage = self._stages[name]
        now = next(entry.get("md5", "") for entry in stage["outs"] if entry["path"] == out)
        content = recorded or (now if out == path else f"{now} of {out}")
        step = Step(path, content, name, settings=stage.get("params", {}))
        if recorded and out == path and recorded != now:
            step.warning = f"was read when its content was {recorded}; stage {name} has made {now} since"
        code = []
        for dep in stage.get("deps", []):
            content = dep.get("md5") or dep.get("etag") or dep.get("checksum") or ""
            if dep["path"].startswith(CODE):
                code.append(f"{dep['path']} {content}")
            elif any(
                parent in self._made_by for parent in (dep["path"], *map(str, PurePosixPath(dep["path"]).parents))
            ):
                step.before.append(self.step(dep["path"], content))
            elif inside := self._made_in(dep["path"]):
                step.files.append({"path": dep["path"], "md5": content})  # a folder with the outputs of several stages
                step.before += [self.step(made, None) for made in inside]
            elif name != "inputs":
                step.files.append({"path": dep["path"], "md5": content})
        step.code = (hashlib.sha256("\n".join(sorted(code)).encode()).hexdigest(), len(code))
        if name == "inputs" and path != out:
            self._add_raw_files(step, recorded)
        return step

    def _made_in(self, folder: str) -> list[str]:
        """Return the outputs of stages inside a folder, without those of fine-tuning runs of earlier settings."""
        side = Side(WORK_TREE, self._root)
        inside = (path for path in self._made_by if PurePosixPath(folder) in PurePosixPath(path).parents)
        return sorted(path for path in inside if side.is_requested(self._made_by[path]))

    def _add_raw_files(self, step: Step, recorded: str | None) -> None:
        """Add the external files that one stage reads, from its list."""
        listed = self._root / step.path
        if not listed.is_file():
            step.warning = "the list is not in this workspace, so its files are not named; run: dvc pull inputs"
            return
        step.files = read_json(listed)
        if recorded and hashlib.md5(listed.read_bytes(), usedforsecurity=False).hexdigest() != recorded:
            step.warning = "the list on disk is not the one that was read; the files below are those on disk"


def digest(step: Step) -> str:
    """Return a sha256 of a whole chain, which changes with every byte of the inputs, settings and code."""
    return hashlib.sha256("\n".join(sorted(set(_contents(step)))).encode("utf-8")).hexdigest()


def _contents(step: Step) -> Iterator[str]:
    yield f"{step.path} {step.md5} {step.code[0]} {json.dumps(step.settings, sort_keys=True, default=str)}"
    yield from (json.dumps(file, sort_keys=True) for file in step.files)
    for before in step.before:
        yield from _contents(before)


def render(step: Step, all_files: bool = False) -> str:
    """Return a chain as text, one paragraph per artefact; an artefact that was shown before is only named."""
    lines = list(_lines(step, 0, set(), all_files))
    return "\n".join([*lines, f"chain: sha256 {digest(step)}"]) + "\n"


def _lines(step: Step, depth: int, shown: set[str], all_files: bool) -> Iterator[str]:
    indent = "  " * depth
    yield f"{indent}{step.path}  md5 {step.md5}"
    if step.warning:
        yield f"{indent}  ! {step.warning}"
    if step.path in shown:
        yield f"{indent}  (as above)"
        return
    shown.add(step.path)
    yield f"{indent}  made by stage {step.stage}; code: {step.code[1]} files or folders, sha256 {step.code[0][:16]}"
    for source in _sources(step):
        yield f"{indent}  from {source}"
    for file in step.files if all_files else step.files[:SHOWN_FILES]:
        facts = ", ".join(f"{key} {value}" for key, value in file.items() if key != "path")
        yield f"{indent}  raw {file['path']}  {facts}"
    if not all_files and len(step.files) > SHOWN_FILES:
        yield f"{indent}  ... and {len(step.files) - SHOWN_FILES:,} files more (--all)"
    for before in step.before:
        yield from _lines(before, depth + 1, shown, all_files)


def _sources(step: Step) -> Iterator[str]:
    """Yield a line for each dataset of a hub with its revision, and each source of files with a licence."""
    if step.stage != "corpus":
        return
    for values in step.settings.values():
        for source in (values.get("corpus") or {}).get("sources", []):
            licence = f", licence {source['license']}" if source.get("license") else ""
            if source["kind"] == "hub":
                yield f"hub dataset {source['dataset']} at revision {source.get('revision')}{licence}"
            elif licence:
                yield f"files of source {source['name']}{licence}"
