"""The documents of one split of ``data/corpus``, streamed, and a sample of them that does not depend on their order."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from electra.errors import DataError

BATCH_ROWS = 64


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


def in_sample(doc_id: str, share: float) -> bool:
    """Whether a document belongs to a hash sample of about ``share`` of all documents.

    Hashes anew: the held-out split may have been cut by the bytes of ``doc_id`` themselves.
    """
    digest = hashlib.blake2b(doc_id.encode(), digest_size=8, person=b"tokenizer").digest()
    return int.from_bytes(digest, "big") < share * 2**64
