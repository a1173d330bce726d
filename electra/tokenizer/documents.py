"""The documents of one corpus file, streamed, and a sample of them that does not depend on their order."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa

from electra.checksums import Listed
from electra.corpus_file import read_documents
from electra.executors import whole_file
from electra.tokenizer.wordpiece import count_characters

BATCH_CHARS = 500_000  # of lines: what the tokenizer makes of them takes some hundred times the room
SCHEMA = pa.schema([("text", pa.large_string())])


def count_file(file: Listed) -> Counter[str]:
    """How often each character stands in a corpus file, which is checked first.

    Raises:
        DataError: the file is damaged.
    """
    file.verify()
    return count_characters(texts for _, texts in read_documents(file.path))


def sampled(path: Path, share: float) -> Iterator[list[str]]:
    """Batches of the texts that belong to the sample."""
    for ids, texts in read_documents(path):
        yield [text for doc_id, text in zip(ids, texts, strict=True) if in_sample(doc_id, share)]


def write_sample(path: Path, share: float, target: Path) -> Path:
    """The same as an Arrow file, for another process to read.

    Raises:
        DataError: the corpus file is damaged.
        InfrastructureError: the disk is full.
    """
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with (
        whole_file(target) as beside,
        pa.OSFile(str(beside), "wb") as sink,
        pa.ipc.new_stream(sink, SCHEMA, options=options) as stream,
    ):
        for texts in sampled(path, share):
            stream.write_batch(pa.record_batch([texts], schema=SCHEMA))
    return target


def read_sample(path: Path) -> Iterator[list[str]]:
    """The batches that :func:`write_sample` wrote."""
    with pa.OSFile(str(path), "rb") as file, pa.ipc.open_stream(file) as stream:
        for batch in stream:
            yield batch.column(0).to_pylist()


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
