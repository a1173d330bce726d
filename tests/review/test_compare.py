"""`electra compare`: changes are attributed, and "better" means by more than the measured noise."""

import copy
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from electra.common.errors import ConfigError, InfrastructureError
from electra.common.paths import Paths
from electra.results.review.compare import compare
from electra.results.review.gate import Thresholds, read_thresholds, reasons_to_refuse
from electra.results.review.noise import measure_noise, record_noise
from electra.results.review.render import render_markdown, render_text
from electra.results.review.sides import Side, open_side
from tests.review.runs import Run

PROJECT = Path(__file__).resolve().parents[2]


@pytest.fixture
def base(tmp_path: Path) -> Run:
    return Run(tmp_path / "before").write()


def sides(before: Run, after: Run) -> tuple[Side, Side]:
    after.write()
    return open_side(str(before.folder)), open_side(str(after.folder))


PARAMETERS = {"pretrain.learning_rate": 2e-3, "pretrain.weight_decay": 1e-6, "model.num_layers": 3,
              "corpus.min_chars": 9, "tokenizer.vocab_size": 9, "finetune.epochs": 4, "shards.boundaries": "none",
              "finetune.keep_models": True, "pretrain.initialize_from": "x", "model.dropout": 0.1}  # fmt: skip
CODE = [
    "electra/model",
    "electra/text/corpus",
    "electra/finetune",
    "electra/optim.py",
    "electra/tasks",
    "electra/pretrain/data",
]
DATA = ["data/corpus", "data/tokenizer", "data/shards", "data/tasks/CoLA", "data/tasks/RTE"]


def planted(base: Run, kind: str, what: str, tmp_path: Path) -> Run:
    run = base.copy(tmp_path / "after")
    if kind == "parameters":
        run.set_parameter(what, PARAMETERS[what])
    elif kind in ("code", "data"):
        run.set_hash(what, "0" * 32 + ".dir")
        if what == "data/corpus":
            run.counts["corpus"]["statistics"]["documents"] = 9978
    elif kind == "processor":
        run.machine[what]["processor"] = "Processor B (avx512f)"
    elif kind == "seeds" and what == "pretrain":
        run.set_parameter("pretrain.seed", 2)
    elif kind == "seeds":
        run.common["cells"]["seeds"] = [4]
    elif kind == "machine":
        run.common["cluster"][what] = 3
    return run


PLANTED = [
    *[("parameters", key) for key in PARAMETERS],
    *[("code", path) for path in CODE],
    *[("data", path) for path in DATA],
    *[("processor", stage) for stage in ("pretrain", "finetune")],
    *[("seeds", which) for which in ("pretrain", "cells")],
    *[("machine", key) for key in ("num_threads", "num_processes", "micro_batch_size")],
    ("nothing", "minutes"),
    ("nothing", ""),
]


def test_thirty_changes_of_every_kind_are_attributed(base: Run, tmp_path: Path) -> None:
    assert len(PLANTED) == 30
    before = open_side(str(base.folder))
    for kind, what in PLANTED:
        run = planted(base, kind, what, tmp_path)
        if what == "minutes":
            run.machine["pretrain"]["minutes"] = 99
        run.write()
        found = compare(before, open_side(str(run.folder)))
        assert found.changes.kinds == ([] if kind == "nothing" else [kind]), (kind, what)
        told = render_text(found)
        name = what.removeprefix("data/").removeprefix("tasks/")
        if kind in ("parameters", "code", "data"):
            assert name in told, told
        if what == "data/corpus":
            assert "corpus (19,978 -> 9,978 documents)" in told
        if kind == "nothing":
            assert "nothing: parameters, data, code and processor are the same" in told
        assert len(told.splitlines()) <= 25 and max(map(len, told.splitlines())) <= 100
        assert not found.notes or what == "cells", "settings and lock agree"


def test_settings_that_no_run_has_used_yet_are_told(base: Run, tmp_path: Path) -> None:
    run = base.copy(tmp_path / "after")
    run.profile["pretrain"]["learning_rate"] = 5.0
    (note,) = compare(*sides(base, run)).notes
    assert note.endswith("after: results are older than the settings of export, inputs, pretrain; run: dvc repro")


