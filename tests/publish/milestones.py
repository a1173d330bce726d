"""A run with milestones: an export of random weights, and other weights for each milestone."""

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from torch import Tensor

from electra.common.artifacts import building, sha256, write_manifest
from electra.common.paths import Paths
from electra.model.pretrained import save_pretrained
from electra.pretrain.data.seen import Order, TextSeen
from tests.publish import parity
from tests.workspace import Workspace


def run_with_milestones(
    case: str, prepared: Workspace, root: Path, seen: dict[str, TextSeen], changed: Callable[[int, Tensor], Tensor]
) -> Paths:
    """Write a run of one of ``parity.CASES``; return its paths.

    Args:
        seen: name of each milestone and what it has seen.
        changed: number of a milestone, from 1, and a final weight to its weight.
    """
    module, paths = parity.write(parity.CASES[case], prepared, root)
    for name in ("params.yaml", "params"):
        (paths.root / name).symlink_to(prepared.root / name)
    model = parity.build(parity.CASES[case])[0]
    with building(paths.milestones) as scratch:
        for number, name in enumerate(seen, start=1):
            weights = {key: changed(number, weight.detach()) for key, weight in module.named_parameters()}
            save_pretrained(scratch / name, weights, model, 600, paths.tokenizer, module.method)
        write_manifest(
            scratch,
            steps={name: facts.step for name, facts in seen.items()},
            order=Order(1, 8, 24).facts(),
            seen={name: asdict(facts) for name, facts in seen.items()},
            final=sha256(paths.pretrained / "model.safetensors"),
        )
    return paths
