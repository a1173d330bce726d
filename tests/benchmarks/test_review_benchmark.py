"""`python -m benchmarks.review` on few comparisons: false alarms, power, planted changes, the gate."""

from pathlib import Path

from benchmarks.review import SETTINGS, attributions, comparisons, gate_cases, is_false_alarm, measure


def test_equal_runs_are_hardly_ever_told_apart_and_the_stated_difference_is_found() -> None:
    facts = measure(SETTINGS[0], 30)
    assert facts["false"] <= 2, "5% of 30 is 1.5"
    assert facts["power_tasks"] >= 0.8 and facts["power_mean"] >= 0.7
    assert 2 < facts["detectable"]["mean"] < facts["detectable"]["RTE"] < 25, (
        "points, of 277 rows and three seeds a side"
    )


def test_another_pre_training_seed_is_no_difference_with_a_record() -> None:
    (setting,) = [setting for setting in SETTINGS if setting.record == (4, 2)]
    found = comparisons(setting, 20)
    assert sum(map(is_false_alarm, found)) <= 1
    assert {row.figures.noise for one in found for row in one.rows} <= {"record", "none"}


def test_without_a_record_another_pre_training_seed_is_never_better_or_worse() -> None:
    found = comparisons(SETTINGS[-1], 10)
    assert not any(map(is_false_alarm, found))
    assert any(row.verdict == "unknown noise" for one in found for row in one.rows), "seeds of fine-tuning alone differ"


def test_planted_changes_of_every_kind_are_attributed_in_a_git_repository(tmp_path: Path) -> None:
    planted = list(attributions(tmp_path, (3, 12, 17, 21, 24, 25, 28)))
    assert {kind for kind, *_ in planted} == {"parameters", "code", "data", "processor", "seeds", "machine", "nothing"}
    assert all(right for *_, right in planted), planted


def test_the_gate_passes_and_fails_as_it_should() -> None:
    cases = list(gate_cases())
    assert {passes for _, passes, _ in cases} == {True, False}
    assert all(passes != bool(reasons) for _, passes, reasons in cases), cases