def test_cells_that_the_settings_no_longer_ask_for_are_not_called_old(base: Run, tmp_path: Path) -> None:
    run = base.copy(tmp_path / "after")
    for values in run.stage("finetune@CoLA-1")["params"].values():
        values["finetune"] = {"learning_rate": 5.0}
    (note,) = compare(*sides(base, run)).notes
    assert note.endswith("older than the settings of finetune; run: dvc repro")
    run.common["cells"]["tasks"] = ["RTE"]  # DVC leaves the other cells in the lock
    assert not any("finetune" in note for note in compare(*sides(base, run)).notes)
    run.common["cells"]["intermediate"] = ["CoLA"]  # asked for again: other cells start from it
    assert any("finetune" in note for note in compare(*sides(base, run)).notes)


def test_a_stage_that_other_code_made_is_named(base: Run, tmp_path: Path) -> None:
    told = render_text(compare(*sides(base, planted(base, "code", "electra/pretrain/data", tmp_path))))
    assert "electra/pretrain/data (pretrain)" in told


def test_one_seed_without_a_record_is_never_better(base: Run, tmp_path: Path) -> None:
    run = base.copy(tmp_path / "after")
    run.draw(1, 5, gain=30)
    found = compare(*sides(base, run))
    assert (
        {row.verdict for row in found.rows} == {"unknown noise"}
        and found.mean
        and found.mean.verdict == "unknown noise"
    )
    assert "cells.seeds: [1, 2, 3] on both sides" in render_text(found)


def test_seeds_tell_a_gain_from_noise(tmp_path: Path) -> None:
    before = Run(tmp_path / "before", seeds=5, random=1).write()
    other = Run(tmp_path / "other", seeds=5, random=2)
    better = Run(tmp_path / "better", seeds=5, random=3, gain=12)
    assert not {row.verdict for row in compare(*sides(before, other)).rows} & {"better", "worse"}
    found = compare(*sides(before, better))
    assert {row.verdict for row in found.rows} == {"better"} and found.mean and found.mean.verdict == "better"
    assert found.verdict.startswith("better: mean 59.9 -> 72.0") and "10 better" in found.verdict
    assert "noise: seeds (Student's t); detectable with 80% power" in render_text(found)
    assert compare(open_side(str(better.folder)), open_side(str(before.folder))).mean.verdict == "worse"  # type: ignore[union-attr]


def test_seeds_of_fine_tuning_alone_do_not_say_better_of_another_encoder(tmp_path: Path) -> None:
    """They do not cover pre-training: encoders of the same recipe with other seeds differ as well."""
    before, after = (Run(tmp_path / str(n), seeds=5, random=n, gain=20 * n) for n in (1, 2))
    after.set_hash("models/pretrained", "0" * 32 + ".dir")
    found = compare(*sides(before.write(), after))
    assert {row.verdict for row in found.rows} == {"unknown noise"} and found.mean
    assert found.mean.verdict == "unknown noise" and found.mean.figures.low and found.mean.figures.low > 10
    told = render_text(found)
    assert "pre-training noise unknown: two encoders" in told and "electra noise" in told
    assert "scores are means over fine-tuning seeds; the card and metrics/ have medians" in told


def test_a_lock_beside_results_of_another_pre_training_does_not_make_it_the_same_encoder(tmp_path: Path) -> None:
    before, after = (Run(tmp_path / str(n), seeds=5, random=n, gain=20 * n) for n in (1, 2))
    after.results["pretrain.json"] = after.results["pretrain.json"] | {"mlm_loss": 4.5}
    found = compare(*sides(before.write(), after))
    assert {row.figures.noise for row in found.rows} == {"fine-tuning"}


def test_runs_that_agree_to_the_last_digit_have_the_noise_of_one_row(tmp_path: Path) -> None:
    """Collapsed runs score the share of one label with every seed; one row more is no difference."""
    before, after = (Run(tmp_path / str(n), seeds=3, random=n) for n in (1, 2))
    for run, value in ((before, 52.0), (after, 52.25)):
        entry = run.results["glue.json"]["SST-2"]
        entry["seeds"] = {str(n): {"pretrained": {"accuracy": value}} for n in (1, 2, 3)}
        run.results |= {"glue.json": {"SST-2": entry}, "squad.json": {}}  # no other task to lend its noise
    found = compare(*sides(before.write(), after))
    assert [row.verdict for row in found.rows] == ["noise"] and found.mean and found.mean.verdict != "better"
    assert found.rows[0].figures.high and found.rows[0].figures.high > 0.8


