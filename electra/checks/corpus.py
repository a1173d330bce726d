"""Checks of ``data/corpus``: statistics per document, file and source, and the expectations on them.

Files are streamed and processed in parallel. Memory: in a worker one batch of documents and the file's part of the
result; in the command a bounded table, 8 bytes per document for its identity (briefly six times that), and hashes of at
most four million n-grams, with 32 bytes for each document that has one.
"""

from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from electra.checks.corpus_counts import COUNTS, DOC_ID, FileCounts, count_file, keys_of, split_of
from electra.checks.expectations import (
    Suite,
    between,
    critical,
    files_expectations,
    is_given,
    is_in,
    is_unique,
    matches,
    warning,
)
from electra.checks.repeated_text import Repeat
from electra.checks.tables import Table, files_table
from electra.checks.validate import validate
from electra.cluster.executors import open_workers
from electra.common.artifacts import CorpusManifest, read_manifest, refuse_earlier
from electra.common.paths import Paths
from electra.config import Cluster, Corpus, FilesCorpus, Settings
from electra.config.text import MANY_PARAGRAPHS, PARAGRAPH_CHARS

MANY_PARTS = 100  # number of files, if they are smaller than SMALL_PART_CHARS
SMALL_PART_CHARS = 1_000_000  # average characters per file
COLUMNS = ["file", "row", "split", "doc_id", "source", "begins", *COUNTS, "mean_word_chars", "digit_ratio",
           "id_is_text_hash", "in_both_splits"]  # fmt: skip


def validate_corpus(settings: Settings, paths: Paths) -> None:
    """Validate ``data/corpus``.

    Raises:
        DataError: a critical expectation failed; the message names the rows.
    """
    refuse_earlier(paths, "corpus")
    tables, statistics = corpus_tables(settings.corpus, paths.corpus, settings.cluster)
    validate("corpus", tables, corpus_suite(settings.corpus), statistics, paths)


def corpus_tables(corpus: Corpus, folder: Path, cluster: Cluster) -> tuple[dict[str, Table], dict[str, Any]]:
    """Return the tables of :func:`corpus_suite` and the report's statistics.

    The tables are ``documents``, ``sources``, ``text_files``, ``splits``, ``totals`` and ``files``. Files are processed
    by the workers of ``cluster``; the result does not depend on the number of workers.
    """
    manifest = read_manifest(folder, CorpusManifest)
    files_state, readable = files_table(folder, manifest, pq.read_table, (pa.ArrowException, OSError))
    split_counts = {"train": 0, "heldout": 0}
    parts = [path for path in readable if path.suffix == ".parquet" and split_of(path) in split_counts]
    files = [path.absolute() for path in parts]  # workers may have another cwd
    for path in files:
        split_counts[split_of(path)] += pq.ParquetFile(path).metadata.num_rows
    size = (num_documents := sum(split_counts.values()), manifest["characters"])
    counts = FileCounts(*size)
    with open_workers(cluster, len(files), folder, "corpus.max_chars") as workers:
        for part in workers.map(count_file, _jobs(corpus, files, size)):
            counts.add_all(part)
    sums, sample = counts.sums, counts.sample
    near_duplicate_share, repeats = counts.repeated.find()
    statistics = {
        "documents": num_documents,
        "held_out_documents": split_counts["heldout"],
        "held_out_share": sums["held_out_chars"] / max(1, sums["chars"]),
        "characters": sums["chars"],
        "words": sums["words"],
        "characters_per_document": sums["chars"] / max(1, num_documents),
        "non_ascii_share": sums["non_ascii_chars"] / max(1, sums["chars"]),
        "digit_share": sums["digits"] / max(1, sums["chars"]),
        "near_duplicate_share": near_duplicate_share,
        "near_duplicates": _named_repeats(repeats, files),
        "mojibake_share": sums["mojibake"] / max(1, sums["sampled"]),
    }
    totals = {
        **statistics,
        "documents_missing": manifest["documents"] - num_documents,
        "small_parts": len(files) if len(files) > MANY_PARTS and sums["chars"] < SMALL_PART_CHARS * len(files) else 0,
    }
    tables = {
        "documents": sample.table(COLUMNS),
        "totals": Table(pd.DataFrame([totals]), named_by=[]),
        "splits": Table(pd.DataFrame(split_counts.items(), columns=["split", "documents"]), named_by=["split"]),
        "sources": _source_shares(corpus, dict(counts.characters_by_source)),
        "text_files": _text_files(corpus, manifest),
        "files": files_state,
    }
    return tables, statistics


