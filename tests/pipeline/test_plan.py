"""The order of stages, the stages that have to run, and their forecast."""

import json
import subprocess
import sys

import yaml

from flows.events import changed_data
from flows.forecast import Forecast, blocked_stages, changed_parameters, forecast, main, render_plan
from flows.plan import order
from flows.watch import Limits

NAMES = ["corpus", "tune@b-1", "tune@a-1", "pretrain", "evaluate"]
EDGES = [
    ("corpus", "pretrain"),
    ("corpus", "tune@a-1"),
    ("pretrain", "tune@b-1"),
    ("tune@a-1", "evaluate"),
    ("tune@b-1", "evaluate"),
]


def test_stages_come_after_those_they_read_and_cells_stand_together():
    assert [stage.name for stage in order(NAMES, EDGES, {})] == [
        "corpus",
        "pretrain",
        "tune@b-1",
        "tune@a-1",
        "evaluate",
    ]


def test_what_comes_after_a_changed_stage_may_have_to_run():
    plan = order(NAMES, EDGES, {"pretrain": "lr changed"})
    assert {stage.name for stage in plan if stage.out_of_date} == {"pretrain", "tune@b-1", "evaluate"}


def test_nothing_runs_when_nothing_changed():
    assert not any(stage.out_of_date for stage in order(NAMES, EDGES, {}))


def test_a_plan_tells_why_with_old_and_new_values_and_groups_cells_in_one_line_per_kind(tmp_path):
    (tmp_path / "params").mkdir()
    (tmp_path / "params.yaml").write_text("profile: x\ncells: {seeds: [1, 2]}\n")
    (tmp_path / "params/x.yaml").write_text("pretrain: {learning_rate: 2.0e-3, adam_epsilon: 1.0e-06}\n")
    lock = {
        "pretrain": {
            "params": {"params/x.yaml": {"pretrain": {"learning_rate": 0.001, "adam_epsilon": "1e-06"}}},
            "outs": [{"path": "models/pretrained", "size": 2_000_000_000}],
        },
        "report": {"params": {"params.yaml": {"cells.seeds": [1]}}},
        **{name: {} for name in ("tune@a-1", "tune@b-1", "evaluate")},
    }
    (tmp_path / "dvc.lock").write_text(yaml.safe_dump({"stages": lock}))
    assert changed_parameters(tmp_path, lock) == {
        "pretrain": ["pretrain.learning_rate 0.001 -> 0.002"],
        "report": ["cells.seeds [1] -> [1, 2]"],
    }
    (tmp_path / "logs/stages").mkdir(parents=True)
    for name, seconds in {"pretrain": 130, "tune@a-1": 30, "evaluate": "damaged"}.items():
        (tmp_path / f"logs/stages/{name}.json").write_text(json.dumps({"seconds": seconds}))
    reasons = {
        "pretrain": "pretrain in params/x.yaml is modified; electra/model is modified",
        "tune@a-1": "models/finetuned/a-1 is not in cache",
        "tune@b-1": "models/finetuned/b-1 is not in cache; data/tasks/b/train.jsonl is modified",
    }
    found = forecast(tmp_path, order(NAMES, EDGES, reasons, {"pretrain": Limits(gpus="all")}))
    assert render_plan(found, free_bytes=40 * 10**9, num_gpus=8).splitlines() == [
        "5 stages: 1 cached, 4 to run, 0 blocked; nothing was run",
        "about 3.2 min by the last runs here (without evaluate)",
        "disk 4.0 GB with the cache (40 GB free); GPUs 8 of 8",
        "",
        "         stage                  min  why",
        "to run   pretrain               2.2  pretrain.learning_rate 0.001 -> 0.002; changed: electra/model",
        "to run   tune x2                1.0  its outputs are not here; changed: data/tasks/b (1 of 2)",
        "to run   evaluate                 -  reads what may change: tune",
        "cached   corpus",
    ]


def test_a_stage_that_has_not_run_has_no_changed_inputs_among_its_reasons(tmp_path):
    """DVC calls all inputs of such a stage modified: there is no earlier run to compare them with."""
    reasons = {
        "corpus": "data/code/text is modified; corpus in params/x.yaml is modified",
        "tune@b-1": "data/code/finetune is modified",
        "tune@a-1": "data/code/finetune is modified",
    }
    plan = order(NAMES, EDGES, reasons)
    assert {stage.stage: stage.why for stage in forecast(tmp_path, plan)} == dict.fromkeys(NAMES, ["has not run yet"])
    (tmp_path / "dvc.lock").write_text(yaml.safe_dump({"stages": {"corpus": {}, "tune@a-1": {}}}))
    shown = " ".join(render_plan(forecast(tmp_path, plan), 10**9, 0).split())
    assert "to run corpus - changed: data/code/text" in shown, "it has run"
    assert "to run tune x2 - has not run yet (1 of 2); changed: data/code/finetune (1 of 2)" in shown