def test_a_record_of_noise_stands_in_for_seeds(tmp_path: Path) -> None:
    runs = [Run(tmp_path / f"aa{n}", random=n + 1).set_pretrain_seed(n).write() for n in range(6)]
    file = record_noise([open_side(str(run.folder)) for run in runs], Paths(runs[0].folder))
    facts = json.loads(file.read_text())
    assert file == runs[0].folder / "results/noise/smoke.json" and facts["figures"]["CoLA"]["degrees"] == 5
    assert 0.5 < facts["figures"]["CoLA"]["pretrain"] < 5 and facts["figures"]["mean"]["pretrain"] < 2
    better = Run(tmp_path / "better", random=50, gain=40)
    found = compare(*sides(runs[0], better))
    assert {row.verdict for row in found.rows} == {"better"}
    assert "noise: A/A record (results/noise)" in render_text(found)
    assert {row.verdict for row in compare(*sides(runs[0], runs[1])).rows} <= {"noise", "underpowered"}
    file.with_name("tiny.json").write_bytes(file.read_bytes())
    better.common["profile"] = "tiny"
    assert "record" not in {row.figures.noise for row in compare(*sides(runs[0], better)).rows}, "two profiles"


def test_the_recorded_noise_of_the_mean_is_not_taken_for_that_of_other_tasks(tmp_path: Path) -> None:
    runs = [Run(tmp_path / f"aa{n}", random=n + 1).set_pretrain_seed(n).write() for n in range(6)]
    file = record_noise([open_side(str(run.folder)) for run in runs], Paths(runs[0].folder))
    record = file.read_text()
    other = Run(tmp_path / "other", random=50, gain=40)
    for run in (runs[0], other):
        run.results["squad.json"] = {}
        run.write()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(record)
    found = compare(*sides(runs[0], other))
    assert {row.verdict for row in found.rows} == {"better"}
    assert found.mean and (found.mean.verdict, found.mean.why) == ("unknown noise", "record of other tasks")


def test_runs_without_tasks_have_a_record_of_their_losses(tmp_path: Path) -> None:
    runs = [Run(tmp_path / f"aa{n}", random=n + 1).set_pretrain_seed(n) for n in range(3)]
    for run in runs:
        run.without_scores()
        run.write()
    facts = json.loads(record_noise([open_side(str(run.folder)) for run in runs], Paths(runs[0].folder)).read_text())
    assert "mean" not in facts["figures"]


def test_one_command_makes_the_runs_of_a_record_and_does_not_make_them_again(tmp_path: Path) -> None:
    here = Run(tmp_path / "clone").write()
    git = ["git", "-c", "user.name=x", "-c", "user.email=x@y", "-C", str(here.folder)]
    subprocess.run([*git, "init", "-q"], check=True)
    asked: list[list[str]] = []

    def dvc(command: list[str], root: Path) -> int:
        """As `dvc exp run` does: a commit that only a reference of the experiment holds."""
        asked.append(command)
        if command[:2] == ["exp", "run"]:
            settings = dict(part.split("=", 1) for part in command if "=" in part)
            run = Run(tmp_path / f"run{len(asked)}", seeds=2, random=len(asked))
            run.set_pretrain_seed(int(settings["params/smoke.yaml:pretrain.seed"]))
            run.common["cells"]["seeds"] = json.loads(settings["params.yaml:cells.seeds"])
            run.write()
            tree = [*git[:-2], f"--git-dir={root}/.git", f"--work-tree={run.folder}"]
            subprocess.run([*tree, "add", "-A"], check=True)
            subprocess.run([*tree, "commit", "-qm", "x"], check=True)
            name = command[command.index("--name") + 1]
            subprocess.run([*git, "update-ref", f"refs/exps/ab/cd/{name}", "HEAD"], check=True)
        return 0

    file = measure_noise(Paths(here.folder), runs=3, seeds=2, run=dvc)
    assert [command[4] for command in asked] == ["noise-smoke-1", "noise-smoke-2", "noise-smoke-3"]
    parts = json.loads(file.read_text())["figures"]["CoLA"]
    assert parts["finetune"] > 0 and (parts["degrees"], parts["within"]) == (2, 3)
    runs = [open_side(f"noise-smoke-{n}", here.folder) for n in (1, 2)]
    assert {row.figures.noise for row in compare(*runs).rows} == {"record"}, "the work tree's, which is newer than both"
    measure_noise(Paths(here.folder), runs=3, seeds=2, run=dvc)
    assert len(asked) == 3, "they are there"
    measure_noise(Paths(here.folder), runs=2, seeds=3, run=dvc)
    assert [command[1] for command in asked[3:]] == ["remove", "run", "remove", "run"], "with other seeds"
    measure_noise(Paths(here.folder), runs=2, seeds=3, run=dvc)
    assert len(asked) == 7, "they are there"
    here.set_parameter("model.num_layers", 3)
    (here.folder / "params/smoke.yaml").write_text(yaml.safe_dump(here.profile))
    measure_noise(Paths(here.folder), runs=2, seeds=3, run=dvc)
    assert [command[1] for command in asked[7:]] == ["remove", "run", "remove", "run"], "with other settings"
    with pytest.raises(InfrastructureError, match="noise-smoke-1 ended with exit code 3"):
        measure_noise(Paths(here.folder), runs=2, seeds=4, run=lambda command, root: 3 if "run" in command else 0)


