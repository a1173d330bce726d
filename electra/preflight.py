"""`electra check`: what can be told in a second, before DVC removes the results of the last run.

DVC removes a stage's outputs before it runs the command, so a mistake that the command finds has cost them. `make run`
and the flows therefore check first; nothing here may import what takes long.
"""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from electra.common.artifacts import refuse_strange
from electra.common.errors import ConfigError
from electra.common.parsing import read_yaml
from electra.common.paths import Paths
from electra.config import Settings
from electra.config.loading import load_settings
from electra.readers.custom_schema import read_custom_task
from electra.tasks.cells import asked_cells, cell_key

PROFILE = "params/${profile}.yaml"  # as dvc.yaml names it
_TEMPLATE = re.compile(r"\$\{([\w.]+)\}")


def check_run(root: Path = Path(".")) -> str:
    """Check settings, cells, descriptions of own tasks, and that no stage would replace what is not its own.

    Returns:
        What would run, on one line.

    Raises:
        ConfigError: the first mistake that was found.
    """
    settings = load_settings(root)
    _check_parameters(root, settings.profile)
    names = _cell_names(settings)
    for path in settings.tasks.custom_files.values():
        read_custom_task(root / path)
    paths = Paths(root)
    for folder in paths.stage_folders:
        refuse_strange(folder)
    return (
        f"profile {settings.profile}, objective {settings.pretrain.objective}, "
        f"cells to fine-tune: {len(names)} of {len(settings.cells.tasks)} tasks"
    )


def _check_parameters(root: Path, profile: str) -> None:
    """Every key that dvc.yaml names must stand in its file: DVC knows no defaults."""
    try:
        pipeline = read_yaml(root / "dvc.yaml")
    except FileNotFoundError:
        raise ConfigError(f"{root / 'dvc.yaml'} does not exist", next_step="run from the project's root") from None
    files = {"params.yaml": read_yaml(root / "params.yaml")}
    files[PROFILE] = read_yaml(root / PROFILE.replace("${profile}", profile))
    wanted = {("params.yaml", key) for key in _templates(pipeline) if not key.startswith("item.")}
    for stage in pipeline["stages"].values():
        for entry in stage.get("params", []):
            wanted |= {(file, key) for file, keys in entry.items() for key in keys or []}
    for file, key in sorted(wanted):
        value: Any = files[file]
        for part in key.split("."):
            value = value.get(part, _Missing) if isinstance(value, dict) else _Missing
        if value is _Missing:
            raise ConfigError(
                f"{key} is missing, and DVC must find it there",
                where=file.replace("${profile}", profile),
                next_step="add it; its meaning and default: electra config --help-fields",
            )


class _Missing:
    """Stands for a value that is not there."""


def _templates(node: Any) -> Iterator[str]:
    """Names of the parameters in the strings of dvc.yaml."""
    if isinstance(node, str):
        yield from _TEMPLATE.findall(node)
    elif isinstance(node, dict | list):
        for part in [*node, *node.values()] if isinstance(node, dict) else node:
            yield from _templates(part)


def _cell_names(settings: Settings) -> list[str]:
    """Names of all cells; two cells with one name would write one folder."""
    names = Counter(cell_key(*cell) for cell in asked_cells(settings.cells))
    if twice := [name for name, count in names.items() if count > 1]:
        raise ConfigError(
            f"two cells would be named {', '.join(twice)}",
            where="cells",
            next_step="rename an own task or an encoder: names of cells are <task>-<seed>-<start>",
        )
    return list(names)
