"""The commands of docs/babylm.md, typed as they are written: the challenge's folder in, evaluation files out.

A thousandth of the challenge: its 10 million words are 10 thousand here, and its checkpoints `chck_1k` to `chck_100k`.
"""

import json
import subprocess
from pathlib import Path

import pytest
import yaml

from electra.common.artifacts import read_json, read_manifest
from tests.fixtures import PAIRS, documents
from tests.test_documentation import commands_of
from tests.typed import Typist, copy_project, write_yaml

pytestmark = pytest.mark.timeout(900)
PAGE, NUM_WORDS = "docs/babylm.md", 10_000


def write_challenge(folder: Path) -> None:
    """Write lines of 10,000 words in all to two files, and minimal pairs."""
    words = " ".join(documents()).split()[:NUM_WORDS]
    lines = [" ".join(words[at : at + 8]) for at in range(0, NUM_WORDS, 8)]
    (folder / "train_10M").mkdir()
    for name, part in (("childes", lines[:700]), ("gutenberg", lines[700:])):
        (folder / f"train_10M/{name}.train").write_text("\n".join(part) + "\n", encoding="utf-8")
    (folder / "evaluation_data/fast_eval/blimp_fast").mkdir(parents=True)
    (folder / "evaluation_data/fast_eval/blimp_fast/agreement.jsonl").write_text(PAIRS.read_text())


def test_the_page_leads_from_the_challenges_folder_to_its_evaluation_files(tmp_path: Path) -> None:
    typist = Typist(copy_project(tmp_path / "clone"))
    write_challenge(typist.root)
    init, run, evaluation = commands_of(PAGE)[:3]
    assert run == "make run"
    output = typist.run(f"{init} --no-time", fresh=False)
    files = sorted((typist.root / "train_10M").iterdir())
    counted = subprocess.run(["wc", "-w", *files], capture_output=True, text=True, check=True).stdout.split()
    assert f"{int(counted[0]):,} words  childes.train" in output and f"{NUM_WORDS:,} words in all" in output

    profile = typist.root / "params/babylm-strict-small.yaml"
    settings = yaml.safe_load(profile.read_text("utf-8"))
    settings["corpus"]["max_words"] //= 1000
    settings["pretrain"]["milestones"] = [rule.replace("M", "k") for rule in settings["pretrain"]["milestones"]]
    write_yaml(profile, settings)
    # the stages that `make run` runs, in their order
    typist.electra("inputs", "tasks", "validate-tasks", "evaluation-texts", "corpus", "validate-corpus")
    typist.electra("tokenizer", "shards", "validate-shards")
    typist.electra("pretrain")
    typist.electra("evaluate", "report", "export")

    assert read_manifest(typist.root / "data/corpus")["raw_words"] == NUM_WORDS
    trained = read_manifest(typist.root / "data/shards")["splits"]["train"]
    manifest = read_manifest(typist.root / "models/milestones")
    examples = manifest["order"]["num_steps"] * manifest["order"]["batch_size"]
    assert 0 <= 10 * trained["examples"] - examples < manifest["order"]["batch_size"], "ten epochs"
    seen = manifest["seen"]
    thousands = [*range(1, 10), *range(10, 101, 10)]
    assert list(seen) == [f"chck_{number}k" for number in thousands]
    a_step = 2 * manifest["order"]["batch_size"] * settings["shards"]["max_length"]
    for number in thousands[:-1]:
        assert 0 <= seen[f"chck_{number}k"]["words"] - 1000 * number <= a_step
    last = seen["chck_100k"]
    assert last["step"] == manifest["order"]["num_steps"] and 90_000 < last["words"] <= 10 * trained["words"] < 100_000

    output = typist.run(evaluation, fresh=False)
    for revision in ("main", *seen):
        file = f"babylm-strict-small-generator/{revision}/zero_shot/mlm/blimp/blimp_fast/predictions.json"
        found = read_json(typist.root / "models/exported/babylm" / file)
        assert len(found["agreement"]["predictions"]) == len(PAIRS.read_text().splitlines())
        assert revision in output

    add = json.dumps("one word more")
    (typist.root / "train_10M/more.train").write_text(add)
    refused = typist.type("electra corpus", fresh=False)
    assert refused.code == 3 and "3 more than corpus.max_words" in refused.output
