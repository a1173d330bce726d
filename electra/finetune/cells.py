"""The cells of the fine-tuning matrix, and the labelled rows they read."""

import json
from pathlib import Path

from electra.artifacts import NOT_JSON
from electra.errors import DataError
from electra.finetune.rows import Row
from electra.paths import Paths

Init = str  # what a cell starts from: "pretrained", "scratch", a milestone as "25", "from-MNLI", an encoder's name
FROM = "from-"  # before the task whose fine-tuned encoder a cell starts from
INITS: tuple[Init, ...] = ("pretrained", "scratch")


def cell_key(task: str, seed: int, init: Init) -> str:
    """Name of a cell's folder under ``models/finetuned``."""
    return f"{task}-{seed}" + ("" if init == "pretrained" else f"-{init}")


def read_rows(paths: Paths, task: str, split: str) -> list[Row]:
    """Rows of ``data/tasks/<task>/<split>.jsonl``.

    Raises:
        DataError: the file is missing or broken.
    """
    return read_lines(paths.tasks / task / f"{split}.jsonl", next_step="run: dvc repro tasks")


def read_lines(path: Path, next_step: str) -> list[Row]:
    """A JSONL file as dictionaries."""
    rows: list[Row] = []
    try:
        with open(path, encoding="utf-8", newline="\n") as file:
            for line in file:
                rows.append(json.loads(line))
    except FileNotFoundError:
        raise DataError(f"{path} does not exist", next_step=next_step) from None
    except NOT_JSON as error:
        raise DataError(f"not valid JSON: {error}", where=f"{path}:{len(rows) + 1}", next_step=next_step) from None
    return rows