def _named_repeats(repeats: list[Repeat], files: list[Path]) -> list[str]:
    """Return descriptions of the documents with most repeated text, each with a document that shares it."""
    return [
        f"{_named(repeat.document, files)}: {repeat.share:.0%} of it, {repeat.characters:,} characters, "
        f"also in {_named(repeat.other, files)}"
        for repeat in repeats
    ]


def _named(number: int, files: list[Path]) -> str:
    """Return file, row and beginning of a document, given its number in the corpus."""
    for path in files:
        parquet = pq.ParquetFile(path)
        row = number
        if row >= parquet.metadata.num_rows:
            number -= parquet.metadata.num_rows
            continue
        for group in range(parquet.num_row_groups):
            in_group = parquet.metadata.row_group(group).num_rows
            if row < in_group:
                begins = parquet.read_row_group(group, columns=["text"])["text"][row].as_py() or ""
                return f"{path.name} row {number} ({begins[:40]!r})"
            row -= in_group
    raise IndexError(number)


def _jobs(
    corpus: Corpus, files: list[Path], size: tuple[int, int]
) -> Iterator[tuple[Corpus, Path, tuple[int, int], np.ndarray, np.ndarray]]:
    """Yield arguments of :func:`count_file`. Repeated documents are found first, since that needs all files."""
    keys = [keys_of(pq.read_table(path, columns=["doc_id"])["doc_id"].to_pandas()) for path in files]
    by_split = {
        split: np.concatenate(
            [np.empty(0, np.uint64), *(k for k, f in zip(keys, files, strict=True) if split_of(f) == split)]
        )
        for split in ("train", "heldout")
    }
    values, counts = np.unique(np.concatenate(list(by_split.values())), return_counts=True)
    repeated, in_both = values[counts > 1], np.intersect1d(by_split["train"], by_split["heldout"])
    del by_split, values, counts
    for path, own in zip(files, keys, strict=True):
        yield corpus, path, size, _among(repeated, own), _among(in_both, own)


def _among(values: np.ndarray, own: np.ndarray) -> np.ndarray:
    """Return the values that occur in one file; without values (a sound corpus) nothing is computed."""
    return values[np.isin(values, own)] if len(values) else values


def _text_files(corpus: Corpus, manifest: dict[str, Any]) -> Table:
    """Return documents per file and their mean length for each source of text files; do they look like paragraphs?"""
    rows = []
    for source in corpus.sources:
        facts = manifest.get("sources", {}).get(source.name, {})
        num_files = sum(".txt" in PurePath(file["path"].lower()).suffixes for file in facts.get("files", []))
        if not isinstance(source, FilesCorpus) or not num_files or not facts["documents"]:
            continue
        mean_chars = facts["characters"] // facts["documents"]
        many = facts["documents"] >= MANY_PARAGRAPHS * num_files and mean_chars < PARAGRAPH_CHARS
        rows.append((source.name, num_files, facts["documents"], mean_chars, many))
    columns = ["source", "files", "documents", "characters_per_document", "look_like_paragraphs"]
    return Table(pd.DataFrame(rows, columns=columns), named_by=columns[:-1])


