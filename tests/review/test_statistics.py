"""Statistics of comparisons, by simulation: false alarms, power at the stated detectable difference, components."""

import numpy as np
import pytest

from electra.results.review.compare import JOINT
from electra.results.review.statistics import (
    Difference,
    components,
    from_predictions,
    from_record,
    from_seeds,
)

COMPARISONS = 200
FOUND = ("better", "worse")


@pytest.mark.parametrize("seeds", [2, 3, 5, 10])
def test_of_200_comparisons_of_equal_runs_at_most_5_percent_are_better_or_worse(seeds: int) -> None:
    """Ten rows each, as a card has: the intervals hold together."""
    random = np.random.default_rng(3)
    wrong = 0
    for _ in range(COMPARISONS):
        rows = [from_seeds(*random.normal(60, 3, (2, seeds)).tolist(), rows=10) for _ in range(10)]
        wrong += any(row.verdict(2.0) in FOUND for row in rows)
    assert wrong <= 0.05 * COMPARISONS + 6  # three standard errors of a count with a rate of 5%: 9.2
    single = [from_seeds(*random.normal(60, 3, (2, seeds)).tolist()).verdict(2.0) in FOUND for _ in range(4000)]
    assert sum(single) / 4000 == pytest.approx(0.05, abs=0.012)


@pytest.mark.parametrize(("seeds", "rows"), [(2, 1), (3, 1), (3, 10), (10, 10)])
def test_the_power_at_the_stated_detectable_difference_is_more_than_80_percent(seeds: int, rows: int) -> None:
    random = np.random.default_rng(4)
    errors = random.normal(0, 3, (4000, 2, seeds))
    stated = [from_seeds(*pair.tolist(), rows=rows) for pair in errors]
    spread = np.array([found.detectable for found in stated])
    truth = np.sqrt(np.mean(spread**2))  # what it states on average for the variance that there is
    found = [from_seeds(a.tolist(), (b + truth).tolist(), rows=rows).verdict(2.0) == "better" for a, b in errors]
    assert np.mean(found) == pytest.approx(0.85, abs=0.025)


def test_mean_and_tasks_of_a_comparison_together_keep_the_rate_of_false_verdicts() -> None:
    """A record of seven runs and six tasks that are unlike, as the default profile has; rows as compare has them."""
    random, deviations, wrong = np.random.default_rng(8), np.array([0.2, 0.4, 0.5, 1.0, 1.0, 1.2]), 0
    for _ in range(2000):
        runs = random.normal(60, deviations, (9, 6))
        runs = np.column_stack([runs, runs.mean(1)])
        verdicts = []
        for n, values in enumerate(runs.T.tolist()):
            spread = components([[value] for value in values[:7]]).spread(1, same_encoder=False)
            verdicts.append(from_record(*values[7:], spread, rows=JOINT * (6 if n < 6 else 1)).verdict(2.0))
        wrong += any(verdict in FOUND for verdict in verdicts)
    assert 0.02 < wrong / 2000 <= 0.055


def test_a_record_of_ten_runs_keeps_the_rate_of_false_alarms() -> None:
    random = np.random.default_rng(5)
    wrong = 0
    for _ in range(2000):
        parts = components([[value] for value in random.normal(60, 3, 10)])
        before, after = random.normal(60, 3, (2, 1)).tolist()
        (one,), (other,) = before, after
        wrong += from_record(one, other, parts.spread(1, same_encoder=False)).verdict(2.0) in FOUND
    assert wrong / 2000 == pytest.approx(0.05, abs=0.02)


@pytest.mark.parametrize("pretrain", [0.0, 0.6])
def test_a_record_whose_runs_differ_by_their_seeds_alone_keeps_the_rate_of_false_verdicts(pretrain: float) -> None:
    """The part of pre-training may come out as zero by chance; then the variance has the seeds' degrees of freedom."""
    random, wrong, pooled = np.random.default_rng(9), 0, 0
    for _ in range(1500):
        runs = random.normal(0, pretrain, (9, 1)) + random.normal(60, 1, (9, 3))
        parts = components(runs[:7].tolist())
        spread = parts.spread(3, same_encoder=False)
        assert spread.degrees == (6 if parts.pretrain else 14)
        pooled += parts.pretrain == 0
        before, after = runs[7:].mean(1).tolist()
        wrong += from_record(before, after, spread).verdict(2.0) in FOUND
    assert pooled > 50 and wrong / 1500 <= 0.065


def test_more_seeds_than_those_of_the_record_keep_the_rate_of_false_verdicts() -> None:
    """Three seeds hide a part of pre-training that is half of their noise; means over eight seeds are not so blind."""
    random, wrong = np.random.default_rng(10), 0
    for _ in range(1500):
        runs = random.normal(0, 0.7, (9, 1)) + random.normal(60, 1, (9, 8))
        parts = components(runs[:7, :3].tolist())
        before, after = runs[7:].mean(1).tolist()
        wrong += from_record(before, after, parts.spread(8, same_encoder=False), rows=2.5 * 6).verdict(2.0) in FOUND
    assert wrong / 1500 <= 0.05 / (2.5 * 6) + 0.004
    few, many = (parts.spread(seeds, same_encoder=False).variance for seeds in (3, 8))
    assert few == many < parts.spread(1, same_encoder=False).variance


def test_variance_is_taken_apart_into_pre_training_and_fine_tuning() -> None:
    random = np.random.default_rng(6)
    runs = [(random.normal(60, 4) + random.normal(0, 2, 5)).tolist() for _ in range(400)]
    parts = components(runs)
    assert parts.pretrain == pytest.approx(4, rel=0.1) and parts.finetune == pytest.approx(2, rel=0.1)
    assert parts.spread(5, same_encoder=False).variance == pytest.approx(4**2 + 2**2 / 5, rel=0.2)
    assert parts.spread(5, same_encoder=True).variance == pytest.approx(2**2 / 5, rel=0.2)
    with pytest.raises(ValueError, match="two runs at least"):
        components([[1.0, 2.0]])


def test_the_bootstrap_agrees_with_mcnemars_variance_and_finds_no_difference_by_itself() -> None:
    random = np.random.default_rng(7)
    gain = 100.0 * random.choice([-1, 0, 1], 400, p=[0.05, 0.75, 0.2])
    found = from_predictions(60, 60 + gain.mean(), lambda chosen: float(gain[chosen].mean()), 400)
    assert found.low is not None and found.high is not None
    assert (found.high - found.low) / 2 == pytest.approx(1.96 * gain.std() / 20, rel=0.1)
    assert found.low > 0 and found.verdict(2.0) == "unknown noise", "one seed: the noise of training is not in it"
    again = from_predictions(60, 60 + gain.mean(), lambda chosen: float(gain[chosen].mean()), 400)
    assert found == again, "the same predictions give the same interval"


def test_verdicts() -> None:
    assert Difference(1, 1).verdict(2) == "same" and Difference(1, 2).verdict(2) == "unknown noise"
    assert Difference(1, 2, -0.5, 2.5, 1.9, "seeds").verdict(2) == "noise"
    assert Difference(1, 2, -0.5, 2.5, 2.1, "seeds").verdict(2) == "underpowered"
    assert Difference(1, 2, 0.5, 1.5, 1, "seeds").verdict(2) == "better"
    assert Difference(1, 2, 0.5, 1.5, 1, "seeds").verdict(2, larger_is_better=False) == "worse"
