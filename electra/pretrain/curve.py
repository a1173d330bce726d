"""The learning curve: training losses by window and validations, as rows that outlive a resume.

The two kinds of MLM loss differ by more than the split: in training a share of the masked slots is shown to the
generator as it is, in validation every one is [MASK], since a token that can be seen tests nothing.
"""

from pathlib import Path
from typing import Any

import torch
import torch.distributed
from torch import Tensor

from electra.artifacts import write_json, write_text
from electra.config import Settings

TRAIN_COLUMNS = ("train_mlm_loss", "train_disc_loss")
HELDOUT_COLUMNS = ("mlm_loss", "mlm_accuracy", "disc_loss", "fake_rate_entropy", "disc_auc", "disc_recall")


class Curve:
    """Rows by step; the open window's losses are kept on the device until they are asked for."""

    def __init__(
        self, rows: dict[str, dict[str, float]] | None = None, window: list[float] | None = None, steps: int = 0
    ):
        self.rows = {int(step): row for step, row in (rows or {}).items()}
        self.window: Tensor = torch.tensor(window or [0.0, 0.0], dtype=torch.float64) / _num_processes()
        self.last_step = steps

    def add_losses(self, losses_2: Tensor) -> None:
        """Add one micro-batch's share of generator and discriminator loss, without waiting for the device."""
        self.window = self.window.to(losses_2.device) + losses_2.double()

    def end_window(self, step: int) -> dict[str, float]:
        """Mean losses per step since the last window's end, over all processes."""
        _add_up(self.window)
        mlm, disc = (self.window / (step - self.last_step)).tolist()
        self.window, self.last_step = torch.zeros_like(self.window), step
        self.rows.setdefault(step, {}).update(zip(TRAIN_COLUMNS, (mlm, disc), strict=True))
        return {"mlm": mlm, "disc": disc}

    def add_validation(self, step: int, results: dict[str, float]) -> None:
        """Add a validation's row."""
        self.rows.setdefault(step, {}).update({name: results[name] for name in HELDOUT_COLUMNS})

    def state(self) -> dict[str, Any]:
        """What a checkpoint must hold, the arguments of a new :class:`Curve`; every process must call it."""
        window = _add_up(self.window.clone())
        return {"rows": self.rows, "window": window.tolist(), "steps": self.last_step}

    def write(self, folder: Path, settings: Settings, final: dict[str, float]) -> None:
        """``pretrain.tsv`` (one row a step that has values; empty cells where it has none) and ``pretrain.json``."""
        columns = TRAIN_COLUMNS + HELDOUT_COLUMNS
        lines = ["\t".join(("step", *columns))]
        for step, row in sorted(self.rows.items()):
            lines.append("\t".join([str(step), *(f"{row[name]:.6g}" if name in row else "" for name in columns)]))
        write_text(folder / "pretrain.tsv", "\n".join(lines) + "\n")
        facts = {
            "step": settings.pretrain.num_steps,
            "examples_seen": settings.pretrain.num_steps * settings.pretrain.batch_size,
            **{name: float(f"{value:.6g}") for name, value in final.items()},
        }
        write_json(folder / "pretrain.json", facts)


def _num_processes() -> int:
    return torch.distributed.get_world_size() if torch.distributed.is_initialized() else 1


def _add_up(tensor: Tensor) -> Tensor:
    if _num_processes() > 1:
        torch.distributed.all_reduce(tensor)
    return tensor
