"""Streaming a corpus file in batches of a few megabytes of text, regardless of the length of its documents."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from electra.common.errors import DataError

BATCH_BYTES = 2 * 2**20  # average text per batch; documents may be whole books
MAX_ROWS = 1000


def read_documents(path: Path) -> Iterator[tuple[list[str], list[str]]]:
    """Yield batches of (document ids, texts), in the order of the file.

    Raises:
        DataError: the file is damaged.
    """
    try:
        with pq.ParquetFile(path) as file:
            facts = file.metadata
            num_bytes = sum(facts.row_group(number).total_byte_size for number in range(facts.num_row_groups))
            rows = int(BATCH_BYTES * facts.num_rows / max(1, num_bytes))
            for batch in file.iter_batches(max(1, min(MAX_ROWS, rows)), columns=["doc_id", "text"]):
                yield batch["doc_id"].to_pylist(), batch["text"].to_pylist()
    except (pa.ArrowInvalid, OSError) as error:
        raise DataError(f"a corpus file is damaged: {error}", where=str(path), next_step="dvc repro corpus") from None
