"""Extrapolate pre-training from a step measured on one GPU to 8 .. 1024 GPUs (formulas: docs/scaling.md).

    python -m benchmarks.cost_model --profile large --examples-per-second 250

Nothing is measured here: take the rate of one GPU from `benchmarks.pretrain_step` or the log of a run.
"""

import argparse
import math
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from benchmarks.measure import run, table
from benchmarks.workspace import write_workspace
from electra.common.errors import ConfigError
from electra.config import Settings
from electra.objectives.base import build_objective

ZERO_STAGES = (0, 1, 2, 3)


@dataclass(frozen=True)
class Weights:
    """Number of a method's trained parameters: all, and those in linear layers."""

    all: int
    linear: int

    @property
    def full(self) -> int:
        """Bytes of all weights in fp32."""
        return 4 * self.all

    def mixed(self, bf16: bool) -> int:
        """Return the bytes with linear layers in bf16, as ZeRO 1 to 3 send gradients, and ZeRO 3 weights."""
        return self.full - 2 * self.linear * bf16

    def payload(self, zero_stage: int, bf16: bool) -> int:
        """Return the bytes that a process passes to the collectives of a step; an all-reduce counts once."""
        return {0: self.full, 3: 2 * self.mixed(bf16)}.get(zero_stage, self.mixed(bf16) + self.full)

    def moved(self, zero_stage: int, bf16: bool) -> int:
        """Return the bytes all-gathered or reduce-scattered in a step; an all-reduce is both."""
        return {0: 2 * self.full, 3: 2 * self.mixed(bf16)}.get(zero_stage, 2 * self.mixed(bf16) + self.full)


def weights_of(settings: Settings, vocab_size: int) -> Weights:
    """Count the parameters without allocating them."""
    with torch.device("meta"):
        model = build_objective(settings.model, vocab_size, 0, settings.pretrain)
    linear = {id(p) for m in model.modules() if isinstance(m, nn.Linear) for p in m.parameters(recurse=False)}
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return Weights(sum(p.numel() for p in trained), sum(p.numel() for p in trained if id(p) in linear))


@dataclass(frozen=True)
class Links:
    """Bus bandwidth (as NCCL's tests define it) in bytes/s, inside a node and between nodes, and the delay of a hop."""

    gpus_per_node: int = 8
    inside: float = 350e9
    between: float = 300e9
    hop_seconds: float = 10e-6

    def seconds(self, num_bytes: float, processes: int) -> float:
        """Return the seconds of ring all-gathers and reduce-scatters of ``num_bytes`` in total."""
        if processes == 1:
            return 0.0
        bandwidth = self.inside if processes <= self.gpus_per_node else self.between
        return (processes - 1) / processes * num_bytes / bandwidth + math.log2(processes) * self.hop_seconds


@dataclass(frozen=True)
class Step:
    """Time of one step on N processes."""

    compute: float
    communication: float

    @property
    def seconds(self) -> float:
        """Seconds of the step, without overlap: the engine communicates after the backward pass."""
        return self.compute + self.communication


def step_of(
    processes: int,
    *,
    batch_size: int,
    examples_per_second: float,
    least_batch: int,
    weights: Weights,
    zero_stage: int,
    links: Links,
) -> Step:
    """Return the time of a step of the global batch, split evenly.

    Args:
        examples_per_second: rate of one process with at least ``least_batch`` examples per step.
        least_batch: fewer examples take as long as this many.
    """
    share = batch_size / processes
    compute = max(share, least_batch) / examples_per_second
    return Step(compute, links.seconds(weights.moved(zero_stage, bf16=True), processes))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--profile", default="large")
    parser.add_argument("--examples-per-second", type=float, required=True, help="of one GPU")
    parser.add_argument("--least-batch", type=int, default=8, help="examples per GPU below which a step is no shorter")
    parser.add_argument("--zero-stage", type=int, default=0, choices=ZERO_STAGES)
    parser.add_argument("--gpus", type=int, nargs="+", default=[8, 16, 32, 64, 128, 256, 512, 1024])
    options = parser.parse_args()
    print(render(options, settings_of(options.profile)))


def settings_of(profile: str) -> Settings:
    with tempfile.TemporaryDirectory() as folder:
        return write_workspace(Path(folder), profile)[0]


def render(options: argparse.Namespace, settings: Settings) -> str:
    weights = weights_of(settings, settings.tokenizer.vocab_size)
    batch_size, num_steps = settings.pretrain.batch_size, settings.pretrain.num_steps
    rows = []
    for gpus in options.gpus:
        if gpus > batch_size:
            continue
        step = step_of(
            gpus,
            batch_size=batch_size,
            examples_per_second=options.examples_per_second,
            least_batch=options.least_batch,
            weights=weights,
            zero_stage=options.zero_stage,
            links=Links(),
        )
        ideal = batch_size / gpus / options.examples_per_second
        hours = step.seconds * num_steps / 3600
        rows.append(
            [
                f"{gpus:,}",
                f"{batch_size / gpus:g}",
                f"{1e3 * step.compute:.1f}",
                f"{1e3 * step.communication:.1f}",
                f"{ideal / step.seconds:.0%}",
                f"{hours:,.1f}",
                f"{hours * gpus:,.0f}",
            ]
        )
    if not rows:
        raise ConfigError(f"a batch of {batch_size} does not split over {min(options.gpus)} GPUs", where="--gpus")
    heading = ["GPUs", "examples each", "compute, ms", "communication, ms", "of linear", "hours", "GPU hours"]
    return table(heading, rows)


if __name__ == "__main__":
    run(main)
