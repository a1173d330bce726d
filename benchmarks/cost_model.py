"""From a step measured on one GPU to 8 .. 1024 of them: what pre-training takes (formulas: docs/scaling.md).

    python -m benchmarks.cost_model --profile large --examples-per-second 250

Nothing is measured here: give what `benchmarks.pretrain_step` or the log of a run says for one GPU.
"""

import argparse
import math
import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measure import run, table
from benchmarks.workspace import write_workspace
from electra.errors import ConfigError
from electra.pretrain.estimate import Estimate, estimate

HALVES = {0: 2, 1: 2, 2: 2, 3: 3}  # all-gathers and reduce-scatters of all weights in a step; an all-reduce is two


@dataclass(frozen=True)
class Links:
    """Bus bandwidth (as NCCL's tests define it) in bytes/s, inside a node and between nodes, and the delay of a hop."""

    gpus_per_node: int = 8
    inside: float = 350e9
    between: float = 300e9
    hop_seconds: float = 10e-6

    def seconds(self, num_bytes: float, processes: int) -> float:
        """One all-gather or reduce-scatter of so many bytes, in a ring."""
        if processes == 1:
            return 0.0
        bandwidth = self.inside if processes <= self.gpus_per_node else self.between
        return (processes - 1) / processes * num_bytes / bandwidth + math.log2(processes) * self.hop_seconds


@dataclass(frozen=True)
class Step:
    """What one step on N processes takes."""

    compute: float
    communication: float

    @property
    def seconds(self) -> float:
        """Nothing overlaps: the engine communicates after the backward pass."""
        return self.compute + self.communication


def step_of(
    processes: int,
    *,
    batch_size: int,
    examples_per_second: float,
    least_batch: int,
    parameters: int,
    zero_stage: int,
    links: Links,
) -> Step:
    """A step of the global batch, split evenly.

    Args:
        examples_per_second: of one process that has ``least_batch`` examples or more at a time.
        least_batch: fewer take as long as so many.
    """
    share = batch_size / processes
    compute = max(share, least_batch) / examples_per_second
    return Step(compute, HALVES[zero_stage] * links.seconds(4 * parameters, processes))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--profile", default="large")
    parser.add_argument("--examples-per-second", type=float, required=True, help="of one GPU")
    parser.add_argument("--least-batch", type=int, default=8, help="examples per GPU below which a step is no shorter")
    parser.add_argument("--zero-stage", type=int, default=0, choices=HALVES)
    parser.add_argument("--gpus", type=int, nargs="+", default=[8, 16, 32, 64, 128, 256, 512, 1024])
    options = parser.parse_args()
    print(render(options, estimate_of(options.profile)))


def estimate_of(profile: str) -> Estimate:
    with tempfile.TemporaryDirectory() as folder:
        settings, _ = write_workspace(Path(folder), profile)
    return estimate(settings)


def render(options: argparse.Namespace, cost: Estimate) -> str:
    batch_size = cost.examples // cost.steps
    rows = []
    for gpus in options.gpus:
        if gpus > batch_size:
            continue
        step = step_of(
            gpus,
            batch_size=batch_size,
            examples_per_second=options.examples_per_second,
            least_batch=options.least_batch,
            parameters=cost.total_parameters,
            zero_stage=options.zero_stage,
            links=Links(),
        )
        ideal = batch_size / gpus / options.examples_per_second
        hours = step.seconds * cost.steps / 3600
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
