"""What cells start from besides the pre-trained and random weights of every card."""

from dataclasses import dataclass
from typing import Literal

from electra.config import Cells
from electra.finetune.cells import FROM

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


def further_starts(cells: Cells) -> list[Start]:
    """Those that ``cells`` asks for: milestones, encoders of another make, encoders fine-tuned on another task."""
    tasks = tuple(cells.tasks)
    return [
        *(Start("milestones", part, part, f"--milestone {part}", tasks) for part in cells.milestones),
        *(Start("encoders", name, name, f"--encoder encoders/{name}", tasks) for name in cells.encoders),
        *(
            Start("intermediate", task, f"{FROM}{task}", f"--start-from {task}", tuple(cells.from_intermediate))
            for task in cells.intermediate
        ),
    ]
