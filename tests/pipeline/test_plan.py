"""The order of stages, what has to run, and what may run side by side."""

from flows.plan import PlannedStage, batches, order

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
