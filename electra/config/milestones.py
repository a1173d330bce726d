"""Milestones of pre-training as they are written in ``pretrain.milestones``: ``10M tokens``, ``every 1M words to 10M``.

``every 10M words to 100M or end as chck_`` gives them the names ``chck_10M`` to ``chck_100M``, and takes the last one
at the end of the run where this comes less than one interval before it.

Every pre-training also keeps the weights after fixed percentages of its steps (electra/pretrain/checkpoint.py).
"""

import re
from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple, cast

Unit = Literal["tokens", "words", "steps"]
SCALES = {"": 1, "k": 10**3, "M": 10**6, "B": 10**9}
_NUMBER = r"(\d{1,12}(?:\.\d{1,6})?)([kMB]?)"
_PREFIX = r"[A-Za-z][A-Za-z0-9._-]{0,29}"
_RULE = re.compile(rf"(every )?{_NUMBER} (tokens|words|steps)(?: to {_NUMBER}( or end)?)?(?: as ({_PREFIX}))?")
MOST = 1_000  # milestones of a run


class MilestoneRule(NamedTuple):
    """One entry: an amount, or multiples of it up to ``last`` (None: to the end of the run).

    Attributes:
        scale: factor in which the amount is written, such as M.
        or_end: the last milestone is the end of the run, if this comes less than one interval before it.
        prefix: beginning of the names; None: the unit and a hyphen.
    """

    unit: Unit
    amount: int
    is_repeated: bool
    last: int | None
    scale: str = ""
    or_end: bool = False
    prefix: str | None = None

    @classmethod
    def parse(cls, text: str) -> "MilestoneRule":
        """Return the rule that a text stands for.

        Raises:
            ValueError: it is none; the message gives examples.
        """
        found = _RULE.fullmatch(text)
        if found is None:
            raise ValueError(
                f"{text!r} is no milestone: write `10M tokens`, `every 1M words to 10M` or `every 500 steps`"
            )
        every, number, scale, unit, last, last_scale, or_end, prefix = found.groups()
        amount = _whole(number, scale, text)
        if last is not None and not every:
            raise ValueError(f"{text!r}: an end (`to ...`) goes with `every`")
        end = None if last is None else _whole(last, last_scale, text)
        return cls(cast(Unit, unit), amount, bool(every), end, scale, bool(or_end), prefix)

    def amounts(self, end: int) -> Iterator[tuple[str, int]]:
        """Yield names and amounts up to ``end``, which the whole run has."""
        if self.is_repeated:
            for amount in range(self.amount, min(end, self.last or end) + 1, self.amount):
                yield self._name(amount), amount
            if self.or_end and self.last and self.last - self.amount < end < self.last:
                yield self._name(self.last), end
        elif self.amount <= end:
            yield self._name(self.amount), self.amount

    def _name(self, amount: int) -> str:
        if self.prefix is None:
            return milestone_name(self.unit, amount)
        written = f"{amount / SCALES[self.scale]:.6f}".rstrip("0").rstrip(".")
        return f"{self.prefix}{written}{self.scale}"


def milestone_name(unit: Unit, amount: int) -> str:
    """Return the name of a milestone, such as ``tokens-10M``: of its folder, and of its branch on the hub."""
    for scale, factor in reversed(SCALES.items()):
        if amount >= factor and amount % (factor // 10 or 1) == 0:
            return f"{unit}-{amount / factor:g}{scale}" if amount // factor < 100_000 else f"{unit}-{amount}"
    return f"{unit}-{amount}"


def named_amounts(rules: Iterable[str], ends: dict[Unit, int]) -> dict[str, tuple[Unit, int]]:
    """Return unit and amount of every milestone of a run, by name, in the order of the rules.

    Args:
        ends: tokens, words and steps of the whole run.

    Raises:
        ValueError: there are more than :data:`MOST`, or two of one name.
    """
    found: dict[str, tuple[Unit, int]] = {}
    for rule in map(MilestoneRule.parse, rules):
        for name, amount in rule.amounts(ends[rule.unit]):
            if found.setdefault(name, (rule.unit, amount)) != (rule.unit, amount):
                raise ValueError(f"two different milestones have the name {name}: give the rules other prefixes")
            if len(found) > MOST:
                raise ValueError(f"the rules give more than {MOST:,} milestones")
    return found


def _whole(number: str, scale: str, text: str) -> int:
    value = float(number) * SCALES[scale]
    if value < 1 or round(value, 6) != round(value):
        raise ValueError(f"{text!r}: {number}{scale} is no whole number of at least 1")
    return round(value)
