"""Checkpoints: which are kept, and to which run they belong."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from electra.common.artifacts import write_manifest
from electra.common.paths import Paths
from electra.config import Settings
from electra.pretrain.checkpoint import Checkpoints, fingerprint
from tests.fixtures import LABELLED
from tests.small_tasks import make_settings


@pytest.mark.parametrize("keep", [1, 2])
def test_the_newest_checkpoints_stay_and_no_others(tmp_path: Path, keep: int) -> None:
    checkpoints = Checkpoints(tmp_path, keep)
    for step in (2, 4, 6, 8):
        checkpoints.save(step, {"w": torch.full((2,), float(step))}, {}, {})
        assert len(list(tmp_path.glob("step_*"))) == min(keep, step // 2)
    state, weights, _ = checkpoints.load_latest()
    assert state["step"] == 8 and weights["w"].tolist() == [8, 8]


@pytest.mark.parametrize("keep", [1, 2])
def test_a_damaged_checkpoint_does_not_displace_those_written_after_it(tmp_path: Path, keep: int) -> None:
    checkpoints = Checkpoints(tmp_path, keep)
    for step in (100, 200):
        checkpoints.save(step, {"w": torch.full((2,), float(step))}, {}, {})
    for file in tmp_path.glob("step_*/weights.safetensors"):
        file.write_bytes(file.read_bytes()[:-1] + b"x")
    assert checkpoints.load_latest() is None
    checkpoints.save(50, {"w": torch.full((2,), 50.0)}, {}, {})
    state, weights, _ = Checkpoints(tmp_path, keep).load_latest()
    assert state["step"] == 50 and weights["w"].tolist() == [50, 50]
    assert (tmp_path / "damaged_step_000000200/state.json").is_file(), "it is kept for whoever looks for the reason"


def with_pretrain(settings: Settings, **changes: object) -> Settings:
    return settings.model_copy(update={"pretrain": settings.pretrain.model_copy(update=changes)})


def rewrite(folder: Path) -> None:
    (folder / "data").write_text("other")
    write_manifest(folder)


CHANGES: dict[str, Callable[[Settings, Paths], Settings | None]] = {
    "fidelity": lambda settings, paths: settings.model_copy(update={"fidelity": "original"}),
    "model": lambda settings, paths: settings.model_copy(
        update={"model": settings.model.model_copy(update={"dropout": 0.2})}
    ),
    "recipe": lambda settings, paths: with_pretrain(settings, learning_rate=2e-3),
    "shards": lambda settings, paths: rewrite(paths.shards),
    "tokenizer": lambda settings, paths: rewrite(paths.tokenizer),
    "start weights": lambda settings, paths: rewrite(paths.root / "start"),
}


@pytest.mark.parametrize("changed", CHANGES)
def test_whatever_decides_what_is_learned_starts_a_run_of_its_own(tmp_path: Path, changed: str) -> None:
    paths = Paths(tmp_path)
    for folder in (paths.shards, paths.tokenizer, tmp_path / "start"):
        folder.mkdir(parents=True)
        (folder / "data").write_text("one")
        write_manifest(folder)
    settings = with_pretrain(make_settings(LABELLED, ["CoLA"]), initialize_from=str(tmp_path / "start"))
    before = fingerprint(settings, paths)
    assert fingerprint(settings.model_copy(deep=True), paths) == before
    assert fingerprint(CHANGES[changed](settings, paths) or settings, paths) != before
