"""Interfaces of the sources of raw documents."""

from collections.abc import Iterator
from typing import Any, Protocol


class Part(Protocol):
    """Part of a source that one worker reads: a file, or the whole source. Can be pickled."""

    def texts(self) -> Iterator[str]:
        """Yield the raw documents in a fixed order, one in memory at a time; a missing text is an empty string."""
        ...

    def facts(self, *, complete: bool) -> dict[str, Any]:
        """Return the manifest's entry: what was read, all documents or (not ``complete``) the first ones."""
        ...


class Source(Protocol):
    """Raw documents in parts."""

    name: str

    def parts(self) -> list[Part]:
        """Return the parts in the order of their documents, without reading their content."""
        ...

    def describe(self, read: list[dict[str, Any]]) -> dict[str, Any]:
        """Return the source's entry in the manifest, made from the facts of the parts that were read."""
        ...
