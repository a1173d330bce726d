"""The interface of a source of documents: parts that workers read."""

from collections.abc import Iterator
from typing import Any, Protocol


class Part(Protocol):
    """A piece of a source that one worker reads: a file, or the whole source. Can be sent to another process."""

    def texts(self) -> Iterator[str]:
        """The raw documents in a fixed order, one held at a time; a missing text is an empty string."""
        ...

    def facts(self, *, complete: bool) -> dict[str, Any]:
        """For the manifest: what was read, all documents or (not ``complete``) the first ones."""
        ...


class Source(Protocol):
    """Raw documents in parts."""

    name: str

    def parts(self) -> list[Part]:
        """The parts in the order of their documents; nothing of their content is read yet."""
        ...

    def describe(self, read: list[dict[str, Any]]) -> dict[str, Any]:
        """For the manifest, from the facts of the parts that were read."""
        ...
