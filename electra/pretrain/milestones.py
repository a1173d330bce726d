"""The model at 6.25, 12.5, 25 and 50% of one schedule, never re-scaled: rows of the paper's table 1.

They are kept beside the checkpoints while the run goes on, since DVC clears a stage's outputs when it starts the stage
again, and become ``models/milestones/<percent>`` at the end. 100% is ``models/pretrained``.
"""

import shutil
from pathlib import Path

from torch import Tensor

from electra.artifacts import building, write_manifest
from electra.config import Settings
from electra.model.pretrained import save_pretrained

PERCENTAGES = ("6.25", "12.5", "25", "50")


class Milestones:
    """The milestones of one run.

    Args:
        folder: the run's checkpoints.
        num_steps: of the whole schedule.
    """

    def __init__(self, folder: Path, num_steps: int):
        self.folder = folder
        self.steps = {max(1, round(num_steps * float(percent) / 100)): percent for percent in PERCENTAGES}

    def is_due(self, step: int) -> bool:
        """Whether the weights after this many steps are a milestone not yet kept."""
        return step in self.steps and not (self._kept(step) / "manifest.json").exists()

    def keep(self, step: int, weights: dict[str, Tensor], settings: Settings, vocab_size: int, tokenizer: Path) -> None:
        """Write the milestone of ``step`` steps taken."""
        save_pretrained(self._kept(step), weights, settings.model, vocab_size, tokenizer, settings.pretrain)

    def publish(self, target: Path) -> None:
        """All milestones as ``target/<percent>``."""
        with building(target) as scratch:
            for step, percent in self.steps.items():
                shutil.copytree(self._kept(step), scratch / percent)
            write_manifest(scratch, steps={percent: step for step, percent in self.steps.items()})

    def _kept(self, step: int) -> Path:
        return self.folder / f"milestone_{self.steps[step]}"
