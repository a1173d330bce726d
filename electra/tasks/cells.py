"""The cells of the fine-tuning matrix: task, seed and the encoder a cell starts from; the rows they read."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from electra.common.errors import ConfigError, DataError
from electra.common.lines import text_lines
from electra.common.parsing import parse_json
from electra.common.paths import Paths
from electra.tasks.format import Row

StartKind = Literal["pretrained", "scratch", "milestone", "task", "encoder"]
Group = Literal["milestones", "intermediate", "encoders"]
_GROUPS: dict[StartKind, Group] = {"milestone": "milestones", "task": "intermediate", "encoder": "encoders"}
_FROM = "from-"  # before the task whose fine-tuned encoder a cell starts from


@dataclass(frozen=True)
class Start:
    """The encoder that a cell starts from. ``str(start)`` is its name in cells, ``run.json`` and ``results/``.

    Attributes:
        kind: the pre-trained encoder; random weights; the encoder after a part of pre-training; the encoder that was
            fine-tuned on another task; one of another make.
        name: the milestone's percentage, the task, or the encoder's name; empty for the first two.
    """

    kind: StartKind
    name: str = ""

    def __str__(self) -> str:
        return f"{_FROM}{self.name}" if self.kind == "task" else self.name or self.kind

    @classmethod
    def parse(cls, text: str) -> "Start":
        """Return the start whose name is ``text``: ``scratch``, ``25``, ``from-MNLI``, ``roberta-base``."""
        if text in map(str, BASIC_STARTS):
            return next(start for start in BASIC_STARTS if str(start) == text)
        if text.startswith(_FROM):
            return cls("task", text.removeprefix(_FROM))
        return cls("milestone" if re.fullmatch(r"[0-9.]+", text) else "encoder", text)

    @classmethod
    def chosen(
        cls, scratch: bool = False, milestone: str | None = None, task: str | None = None, encoder: str | None = None
    ) -> "Start":
        """Return the start that the options of ``electra finetune`` choose; the pre-trained encoder without any.

        Raises:
            ConfigError: they choose several.
        """
        asked = [SCRATCH] if scratch else []
        named: list[tuple[StartKind, str | None]] = [("milestone", milestone), ("task", task), ("encoder", encoder)]
        asked += [cls(kind, name) for kind, name in named if name]
        if len(asked) > 1:
            raise ConfigError(
                "a cell has one start", next_step="give one of --scratch, --milestone, --start-from and --encoder"
            )
        return asked[0] if asked else PRETRAINED

    @property
    def option(self) -> str:
        """The option of ``electra finetune`` that chooses this start; empty for the pre-trained encoder."""
        options: dict[StartKind, str] = {
            "pretrained": "",
            "scratch": "--scratch",
            "milestone": f"--milestone {self.name}",
            "task": f"--start-from {self.name}",
            "encoder": f"--encoder encoders/{self.name}",
        }
        return options[self.kind]

    @property
    def group(self) -> Group:
        """The key of the score card's entries that holds this start's figures; the first two kinds have none."""
        return _GROUPS[self.kind]


PRETRAINED, SCRATCH = Start("pretrained"), Start("scratch")
BASIC_STARTS = (PRETRAINED, SCRATCH)  # of every task on the card


def cell_key(task: str, seed: int, start: Start) -> str:
    """Name of a cell's folder under ``models/finetuned``."""
    return f"{task}-{seed}" + ("" if start == PRETRAINED else f"-{start}")


class Matrix(Protocol):
    """The settings ``cells`` (:class:`electra.config.tasks.Cells`), as far as starts depend on them."""

    @property
    def tasks(self) -> Sequence[str]: ...
    @property
    def seeds(self) -> Sequence[int]: ...
    @property
    def milestones(self) -> Sequence[str]: ...
    @property
    def intermediate(self) -> Sequence[str]: ...
    @property
    def from_intermediate(self) -> Sequence[str]: ...
    @property
    def encoders(self) -> Sequence[str]: ...


def further_starts(cells: Matrix) -> dict[Start, tuple[str, ...]]:
    """The starts beside :data:`BASIC_STARTS` that ``cells`` asks for, each with the tasks fine-tuned from it."""
    tasks = tuple(cells.tasks)
    return {
        **{Start("milestone", part): tasks for part in cells.milestones},
        **{Start("encoder", name): tasks for name in cells.encoders},
        **{Start("task", task): tuple(cells.from_intermediate) for task in cells.intermediate},
    }


def asked_cells(cells: Matrix) -> Iterator[tuple[str, int, Start]]:
    """Task, seed and start of every cell of the score card."""
    starts = {**dict.fromkeys(BASIC_STARTS, tuple(cells.tasks)), **further_starts(cells)}
    for task in cells.tasks:
        for seed in cells.seeds:
            yield from ((task, seed, start) for start, tasks in starts.items() if task in tasks)


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
