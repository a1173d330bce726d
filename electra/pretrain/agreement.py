"""Agreement of the processes on a step before it begins, without waiting for a device.

Its counts of tokens and the requests to save or stop are summed over all processes.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed
from torch import Tensor

from electra.objectives.base import Batch


@dataclass
class AgreedStep:
    """A step's micro-batches of this process, and what all processes agree on.

    Attributes:
        counts: of each term over the global batch [terms], at least 1, on the CPU: what losses are divided by.
        save, stop: whether any process requests a checkpoint, or an end, so that none ends while another goes on.
    """

    micro_batches: list[Batch]
    counts: Tensor
    save: bool
    stop: bool

    def counts_on(self, device: torch.device) -> Tensor:
        """Return the counts on a device; on CUDA by a copy that the host does not wait for."""
        counts = self.counts.pin_memory() if device.type == "cuda" else self.counts
        return counts.to(device, non_blocking=True)


class Agreement:
    """One small all-reduce for each step.

    On CUDA it is among the hosts (gloo) and a step ahead, so that it is over when its step begins; a request to save or
    to stop is granted a step later for that.

    Args:
        count: the counts of a batch by term.
        terms: in the order of the counts.
        group: of processes; None for the default group.
        ahead: steps between the start of an all-reduce and the use of its result: 0 or 1.
    """

    def __init__(self, count: Callable[[Batch], dict[str, Tensor]], terms: list[str], group: Any, ahead: int):
        self.count, self.terms, self.group, self.ahead = count, terms, group, ahead

    def of_steps(self, steps: Iterable[list[Batch]], requests: Callable[[], tuple[bool, bool]]) -> Iterator[AgreedStep]:
        """Yield each step with what was agreed on.

        Args:
            requests: whether this process requests a checkpoint, and an end; called when a step is drawn.
        """
        started: deque[tuple[list[Batch], Tensor, Any]] = deque()
        for micro_batches in steps:
            started.append((micro_batches, *self._start(micro_batches, *requests())))
            if len(started) > self.ahead:
                yield self._finish(*started.popleft())
        while started:
            yield self._finish(*started.popleft())

    def _start(self, batches: list[Batch], save: bool, stop: bool) -> tuple[Tensor, Any]:
        counts = [self.count(batch) for batch in batches]
        totals = [sum(float(count[term]) for count in counts) for term in self.terms]
        shared = torch.tensor([*totals, float(save), float(stop)])
        if not torch.distributed.is_initialized() or torch.distributed.get_world_size() == 1:
            return shared, None
        return shared, torch.distributed.all_reduce(shared, group=self.group, async_op=True)

    def _finish(self, micro_batches: list[Batch], shared: Tensor, work: Any) -> AgreedStep:
        if work is not None:
            work.wait()
        *_, save, stop = shared.tolist()
        return AgreedStep(micro_batches, shared[:-2].clamp(min=1), save > 0, stop > 0)
