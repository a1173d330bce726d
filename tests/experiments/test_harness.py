"""The comparison of fine-tuning here with a plain loop around ``transformers``, typed on a small encoder."""

import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from pathlib import Path

import pytest
import torch
from torch.optim.lr_scheduler import LambdaLR

from electra.common.artifacts import read_json, write_json
from electra.common.paths import Paths
from electra.finetune.features import endless_batches
from electra.optim import OPTIMIZERS, ElectraAdamW, build_optimizer
from electra.readers.build import prepare_tasks
from electra.tasks.matrix import read_rows
from experiments import harness
from tests.foreign_encoders import write_encoder
from tests.small_tasks import WORDS, write_tasks, write_tsv
from tests.workspace import ROOT

ENVIRONMENT = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "HF_HUB_OFFLINE": "1"}


def test_the_sides_are_scored_and_finished_runs_are_kept(tmp_path: Path) -> None:
    encoder = write_encoder(tmp_path / "encoder", "bert", max_position_embeddings=128)
    write_tasks(tmp_path / "glue")
    header = (tmp_path / "glue/STS-B/dev.tsv").read_text().splitlines()[0].split("\t")
    pairs = [
        [*"0123456", first, second, f"{number % 6}.0"] for number, (first, second) in enumerate(combinations(WORDS, 2))
    ]
    write_tsv(
        tmp_path / "glue/STS-B/dev.tsv", pairs, header
    )  # as many different ones as show a small change of weights
    finished = {"task": "CoLA", "seed": 1, "side": "here", "score": 12.5}
    write_json(tmp_path / "work/pieces/CoLA-1-here.json", finished)

    command = [sys.executable, "-m", "experiments.harness", str(encoder), str(tmp_path / "work")]
    command += ["--data", str(tmp_path), "--tasks", "CoLA", "STS-B", "--seeds", "1", "2"]
    command += ["--sides", *harness.SIDES]
    done = subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, timeout=120)

    assert done.returncode == 0, done.stderr
    assert [done.stdout.count(f"seed {seed}, ") for seed in (1, 2)] == [17, 18], "one is finished before"
    rows = [line for line in done.stdout.splitlines() if line.startswith(("| CoLA", "| STS-B"))]
    assert len(rows) == 2 and all(row.count("±") == len(harness.SIDES) for row in rows)
    assert read_json(tmp_path / "work/pieces/CoLA-1-here.json") == finished
    piece = read_json(tmp_path / "work/pieces/STS-B-2-transformers.json")
    assert (piece["task"], piece["seed"], piece["side"]) == ("STS-B", 2, "transformers") and piece["machine"]
    assert read_json(tmp_path / "work/pieces/STS-B-2-new-pooler.json")["score"] != piece["score"]
    here = read_json(tmp_path / "work/pieces/STS-B-2-here.json")
    assert read_json(tmp_path / "work/pieces/STS-B-2-here-usual-Adam.json")["score"] != here["score"]


def test_the_plain_loop_learns_by_the_optimizer_and_through_the_pooler_that_its_side_names(tmp_path: Path) -> None:
    encoder = write_encoder(tmp_path / "encoder", "bert", max_position_embeddings=128)
    write_tasks(tmp_path / "glue")
    settings, paths = harness.settings_of(tmp_path / "glue"), Paths(tmp_path / "work")
    prepare_tasks(settings, paths)
    made: list[tuple[int, dict[str, float]]] = []

    def adam(parameters: Iterable[torch.nn.Parameter], **options: float) -> torch.optim.Optimizer:
        learned = list(parameters)
        made.append((sum(parameter.numel() for parameter in learned), options))
        return ElectraAdamW(learned, **options)

    score = harness.score_in_transformers(encoder, settings, paths, "CoLA", 1, adam=adam)
    harness.score_in_transformers(encoder, settings, paths, "CoLA", 1, adam=adam, pooler="none")
    (weights, options), (without_pooler, _) = made
    assert options == {"lr": 5e-5, "weight_decay": 0.0} and -100 <= score <= 100
    assert weights - without_pooler == 16 * 16 + 16