def test_runs_that_differ_in_more_than_seeds_are_no_record(base: Run, tmp_path: Path) -> None:
    other = planted(base, "parameters", "model.num_layers", tmp_path)
    with pytest.raises(ConfigError, match="differ in parameters: their difference is not noise alone"):
        record_noise(sides(base, other), Paths(tmp_path))
    with pytest.raises(ConfigError, match="at least two runs"):
        record_noise([open_side(str(base.folder))], Paths(tmp_path))


def test_runs_with_the_same_weights_are_no_record_of_pre_training(tmp_path: Path) -> None:
    first, other = (Run(tmp_path / str(n), random=n).set_pretrain_seed(n) for n in (1, 2))
    again = Run(tmp_path / "again", random=3).set_pretrain_seed(1)  # fine-tuned with other seeds
    for number, twice in enumerate((again, first)):
        runs = [open_side(str(run.write().folder)) for run in (first, other, twice)]
        with pytest.raises(ConfigError, match=rf"{runs[0].name} and {runs[2].name} have the same pre-trained weights"):
            record_noise(runs, Paths(tmp_path))
        assert not (tmp_path / "results").exists(), number


def test_predictions_of_one_seed_give_an_interval_but_no_winner(base: Run, tmp_path: Path) -> None:
    run = base.copy(tmp_path / "after")
    run.draw(1, 5, gain=10)
    before, after = sides(base, run)
    predicted(before, 200)
    predicted(after, 320)
    (row,) = [row for row in compare(before, after).rows if row.name == "SST-2"]
    assert (row.figures.before, row.figures.after, row.figures.noise) == (50, 80, "bootstrap")
    assert row.figures.low and 20 < row.figures.low < 30 < row.figures.high  # type: ignore[operator]
    assert row.verdict == "unknown noise"
    assert "paired bootstrap over development examples; training noise unknown" in render_text(compare(before, after))


def test_all_seeds_are_shown_where_one_side_has_more_whether_or_not_predictions_are_here(
    base: Run, tmp_path: Path
) -> None:
    run = base.copy(tmp_path / "after")
    entry = run.results["glue.json"]["SST-2"]
    entry["seeds"] = {str(n): {"pretrained": {"accuracy": value}} for n, value in ((1, 55.0), (2, 75.0), (3, 76.0))}
    before, after = sides(base, run)
    bare = next(row for row in compare(before, after).rows if row.name == "SST-2")
    predicted(before, 268)
    predicted(after, 220)
    opened = [open_side(str(side.folder)) for side in (before, after)]  # a side reads a file once
    row = next(row for row in compare(*opened).rows if row.name == "SST-2")
    assert row == bare and row.figures.after == pytest.approx(68.667, abs=1e-3)


