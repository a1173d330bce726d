"""The figures in git are those of a pipeline that works: pre-training learns, and what it learns helps.

They are the last `make run` of profile books. Whoever commits new ones that fall short of this hears it here.
"""

import json
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]


def read(name: str) -> dict[str, Any]:
    return json.loads((ROOT / "results" / name).read_text())


def test_results_are_of_the_default_profile() -> None:
    assert yaml.safe_load((ROOT / "params.yaml").read_text())["profile"] == "books"
    recipe = yaml.safe_load((ROOT / "params/books.yaml").read_text())["pretrain"]
    assert read("pretrain.json")["step"] == recipe["num_steps"]


def test_masked_tokens_are_predicted_far_better_than_by_their_frequency() -> None:
    facts = read("pretrain.json")
    assert facts["mlm_loss"] < facts["unigram_entropy"] - 1.5
    assert facts["mlm_accuracy"] >= 0.18


def test_the_record_of_noise_has_every_figure_of_the_card() -> None:
    recorded = read("noise/books.json")
    scored = {task for file in ("squad.json", "tagging.json", "other.json") for task in read(file)}
    assert set(recorded["figures"]) >= {*scored, "mean"} and len(recorded["runs"]) >= 5


def test_pre_training_helps_by_more_than_twice_the_spread_on_three_tasks() -> None:
    helped = []
    for file in ("squad.json", "tagging.json", "other.json"):
        for task, entry in read(file).items():
            spread = max(entry["pretrained_sd"], entry["scratch_sd"])
            helped += [task] if entry["pretrained"] - entry["scratch"] > 2 * spread else []
    assert len(helped) >= 3, helped
