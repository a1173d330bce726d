"""Cost of a checkpoint: seconds for which training stops, and seconds of writing beside training.

    python -m benchmarks.checkpoint small base large

Training waits while the tensors are copied (``gather``); a background thread writes them. Before that thread existed,
training waited for both.
"""

import argparse
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import yaml

from electra.config.loading import parse_settings
from electra.objectives.base import build_objective
from electra.optim import ElectraAdamW
from electra.pretrain.checkpoint import Checkpoints
from electra.pretrain.zero import gather_state

VOCAB_SIZE = 30522


def engine_of(profile: str) -> Any:
    """Return a stand-in for an engine without ZeRO for ``gather_state``: the profile's model with filled moments."""
    common = yaml.safe_load(Path("params.yaml").read_text())
    values = {**common, **yaml.safe_load(Path(f"params/{profile}.yaml").read_text()), "profile": profile}
    values["pretrain"] = {**common["pretrain"], **values["pretrain"]}
    settings = parse_settings(values, where=profile)
    model = build_objective(settings.model, VOCAB_SIZE, 103, settings.pretrain)
    names = ElectraAdamW.moments
    state = {parameter: {name: torch.rand_like(parameter) for name in names} for parameter in model.parameters()}
    optimizer = SimpleNamespace(state=state, moments=names)
    return SimpleNamespace(module=model, optimizer=optimizer, zero_optimization_stage=lambda: 0)


def measure(profile: str, folder: Path, repeats: int) -> str:
    """Return one line of the table: the best of ``repeats``; the first one cannot reuse memory."""
    engine = engine_of(profile)
    size = 3 * sum(parameter.numel() * 4 for parameter in engine.module.parameters())
    waits, writes, state = [], [], None
    for step in range(1, repeats + 1):
        start = time.perf_counter()
        state = gather_state(engine, into=state)
        gathered = time.perf_counter()
        Checkpoints(folder / profile, keep=1).save(step, *state, {})
        waits.append(gathered - start)
        writes.append(time.perf_counter() - gathered)
    wait, write = min(waits), min(writes)
    return (
        f"| {profile} | {size / 1e9:.2f} | {wait:.2f} | {write:.2f} | {wait / 300:.2%} | {(wait + write) / 300:.2%} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("profiles", nargs="+")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--folder", help="on the disk that holds checkpoints/; by default a temporary one")
    arguments = parser.parse_args()
    print("| profile | GB | gather (s) | write (s) | waiting, of 5 minutes | without the thread |")
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        for profile in arguments.profiles:
            print(measure(profile, Path(folder), arguments.repeats), flush=True)


if __name__ == "__main__":
    main()
