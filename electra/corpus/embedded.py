"""The embedded source: documents of the microworld."""

from collections.abc import Iterator
from typing import Any

from electra.config import EmbeddedCorpus
from electra.corpus.source import Part
from electra.microworld.corpus import documents


class EmbeddedSource:
    """Documents of the microworld, a pure function of seed and number; one part."""

    def __init__(self, settings: EmbeddedCorpus):
        self.name, self.settings = settings.name, settings

    def parts(self) -> list[Part]:
        return [self]

    def texts(self) -> Iterator[str]:
        return documents(self.settings.num_documents, self.settings.seed)

    def facts(self, *, complete: bool) -> dict[str, Any]:
        return {"num_documents": self.settings.num_documents, "seed": self.settings.seed}

    def describe(self, read: list[dict[str, Any]]) -> dict[str, Any]:
        return self.facts(complete=bool(read))
