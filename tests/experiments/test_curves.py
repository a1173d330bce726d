"""What text, tokens and size are worth: parts of a text, settings of every run, and the law."""

import lzma
import math
import tarfile
from pathlib import Path
from typing import Any

import pytest

from electra.common.artifacts import read_manifest
from electra.common.paths import Paths
from electra.config.loading import load_settings
from electra.text.shards.build import build_shards
from electra.text.shards.layout import Shards
from experiments import curves, curves_law
from experiments.curves_law import Law
from experiments.equal_flops import write_workspace
from tests.workspace import Workspace

LAW = Law(2.0, 2e4, 0.35, 3e5, 0.4, 6.0, {"chunks": (120.0, -11.0, 0.9)}, 0.0, {})


def rows_of(law: Law) -> list[dict[str, Any]]:
    """Rows that follow a law, of all runs of the plan."""
    rows = []
    for shape, megabytes, tokens in curves.runs():
        size, text_tokens = curves.body_parameters(shape), megabytes * 230_000
        loss = law.loss(size, tokens, text_tokens)
        run = {"shape": shape, "megabytes": megabytes, "tokens": tokens, "rate": 3e-3}
        check = [shape, megabytes, tokens] in [[*point[:2], int(point[2])] for point in curves.plan()["checks"]]
        score = law.score("chunks", size, loss)
        rows.append({"run": run, "body_parameters": size, "text_tokens": text_tokens, "loss": loss, "check": check,
                     "tasks": {"chunks": [score - 1, score + 1]}})  # fmt: skip
    return rows


def test_a_law_is_found_again_from_rows_that_follow_it() -> None:
    found = curves_law.fitted(rows_of(LAW))

    assert found is not None and found.loss_spread < 0.5
    for row in rows_of(LAW):  # also those that were not fitted
        size = row["body_parameters"]
        loss = found.loss(size, row["run"]["tokens"], row["text_tokens"])
        assert loss == pytest.approx(row["loss"], rel=0.01)
        assert found.score("chunks", size, loss) == pytest.approx(LAW.score("chunks", size, row["loss"]), abs=0.5)


def test_runs_that_check_the_law_are_not_fitted() -> None:
    rows = rows_of(LAW)
    for row in rows:
        if row["check"]:
            row["loss"] *= 2
    assert sum(row["check"] for row in rows) == len(curves.plan()["checks"]) > 0
    assert curves_law.fitted(rows) == curves_law.fitted(rows_of(LAW))
    assert curves_law.table(rows, None).count("(not fitted)") == len(curves.plan()["checks"])


def test_there_is_no_law_of_a_few_runs() -> None:
    assert curves_law.fitted(rows_of(LAW)[:4]) is None


def test_text_that_is_read_again_is_worth_less_than_new_text() -> None:
    assert LAW.worth(1e6, 4e6) == 1e6
    second, tenth = LAW.worth(8e6, 4e6), LAW.worth(40e6, 4e6)
    assert 4e6 < second < 8e6 and second < tenth < 4e6 * (1 + LAW.passes)
    assert math.isclose(LAW.worth(8e6, 4e6), 4e6 * (1 + 6 * (1 - math.exp(-1 / 6))))


def test_of_tried_rates_the_lowest_loss_counts() -> None:
    tried = rows_of(LAW)[:1] + [{**rows_of(LAW)[0], "loss": 9.0}]
    assert [row["loss"] for row in curves_law.best_of_points(tried[::-1])] == [tried[0]["loss"]]
    assert curves.best_rate([{"run": {"rate": 1.0}, "loss": 3.0}, {"run": {"rate": 2.0}, "loss": 2.0}]) == 2.0


@pytest.mark.parametrize("shape, megabytes, tokens", curves.runs())
def test_every_run_has_valid_settings_and_its_tokens(tmp_path: Path, shape: str, megabytes: int, tokens: int) -> None:
    settings = curves.settings_of(shape, 3e-3, tokens)
    assert settings.pretrain.objective == "bert" and settings.model.hidden_size == int(shape.split("x")[1])
    write_workspace(tmp_path, settings, tmp_path, settings.pretrain.num_steps, [1])
    written = load_settings(tmp_path)
    recipe = written.pretrain
    assert recipe.num_steps * recipe.batch_size * written.shards.max_length == pytest.approx(tokens, rel=0.001)
    assert recipe.warmup_steps == pytest.approx(recipe.num_steps / 15, abs=1)


def test_a_part_has_the_first_shards_and_all_held_out_examples(workspace: Workspace) -> None:
    whole, part = workspace.root / "whole/data/shards", workspace.root / "part/shards"
    settings = workspace.write(shards={"max_shard_bytes": 2**16}).settings()
    whole.parent.mkdir(parents=True)
    for name in ("corpus", "tokenizer"):
        (whole.parent / name).symlink_to(workspace.root / "data" / name)
    build_shards(settings, Paths(workspace.root / "whole"))
    facts = read_manifest(whole)
    shards = facts["splits"]["train"]["shards"]
    assert len(shards) == 2
    share = 0.9 * shards[0]["tokens"] / facts["splits"]["train"]["tokens"]

    curves.first_part(whole, part, share)

    found = read_manifest(part)
    assert found["splits"]["heldout"] == facts["splits"]["heldout"]
    assert found["splits"]["train"]["shards"] == shards[:1]
    assert len(Shards(part, "train")) == shards[0]["examples"]
    assert {file["path"] for file in found["files"]} < {file["path"] for file in facts["files"]}


def test_documents_of_both_archives_are_mixed_in_one_order(tmp_path: Path) -> None:
    (tmp_path / "novel.txt").write_text("One.\n\nTwo.\n")
    with tarfile.open(tmp_path / "a.tar.xz", "w:xz") as files:
        files.add(tmp_path / "novel.txt", "novels/novel.txt")
    with lzma.open(tmp_path / "b.txt.xz", "wt") as file:
        file.write("First.\nSecond.\n\nOther.\n")

    curves.write_texts([tmp_path / "a.tar.xz", tmp_path / "b.txt.xz"], tmp_path / "text")

    texts = {file.read_text() for file in (tmp_path / "text").iterdir()}
    assert texts == {"One.\n\nTwo.\n", "First.\n\nSecond.\n", "Other.\n"}
