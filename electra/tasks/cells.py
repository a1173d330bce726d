"""The cells of the fine-tuning matrix: task, seed and the encoder a cell starts from; the rows they read."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from electra.common.errors import DataError
from electra.common.lines import text_lines
from electra.common.parsing import parse_json
from electra.common.paths import Paths
from electra.tasks.rows import Row

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
        with open(path, "rb") as file:
            for number, line in text_lines(file, str(path)):
                rows.append(parse_json(line, where=f"{path}:{number}", next_step=next_step))
    except FileNotFoundError:
        raise DataError(f"{path} does not exist", next_step=next_step) from None
    return rows


Group = Literal["milestones", "intermediate", "encoders"]


@dataclass(frozen=True)
class Start:
    """One further start and the tasks that are fine-tuned from it.

    Attributes:
        name: a percentage of pre-training, a task, or an encoder's name.
        init: stands in the names of its cells.
        option: makes `electra finetune` start from it.
    """

    group: Group
    name: str
    init: str
    option: str
    tasks: tuple[str, ...]
