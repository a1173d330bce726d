"""One corpus file -> its shard files: the unit of parallel work."""

import os
from collections.abc import Iterator
from itertools import accumulate, islice
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
from tokenizers import Tokenizer

from electra.artifacts import disk_errors
from electra.checksums import Listed
from electra.config import Shards
from electra.corpus_file import read_documents
from electra.shards.boundaries import Boundaries
from electra.shards.examples import cut_document, document_generator, write_example
from electra.shards.growing_array import GrowingArray
from electra.shards.words import WordEncoder

BATCH_CHARS = 1_000_000  # text encoded at a time
NPY_HEADER_BYTES = 128
KINDS = ("tokens", "spans")
BUFFER_ROWS = 4096  # examples in memory before they are written


def shard_file(
    corpus_file: Listed, tokenizer_file: Path, rules: Shards, folder: Path, unfinished: Path
) -> list[dict[str, Any]]:
    """Write all examples of ``train-00003.parquet`` as ``train-00003-00000.tokens.npy`` and ``.spans.npy``, and so on.

    Memory does not grow with the file: it is streamed, and a part is written when it has ``rules.max_shard_bytes``.

    Args:
        corpus_file: checked before it is read.
        folder: gets the files, each when it is whole.
        unfinished: a folder beside for files not yet whole.

    Returns:
        One entry per part: {name, examples, tokens}; none where no document has a wordpiece.

    Raises:
        DataError: the corpus file is damaged.
        InfrastructureError: the disk is full.
    """
    corpus_file.verify()
    tokenizer = Tokenizer.from_file(str(tokenizer_file))
    tokenizer.encode_special_tokens = True  # the text "[SEP]" is text
    ids = tokenizer.get_vocab()
    parts = _Parts(folder, unfinished, corpus_file.path.stem, rules, len(ids))
    encoder = WordEncoder(tokenizer, parts.dtype)
    finder = Boundaries(sorted(ids, key=ids.__getitem__)) if rules.boundaries == "sentences" else None
    for doc_id, pieces, line_ends in _encoded(corpus_file.path, encoder, parts.dtype):
        generator = document_generator(rules.seed, doc_id)
        boundaries = finder.of(pieces, line_ends) if finder and len(pieces) else None
        for cut in cut_document(len(pieces), line_ends, rules, generator, boundaries):
            row, spans = parts.next_row()
            spans[:] = write_example(row, pieces, cut, cls_id=ids["[CLS]"], sep_id=ids["[SEP]"])
    parts.end_part()
    return parts.written


class _Parts:
    """Rows of fixed length as pairs of files, the next pair whenever one is full; a few rows are held in memory."""

    def __init__(self, folder: Path, unfinished: Path, stem: str, rules: Shards, vocab_size: int):
        self.dtype = np.dtype(np.uint16 if vocab_size <= 2**16 else np.uint32)
        self.written: list[dict[str, Any]] = []
        self._folder, self._stem = folder, stem
        self._unfinished = unfinished / uuid4().hex[:8]  # two workers may do the same file, one of them for nobody
        self._unfinished.mkdir()
        self._capacity = (rules.max_shard_bytes - NPY_HEADER_BYTES) // (rules.max_length * self.dtype.itemsize)
        self._tokens = np.zeros((BUFFER_ROWS, rules.max_length), dtype=self.dtype)
        self._spans = np.zeros((BUFFER_ROWS, 2), dtype=np.uint16)
        self._buffered = 0
        self._part: tuple[GrowingArray, ...] | None = None
        self._num_tokens = 0

    def next_row(self) -> tuple[np.ndarray, np.ndarray]:
        """A fresh row of zeros [max_length] and its span [2], both to be filled by the caller."""
        if self._buffered + (len(self._part[0]) if self._part else 0) == self._capacity:
            self.end_part()
        elif self._buffered == BUFFER_ROWS:
            self._flush()
        self._buffered += 1
        return self._tokens[self._buffered - 1], self._spans[self._buffered - 1]

    def end_part(self) -> None:
        """Finish the pair of files being written, if it has rows."""
        self._flush()
        if self._part is None:
            return
        with disk_errors(self._folder):
            for kind, array in zip(KINDS, self._part, strict=True):
                array.close()
                os.replace(self._unfinished / f"{self._name()}.{kind}.npy", self._folder / f"{self._name()}.{kind}.npy")
        self.written.append({"name": self._name(), "examples": len(self._part[0]), "tokens": self._num_tokens})
        self._part, self._num_tokens = None, 0

    def _flush(self) -> None:
        if not self._buffered:
            return
        tokens, spans = self._tokens[: self._buffered], self._spans[: self._buffered]
        with disk_errors(self._folder):
            if self._part is None:
                self._part = tuple(GrowingArray(self._unfinished / f"{self._name()}.{kind}.npy") for kind in KINDS)
            self._part[0].append(tokens)
            self._part[1].append(spans)
        self._num_tokens += int(spans[:, 0].sum(dtype=np.int64))
        tokens[:], spans[:] = 0, 0
        self._buffered = 0

    def _name(self) -> str:
        return f"{self._stem}-{len(self.written):05d}"


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
    for ids, texts in read_documents(path):
        for doc_id, text in zip(ids, texts, strict=True):
            batch.append((doc_id, text))
            num_chars += len(text)
            if num_chars >= BATCH_CHARS:
                yield batch
                batch, num_chars = [], 0
    if batch:
        yield batch
