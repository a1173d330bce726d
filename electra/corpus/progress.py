"""A progress line every few seconds."""

import sys
import time

EVERY_SECONDS = 5.0


class Progress:
    """Counts documents and characters, and prints a line to stderr now and then."""

    def __init__(self) -> None:
        self.documents = self.characters = 0
        self._began = self._printed = time.monotonic()

    def add(self, characters: int) -> None:
        """Count one document."""
        self.documents += 1
        self.characters += characters
        now = time.monotonic()
        if now - self._printed >= EVERY_SECONDS:
            self._printed = now
            million = self.characters / 1e6
            rate = million / (now - self._began)
            print(
                f"corpus: {self.documents:,} documents, {million:,.1f} M characters, {rate:.1f} M/s",
                file=sys.stderr,
                flush=True,
            )
