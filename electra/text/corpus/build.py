"""The corpus stage: reads sources and writes cleaned, de-duplicated and split documents."""

import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

from electra.cluster.executors import job_folder, open_workers
from electra.common.artifacts import building, renews, write_json, write_manifest
from electra.common.errors import DataError
from electra.common.paths import Paths
from electra.config import Corpus, CorpusSource, FilesCorpus, Settings
from electra.text.corpus.cleaned import CleanedSource
from electra.text.corpus.cleaning.notes import CLEANING, Notes
from electra.text.corpus.decontamination import LeakTable
from electra.text.corpus.files import FilesSource
from electra.text.corpus.hub import HubSource
from electra.text.corpus.near_duplicates import SeenIds, near_duplicate_index
from electra.text.corpus.selection import interleave, kept_documents, repeated_across
from electra.text.corpus.sources import Source
from electra.text.corpus.writer import SplitFiles, by_split, split_files

EVERY_SECONDS = 5.0


class Progress:
    """Counter of documents and characters that prints a line to stderr every ``EVERY_SECONDS``."""

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

    With ``corpus.cleaning``, ``near_duplicates`` or ``decontamination``, also write ``cleaning.json``: counts and
    examples of what each rule removed.

    Raises:
        DataError: the input cannot be read, has more words than ``corpus.max_words``, or lacks a training or a held-out
            document.
        InfrastructureError: the disk is full, a remote source cannot be reached, or workers died.
    """
    corpus = settings.corpus
    removed: Counter[str] = Counter()
    kept = {source.name: Counter(documents=0, characters=0) for source in corpus.sources}
    notes = Notes()
    leaks = LeakTable(paths.evaluation_texts, corpus.decontamination) if corpus.decontamination else None
    progress = Progress()
    with building(paths.corpus) as folder:
        with (
            job_folder(folder) as scratch,
            SeenIds(folder / "seen.sqlite") as seen,
            near_duplicate_index(corpus.near_duplicates, folder, notes) as near,
            repeated_across(corpus.cleaning, folder / "lines.sqlite", notes) as across,
            split_files(
                folder,
                corpus.documents_per_file,
                corpus.held_out_fraction,
                corpus.split_longer_than is not None,
                corpus.min_chars,
            ) as files,
            _cleaned(settings, paths, scratch) as cleaned,
        ):
            streams = [
                kept_documents(source.name, documents, seen, removed, notes, near, across, leaks, corpus.min_chars)
                for source, documents in zip(corpus.sources, cleaned, strict=True)
            ]
            mixture = interleave(streams, [source.weight for source in corpus.sources])
            for document in by_split(islice(mixture, corpus.max_documents), corpus, seen, removed):
                files.add(document)
                kept[document.source].update(documents=1, characters=len(document.text))
                progress.add(len(document.text))
        if files.cut:  # one document became two, and lost the line feed between them
            removed["split_documents"] += 1
            kept[files.cut.source].update(documents=1, characters=-1)
        dropped = {reason: removed[reason] for reason in _reasons(corpus)}
        _check(files, list(kept), dropped)
        _check_words(corpus, removed["raw_words"])
        if corpus.cleaning or corpus.near_duplicates or leaks:
            write_json(folder / CLEANING, notes.report())
        total = sum(kept.values(), Counter[str]())
        weights = sum(source.weight for source in corpus.sources)
        write_manifest(
            folder,
            documents=total["documents"],
            characters=total["characters"],
            sources={
                source.name: {
                    "kind": source.kind,
                    **({"license": source.license} if source.license else {}),
                    "documents": kept[source.name]["documents"],
                    "characters": kept[source.name]["characters"],
                    "share": round(kept[source.name]["characters"] / total["characters"], 6),
                    "asked_share": round(source.weight / weights, 6),
                    **documents.facts(),
                }
                for source, documents in zip(corpus.sources, cleaned, strict=True)
            },
            dropped=dropped,
            cut={"documents": removed["cut_documents"], "characters": removed["cut_characters"]},
            lines_with_lost_letters=removed["lines_with_lost_letters"],
            **({"raw_words": removed["raw_words"]} if corpus.max_words else {}),
            **({"decontamination": leaks.report()} if leaks else {}),
            **({"split_documents": removed["split_documents"]} if removed["split_documents"] else {}),
            held_out={"documents": files.held_out.documents, "characters": files.held_out.characters},
        )
    _print_summary(corpus, total, removed, dropped, files)


def _reasons(corpus: Corpus) -> list[str]:
    """Return the reasons for which documents may be dropped, in the order of the manifest."""
    reasons = ["duplicate", "too_short"]
    reasons += ["cleaning"] if corpus.cleaning else []
    reasons += ["decontamination"] if corpus.decontamination else []
    return reasons + (["near_duplicate"] if corpus.near_duplicates else [])


def _print_summary(
    corpus: Corpus, total: Counter[str], removed: Counter[str], dropped: dict[str, int], files: SplitFiles
) -> None:
    print(
        f"corpus: {total['documents']:,} documents, {total['characters'] / 1e6:,.1f} M characters;"
        f" held out {files.held_out.documents:,}; dropped {_counts(dropped)}"
    )
    share = files.held_out.characters / total["characters"]
    if removed["split_documents"]:
        print(f"corpus: of {removed['split_documents']:,} long documents only groups of paragraphs are held out")
    if share > 2 * corpus.held_out_fraction > 0:
        print(
            f"corpus: {share:.1%} of the text is held out, corpus.held_out_fraction is {corpus.held_out_fraction:.1%}: "
            "there are few documents; add some, or set `documents` of the source to what separates them"
        )
    if removed["cut_documents"]:
        print(
            f"corpus: {removed['cut_documents']:,} documents were longer than corpus.max_chars; the"
            f" {removed['cut_characters'] / 1e6:,.1f} M characters beyond it are left out"
        )


def open_source(settings: CorpusSource) -> Source:
    """Return the source that a ``corpus.sources`` entry describes, without reading it."""
    return FilesSource(settings) if isinstance(settings, FilesCorpus) else HubSource(settings)


@contextmanager
def _cleaned(settings: Settings, paths: Paths, scratch: Path) -> Iterator[list[CleanedSource]]:
    """Yield the cleaned documents of each source; the workers configured under ``cluster`` clean them."""
    sources = [open_source(source) for source in settings.corpus.sources]
    parts = [source.parts() for source in sources]
    with open_workers(settings.cluster, sum(map(len, parts)), scratch, "corpus.max_chars") as workers:
        yield [
            CleanedSource(source, of_source, settings.corpus, paths.evaluation_texts, workers, scratch)
            for source, of_source in zip(sources, parts, strict=True)
        ]


def _check(files: SplitFiles, names: list[str], dropped: dict[str, int]) -> None:
    """Raise DataError unless both splits have documents."""
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


def _check_words(corpus: Corpus, raw_words: int) -> None:
    if corpus.max_words and raw_words > corpus.max_words:
        raise DataError(
            f"the text has {raw_words:,} words, {raw_words - corpus.max_words:,} more than corpus.max_words",
            where=f"corpus.sources: {', '.join(source.name for source in corpus.sources)}",
            next_step="take text out, or set another limit",
        )


def _counts(dropped: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {reason}" for reason, count in dropped.items())