def _source_shares(corpus: Corpus, characters: dict[str, int]) -> Table:
    """Return each source's share of characters and the share requested in the settings."""
    asked = {source.name: source.weight / sum(s.weight for s in corpus.sources) for source in corpus.sources}
    total = max(1, sum(characters.values()))
    rows = [
        (name, share := characters.get(name, 0) / total, asked.get(name, 0.0), share - asked.get(name, 0.0))
        for name in sorted(asked | characters)
    ]
    return Table(
        pd.DataFrame(rows, columns=["source", "share", "asked_share", "difference"]),
        named_by=["source", "share", "asked_share"],
    )


REBUILD = "make the corpus again: dvc repro -f corpus"
CLEANING = "repair or drop these documents in the source, then: dvc repro corpus"


def corpus_suite(corpus: Corpus) -> Suite:
    """Return the expectations per table of :func:`corpus_tables`."""
    return {
        "files": files_expectations("data/corpus", "corpus"),
        "splits": [
            critical(
                "documents",
                between(1),
                "both splits have documents",
                "give more text, or raise corpus.held_out_fraction",
            )
        ],
        "documents": [
            critical("doc_id", matches(DOC_ID), "doc_id is 16 hexadecimal digits", REBUILD),
            critical("doc_id", is_unique(), "no document stands twice", REBUILD),
            critical("in_both_splits", is_in(False), "no held-out document is in the training split", REBUILD),
            critical("id_is_text_hash", is_in(True), "doc_id is the hash of the text", REBUILD),
            critical("begins", is_given(), "text is not null", REBUILD),
            critical(
                "chars",
                between(corpus.min_chars, corpus.max_chars),
                "length is within corpus.min_chars and corpus.max_chars",
                REBUILD,
            ),
            critical(
                "replacement_chars",
                between(high=0),
                "no replacement characters (U+FFFD): text that was decoded wrongly and is lost",
                CLEANING,
            ),
            critical("control_chars", between(high=0), "no control characters", CLEANING),
            warning(
                "mean_word_chars",
                between(2, 15, mostly=0.99),
                "words have a usual length",
                "look for tables, code or text without spaces in the source",
            ),
            warning(
                "digit_ratio",
                between(high=0.3, mostly=0.99),
                "few documents are mostly digits",
                "look for tables and lists in the source",
            ),
        ],
        "totals": [
            critical("documents_missing", is_in(0), "there are as many documents as the manifest says", REBUILD),
            warning(
                "near_duplicate_share",
                between(high=0.01),
                "little text (by characters) is in another document too, whatever its case, spaces and punctuation",
                "look at the documents that results/validation/corpus.json names (near_duplicates): texts in two "
                "editions, extracts of others, boilerplate; remove them from the source, or set corpus.near_duplicates",
            ),
            warning(
                "mojibake_share",
                between(high=0.001),
                "few documents hold wrongly decoded characters",
                "these could not be repaired: set `encoding` of the source to what its files are written in"
                if corpus.repair_mojibake
                else "set corpus.repair_mojibake: true, or `encoding` of the source to what its files are written in",
            ),
            warning(
                "held_out_share",
                between(
                    corpus.held_out_fraction / 4, max(2 * corpus.held_out_fraction, corpus.held_out_fraction + 0.05)
                ),
                "about as much text is held out as corpus.held_out_fraction asks for",
                "whole documents are held out, at least one: with few documents, or a few very long ones, the "
                "share cannot be met; give more, or set `documents` of the source so that a file has several",
            ),
            warning(
                "small_parts",
                is_in(0),
                "the corpus is not in very many small files",
                "raise corpus.documents_per_file: each file is a separate unit of work and a separate shard part",
            ),
        ],
        "text_files": [
            warning(
                "look_like_paragraphs",
                is_in(False),
                "the documents of text files are more than their paragraphs",
                "where a file is one text, set `documents: file` of the source: now blank lines or line ends separate "
                "its documents, and an example holds text of one only; where each is a text of its own, leave it",
            )
        ],
        "sources": [
            warning(
                "difference",
                between(-0.03, 0.03),
                "each source has the share of characters that its weight asks for",
                "a source ran out of text: lower its weight or give it more",
            )
        ],
    }
