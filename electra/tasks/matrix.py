"""The fine-tuning runs of the matrix ``cells``: task, seed and initial encoder; reading a task's rows."""

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
_FROM = "from-"  # prefix of the task whose fine-tuned encoder initialises a run


@dataclass(frozen=True)
class Start:
    """Initial encoder of a fine-tuning run; ``str(start)`` is its name in folders, ``run.json`` and ``results/``.

    Attributes:
        kind: ``pretrained``: the pre-trained encoder; ``scratch``: random weights; ``milestone``: the encoder after a
            part of pre-training; ``task``: the encoder fine-tuned on another task; ``encoder``: another project's.
        name: the milestone's percentage, the task's or the encoder's name; empty for the first two kinds.
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
        """Return the start chosen by the options of ``electra finetune``; by default the pre-trained encoder.

        Raises:
            ConfigError: several options are given.
        """
        asked = [SCRATCH] if scratch else []
        named: list[tuple[StartKind, str | None]] = [("milestone", milestone), ("task", task), ("encoder", encoder)]
        asked += [cls(kind, name) for kind, name in named if name]
        if len(asked) > 1:
            raise ConfigError(
                "a fine-tuning run has one initial encoder",
                next_step="give one of --scratch, --milestone, --start-from and --encoder",
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
        """Key of this start's figures in the score card's entries; the first two kinds have none."""
        return _GROUPS[self.kind]


PRETRAINED, SCRATCH = Start("pretrained"), Start("scratch")
BASIC_STARTS = (PRETRAINED, SCRATCH)  # every task on the score card is fine-tuned from both


def finetuned_name(task: str, seed: int, start: Start) -> str:
    """Return the name of a fine-tuning run's folder in ``models/finetuned``."""
    return f"{task}-{seed}" + ("" if start == PRETRAINED else f"-{start}")


class Matrix(Protocol):
    """The settings ``cells`` (:class:`electra.config.tasks.Cells`) that determine the fine-tuning runs."""

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
    """Return the starts in ``cells`` besides :data:`BASIC_STARTS`, each with the tasks fine-tuned from it."""
    tasks = tuple(cells.tasks)
    return {
        **{Start("milestone", part): tasks for part in cells.milestones},
        **{Start("encoder", name): tasks for name in cells.encoders},
        **{Start("task", task): tuple(cells.from_intermediate) for task in cells.intermediate},
    }


def requested_runs(cells: Matrix) -> Iterator[tuple[str, int, Start]]:
    """Yield task, seed and start of every fine-tuning run of the score card."""
    starts = {**dict.fromkeys(BASIC_STARTS, tuple(cells.tasks)), **further_starts(cells)}
    for task in cells.tasks:
        for seed in cells.seeds:
            yield from ((task, seed, start) for start, tasks in starts.items() if task in tasks)


def read_rows(paths: Paths, task: str, split: str) -> list[Row]:
    """Return the rows of ``data/tasks/<task>/<split>.jsonl``."""
    return read_lines(rows_file(paths, task, split), next_step="run: dvc repro tasks")


def rows_file(paths: Paths, task: str, split: str) -> Path:
    """Return the file that :func:`read_rows` reads."""
    return paths.tasks / task / f"{split}.jsonl"


def read_lines(path: Path, next_step: str) -> list[Row]:
    """Return the lines of a JSONL file as dictionaries."""
    rows: list[Row] = []
    try:
        with open(path, "rb") as file:
            for number, line in text_lines(file, str(path)):
                rows.append(parse_json(line, where=f"{path}:{number}", next_step=next_step))
    except FileNotFoundError:
        raise DataError(f"{path} does not exist", next_step=next_step) from None
    return rows