def predicted(side: Side, right: int) -> None:
    """Write 400 predictions of SST-2 with seed 1, so many of them right, and the rows that they are of."""
    rows = [{"id": str(n), "text_a": "x", "text_b": None, "label": "1"} for n in range(400)]
    lines = [{"split": "dev", "id": str(n), "label": "1" if n < right else "0"} for n in range(400)]
    for folder, name, content in (
        (side.folder / "models/finetuned/SST-2-1", "predictions.jsonl", lines),
        (side.folder / "data/tasks/SST-2", "dev.jsonl", rows),
    ):
        folder.mkdir(parents=True)
        (folder / name).write_text("".join(json.dumps(line) + "\n" for line in content))


def test_other_data_of_a_task_is_no_comparison(tmp_path: Path) -> None:
    before, after = (Run(tmp_path / str(n), seeds=5, random=n, gain=20 * n) for n in (1, 2))
    after.set_hash("data/tasks/CoLA", "0" * 32 + ".dir")
    found = compare(*sides(before.write(), after))
    assert [(row.verdict, row.why) for row in found.rows if row.name == "CoLA"] == [("unknown noise", "other data")]
    assert found.mean and found.mean.verdict == "unknown noise"


def test_other_data_of_one_task_is_the_reason_why_the_mean_has_no_interval(tmp_path: Path) -> None:
    runs = [Run(tmp_path / f"aa{n}", random=n + 1).set_pretrain_seed(n).write() for n in range(6)]
    record_noise([open_side(str(run.folder)) for run in runs], Paths(runs[0].folder))
    after = Run(tmp_path / "after", random=50, gain=40)
    after.set_hash("data/tasks/CoLA", "0" * 32 + ".dir")
    found = compare(*sides(runs[0], after))
    assert found.mean and (found.mean.verdict, found.mean.why) == ("unknown noise", "other data")
    assert "electra noise" not in render_text(found), "the record is there, and more noise would tell nothing"


@pytest.mark.parametrize("without", [["before", "after"], ["after"]], ids=["both", "one"])
def test_without_a_lock_data_and_code_are_not_known(tmp_path: Path, without: list[str]) -> None:
    before, after = (Run(tmp_path / name, seeds=3, random=n) for n, name in enumerate(["before", "after"]))
    opened = sides(before.write(), after)
    for name in without:
        (tmp_path / name / "dvc.lock").unlink()
    found = compare(*opened)
    named = " and ".join(str(tmp_path / name) for name in without)
    assert found.changes.unknown == [f"data and code not known: no dvc.lock in {named}"]
    assert found.changes.kinds == [] and "other data" not in {row.why for row in found.rows}
    told = render_text(found)
    assert "nothing that is known: parameters are the same" in told and "no dvc.lock in" in told
    with pytest.raises(ConfigError, match="no dvc.lock in .*; the difference may not be noise alone"):
        record_noise(opened, Paths(tmp_path))


def test_data_of_which_the_lock_has_no_hash_are_not_called_other_data(base: Run, tmp_path: Path) -> None:
    run = base.copy(tmp_path / "after")
    del run.lock["stages"]["finetune@CoLA-1"]
    opened = sides(base, run)
    changes = compare(*opened).changes
    assert (changes.kinds, changes.unknown) == ([], ["data not known, no hash in dvc.lock: CoLA"])
    with pytest.raises(ConfigError, match="no hash in dvc.lock: CoLA"):
        record_noise(opened, Paths(tmp_path))


def test_a_seed_that_is_no_longer_asked_for_does_not_hide_other_data(tmp_path: Path) -> None:
    before, after = (Run(tmp_path / str(n), seeds=5, random=n, gain=20 * n) for n in (1, 2))
    after.common["cells"]["seeds"] = [2, 3, 4, 5]  # the lock keeps CoLA-1 with the data of before
    after.lock["stages"]["finetune@CoLA-2"] = copy.deepcopy(after.stage("finetune@CoLA-1"))
    for entry in after.stage("finetune@CoLA-2")["deps"]:
        if entry["path"] == "data/tasks/CoLA":
            entry["md5"] = "0" * 32 + ".dir"
    found = compare(*sides(before.write(), after))
    assert [(row.verdict, row.why) for row in found.rows if row.name == "CoLA"] == [("unknown noise", "other data")]


