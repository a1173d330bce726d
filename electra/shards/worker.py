"""One corpus file -> its shard files: the unit of parallel work."""

import os
from collections.abc import Iterator
from itertools import accumulate, islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from tokenizers import Tokenizer

from electra.artifacts import disk_errors
from electra.config import Shards
from electra.errors import DataError
from electra.shards.examples import cut_document, document_generator, write_example
from electra.shards.words import WordEncoder

BATCH_ROWS = 64  # documents read at a time
BATCH_CHARS = 1_000_000  # text encoded at a time
NPY_HEADER_BYTES = 128


def limit_threads(num_threads: int) -> None:
    """Threads of the tokenizer in this process; takes effect before its first use."""
    os.environ["TOKENIZERS_PARALLELISM"] = "true" if num_threads > 1 else "false"
    os.environ["RAYON_NUM_THREADS"] = str(num_threads)


def shard_file(corpus_file: Path, tokenizer_file: Path, folder: Path, rules: Shards) -> list[dict[str, Any]]:
    """Write all examples of ``train-00003.parquet`` as ``train-00003-00000.tokens.npy`` and ``.spans.npy``, and so on.

    Memory does not grow with the file: it is streamed, and a part is written when it has ``rules.max_shard_bytes``.

    Returns:
        One entry per part: {name, examples, tokens}; none where no document has a wordpiece.

    Raises:
        DataError: the corpus file is damaged.
        InfrastructureError: the disk is full.
    """
    tokenizer = Tokenizer.from_file(str(tokenizer_file))
    tokenizer.encode_special_tokens = True  # the text "[SEP]" is text
    ids = tokenizer.get_vocab()
    parts = _Parts(folder, corpus_file.stem, rules, len(ids))
    encoder = WordEncoder(tokenizer, parts.dtype)
    for doc_id, pieces, line_ends in _encoded(corpus_file, encoder, parts.dtype):
        generator = document_generator(rules.seed, doc_id)
        for cut in cut_document(len(pieces), line_ends, rules, generator):
            row, spans = parts.next_row()
            spans[:] = write_example(row, pieces, cut, cls_id=ids["[CLS]"], sep_id=ids["[SEP]"])
    parts.flush()
    return parts.written


class _Parts:
    """Rows of fixed length, written as one pair of files whenever a part is full."""

    def __init__(self, folder: Path, stem: str, rules: Shards, vocab_size: int):
        self.dtype = np.dtype(np.uint16 if vocab_size <= 2**16 else np.uint32)
        self.written: list[dict[str, Any]] = []
        self._folder, self._stem = folder, stem
        self._capacity = (rules.max_shard_bytes - NPY_HEADER_BYTES) // (rules.max_length * self.dtype.itemsize)
        self._max_length = rules.max_length
        self._start_part()

    def next_row(self) -> tuple[np.ndarray, np.ndarray]:
        """A fresh row of zeros [max_length] and its span [2], both to be filled by the caller."""
        if self._rows == self._capacity:
            self.flush()
        self._rows += 1
        return self._tokens[self._rows - 1], self._spans[self._rows - 1]

    def flush(self) -> None:
        """Write the rows so far, if there are any."""
        if not self._rows:
            return
        name = f"{self._stem}-{len(self.written):05d}"
        tokens, spans = self._tokens[: self._rows], self._spans[: self._rows]
        with disk_errors(self._folder):
            np.save(self._folder / f"{name}.tokens.npy", tokens)
            np.save(self._folder / f"{name}.spans.npy", spans)
        self.written.append({"name": name, "examples": self._rows, "tokens": int(spans[:, 0].sum(dtype=np.int64))})
        self._start_part()

    def _start_part(self) -> None:
        self._tokens = np.zeros((self._capacity, self._max_length), dtype=self.dtype)  # untouched pages take no memory
        self._spans = np.zeros((self._capacity, 2), dtype=np.uint16)
        self._rows = 0


def _encoded(path: Path, encoder: WordEncoder, dtype: np.dtype) -> Iterator[tuple[str, np.ndarray, list[int]]]:
    """(document id, wordpiece ids, line ends) of every document, in the order of the file."""
    for documents in _batches(path):
        encoded = iter(encoder.encode([line for _, text in documents for line in text.split("\n")]))
        for doc_id, text in documents:
            lines = list(islice(encoded, text.count("\n") + 1))
            line_ends = list(accumulate(len(line) // dtype.itemsize for line in lines))
            yield doc_id, np.frombuffer(b"".join(lines), dtype=dtype), line_ends


def _batches(path: Path) -> Iterator[list[tuple[str, str]]]:
    """Documents (id, text) in batches of about ``BATCH_CHARS``."""
    batch: list[tuple[str, str]] = []
    num_chars = 0
    try:
        with pq.ParquetFile(path) as file:
            for rows in file.iter_batches(BATCH_ROWS, columns=["doc_id", "text"]):
                for doc_id, text in zip(rows["doc_id"].to_pylist(), rows["text"].to_pylist(), strict=True):
                    batch.append((doc_id, text))
                    num_chars += len(text)
                    if num_chars >= BATCH_CHARS:
                        yield batch
                        batch, num_chars = [], 0
    except (pa.ArrowInvalid, OSError) as error:
        raise DataError(f"a corpus file is damaged: {error}", where=str(path), next_step="dvc repro corpus") from None
    if batch:
        yield batch
