"""Exchange between processes before a step: counts and wishes to save or stop, without waiting for a device."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed
from torch import Tensor

from electra.model.batch import Batch


@dataclass
class Agreed:
    """One step's batches, and what all processes say of it.

    Attributes:
        counts: of each term over the global batch [terms], at least 1, on the CPU: what losses are divided by.
        save, stop: whether any process wants a checkpoint, or to end, so that none does while another goes on.
    """

    micro_batches: list[Batch]
    counts: Tensor
    save: bool
    stop: bool


class Agreement:
    """One small all-reduce for each step.

    On CUDA it is among the hosts (gloo) and a step ahead, so that it is over when its step begins; a wish to save or to
    stop is granted a step later for that.

    Args:
        count: the counts of a batch by term.
        terms: in the order of the counts.
        group: of processes; None for the default group.
        ahead: steps between asking and taking the answer: 0 or 1.
    """

    def __init__(self, count: Callable[[Batch], dict[str, Tensor]], terms: list[str], group: Any, ahead: int):
        self.count, self.terms, self.group, self.ahead = count, terms, group, ahead

    def of_steps(self, steps: Iterable[list[Batch]], wishes: Callable[[], tuple[bool, bool]]) -> Iterator[Agreed]:
        """Each step with what was agreed on.

        Args:
            wishes: whether this process wants to save, and to stop; asked when a step is drawn.
        """
        asked: deque[tuple[list[Batch], Tensor, Any]] = deque()
        for micro_batches in steps:
            asked.append((micro_batches, *self._ask(micro_batches, *wishes())))
            if len(asked) > self.ahead:
                yield self._answer(*asked.popleft())
        while asked:
            yield self._answer(*asked.popleft())

    def _ask(self, batches: list[Batch], save: bool, stop: bool) -> tuple[Tensor, Any]:
        counts = [self.count(batch) for batch in batches]
        totals = [sum(float(count[term]) for count in counts) for term in self.terms]
        shared = torch.tensor([*totals, float(save), float(stop)])
        if not torch.distributed.is_initialized() or torch.distributed.get_world_size() == 1:
            return shared, None
        return shared, torch.distributed.all_reduce(shared, group=self.group, async_op=True)

    def _answer(self, micro_batches: list[Batch], shared: Tensor, work: Any) -> Agreed:
        if work is not None:
            work.wait()
        *_, save, stop = shared.tolist()
        return Agreed(micro_batches, shared[:-2].clamp(min=1), save > 0, stop > 0)
