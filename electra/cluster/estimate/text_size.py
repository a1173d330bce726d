"""Size of a profile's text, before it is read."""

import os
from pathlib import Path

from electra.common.globs import expanded
from electra.config import FilesCorpus, Settings
from electra.text.corpus.compression import SUFFIXES

BYTES_PER_TOKEN = 4.5  # of text that has not been tokenized yet
COMPRESSION = 3.5  # bytes of English text per byte of a compressed file


def local_text_bytes(settings: Settings, root: Path = Path(".")) -> int:
    """Return the bytes of text in local files of the corpus, estimated where they are compressed."""
    names = {
        name
        for source in settings.corpus.sources
        if isinstance(source, FilesCorpus)
        for pattern in source.paths
        if "://" not in pattern
        for name in expanded(pattern, root)
        if os.path.isfile(root / name)
    }
    return sum(int(os.path.getsize(root / name) * (COMPRESSION if name.endswith(SUFFIXES) else 1)) for name in names)


def is_local(settings: Settings) -> bool:
    """Return whether all text is in local files, so that its size is known."""
    return all(
        isinstance(source, FilesCorpus) and not any("://" in pattern for pattern in source.paths)
        for source in settings.corpus.sources
    )