def test_the_usual_adam_corrects_the_bias_and_is_gone_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[torch.optim.Optimizer] = []

    def score_here(*_: object) -> float:
        made.append(build_optimizer("adamw", [{"params": [torch.zeros(2, requires_grad=True)]}], lr=0.1))
        return 50.0

    monkeypatch.setattr(harness, "score_here", score_here)
    settings = harness.settings_of(tmp_path)
    assert harness.score_with_usual_adam(tmp_path, settings, Paths(tmp_path), "CoLA", 1) == 50.0
    (optimizer,) = made
    (weights,) = optimizer.param_groups[0]["params"]
    weights.grad = torch.ones(2)
    optimizer.step()
    expected = pytest.approx([-0.1, -0.1], rel=1e-5)
    assert weights.tolist() == expected, "without bias correction the first step is 3.2 times this"
    assert OPTIMIZERS == {"adamw": ElectraAdamW}


def test_the_plain_loop_takes_the_schedule_and_the_order_that_its_side_names(tmp_path: Path) -> None:
    encoder = write_encoder(tmp_path / "encoder", "bert", max_position_embeddings=128)
    write_tasks(tmp_path / "glue")
    settings, paths = harness.settings_of(tmp_path / "glue"), Paths(tmp_path / "work")
    prepare_tasks(settings, paths)
    scheduled: list[tuple[int, int]] = []
    ordered: list[tuple[list[int], int, int]] = []

    def schedule(optimizer: torch.optim.Optimizer, warmup_steps: int, steps: int) -> LambdaLR:
        scheduled.append((warmup_steps, steps))
        return harness.our_schedule(optimizer, warmup_steps, steps)

    def order(lengths: list[int], batch_size: int, seed: int) -> Iterator[Sequence[int]]:
        ordered.append((lengths, batch_size, seed))
        return endless_batches(lengths, batch_size, seed)

    harness.score_in_transformers(encoder, settings, paths, "CoLA", 3, schedule=schedule, order=order)
    ((lengths, *others),) = ordered
    assert scheduled == [(0, 6)] and others == [32, 3]
    assert len(lengths) == len(read_rows(paths, "CoLA", "train")) and min(lengths) > 2


def test_our_schedule_falls_during_warm_up_too() -> None:
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=2.0)
    rates = harness.our_schedule(optimizer, 10, 100)
    seen = []
    for _ in range(100):
        seen.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        rates.step()
    assert seen[0] == 0.0 and seen[5] == pytest.approx(2.0 * 0.5 * 0.95) and max(seen) == pytest.approx(1.8)


def test_the_table_states_nothing_from_one_seed() -> None:
    def cell(task: str, seed: int, side: str, score: float) -> dict[str, object]:
        return {"task": task, "seed": seed, "side": side, "score": score}

    cells = [cell("CoLA", seed, side, 40.0 + seed) for seed in (1, 2) for side in harness.SIDES]
    cells += [cell("RTE", 1, side, 60.0) for side in harness.SIDES]
    cells += [cell("MRPC", seed, side, 40.0) for seed in (1, 2) for side in harness.SIDES[:2]]
    cells += [cell("MRPC", 1, "new pooler", 50.0)]
    assert harness.table(cells).splitlines()[2:] == [
        f"| CoLA | {' | '.join(['41.5 ± 0.7'] * 9)} | +0.0 |",
        "| MRPC | 40.0 ± 0.0 | 40.0 ± 0.0 |  |  |  |  |  |  |  | +0.0 |",
    ]


def test_a_new_folder_begins_with_the_committed_runs_of_the_same_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = [{"task": "RTE", "seed": seed, "side": "new pooler", "score": 60.0} for seed in (1, 2)]
    results = tmp_path / "harness.json"
    write_json(results, {"weights": "a", "recipe": harness.RECIPE, "cells": cells})
    monkeypatch.setattr(harness, "RESULTS", results)
    finished = {**cells[0], "score": 61.0}
    write_json(tmp_path / "same/RTE-1-new-pooler.json", finished)

    for folder, weights in (("same", "a"), ("other", "b")):
        (tmp_path / folder).mkdir(exist_ok=True)
        harness.restore(tmp_path / folder, weights)

    assert [read_json(piece) for piece in sorted((tmp_path / "same").iterdir())] == [finished, cells[1]]
    assert not list((tmp_path / "other").iterdir())


def test_the_committed_table_is_that_of_the_committed_runs() -> None:
    page = (ROOT / "experiments/README.md").read_text(encoding="utf-8")
    assert harness.table(read_json(harness.RESULTS)["cells"]) in page
