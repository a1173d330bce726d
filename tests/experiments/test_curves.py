"""What text, tokens and size are worth: parts of a text, settings of every run, and the law."""

import lzma
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from electra.cluster.estimate.expected import Law
from electra.common.artifacts import read_json, read_manifest, write_json
from electra.common.paths import Paths
from electra.config.loading import load_settings
from electra.text.shards.build import build_shards
from electra.text.shards.layout import Shards
from experiments import curves, curves_law
from experiments.equal_flops import write_workspace
from experiments.texts import write_texts
from tests.workspace import Workspace

LAW = Law(2.0, 2e4, 0.35, 3e5, 0.4, 6.0, {"chunks": (120.0, -11.0, 0.9)}, 0.0, {}, (4e5, 5e6), (1.5e6, 24e6))


def rows_of(law: Law) -> list[dict[str, Any]]:
    """Rows that follow a law, of all runs of the plan."""
    rows = []
    for shape, megabytes, tokens in curves.runs():
        size, text_tokens = curves.size_of(shape), megabytes * 230_000
        loss = law.loss(size, tokens, text_tokens)
        run = {"shape": shape, "megabytes": megabytes, "tokens": tokens, "rate": 3e-3}
        part = next(part for part in curves.PARTS if (shape, megabytes, tokens) in curves.part_of_plan(part))
        score = law.score("chunks", size, loss)
        rows.append({"run": run, "body_parameters": size, "text_tokens": text_tokens, "loss": loss, "part": part,
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
        if row["part"] != "runs":
            row["loss"] *= 2
    assert sum(row["part"] == "checks" for row in rows) == len(curves.plan()["checks"]) > 0
    assert curves_law.fitted(rows) == curves_law.fitted(rows_of(LAW))
    assert curves_law.table(rows, None).count("(not fitted)") == len(curves.plan()["checks"])


def test_there_is_no_law_of_a_few_runs() -> None:
    assert curves_law.fitted(rows_of(LAW)[:4]) is None


def test_a_rate_beyond_the_best_is_tried_until_the_best_is_between_two(monkeypatch: pytest.MonkeyPatch) -> None:
    losses = {4e-4: 5.4, 8e-4: 5.1, 1.6e-3: 5.2, 3.2e-3: 5.5}
    asked = []

    def loss_of(folder: Path, run: curves.Run) -> float:
        asked.append(run)
        return losses[run.rate]

    monkeypatch.setattr(curves, "loss_of", loss_of)
    first = curves.first_of("2x128")
    tried = {curves.Run(*first, rate): losses[rate] for rate in (8e-4, 1.6e-3, 3.2e-3)}
    assert curves.best_rate(tmp := Path("unused"), tried, "2x128") == 8e-4
    assert asked == [curves.Run(*first, 4e-4)]
    assert curves.best_rate(tmp, {curves.Run(*first, 4e-4): 5.4} | tried, "2x128") == 8e-4 and len(asked) == 1


def test_committed_runs_are_not_computed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(curves, "RESULTS", tmp_path / "curves.json")
    curves.restore(tmp_path)
    assert curves.finished_rows(tmp_path) == []
    rows = rows_of(LAW)
    losses = [{"run": row["run"], "loss": row["loss"]} for row in rows]
    for shape, megabytes, tokens, rates in curves.plan()["rate_checks"]:
        run = {"shape": shape, "megabytes": megabytes, "tokens": int(tokens)}
        losses += [{"run": run | {"rate": rate}, "loss": 5.0} for rate in rates]
    write_json(tmp_path / "curves.json", {"plan": {**curves.plan(), "seed": 99}, "rows": rows, "losses": losses})
    curves.restore(tmp_path)
    assert curves.finished_rows(tmp_path) == []  # of another seed
    write_json(tmp_path / "curves.json", {"plan": curves.plan(), "rows": rows, "losses": losses})
    curves.restore(tmp_path)
    monkeypatch.setattr(curves, "pretrained", lambda folder, run: pytest.fail(f"{run} is computed again"))
    curves.measure_runs(tmp_path, list(curves.plan()["shapes"]), jobs=1)
    assert len(curves.finished_rows(tmp_path)) == len(rows)
    assert len(curves.known_losses(tmp_path)) == len(losses)
    lines = curves_law.rates_table(losses).splitlines()[2:]
    assert len(lines) == len(curves.plan()["rate_checks"]) and all(line.count("**") == 2 for line in lines)


def test_the_command_prepares_texts_trains_and_goes_on(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The whole command with stages that only leave their files."""
    calls = []

    def electra(folder: Path, *arguments: str) -> None:
        calls.append(arguments[0])
        results = Paths(folder)
        if arguments == ("pretrain",):
            results.results.mkdir(parents=True, exist_ok=True)
            write_json(results.results / "pretrain.json", {"mlm_loss": 5.0})

    monkeypatch.setattr(curves, "electra", electra)
    monkeypatch.setattr(curves, "prepare", lambda folder, data: calls.append("prepare"))
    monkeypatch.setattr(curves, "scores_of", lambda folder, task: [1.0, 2.0])
    monkeypatch.setattr(curves, "read_manifest", lambda folder: {"splits": {"train": {"tokens": 9}}})
    monkeypatch.setattr(curves, "RESULTS", tmp_path / "none.json")
    for name in ("4MB", "8MB", "16MB", "64MB", "200MB"):
        (tmp_path / "work/parts" / name).mkdir(parents=True)
    command = ["curves", str(tmp_path / "work"), "--data", str(tmp_path), "--shapes", "2x128", "--jobs", "1"]
    monkeypatch.setattr("sys.argv", command)
    curves.main()
    first = len(calls)
    own = [run for run in curves.runs() if run[0] == "2x128"]
    assert first == 1 + len(own) + 3  # prepare, the runs, and the rates of the first of them but one, and one beyond
    assert capsys.readouterr().out.count("| 2x128") == len(own) + 1
    curves.main()
    assert calls[first:] == ["prepare"]


@pytest.mark.parametrize("shape, megabytes, tokens", curves.runs())
def test_every_run_has_valid_settings_and_its_tokens(tmp_path: Path, shape: str, megabytes: int, tokens: int) -> None:
    settings = curves.settings_of(shape, 3e-3, tokens)
    assert (
        settings.pretrain.objective == "bert"
        and settings.model.hidden_size == curves.plan()["shapes"][shape]["hidden_size"]
    )
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

    write_texts([tmp_path / "a.tar.xz", tmp_path / "b.txt.xz"], tmp_path / "text", seed=1)

    texts = {file.read_text() for file in (tmp_path / "text").iterdir()}
    assert texts == {"One.\n\nTwo.\n", "First.\n\nSecond.\n", "Other.\n"}


def test_the_typed_command_prints_the_table(tmp_path: Path) -> None:
    (tmp_path / "pieces").mkdir()
    for number, row in enumerate(rows_of(LAW)):
        write_json(tmp_path / f"pieces/{number}.json", row)
    command = [sys.executable, "-m", "experiments.curves", str(tmp_path), "--table"]
    done = subprocess.run(command, cwd=curves.ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and done.stdout.count("(not fitted)") == len(curves.plan()["checks"]), done.stderr


def test_the_committed_pages_have_the_tables_of_the_committed_runs() -> None:
    for page, text in curves.pages_of(read_json(curves.RESULTS)).items():
        assert page.read_text(encoding="utf-8") == text


def test_the_table_of_texts_has_a_line_per_size_and_tokens_and_no_other_block() -> None:
    def row(shape: str, tokens: int, megabytes: int, loss: float, part: str = "runs") -> dict[str, Any]:
        run = {"shape": shape, "tokens": tokens, "megabytes": megabytes}
        return {"run": run, "part": part, "loss": loss, "tasks": {"chunks": [80.0, 81.0], "similarity": [9.0]}}

    rows = [row("b", 6_000_000, 200, 4.5), row("a", 24_000_000, 4, 4.25), row("a", 1_500_000, 4, 5.0, "checks")]
    heading, _, *lines = curves_law.texts_table([*rows, row("a", 1_500_000, 200, 4.9, "other_blocks")]).splitlines()
    assert heading == "| encoder | tokens | 4 MB | 200 MB |"
    assert lines == ["| a | 1.5M | 5.00, 80.5 |  |", "| a | 24M | 4.25, 80.5 |  |", "| b | 6M |  | 4.50, 80.5 |"]