def test_no_line_of_a_plan_is_longer_than_100_columns_whatever_the_reasons():
    long = [f"pretrain.a_long_name_{number} {'x' * 60} -> {'y' * 60}" for number in range(30)]
    found = [
        Forecast("pretrain", "to run", long, None, None, "all"),
        Forecast("corpus", "blocked", [f"{'z' * 300} is not there"], None, None, 0),
        *[Forecast(f"stage_with_a_long_name_{number}", "cached", [], 5.0, 7, 0) for number in range(30)],
        *[Forecast(f"{'w' * 30}{number}", "to run", ["new"], None, None, 0) for number in range(3)],
    ]
    shown = render_plan(found, 10**9, 0).splitlines()
    assert max(map(len, shown)) <= 100 and any("(+29 more)" in line for line in shown)


def test_a_stage_whose_files_nobody_makes_is_blocked_and_what_follows_it_waits(tmp_path):
    plan = order(NAMES, EDGES, {"corpus": "letters is deleted; data/evaluation is deleted"})
    assert blocked_stages(plan) == {
        "corpus": "letters is not there",
        "pretrain": "waits for corpus",
        "tune@a-1": "waits for corpus",
        "tune@b-1": "waits for pretrain",
        "evaluate": "waits for tune",
    }
    assert "0 to run, 5 blocked" in render_plan(forecast(tmp_path, plan), 10**9, 0)


def test_the_plan_of_a_repository_names_the_changed_file_and_runs_nothing(tmp_path, monkeypatch, capsys):
    """Real git and DVC: asked once, in a child process; cells of a matrix and a stage after them."""
    stages = {
        "make": {"cmd": "touch ran", "deps": ["electra/model"], "params": ["rate"], "outs": ["made"]},
        "cell": {"matrix": {"n": [1, 2]}, "cmd": "touch ran", "deps": ["made"], "outs": ["cell-${item.n}"]},
        "other": {"cmd": "touch ran", "deps": ["letters"], "outs": ["other.txt"]},
    }
    (tmp_path / "dvc.yaml").write_text(yaml.safe_dump({"stages": stages}, sort_keys=False))
    (tmp_path / "params.yaml").write_text("rate: 1\n")
    (tmp_path / "electra/model").mkdir(parents=True)
    for name in ("electra/model/encoder.py", "electra/model/heads.py", "made", "cell-1", "cell-2", "other.txt"):
        (tmp_path / name).write_text("old")
    (tmp_path / "letters").write_text("abc")
    (tmp_path / ".gitignore").write_text("/made\n/cell-*\n/other.txt\n")
    (tmp_path / ".dvc").mkdir()
    (tmp_path / ".dvc/config").write_text("[core]\n    analytics = false\n")

    def run(*command: str) -> None:
        subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)

    git = ["git", "-c", "user.name=t", "-c", "user.email=t@localhost"]
    run(*git, "init", "--quiet")
    run(sys.executable, "-m", "dvc", "commit", "--force", "--quiet")
    run(*git, "add", "--all")
    run(*git, "commit", "--quiet", "-m", "start")
    (tmp_path / "params.yaml").write_text("rate: 2\n")
    (tmp_path / "electra/model/heads.py").write_text("new")
    (tmp_path / "letters").unlink()
    monkeypatch.chdir(tmp_path)
    assert main([]) == 0
    assert [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()[5:]] == [
        "to run make - rate 1 -> 2; changed: electra/model/heads.py",
        "blocked other - letters is not there",
        "to run cell x2 - reads what may change: make",
    ]
    assert not (tmp_path / "ran").exists()
    assert main(["--json", "make"]) == 0
    (only,) = json.loads(capsys.readouterr().out)
    assert only["stage"] == "make" and only["why"] == ["rate 1 -> 2", "changed: electra/model/heads.py"]


def test_a_stage_whose_output_is_current_runs_without_making_others_out_of_date():
    """The copy of the installed code in a workspace of `electra new`, which is updated before the plan is made."""
    edges = [("code", "corpus"), ("code", "report"), ("corpus", "report")]
    changed = {"code": "data/code is modified; always changed", "report": "data/code/results is modified"}
    plan = order(["code", "corpus", "report"], edges, changed, settled=["code"])
    found = {stage.name: stage.out_of_date for stage in plan}
    assert found == {"code": True, "corpus": False, "report": True}


def test_data_has_changed_where_training_read_other_data_but_not_for_fine_tuning_that_the_settings_left(tmp_path):
    def lock(pretrained_on: str) -> dict:
        cell = {"deps": [{"path": "data/shards", "md5": "old"}]}  # DVC keeps it in dvc.lock
        pretrain = {"deps": [{"path": "data/shards", "md5": pretrained_on}, {"path": "electra/model", "md5": "m"}]}
        return {"shards": {"outs": [{"path": "data/shards", "md5": "new"}]}, "pretrain": pretrain, "finetune@x-1": cell}

    assert changed_data(tmp_path) == [], "nothing has run"
    for pretrained_on, expected in (("new", []), ("old", ["data/shards"])):
        (tmp_path / "dvc.lock").write_text(yaml.safe_dump({"stages": lock(pretrained_on)}))
        assert changed_data(tmp_path) == expected
