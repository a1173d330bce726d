"""Raw documents of one part of a source, cleaned and hashed: the work that is mapped over input files.

What follows (which document is new, the mixture, the split) depends on all documents before, and is done by one process
in their order. A worker passes its documents on through a file of its own in the stage's folder.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa

from electra.config import Corpus
from electra.corpus.clean import clean, cut
from electra.corpus.cleaning.apply import apply_steps, before_cleaning
from electra.corpus.cleaning.notes import Notes
from electra.corpus.decontamination import without_leaks
from electra.corpus.document import Cleaned, text_hash
from electra.corpus.near_duplicates import Signer
from electra.corpus.source import Part, Source
from electra.executors import Workers, whole_file

BATCH_DOCUMENTS = 512
BATCH_CHARACTERS = 4_000_000
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
    ]
)


class CleanedSource:
    """The cleaned documents of a source, in their order.

    With other processes, parts are cleaned ahead of where the iterator stands: at most twice as many as there are
    workers lie in ``folder``. A part's file is removed once its documents were taken.

    Args:
        source: where the documents come from.
        parts: of the source.
        corpus: the rules.
        evaluation_texts: the folder of the stage of that name.
        workers: who cleans.
        folder: for the workers' files.
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
        self._evaluation_texts = evaluation_texts.absolute()  # a worker may stand in another folder
        self._facts: list[dict[str, Any]] = []  # of the parts read to the end
        self._begun: Part | None = None

    def __iter__(self) -> Iterator[Cleaned]:
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
        """For the manifest: what was read so far."""
        begun = [self._begun.facts(complete=False)] if self._begun else []
        return self._source.describe(self._facts + begun)

    def _finish(self, facts: dict[str, Any]) -> None:
        self._facts.append(facts)
        self._begun = None


def clean_documents(texts: Iterator[str], corpus: Corpus, evaluation_texts: Path) -> Iterator[Cleaned]:
    """Clean raw documents, one at a time; one record for each, also for those too short.

    Args:
        texts: raw documents.
        corpus: the rules.
        evaluation_texts: what ``corpus.decontamination`` looks for.
    """
    documents: Iterator[Cleaned] = (_cleaned(raw, corpus) for raw in texts)
    if corpus.decontamination:
        documents = without_leaks(documents, corpus, evaluation_texts)
    if not corpus.near_duplicates:
        yield from documents
        return
    signer = Signer(corpus.near_duplicates)
    for document in documents:
        signed = signer.sign(document.text)
        yield replace(document, shingles=signed.shingles, bands=signed.bands)


def _cleaned(raw: str, corpus: Corpus) -> Cleaned:
    notes = Notes()
    whole, lost_lines = clean(before_cleaning(raw, corpus.cleaning, notes), corpus.repair_mojibake)
    after = apply_steps(whole, corpus.cleaning, notes) if corpus.cleaning else whole
    if after is None:
        return Cleaned("", bytes(32), lost_lines, 0, notes.dump(), "cleaning")
    text = cut(after, corpus.max_chars)
    if len(text) < corpus.min_chars:
        return Cleaned("", bytes(32), lost_lines, 0, notes.dump())
    return Cleaned(text, text_hash(text), lost_lines, len(after) - len(text), notes.dump())


def write_cleaned(part: Part, corpus: Corpus, evaluation_texts: Path, file: Path) -> tuple[Path, dict[str, Any]]:
    """Clean a part into an Arrow file.

    Returns:
        The file, and the part's facts for the manifest.

    Raises:
        DataError: the part cannot be read.
        InfrastructureError: the disk is full, or a remote source cannot be reached.
    """
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with (
        whole_file(file) as beside,
        pa.OSFile(str(beside), "wb") as sink,
        pa.ipc.new_stream(sink, SCHEMA, options=options) as stream,
    ):
        for batch in _batches(clean_documents(part.texts(), corpus, evaluation_texts)):
            columns = [[getattr(document, name) for document in batch] for name in SCHEMA.names]
            stream.write_batch(pa.record_batch(columns, schema=SCHEMA))
    return file, part.facts(complete=True)


def _batches(documents: Iterator[Cleaned]) -> Iterator[list[Cleaned]]:
    batch: list[Cleaned] = []
    characters = 0
    for document in documents:
        batch.append(document)
        characters += len(document.text)
        if len(batch) >= BATCH_DOCUMENTS or characters >= BATCH_CHARACTERS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


def read_cleaned(file: Path) -> Iterator[Cleaned]:
    """The documents that :func:`write_cleaned` wrote, a batch at a time."""
    with pa.OSFile(str(file), "rb") as opened, pa.ipc.open_stream(opened) as stream:
        for batch in stream:
            for values in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                yield Cleaned(*values)
