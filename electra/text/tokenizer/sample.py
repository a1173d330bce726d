"""The part of the corpus that the vocabulary is trained on: a sample by the documents' hashes."""

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa

from electra.cluster.executors import Workers, whole_file
from electra.common.corpus_file import read_documents
from electra.common.lines import batches

BATCH_CHARS = 500_000  # characters per batch of lines; the tokenizer's result takes some hundred times the memory
SCHEMA = pa.schema([("text", pa.large_string())])


def sampled(path: Path, share: float) -> Iterator[list[str]]:
    """Yield batches of the texts that belong to the sample."""
    for ids, texts in read_documents(path):
        yield [text for doc_id, text in zip(ids, texts, strict=True) if in_sample(doc_id, share)]


def write_sample(path: Path, share: float, target: Path) -> Path:
    """Write the texts of a corpus file that belong to the sample to an Arrow file, for another process to read."""
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
    """Yield the batches that :func:`write_sample` wrote."""
    with pa.OSFile(str(path), "rb") as file, pa.ipc.open_stream(file) as stream:
        for batch in stream:
            yield batch.column(0).to_pylist()


def line_batches(texts: Iterable[str]) -> Iterator[list[str]]:
    """Yield the lines of documents in batches of about ``BATCH_CHARS`` characters: documents may be whole books."""
    return batches((line for text in texts for line in text.split("\n")), None, len, BATCH_CHARS)


def in_sample(doc_id: str, share: float) -> bool:
    """Return whether a document belongs to a hash sample of about ``share`` of all documents.

    Uses a new hash, so that the sample is independent of other selections by ``doc_id``.
    """
    digest = hashlib.blake2b(doc_id.encode(), digest_size=8, person=b"tokenizer").digest()
    return int.from_bytes(digest, "big") < share * 2**64


def sample(paths: list[Path], share: float, workers: Workers, scratch: Path) -> Iterator[list[str]]:
    """Yield the texts to train on, in the order of the corpus."""
    if workers.in_process or share == 1.0:  # with the whole corpus, workers have nothing to select
        for path in paths:
            yield from sampled(path, share)
        return
    jobs = ((path, share, scratch / f"{path.stem}.arrow") for path in paths)
    for written in workers.map(write_sample, jobs):
        yield from read_sample(written)
        written.unlink()
