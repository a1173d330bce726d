"""Writing while training goes on."""

import threading
from collections.abc import Callable


class Background:
    """One piece of work at a time, in a thread of its own.

    What it is given must not change any more: training goes on meanwhile.
    """

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def __enter__(self) -> "Background":
        return self

    def __exit__(self, *_: object) -> None:
        """Let the work come to its end, whatever the reason to go."""
        if self._thread is not None:
            self._thread.join()

    @property
    def is_busy(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def start(self, work: Callable[[], None]) -> None:
        """Begin, once the work before is done.

        Raises:
            BaseException: what the work before raised.
        """
        self.wait()
        self._thread = threading.Thread(target=self._run, args=(work,), name="checkpoint")
        self._thread.start()

    def wait(self) -> None:
        """Wait until nothing is left to do.

        Raises:
            BaseException: what the work raised.
        """
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self.check()

    def check(self) -> None:
        """Raise what the work raised, if it did and is over."""
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # raised where training can end for it
            self._error = error
