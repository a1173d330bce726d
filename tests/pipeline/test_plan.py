"""The order of stages, what has to run, and what may run side by side."""

import yaml

from flows.plan import PlannedStage, as_json, batches, blocked_stages, changed_parameters, order, render_plan

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


def test_single_stages_run_alone_and_cells_side_by_side():
    groups = batches(order(NAMES, EDGES, dict.fromkeys(NAMES, "new")))
    names = [[stage.name for stage in group] for group in groups]
    assert names == [["corpus"], ["pretrain"], ["tune@b-1", "tune@a-1"], ["evaluate"]]


def test_cells_that_read_each_other_do_not_run_side_by_side():
    plan = [PlannedStage("a@1", (), True), PlannedStage("a@2", (), True), PlannedStage("b@1", ("a@1",), True)]
    assert [[stage.name for stage in group] for group in batches(plan)] == [["a@1", "a@2"], ["b@1"]]


def test_the_plan_tells_what_runs_and_why_with_old_and_new_values(tmp_path):
    (tmp_path / "params").mkdir()
    (tmp_path / "params.yaml").write_text("profile: x\ncells: {seeds: [1, 2]}\n")
    (tmp_path / "params/x.yaml").write_text("pretrain: {learning_rate: 2.0e-3, adam_epsilon: 1.0e-06}\n")
    lock = {
        "pretrain": {"params": {"params/x.yaml": {"pretrain": {"learning_rate": 0.001, "adam_epsilon": "1e-06"}}}},
        "report": {"params": {"params.yaml": {"cells.seeds": [1]}}},
    }
    (tmp_path / "dvc.lock").write_text(yaml.safe_dump({"stages": lock}))
    changed = changed_parameters(tmp_path)
    assert changed == {
        "pretrain": ["pretrain.learning_rate 0.001 -> 0.002"],
        "report": ["cells.seeds [1] -> [1, 2]"],
    }
    reasons = {
        "pretrain": "pretrain in params/x.yaml is modified; electra/model is modified",
        "tune@a-1": "models/finetuned/a-1 is not in cache",
        "tune@b-1": "models/finetuned/b-1 is not in cache",
    }
    plan = order(NAMES, EDGES, reasons)
    assert render_plan(plan, changed).splitlines() == [
        "5 stages: 1 cached, 4 to run, 0 blocked; nothing was run",
        "to run   pretrain               pretrain.learning_rate 0.001 -> 0.002; code changed: electra/model",
        "to run   tune x2                its outputs are not here",
        "to run   evaluate               reads what may change: tune",
        "cached   corpus",
    ]
    assert [stage["state"] for stage in as_json(plan, changed)] == ["cached", *["to run"] * 4]


def test_a_stage_whose_files_nobody_makes_is_blocked_and_what_follows_it_waits():
    plan = order(NAMES, EDGES, {"corpus": "letters is deleted; data/evaluation is deleted"})
    assert blocked_stages(plan) == {
        "corpus": "letters is not there",
        "pretrain": "waits for corpus",
        "tune@a-1": "waits for corpus",
        "tune@b-1": "waits for pretrain",
        "evaluate": "waits for tune",
    }
    assert "0 to run, 5 blocked" in render_plan(plan, {})
