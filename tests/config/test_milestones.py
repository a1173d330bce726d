"""`pretrain.milestones`: amounts of text or steps, as they are written."""

import pytest
from pydantic import ValidationError

from electra.config import Pretrain
from electra.config.milestones import MilestoneRule, milestone_name, named_amounts

RECIPE = {"num_steps": 10, "batch_size": 2, "learning_rate": 1e-3, "warmup_steps": 1, "eval_every": 5}


def test_babylms_rules_are_one_for_each_million_words_up_to_ten_and_then_each_ten() -> None:
    rules = ["every 1M words to 10M", "every 10M words"]
    found = named_amounts(rules, {"tokens": 10**9, "words": 100_000_000, "steps": 1})
    assert list(found) == [f"words-{n}M" for n in (*range(1, 11), *range(20, 101, 10))]
    assert found["words-20M"] == ("words", 20_000_000)


@pytest.mark.parametrize(
    ("rule", "names"),
    [
        ("10M tokens", ["tokens-10M"]),
        ("1.5M tokens", ["tokens-1.5M"]),
        ("every 2.5k steps to 5k", ["steps-2.5k", "steps-5k"]),
        ("1234567 tokens", ["tokens-1234567"]),
        ("1B words", []),  # beyond the end of the run
    ],
)
def test_a_rule_gives_names_up_to_the_end_of_the_run(rule: str, names: list[str]) -> None:
    assert list(named_amounts([rule], {"tokens": 20_000_000, "words": 15_000_000, "steps": 6_000})) == names


def test_names_are_different_for_different_amounts() -> None:
    amounts = [1, 999, 1_000, 1_100, 1_001, 123_456, 1_000_000, 1_000_001, 2_500_000_000, 99_999_900_000]
    assert len({milestone_name("tokens", amount) for amount in amounts}) == len(amounts)


NO_RULES = ["", "10M", "ten tokens", "10M bytes", "0 tokens", "10M tokens to 20M", "0.5 steps", "every 10 M tokens"]
NO_RULES += ["every 1M words until 10M", "-1 steps", "1/2 steps", "1M words as ", "1M words as ../x", "1M words or end"]


@pytest.mark.parametrize("rule", NO_RULES)
def test_what_is_no_rule_is_refused(rule: str) -> None:
    with pytest.raises(ValueError, match="no milestone|no whole number|goes with `every`"):
        MilestoneRule.parse(rule)
    with pytest.raises(ValidationError, match="milestones"):
        Pretrain.model_validate({**RECIPE, "milestones": [rule]})


def test_too_many_are_refused_before_they_are_listed() -> None:
    with pytest.raises(ValueError, match="more than 1,000"):
        named_amounts(["every 1 tokens"], {"tokens": 10**12, "words": 1, "steps": 1})


def test_names_can_have_another_beginning_in_the_scale_of_the_rule() -> None:
    ends = {"tokens": 2_000_000, "words": 1, "steps": 1}
    names = named_amounts(["every 500k tokens to 1M as at_", "1.5M tokens as seen-"], ends)
    assert names == {"at_500k": ("tokens", 500_000), "at_1000k": ("tokens", 10**6), "seen-1.5M": ("tokens", 1_500_000)}


def test_the_last_may_be_the_end_of_the_run_if_it_is_near() -> None:
    rule = "every 10 steps to 50 or end"
    found = {end: named_amounts([rule], {"tokens": 1, "words": 1, "steps": end}) for end in (40, 41, 50, 60)}
    assert list(found[40]) == [f"steps-{number}" for number in (10, 20, 30, 40)]
    assert found[41]["steps-50"] == ("steps", 41)
    assert found[50]["steps-50"] == found[60]["steps-50"] == ("steps", 50)


def test_two_milestones_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="two different milestones have the name at_1k"):
        named_amounts(["1k tokens as at_", "1k words as at_"], {"tokens": 2_000, "words": 2_000, "steps": 1})


@pytest.mark.parametrize("epochs", [1.0, 2.5, 0.001])
def test_epochs_decide_the_steps(epochs: float) -> None:
    recipe = Pretrain.model_validate({**RECIPE, "epochs": epochs})
    assert recipe.with_steps_for(101).num_steps == max(1, int(epochs * 101) // 2)
    assert Pretrain.model_validate(RECIPE).with_steps_for(101).num_steps == 10
