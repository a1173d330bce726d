"""A folder like the project's root for a benchmark: settings from a profile with changes, and stages run in it."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from electra.common.errors import InfrastructureError
from electra.common.paths import Paths
from electra.config import Settings
from electra.config.loading import load_settings

ROOT = Path(__file__).resolve().parents[1]


def write_workspace(
    folder: Path,
    profile: str,
    cluster: dict[str, Any] | None = None,
    cells: Sequence[str] = ("CoLA",),
    **changes: dict[str, Any],
) -> tuple[Settings, Paths]:
    """Write ``params.yaml`` and the profile, with changes of single keys: ``tokenizer={"vocab_file": ...}``.

    Args:
        cells: the tasks of the matrix, each with seed 1.
    """
    values = yaml.safe_load((ROOT / f"params/{profile}.yaml").read_text())
    for section, keys in changes.items():
        values[section] = {**values.get(section, {}), **keys}
    common = {"profile": profile, "cells": {"tasks": list(cells), "seeds": [1]}, "cluster": cluster or {}}
    (folder / "params").mkdir(parents=True, exist_ok=True)
    (folder / "params.yaml").write_text(yaml.safe_dump(common))
    (folder / f"params/{profile}.yaml").write_text(yaml.safe_dump(values))
    return load_settings(folder), Paths(folder)


def files_source(text: Path) -> dict[str, Any]:
    """A corpus of one text file, documents separated by blank lines."""
    return {"kind": "files", "name": "text", "paths": [str(text.resolve())]}


def copy_text(source: Path, target: Path, num_bytes: int) -> int:
    """The beginning of a text, up to the end of a line; from the start again where it is too short.

    Every time anew each document's first line gets a number, so that no document stands there twice.

    Returns:
        The bytes written.
    """
    written = copy = 0
    with open(target, "wb") as output:
        while written < num_bytes:
            is_first = True
            with open(source, "rb") as lines:
                for line in lines:
                    if is_first and line.strip() and copy:
                        line = b"%d. " % copy + line
                    is_first = not line.strip()
                    written += output.write(line)
                    if written >= num_bytes:
                        return written
            copy += 1
            written += output.write(b"\n")
    return written


def stage(folder: Path, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    """Start one command of the project in a workspace."""
    return subprocess.Popen(
        [sys.executable, "-m", "electra", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def run_stage(folder: Path, *arguments: str) -> str:
    """Run one command to its end; what it printed.

    Raises:
        InfrastructureError: it failed.
    """
    process = stage(folder, *arguments)
    output, _ = process.communicate()
    if process.returncode:
        raise InfrastructureError(f"electra {' '.join(arguments)} ended with {process.returncode}:\n{output[-2000:]}")
    return output
