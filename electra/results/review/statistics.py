"""Statistics of a comparison: intervals of a difference, detectable differences, and the verdict.

Noise is estimated from several seeds on both sides (Student's t), or from a record: the standard deviation over runs
that differ only in seeds (t with its degrees of freedom). Two other sources are partial; they can show that a
difference may be noise, but never that it is real: fine-tuning seeds of two encoders, which do not cover pre-training,
and the bootstrap over the predictions of one run on both sides, which covers the choice of development examples but no
training. With several rows the intervals hold simultaneously (Bonferroni).
"""

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import special

Verdict = Literal["better", "worse", "noise", "underpowered", "unknown noise", "same"]
Noise = Literal["seeds", "record", "fine-tuning", "bootstrap", "none"]
PARTIAL = ("fine-tuning", "bootstrap")  # sources without all noise: they can show noise, but never a real difference
CONFIDENCE, POWER = 0.95, 0.85  # for a promised power of 80%: training noise is not quite normal
DRAWS = 1000


@dataclass(frozen=True)
class Difference:
    """One figure before and after.

    Attributes:
        low, high: interval of the difference; None if the noise is unknown.
        detectable: smallest difference that would be found with probability ``POWER``.
        noise: source of the interval.
    """

    before: float
    after: float
    low: float | None = None
    high: float | None = None
    detectable: float | None = None
    noise: Noise = "none"

    @property
    def difference(self) -> float:
        return self.after - self.before

    def verdict(self, smallest: float, larger_is_better: bool = True) -> Verdict:
        """Return the verdict on the difference.

        Args:
            smallest: smallest relevant difference; noise that could hide it is "underpowered".
        """
        if self.low is None or self.high is None:
            return "same" if self.difference == 0 else "unknown noise"
        if self.low <= 0 <= self.high:
            if self.noise == "bootstrap" and self.difference == 0 and self.high == 0:
                return "same"
            return "underpowered" if self.detectable is not None and self.detectable > smallest else "noise"
        if self.noise in PARTIAL:
            return "unknown noise"
        return "better" if (self.difference > 0) == larger_is_better else "worse"


@dataclass(frozen=True)
class Spread:
    """Variance of a run, in points squared, with the degrees of freedom of its estimate."""

    variance: float
    degrees: int


def pooled(before: Sequence[float], after: Sequence[float], least: float = 0.0) -> Spread:
    """Return the pooled variance within both sides.

    Args:
        least: lower bound of the standard deviation, such as the effect of one development row: runs with identical
            scores, such as collapsed ones, would have no noise otherwise.
    """
    degrees = len(before) + len(after) - 2
    squares = sum((x - statistics.fmean(side)) ** 2 for side in (before, after) for x in side)
    return Spread(max(squares / degrees, least**2), degrees)


def from_seeds(
    before: Sequence[float], after: Sequence[float], rows: float = 1, spread: Spread | None = None
) -> Difference:
    """Compare the means of several runs on both sides by Student's t with the pooled variance.

    Args:
        rows: number of rows of the comparison, whose intervals hold simultaneously.
        spread: variance of a run, used instead of the variance within these runs.
    """
    spread = spread or pooled(before, after)
    error = math.sqrt(spread.variance * (1 / len(before) + 1 / len(after)))
    return _with_error(statistics.fmean(before), statistics.fmean(after), error, spread.degrees, rows, "seeds")


def from_record(before: float, after: float, spread: Spread, rows: float = 1) -> Difference:
    """Compare one figure on both sides, with the variance over runs from a record."""
    return _with_error(before, after, math.sqrt(2 * spread.variance), spread.degrees, rows, "record")


def _with_error(before: float, after: float, error: float, degrees: float, rows: float, noise: Noise) -> Difference:
    critical = float(special.stdtrit(degrees, 1 - (1 - CONFIDENCE) / (2 * rows)))
    # non-centrality at which Student's t exceeds the critical value with probability POWER
    detectable = float(special.nctdtrinc(degrees, 1 - POWER, critical)) * error
    difference = after - before
    return Difference(before, after, difference - critical * error, difference + critical * error, detectable, noise)


def from_predictions(
    before: float,
    after: float,
    difference_of: Callable[[np.ndarray], float],
    num_examples: int,
    rows: float = 1,
    draws: int = DRAWS,
) -> Difference:
    """Compare one run on both sides by the paired bootstrap over examples (Efron and Tibshirani 1993, chapter 13).

    Args:
        difference_of: returns the difference of the scores on the examples with the given indices.
    """
    random = np.random.default_rng(0)
    drawn = np.array([difference_of(random.integers(num_examples, size=num_examples)) for _ in range(draws)])
    tail = (1 - CONFIDENCE) / (2 * rows)
    low, high = np.quantile(drawn, [tail, 1 - tail])
    error = float(drawn.std())
    wanted = float(special.ndtri(1 - tail) + special.ndtri(POWER))
    return Difference(before, after, float(low), float(high), wanted * error, "bootstrap")


@dataclass(frozen=True)
class Components:
    """Standard deviations of one figure over runs that differ only in seeds.

    Attributes:
        pretrain: between runs, without fine-tuning's share.
        finetune: between fine-tuning seeds of one run; 0 if each run has one seed, and ``pretrain`` then includes both.
        degrees: degrees of freedom of the total.
        within: degrees of freedom of ``finetune``.
    """

    pretrain: float
    finetune: float
    degrees: int
    within: int = 0

    @property
    def seeds(self) -> float:
        """Fine-tuning seeds of each run, on average."""
        return 1 + self.within / (self.degrees + 1)

    def spread(self, num_seeds: int, same_encoder: bool, least: float = 0.0) -> Spread:
        """Return the variance of one run's mean over ``num_seeds`` fine-tuning seeds, with its degrees of freedom.

        Args:
            same_encoder: the runs that are compared start from the same weights.
            least: lower bound of the standard deviation.
        """
        if same_encoder and self.finetune:
            return Spread(max(self.finetune**2 / num_seeds, least**2), self.within)
        # The record tells nothing of means over more seeds than its runs have: its ``pretrain`` may be 0 only because
        # the noise of these few seeds hides it.
        variance = self.pretrain**2 + self.finetune**2 / min(num_seeds, self.seeds)
        # where runs differ by no more than their seeds explain, the variance is estimated from the seeds alone
        degrees = self.within if self.within and self.pretrain == 0 else self.degrees
        return Spread(max(variance, least**2), degrees)


def components(runs: Sequence[Sequence[float]]) -> Components:
    """Split the variance of A/A runs into pre-training and fine-tuning; each run has a value per fine-tuning seed.

    Raises:
        ValueError: fewer than two runs.
    """
    if len(runs) < 2:
        raise ValueError("noise is measured on two runs at least")
    within = [statistics.variance(run) for run in runs if len(run) > 1]
    freedom = sum(len(run) - 1 for run in runs)
    finetune = statistics.fmean(within) if within else 0.0
    between = statistics.variance([statistics.fmean(run) for run in runs])
    seeds = statistics.fmean(len(run) for run in runs)
    return Components(math.sqrt(max(0.0, between - finetune / seeds)), math.sqrt(finetune), len(runs) - 1, freedom)
