"""What a run tells while it trains: a bar on a terminal, plain lines elsewhere, progress.json always, TensorBoard.

Nothing here decides what is learned, and nothing that depends on the clock reaches ``results/``.
"""

import sys
import time
from pathlib import Path
from typing import Any

from electra.artifacts import write_json


class Telemetry:
    """Progress of one run; used on the first process only.

    Args:
        folder: ``logs/pretrain``.
        num_steps, first_step: of the run; the first is not 0 after a resume.
        tokens_per_step: real tokens are close to this many.
        flops_per_token: hardware FLOPs of training on one token.
        peak: FLOP/s that one matrix product reaches on this machine, all processes together.
    """

    def __init__(
        self,
        folder: Path,
        *,
        num_steps: int,
        first_step: int,
        tokens_per_step: int,
        flops_per_token: float,
        peak: float,
    ):
        from torch.utils.tensorboard import SummaryWriter

        self.progress_file = folder / "progress.json"
        self.num_steps, self.first_step = num_steps, first_step
        self.tokens_per_step, self.flops_per_token, self.peak = tokens_per_step, flops_per_token, peak
        self.started = self.last_line = time.monotonic()
        self.writer = SummaryWriter(str(folder / "tensorboard"), purge_step=first_step)
        self.bar = _terminal_bar(num_steps, first_step) if sys.stderr.isatty() else None

    def close(self) -> None:
        """Write what is buffered and give the terminal back."""
        self.writer.close()
        if self.bar:
            self.bar.stop()

    def step(self, step: int, losses: dict[str, float]) -> None:
        """Tell the state after ``step`` steps taken; called when losses are logged."""
        seconds = max(time.monotonic() - self.started, 1e-9)
        rate = (step - self.first_step) * self.tokens_per_step / seconds
        share = rate * self.flops_per_token / self.peak
        eta = (self.num_steps - step) * seconds / max(step - self.first_step, 1)
        progress = {
            "stage": "pretrain",
            "step": step,
            "num_steps": self.num_steps,
            **{name: round(value, 5) for name, value in losses.items()},
            "tokens_per_second": round(rate),
            "share_of_peak": round(share, 4),
            "eta_seconds": round(eta),
            "time": round(time.time()),
        }
        write_json(self.progress_file, progress)
        for name, value in losses.items():
            self.writer.add_scalar(f"train/{name}", value, step)
        self.writer.add_scalar("speed/tokens_per_second", rate, step)
        line = f"loss {losses['mlm']:.3f} + {losses['disc']:.4f}  {rate:,.0f} tokens/s  {share:.1%} of peak"
        if self.bar:
            self.bar.update(self.bar.task_ids[0], completed=step, what=line)
        elif time.monotonic() - self.last_line > 10 or step == self.num_steps:
            self.last_line = time.monotonic()
            print(f"step {step}/{self.num_steps}  {line}  eta {_clock(eta)}", flush=True)

    def validation(self, step: int, results: dict[str, float]) -> None:
        """Tell a validation's results."""
        for name, value in results.items():
            self.writer.add_scalar(f"heldout/{name}", value, step)
        line = (
            f"step {step}  held out: MLM loss {results['mlm_loss']:.3f} (unigram {results['unigram_entropy']:.3f}), "
            f"discriminator loss {results['disc_loss']:.4f} (plateau {results['fake_rate_entropy']:.4f}), "
            f"AUC {results['disc_auc']:.3f}, recall {results['disc_recall']:.1%}"
        )
        if self.bar:
            self.bar.console.print(line)
        else:
            print(line, flush=True)


def _terminal_bar(total: int, done: int) -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    what = TextColumn("{task.fields[what]}")
    columns = (TextColumn("pretrain"), BarColumn(), MofNCompleteColumn(), what, TimeRemainingColumn())
    bar = Progress(*columns, console=Console(stderr=True), refresh_per_second=2)
    bar.add_task("pretrain", total=total, completed=done, what="")
    bar.start()
    return bar


def _clock(seconds: float) -> str:
    hours, rest = divmod(int(seconds), 3600)
    return f"{hours}:{rest // 60:02d}:{rest % 60:02d}"
