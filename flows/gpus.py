"""Which GPUs a stage gets: slots of the server's limit ``gpu`` say whether, the run's own devices say which."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from prefect.concurrency.sync import concurrency

LIMIT = "gpu"


class Devices:
    """The GPUs of one run; stages that run side by side share them out.

    Args:
        count: how many; 0 for a run on CPUs.
    """

    def __init__(self, count: int):
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        self._free = visible.split(",")[:count] if visible else [str(number) for number in range(count)]
        self.count = len(self._free)
        self._changed = threading.Condition()

    @contextmanager
    def take(self, number: int) -> Iterator[list[str] | None]:
        """Hold this many devices and as many slots of the limit, waiting for both; None for a run without GPUs.

        A stage that needs none, in a run that has some, sees none. The limit must exist (``electra cluster init``); a
        lease that could not be renewed does not end hours of training.
        """
        if self.count == 0:
            yield None
        elif number == 0:
            yield []
        else:
            with concurrency(LIMIT, occupy=number, strict=True, raise_on_lease_renewal_failure=False):
                with self._changed:
                    self._changed.wait_for(lambda: len(self._free) >= number)
                    taken, self._free = self._free[:number], self._free[number:]
                try:
                    yield taken
                finally:
                    with self._changed:
                        self._free = sorted([*taken, *self._free])
                        self._changed.notify_all()
