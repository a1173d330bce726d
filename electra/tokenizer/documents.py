"""The documents of one split of ``data/corpus``, streamed, and a sample of them that does not depend on their order."""

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from electra.errors import DataError

BATCH_ROWS = 64
BATCH_CHARS = 500_000  # of lines: what the tokenizer makes of them takes some hundred times the room


def documents(corpus: Path, split: str) -> Iterator[tuple[list[str], list[str]]]:
    """Batches of (document ids, texts) of ``train`` or ``heldout``, in the order of the files.

    Raises:
        DataError: a file is damaged.
    """
    for path in sorted(corpus.glob(f"{split}-*.parquet")):
        try:
            with pq.ParquetFile(path) as file:
                for batch in file.iter_batches(BATCH_ROWS, columns=["doc_id", "text"]):
                    yield batch["doc_id"].to_pylist(), batch["text"].to_pylist()
        except (pa.ArrowInvalid, OSError) as error:
            raise DataError(
                f"a corpus file is damaged: {error}", where=str(path), next_step="dvc repro corpus"
            ) from None


def line_batches(texts: Iterable[str]) -> Iterator[list[str]]:
    """The lines of documents, about ``BATCH_CHARS`` characters at a time: documents may be whole books."""
    batch: list[str] = []
    num_chars = 0
    for text in texts:
        for line in text.split("\n"):
            batch.append(line)
            num_chars += len(line)
            if num_chars >= BATCH_CHARS:
                yield batch
                batch, num_chars = [], 0
    if batch:
        yield batch


def in_sample(doc_id: str, share: float) -> bool:
    """Whether a document belongs to a hash sample of about ``share`` of all documents.

    Hashes anew: the held-out split may have been cut by the bytes of ``doc_id`` themselves.
    """
    digest = hashlib.blake2b(doc_id.encode(), digest_size=8, person=b"tokenizer").digest()
    return int.from_bytes(digest, "big") < share * 2**64
