"""A signal to end, as something that a waiting loop can look at."""

import signal
import threading
from types import FrameType

ENDING = (signal.SIGTERM, signal.SIGINT)


class EndRequest:
    """Context in which SIGTERM and SIGINT are noted instead of ending the process."""

    def __enter__(self) -> "EndRequest":
        self.name: str | None = None
        self._event = threading.Event()
        self._before = {number: signal.signal(number, self._note) for number in ENDING}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def __bool__(self) -> bool:
        """Whether one has come."""
        return self._event.is_set()

    def wait(self, seconds: float) -> bool:
        """Wait until one comes, or for so long. Returns whether one has come."""
        return self._event.wait(seconds)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.name = signal.Signals(number).name
        self._event.set()
