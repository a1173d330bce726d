"""What every kind of source offers, and the choice of the kind."""

from collections.abc import Iterator
from typing import Any, Protocol

from electra.config import CorpusSource, EmbeddedCorpus, FilesCorpus


class Source(Protocol):
    """A stream of raw documents."""

    def texts(self) -> Iterator[str]:
        """The raw documents in a fixed order, one held at a time; a missing text is an empty string."""
        ...

    def facts(self) -> dict[str, Any]:
        """For the manifest: what was read. Called after the last document was taken."""
        ...


def open_source(settings: CorpusSource) -> Source:
    """The source that a ``corpus.sources`` entry describes; nothing is read yet."""
    if isinstance(settings, EmbeddedCorpus):
        from electra.corpus.embedded import EmbeddedSource

        return EmbeddedSource(settings)
    if isinstance(settings, FilesCorpus):
        from electra.corpus.files import FilesSource

        return FilesSource(settings)
    from electra.corpus.hub import HubSource

    return HubSource(settings)
