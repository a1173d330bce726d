"""A source that cleans its documents as they are read, in this process or in workers."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa

from electra.cluster.executors import Workers, whole_file
from electra.config import Corpus
from electra.text.corpus.cleaning.normalize import clean, cut
from electra.text.corpus.cleaning.notes import Notes
from electra.text.corpus.cleaning.steps import apply_steps, before_cleaning
from electra.text.corpus.decontamination import without_leaks
from electra.text.corpus.document import CleanedDocument, document_batches, text_hash
from electra.text.corpus.near_duplicates import Signer
from electra.text.corpus.sources import Part, Source

BATCH_CHARACTERS = 1_000_000
SIGNED_CHARACTERS = 20_000  # per call of the signer: large enough that short documents cost no more per character
SCHEMA = pa.schema(
    [
        ("text", pa.large_string()),
        ("digest", pa.binary(32)),
        ("lost_lines", pa.int64()),
        ("cut_characters", pa.int64()),
        ("notes", pa.large_string()),
        ("dropped", pa.string()),
        ("shingles", pa.large_binary()),
        ("bands", pa.binary()),
        ("leaks", pa.binary()),
        ("leaked_lines", pa.int64()),
        ("raw_words", pa.int64()),
    ]
)


class CleanedSource:
    """The cleaned documents of a source, in their order.

    Worker processes clean parts ahead of the iterator: ``folder`` holds at most twice as many parts as there are
    workers. A part's file is removed once its documents were read.

    Args:
        source: source of the raw documents.
        parts: parts of the source.
        corpus: cleaning rules.
        evaluation_texts: output folder of the stage evaluation_texts.
        workers: processes that clean.
        folder: folder for the workers' files.
    """

    def __init__(
        self,
        source: Source,
        parts: list[Part],
        corpus: Corpus,
        evaluation_texts: Path,
        workers: Workers,
        folder: Path,
    ):
        self._source, self._parts, self._corpus, self._workers, self._folder = source, parts, corpus, workers, folder
        self._evaluation_texts = evaluation_texts.absolute()  # a worker's current folder may differ
        self._facts: list[dict[str, Any]] = []  # of the parts read to the end
        self._begun: Part | None = None

    def __iter__(self) -> Iterator[CleanedDocument]:
        if self._workers.in_process:
            for part in self._parts:
                self._begun = part
                yield from clean_documents(part.texts(), self._corpus, self._evaluation_texts)
                self._finish(part.facts(complete=True))
            return
        rules = (self._corpus, self._evaluation_texts)
        jobs = ((part, *rules, self._folder / f"{uuid4().hex}.arrow") for part in self._parts)
        for part, (file, facts) in zip(self._parts, self._workers.map(write_cleaned, jobs), strict=True):
            self._begun = part
            yield from read_cleaned(file)
            file.unlink()
            self._finish(facts)

    def facts(self) -> dict[str, Any]:
        """Return the manifest's entry: what was read so far."""
        begun = [self._begun.facts(complete=False)] if self._begun else []
        return self._source.describe(self._facts + begun)

    def _finish(self, facts: dict[str, Any]) -> None:
        self._facts.append(facts)
        self._begun = None


def clean_documents(texts: Iterator[str], corpus: Corpus, evaluation_texts: Path) -> Iterator[CleanedDocument]:
    """Clean raw documents one at a time; every document yields one record, even if it is too short.

    Args:
        texts: raw documents.
        corpus: cleaning rules.
        evaluation_texts: folder with the texts that ``corpus.decontamination`` looks for.
    """
    documents: Iterator[CleanedDocument] = (_cleaned(raw, corpus) for raw in texts)
    if corpus.max_words:
        documents = (replace(_cleaned(raw, corpus), raw_words=len(raw.split())) for raw in texts)
    if corpus.decontamination:
        documents = without_leaks(documents, corpus, evaluation_texts)
    if not corpus.near_duplicates:
        yield from documents
        return
    signer = Signer(corpus.near_duplicates)
    for batch in document_batches(documents, SIGNED_CHARACTERS):
        for document, signed in zip(batch, signer.sign([document.text for document in batch]), strict=True):
            yield replace(document, shingles=signed.shingles, bands=signed.bands)


def _cleaned(raw: str, corpus: Corpus) -> CleanedDocument:
    notes = Notes()
    whole, lost_lines = clean(before_cleaning(raw, corpus.cleaning, notes), corpus.repair_mojibake)
    after = apply_steps(whole, corpus.cleaning, notes) if corpus.cleaning else whole
    if after is None:
        return CleanedDocument("", bytes(32), lost_lines, 0, notes.dump(), "cleaning")
    text = cut(after, corpus.max_chars)
    if len(text) < corpus.min_chars:
        return CleanedDocument("", bytes(32), lost_lines, 0, notes.dump())
    return CleanedDocument(text, text_hash(text), lost_lines, len(after) - len(text), notes.dump())


def write_cleaned(part: Part, corpus: Corpus, evaluation_texts: Path, file: Path) -> tuple[Path, dict[str, Any]]:
    """Clean a part into an Arrow file; for dedicated worker processes, since it changes Arrow's memory pool.

    Returns:
        The file, and the part's entry in the manifest.
    """
    # Arrow's default allocator holds some 30 MiB for half a MiB in use, and a little more with every job
    pa.set_memory_pool(pa.system_memory_pool())
    options = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
    with (
        whole_file(file) as beside,
        pa.OSFile(str(beside), "wb") as sink,
        pa.ipc.new_stream(sink, SCHEMA, options=options) as stream,
    ):
        for batch in document_batches(clean_documents(part.texts(), corpus, evaluation_texts), BATCH_CHARACTERS):
            columns = [[getattr(document, name) for document in batch] for name in SCHEMA.names]
            stream.write_batch(pa.record_batch(columns, schema=SCHEMA))
    return file, part.facts(complete=True)


def read_cleaned(file: Path) -> Iterator[CleanedDocument]:
    """Yield the documents that :func:`write_cleaned` wrote; one batch is in memory at a time."""
    with pa.OSFile(str(file), "rb") as opened, pa.ipc.open_stream(opened) as stream:
        for batch in stream:
            for values in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                yield CleanedDocument(*values)
