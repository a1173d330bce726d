"""Runs of equal FLOPs: their fine-tuning and scores."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from electra.common.artifacts import write_json
from electra.common.paths import Paths
from electra.tasks.catalogue import TaskSpec
from experiments import equal_flops


def test_own_tasks_are_fine_tuned_and_scored_as_public_ones_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = TaskSpec(name="mine", kind="classification", metrics=("accuracy",), labels=("a", "b"), official_rows={})
    folder = Paths(tmp_path).tasks / "mine"
    folder.mkdir(parents=True)
    write_json(folder / "task.json", dataclasses.asdict(spec))
    (folder / "dev.jsonl").write_text('{"id": "0", "text_a": "x", "text_b": null, "label": "a"}\n')
    commands: list[tuple[str, ...]] = []
    monkeypatch.setattr(equal_flops, "electra", lambda folder, *arguments: commands.append(arguments))

    def scores(paths: Paths, spec: TaskSpec, rows: dict[str, list[Any]], seed: int, start: object) -> dict[str, float]:
        return {spec.headline: 40.0 + 10 * seed * len(rows["dev"])}

    monkeypatch.setattr(equal_flops, "scores_of_run", scores)
    found = equal_flops.fine_tuned(tmp_path, ["mine"], [1, 2, 3], scratch=False)
    assert found == {"mean": 60.0, "mean_by_seed": [50.0, 60.0, 70.0], "tasks": {"mine": [50.0, 60.0, 70.0]}}
    assert [command[:5] for command in commands][0] == ("finetune", "--task", "mine", "--seed", "1")


def test_a_run_that_was_killed_has_no_processor_seconds(tmp_path: Path) -> None:
    assert equal_flops.processor_seconds(tmp_path) is None, "nothing was noted"
    for seconds in (2.0, 3.5):
        equal_flops.append_note(tmp_path, {"command": ["pretrain"], "began": "2026-11-28T06:00:00"})
        equal_flops.append_note(tmp_path, {"command": ["pretrain"], "processor_seconds": seconds})
    equal_flops.append_note(tmp_path, {"command": ["finetune"], "processor_seconds": 9.0})
    assert equal_flops.processor_seconds(tmp_path) == 5.5

    equal_flops.append_note(tmp_path, {"command": ["pretrain"], "began": "2026-11-28T07:00:00"})
    assert equal_flops.processor_seconds(tmp_path) is None
