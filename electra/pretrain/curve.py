"""The learning curve: training losses by window and validations, as rows that outlive a resume.

The two kinds of MLM loss differ by more than the split: in training a share of the masked slots is shown to the
generator as it is, in validation every one is [MASK], since a token that can be seen tests nothing.
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed
from torch import Tensor

from electra.common.artifacts import write_json, write_text
from electra.common.paths import Paths
from electra.config import Settings

HEADLINE = ("step", "examples_seen", "disc_auc", "alarms")  # of the metrics, with the held-out loss of every term
HELDOUT_COLUMNS = ("mlm_loss", "mlm_accuracy", "disc_loss", "fake_rate_entropy", "disc_auc", "disc_recall")


class Curve:
    """Rows by step; the open window's sums are kept on the device until they are asked for.

    Args:
        names: what is summed in a window: the loss of each term, then the rates of :data:`RATES`.
        rows, window, steps: of a checkpoint.
    """

    RATES = ("fake_rate", "caught_rate")  # of the tokens the discriminator is judged on: replaced, and found

    def __init__(
        self,
        names: Sequence[str],
        rows: dict[str, dict[str, float]] | None = None,
        window: list[float] | None = None,
        steps: int = 0,
    ):
        self.names = tuple(names)
        self.rows = {int(step): row for step, row in (rows or {}).items()}
        start = window or [0.0] * len(self.names)
        self.window: Tensor = torch.tensor(start, dtype=torch.float64) / _num_processes()
        self.last_step = steps

    def add(self, shares: Tensor) -> None:
        """Add one micro-batch's share of everything named, without waiting for the device.

        What is not finite counts as nothing: that step is skipped, and recorded elsewhere.
        """
        self.window = self.window.to(shares.device) + shares.double().nan_to_num(0, 0, 0)

    def end_window(self, step: int) -> dict[str, float]:
        """Means per step since the last window's end, over all processes; with the discriminator's recall."""
        _add_up(self.window)
        means = dict(zip(self.names, (self.window / (step - self.last_step)).tolist(), strict=True))
        self.window, self.last_step = torch.zeros_like(self.window), step
        caught = means.pop("caught_rate", None)
        if caught is not None:
            means["recall"] = caught / means["fake_rate"] if means["fake_rate"] else 0.0
        self.rows.setdefault(step, {}).update({f"train_{name}": value for name, value in means.items()})
        return means

    def add_validation(self, step: int, results: dict[str, float]) -> None:
        """Add a validation's row: the standard columns, and loss and accuracy of every term."""
        chosen = [n for n in results if n in HELDOUT_COLUMNS or n.endswith(("_loss", "_accuracy"))]
        left_out = ("sampled_accuracy", "disc_accuracy")  # in pretrain.json; the curve is for those that bend
        self.rows.setdefault(step, {}).update({n: results[n] for n in chosen if n not in left_out})

    def state(self) -> dict[str, Any]:
        """State for a checkpoint: the arguments of a new :class:`Curve`. Every process must call it."""
        window = _add_up(self.window.clone())
        return {"rows": self.rows, "window": window.tolist(), "steps": self.last_step}

    def write(self, paths: Paths, settings: Settings, final: dict[str, float]) -> None:
        """Write the curve and the final figures.

        ``results/pretrain.tsv`` has one row a step (empty cells where it has no value); ``results/pretrain.json``
        all final figures; ``results/metrics/pretrain.json`` the headline, which is held-out losses and AUC.
        """
        found = dict.fromkeys(name for _, row in sorted(self.rows.items()) for name in row)
        train = [name for name in found if name.startswith("train_")]
        columns = [*train, *HELDOUT_COLUMNS, *(n for n in found if n not in train and n not in HELDOUT_COLUMNS)]
        lines = ["\t".join(("step", *columns))]
        for step, row in sorted(self.rows.items()):
            lines.append("\t".join([str(step), *(f"{row[name]:.6g}" if name in row else "" for name in columns)]))
        write_text(paths.results / "pretrain.tsv", "\n".join(lines) + "\n")
        facts = {
            "step": settings.pretrain.num_steps,
            "examples_seen": settings.pretrain.num_steps * settings.pretrain.batch_size,
            **{name: float(f"{value:.6g}") for name, value in final.items()},
        }
        write_json(paths.results / "pretrain.json", facts)
        headline = {name: value for name, value in facts.items() if name in HEADLINE or name.endswith("_loss")}
        write_json(paths.metrics / "pretrain.json", headline)


def _num_processes() -> int:
    return torch.distributed.get_world_size() if torch.distributed.is_initialized() else 1


def _add_up(tensor: Tensor) -> Tensor:
    if _num_processes() > 1:
        torch.distributed.all_reduce(tensor)
    return tensor