def test_the_gate_fails_and_passes_with_its_reasons(tmp_path: Path) -> None:
    before = Run(tmp_path / "before", seeds=5, random=1).write()
    worse = compare(*sides(before, Run(tmp_path / "worse", seeds=5, random=2, gain=-15)))
    equal = compare(*sides(before, Run(tmp_path / "equal", seeds=5, random=3)))
    file = tmp_path / "thresholds.yaml"
    file.write_text("mean: {at_least: 50, drop_at_most: 5}\ntasks: {CoLA: {at_least: 55}}\ndisc_auc: {at_least: 0.8}\n")
    thresholds = read_thresholds(file)
    assert reasons_to_refuse(equal, thresholds) == []
    better = compare(*sides(before, Run(tmp_path / "better", seeds=5, random=4, gain=15)))
    assert reasons_to_refuse(better, thresholds) == [], "a rise is no drop, however large"
    told = " ".join(reasons_to_refuse(worse, thresholds))
    for reason in ("mean: 4", "is below 50", "mean: dropped by 1", "the mean is worse", "CoLA: 4", "at most 0 may be"):
        assert reason in told
    assert reasons_to_refuse(equal, Thresholds.model_validate({"disc_auc": {"at_least": 0.99}}))
    assert "not scored on both sides" in reasons_to_refuse(equal, Thresholds.model_validate({"tasks": {"X": {}}}))[0]
    nothing = compare(*sides(before, Run(tmp_path / "nothing", seeds=5, random=3).without_scores()))
    assert "no task is scored on both sides" in reasons_to_refuse(nothing, thresholds)[0]
    file.write_text("men: {at_least: 50}")
    with pytest.raises(ConfigError, match="men: Extra inputs"):
        read_thresholds(file)


def electra(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "electra", *arguments]
    return subprocess.run(
        command, cwd=cwd, env={**os.environ, "PYTHONPATH": str(PROJECT)}, capture_output=True, text=True
    )


def test_the_command_compares_head_with_the_work_tree_and_ends_with_1_at_a_closed_gate(tmp_path: Path) -> None:
    run = Run(tmp_path / "clone", seeds=3, random=1).write()
    for command in (["init", "-q"], ["add", "-A"], ["-c", "user.name=x", "-c", "user.email=x@y", "commit", "-qm", "x"]):
        subprocess.run(["git", *command], cwd=run.folder, check=True)
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=run.folder, capture_output=True, text=True, check=True)
    subprocess.run(
        ["git", "update-ref", "refs/exps/ab/cd/vocal-fern", commit.stdout.strip()], cwd=run.folder, check=True
    )
    run.set_parameter("pretrain.learning_rate", 5e-3)
    run.draw(3, 2, gain=-20)
    git = (run.folder / ".git").rename(tmp_path / "git")
    run.write()
    git.rename(run.folder / ".git")
    (run.folder / "gate.yaml").write_text("worse: 0\n")
    for arguments in ([], ["vocal-fern"]):
        done = electra("compare", *arguments, "--gate", "gate.yaml", cwd=run.folder)
        assert done.returncode == 1, done.stderr
        assert "pretrain.learning_rate 0.001 -> 0.005" in done.stdout and "worse: mean" in done.stdout
        assert "gate: the mean is worse" in done.stderr
    assert electra("compare", "HEAD", "HEAD", "--gate", "gate.yaml", cwd=run.folder).returncode == 0
    found = json.loads(electra("compare", "--json", cwd=run.folder).stdout)
    assert found["changed"] == ["parameters"] and found["mean"]["verdict"] == "worse" and len(found["rows"]) == 10
    unknown = electra("compare", "nonsense", cwd=run.folder)
    assert unknown.returncode == 2 and "neither a revision, an experiment nor a folder" in unknown.stderr


def test_markdown_is_a_table_with_every_task(base: Run, tmp_path: Path) -> None:
    page = render_markdown(compare(*sides(base, planted(base, "parameters", "model.dropout", tmp_path))))
    assert "- parameters: model.dropout 0.0 -> 0.1" in page and "| SQuAD2.0 | f1 |" in page
    assert "**same: every task scores as before" in page
    lines = page.splitlines()
    assert all(line.count("|") == 8 for line in lines if line.startswith("|"))


def test_the_projects_settings_can_be_read_as_the_lock_writes_them() -> None:
    """1e-06 is a text in YAML 1.1: the lock and the profile agree all the same."""
    assert yaml.safe_load("a: 1e-06") == {"a": "1e-06"}
    here = open_side("HEAD", PROJECT)
    assert here.profile == "books" and here.settings["model.layer_norm_eps"] == 1e-12
