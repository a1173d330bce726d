"""The embedded source: documents of the microworld."""

from collections.abc import Iterator
from typing import Any

from electra.config import EmbeddedCorpus
from electra.microworld.corpus import documents


class EmbeddedSource:
    """Documents of the microworld, a pure function of seed and number."""

    def __init__(self, settings: EmbeddedCorpus):
        self.settings = settings

    def texts(self) -> Iterator[str]:
        return documents(self.settings.num_documents, self.settings.seed)

    def facts(self) -> dict[str, Any]:
        return {"num_documents": self.settings.num_documents, "seed": self.settings.seed}
