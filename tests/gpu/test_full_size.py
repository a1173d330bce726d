"""Steps of Small, Base and Large with their vocabulary on a pretended device: launches, waits, host time, memory.

Every test prints its figures (``pytest -s``); docs/gpu-tests.md quotes them.
"""

from collections.abc import Callable
from typing import Any

import pytest
import yaml

from electra.cluster.estimate.memory import FILL
from tests.workspace import ROOT

pytestmark = pytest.mark.long

FullSize = Callable[..., dict[str, Any]]
# Launches of a step of one micro-batch, not compiled: Small and Base have 12 layers, Large has 24
LAUNCHES = {"small": 1_900, "base": 1_900, "large": 3_600}
COMPILED_SMALL = 1_400


def settled(report: dict[str, Any]) -> dict[str, Any]:
    """The last step, when everything is compiled and allocated."""
    step: dict[str, Any] = report["steps"][-1]
    return step


def tell(name: str, report: dict[str, Any]) -> None:
    step, fastest = settled(report), min(step["host_ms"] for step in report["steps"][1:])
    print(f"{name}: {step['launches']:,} launches, {step['waits']} waits, {fastest:.1f} ms of the host in a step")


@pytest.mark.parametrize(("profile", "batch"), [("small", 128), ("base", 64), ("large", 16)])
def test_a_step_that_logs_nothing_waits_for_nothing(full_size: FullSize, profile: str, batch: int) -> None:
    report = full_size(profile, {"compile": "off"}, batch_size=batch)
    tell(f"{profile}, {batch} examples of 128 tokens, not compiled", report)
    assert settled(report)["waits"] == settled(report)["pageable"] == 0, settled(report)["told"]
    assert settled(report)["launches"] <= LAUNCHES[profile]


def test_a_compiled_step_of_small_is_one_graph_of_at_most_1400_launches(full_size: FullSize) -> None:
    """The whole forward and backward pass at its real shape: two minutes of compilation on a core."""
    report = full_size("small", {"compile": "auto"})
    tell("small, 128 examples of 128 tokens, compiled", report)
    assert report["graphs"] == 1
    for step in report["steps"][1:]:
        assert step["launches"] <= COMPILED_SMALL and step["waits"] == 0, step["told"]
        assert any(name.startswith("triton") for name in step["by_name"])


@pytest.mark.parametrize("ranks", [1, 8])
@pytest.mark.parametrize("profile", ["small", "base", "large"])
def test_profiles_start_at_their_defaults_on_80_gb_devices(full_size: FullSize, profile: str, ranks: int) -> None:
    """With the profile's own batch and length; the first step is taken, but not compiled."""
    written = yaml.safe_load((ROOT / "params" / f"{profile}.yaml").read_text())
    recipe, length = written["pretrain"], written["shards"]["max_length"]
    report = full_size(
        profile, {"compile": "off"}, steps=1, ranks=ranks, length=length, batch_size=recipe["batch_size"]
    )
    print(f"{profile}, {ranks} processes: {report['memory'] / 2**30:.1f} GiB at most; {report['output']}")
    assert any("adam" in name.lower() for name in report["steps"][0]["by_name"])
    assert report["memory"] < FILL * 79.1 * 2**30
