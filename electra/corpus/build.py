"""The corpus stage: sources to cleaned, de-duplicated and split documents."""

import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

from electra.common.artifacts import building, renews, write_manifest
from electra.common.errors import DataError
from electra.common.paths import Paths
from electra.config import CorpusSource, EmbeddedCorpus, FilesCorpus, Settings
from electra.corpus.cleaned import CleanedSource
from electra.corpus.document import SeenIds, interleave, kept_documents
from electra.corpus.embedded import EmbeddedSource
from electra.corpus.files import FilesSource
from electra.corpus.hub import HubSource
from electra.corpus.source import Source
from electra.corpus.writer import SplitFiles, split_files
from electra.system.executors import job_folder, open_workers

EVERY_SECONDS = 5.0


class Progress:
    """Counts documents and characters, and prints a line to stderr now and then."""

    def __init__(self) -> None:
        self.documents = self.characters = 0
        self._began = self._printed = time.monotonic()

    def add(self, characters: int) -> None:
        """Count one document."""
        self.documents += 1
        self.characters += characters
        now = time.monotonic()
        if now - self._printed >= EVERY_SECONDS:
            self._printed = now
            million = self.characters / 1e6
            rate = million / (now - self._began)
            print(
                f"corpus: {self.documents:,} documents, {million:,.1f} M characters, {rate:.1f} M/s",
                file=sys.stderr,
                flush=True,
            )


@renews("corpus")
def build_corpus(settings: Settings, paths: Paths) -> None:
    """Write ``data/corpus``: ``train-*.parquet``, ``heldout-*.parquet`` and ``manifest.json``.

    Raises:
        DataError: input that cannot be read, or a corpus without at least one training and one held-out document.
        InfrastructureError: the disk is full, a remote source cannot be reached, or workers died.
    """
    corpus = settings.corpus
    names = [source.name for source in corpus.sources]
    sources = [open_source(source) for source in corpus.sources]
    removed: Counter[str] = Counter()
    kept: dict[str, Counter[str]] = {name: Counter() for name in names}
    progress = Progress()
    with building(paths.corpus) as folder:
        with (
            job_folder(folder) as scratch,
            SeenIds(folder / "seen.sqlite") as seen,
            split_files(folder, corpus.documents_per_file, corpus.held_out_fraction) as files,
            _cleaned(settings, sources, scratch) as cleaned,
        ):
            streams = [
                kept_documents(name, documents, seen, removed) for name, documents in zip(names, cleaned, strict=True)
            ]
            mixture = interleave(streams, [source.weight for source in corpus.sources])
            for document in islice(mixture, corpus.max_documents):
                files.add(document)
                kept[document.source].update(documents=1, characters=len(document.text))
                progress.add(len(document.text))
        dropped = {reason: removed[reason] for reason in ("duplicate", "too_short")}
        _check(files, names, dropped)
        documents, characters = progress.documents, progress.characters
        weights = sum(source.weight for source in corpus.sources)
        write_manifest(
            folder,
            documents=documents,
            characters=characters,
            sources={
                source.name: {
                    "kind": source.kind,
                    "documents": kept[source.name]["documents"],
                    "characters": kept[source.name]["characters"],
                    "share": round(kept[source.name]["characters"] / characters, 6),
                    "asked_share": round(source.weight / weights, 6),
                    **documents.facts(),
                }
                for source, documents in zip(corpus.sources, cleaned, strict=True)
            },
            dropped=dropped,
            cut={"documents": removed["cut_documents"], "characters": removed["cut_characters"]},
            lines_with_lost_letters=removed["lines_with_lost_letters"],
            held_out={"documents": files.held_out.documents, "characters": files.held_out.characters},
        )
    print(
        f"corpus: {documents:,} documents, {characters / 1e6:,.1f} M characters;"
        f" held out {files.held_out.documents:,}; dropped {_counts(dropped)}"
    )
    if removed["cut_documents"]:
        print(
            f"corpus: {removed['cut_documents']:,} documents were longer than corpus.max_chars; the"
            f" {removed['cut_characters'] / 1e6:,.1f} M characters beyond it are left out"
        )


def open_source(settings: CorpusSource) -> Source:
    """The source that a ``corpus.sources`` entry describes; nothing is read yet."""
    if isinstance(settings, EmbeddedCorpus):
        return EmbeddedSource(settings)
    if isinstance(settings, FilesCorpus):
        return FilesSource(settings)
    return HubSource(settings)


@contextmanager
def _cleaned(settings: Settings, sources: list[Source], scratch: Path) -> Iterator[list[CleanedSource]]:
    """The cleaned documents of each source, by the workers that the settings name."""
    parts = [source.parts() for source in sources]
    with open_workers(settings.cluster, sum(map(len, parts)), scratch, "corpus.max_chars") as workers:
        yield [
            CleanedSource(source, of_source, settings.corpus, workers, scratch)
            for source, of_source in zip(sources, parts, strict=True)
        ]


def _check(files: SplitFiles, names: list[str], dropped: dict[str, int]) -> None:
    """Both splits must have documents."""
    train, held_out = files.train.documents, files.held_out.documents
    where = f"corpus.sources: {', '.join(names)}"
    if train + held_out == 0:
        raise DataError(
            f"the corpus is empty: no document is left after cleaning (dropped {_counts(dropped)})",
            where=where,
            next_step="give text, or lower corpus.min_chars",
        )
    if train + held_out == 1:
        raise DataError(
            f"the corpus is a single document (dropped {_counts(dropped)}); it takes one to train on and one held out",
            where=where,
            next_step="give more text, or set `documents` of the source to what separates documents in its files",
        )
    if train == 0:
        raise DataError(
            f"all {held_out} documents are held out, none is left to train on",
            where=where,
            next_step="lower corpus.held_out_fraction, or give more text",
        )


def _counts(dropped: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {reason}" for reason, count in dropped.items())
