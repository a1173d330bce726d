"""Checks of ``data/corpus``: statistics per document, file and source, and what must hold.

Files are read as streams, side by side. Memory: in a worker one batch of documents and what its file adds to the
result; in the command a bounded table, 8 bytes per document for its identity (six times that for a moment), and at most
32 MB of hashes."""

import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ftfy.badness
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from electra.checks.judge import (
    CRITICAL,
    WARNING,
    DuplicateCount,
    RowSample,
    Suite,
    Table,
    conclude,
    files_expectations,
    files_table,
    gxe,
    judge,
)
from electra.common.artifacts import CorpusManifest, read_manifest, refuse_earlier
from electra.common.paths import Paths
from electra.config import Cluster, Corpus, Settings
from electra.system.executors import open_workers

BATCH_BYTES = 16 * 2**20  # text looked at together; documents may hold up to corpus.max_chars characters each
DOC_ID = r"^[0-9a-f]{16}$"
CONTROL = r"[\x00-\x08\x0b-\x1f\x7f]"  # C0 and DEL without tab and line feed
NOT_ALPHANUMERIC = bytes(code for code in range(128) if not chr(code).isalnum())
NAMED_BY = ["file", "row", "doc_id", "begins"]
COUNTS = ["chars", "words", "lines", "control_chars", "replacement_chars", "non_ascii_chars", "digits"]
COLUMNS = ["file", "row", "split", "doc_id", "source", "begins", *COUNTS, "mean_word_chars", "digit_ratio",
           "id_is_text_hash", "in_both_splits"]  # fmt: skip


def validate_corpus(settings: Settings, paths: Paths) -> None:
    """Judge ``data/corpus``.

    Raises:
        DataError: a critical expectation failed; the rows are named.
    """
    refuse_earlier(paths, "corpus")
    tables, statistics = corpus_tables(settings.corpus, paths.corpus, settings.cluster)
    conclude("corpus", judge(tables, corpus_suite(settings.corpus)), statistics, paths)


@dataclass
class FileCounts:
    """What one file has, or several added up.

    Args:
        num_documents: of the whole corpus: it decides which rows are in the sample.
    """

    num_documents: int
    sample: RowSample = field(init=False)
    near_duplicates: DuplicateCount = field(init=False)
    sums: Counter[str] = field(default_factory=Counter)
    characters_by_source: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.sample = RowSample(self.num_documents, NAMED_BY)
        self.near_duplicates = DuplicateCount(self.num_documents)

    def add_all(self, part: "FileCounts") -> None:
        """Add those of the next file."""
        self.sample.add_all(part.sample)
        self.near_duplicates.add_all(part.near_duplicates)
        self.sums.update(part.sums)
        self.characters_by_source.update(part.characters_by_source)


def corpus_tables(corpus: Corpus, folder: Path, cluster: Cluster) -> tuple[dict[str, Table], dict[str, Any]]:
    """The tables ``documents``, ``sources``, ``splits``, ``totals`` and ``files``, and the statistics of the report.

    Files are described by the workers that ``cluster`` names; nothing of the result depends on who they are.

    Raises:
        DataError: the folder has no manifest.
        InfrastructureError: a worker died.
    """
    manifest = read_manifest(folder, CorpusManifest)
    files_state, readable = files_table(folder, manifest, pq.read_table, (pa.ArrowException, OSError))
    files = [path.absolute() for path in readable if path.suffix == ".parquet"]  # a worker may stand in another folder
    split_counts = {"train": 0, "heldout": 0}
    for path in files:
        split_counts[_split_of(path)] += pq.ParquetFile(path).metadata.num_rows
    counts = FileCounts(num_documents := sum(split_counts.values()))
    with open_workers(cluster, len(files), folder, "corpus.max_chars") as workers:
        for part in workers.map(count_file, _jobs(corpus, files, num_documents)):
            counts.add_all(part)
    sums, sample = counts.sums, counts.sample
    statistics = {
        "documents": num_documents,
        "held_out_documents": split_counts["heldout"],
        "characters": sums["chars"],
        "words": sums["words"],
        "characters_per_document": sums["chars"] / max(1, num_documents),
        "non_ascii_share": sums["non_ascii_chars"] / max(1, sums["chars"]),
        "digit_share": sums["digits"] / max(1, sums["chars"]),
        "near_duplicate_share": counts.near_duplicates.share(),
        "mojibake_share": sums["mojibake"] / max(1, sums["sampled"]),
    }
    totals = {**statistics, "documents_missing": manifest["documents"] - num_documents}
    tables = {
        "documents": sample.table(COLUMNS),
        "totals": Table(pd.DataFrame([totals]), named_by=[]),
        "splits": Table(pd.DataFrame(split_counts.items(), columns=["split", "documents"]), named_by=["split"]),
        "sources": _source_shares(corpus, dict(counts.characters_by_source)),
        "files": files_state,
    }
    return tables, statistics


def count_file(corpus: Corpus, path: Path, num_documents: int, repeated: np.ndarray, in_both: np.ndarray) -> FileCounts:
    """One file of the corpus.

    Args:
        num_documents: of the whole corpus.
        repeated: keys, uint64, of the file's documents that the corpus has more than once.
        in_both: of those that are in both splits.
    """
    counts = FileCounts(num_documents)
    first_row = 0
    for batch in _batches(path):
        texts = pc.fill_null(batch["text"], "").to_pylist()
        rows = _describe(path.name, first_row, batch, texts)
        keys = _keys(rows["doc_id"])
        rows["in_both_splits"] = np.isin(keys, in_both)
        wrong = (
            ~rows["id_is_text_hash"]
            | np.isin(keys, repeated)
            | (rows[["control_chars", "replacement_chars"]].sum(axis=1) > 0)
            | ~rows["chars"].between(corpus.min_chars, corpus.max_chars)
        )
        counts.sample.add(rows, keys, wrong.to_numpy())
        counts.near_duplicates.add(_text_hashes(texts))
        first_row += len(rows)
        sampled = [text for text, chosen in zip(texts, counts.sample.chooses(keys), strict=True) if chosen]
        counts.sums["sampled"] += len(sampled)
        counts.sums["mojibake"] += sum(not text.isascii() and ftfy.badness.is_bad(text) for text in sampled)
        for name in COUNTS:
            counts.sums[name] += int(rows[name].sum())
        for source, characters in rows.groupby("source")["chars"].sum().items():
            counts.characters_by_source[str(source)] += int(characters)
    return counts


def _batches(path: Path) -> Iterator[pa.RecordBatch]:
    """Batches of about ``BATCH_BYTES`` of text."""
    parquet = pq.ParquetFile(path)
    groups = [parquet.metadata.row_group(i) for i in range(parquet.num_row_groups)]
    bytes_per_row = sum(group.total_byte_size for group in groups) / max(1, parquet.metadata.num_rows)
    num_rows = max(1, min(10_000, int(BATCH_BYTES / max(1, bytes_per_row))))
    yield from parquet.iter_batches(num_rows, columns=["doc_id", "source", "text"])


def _jobs(
    corpus: Corpus, files: list[Path], num_documents: int
) -> Iterator[tuple[Corpus, Path, int, np.ndarray, np.ndarray]]:
    """Arguments of :func:`count_file`. What the files share is found first: only all of them together tell."""
    keys = [_keys(pq.read_table(path, columns=["doc_id"])["doc_id"].to_pandas()) for path in files]
    by_split = {
        split: np.concatenate(
            [np.empty(0, np.uint64), *(k for k, f in zip(keys, files, strict=True) if _split_of(f) == split)]
        )
        for split in ("train", "heldout")
    }
    values, counts = np.unique(np.concatenate(list(by_split.values())), return_counts=True)
    repeated, in_both = values[counts > 1], np.intersect1d(by_split["train"], by_split["heldout"])
    del by_split, values, counts
    for path, own in zip(files, keys, strict=True):
        yield corpus, path, num_documents, _among(repeated, own), _among(in_both, own)


def _among(values: np.ndarray, own: np.ndarray) -> np.ndarray:
    """Those of the values that are a file's own; a sound corpus has none to look for."""
    return values[np.isin(values, own)] if len(values) else values


def _split_of(path: Path) -> str:
    return path.name.split("-")[0]


def _keys(ids: pd.Series) -> np.ndarray:
    """Document ids as uint64; ids are hashes, so they serve as sampling keys too. Malformed ones are hashed."""
    ids = ids.fillna("")
    if ids.str.fullmatch(DOC_ID.strip("^$")).all():
        return np.frombuffer(bytes.fromhex("".join(ids)), ">u8").astype(np.uint64)
    return pd.util.hash_array(ids.to_numpy(object), categorize=False)


def _describe(file: str, first_row: int, batch: pa.RecordBatch, texts: list[str]) -> pd.DataFrame:
    """One row per document of the batch, without its text."""
    text = pa.array(texts, pa.large_string())
    rows = pd.DataFrame({"file": file, "row": np.arange(first_row, first_row + len(texts))})
    rows["split"] = _split_of(Path(file))
    rows["doc_id"] = batch["doc_id"].to_pandas()
    rows["source"] = batch["source"].to_pandas()
    rows["begins"] = pc.utf8_slice_codeunits(batch["text"], 0, 40).to_pandas()
    rows["chars"] = pc.utf8_length(text).to_numpy()
    rows["words"] = [len(document.split()) for document in texts]
    rows["lines"] = pc.count_substring(text, "\n").to_numpy() + 1
    rows["replacement_chars"] = pc.count_substring(text, "\ufffd").to_numpy()
    rows["control_chars"] = pc.count_substring_regex(text, CONTROL).to_numpy()
    rows["non_ascii_chars"] = pc.count_substring_regex(text, r"[^\x00-\x7f]").to_numpy()
    rows["digits"] = pc.count_substring_regex(text, r"[0-9]").to_numpy()
    rows["mean_word_chars"] = rows["chars"] / rows["words"].clip(lower=1)
    rows["digit_ratio"] = rows["digits"] / rows["chars"].clip(lower=1)
    rows["id_is_text_hash"] = rows["doc_id"] == [hashlib.sha256(t.encode()).hexdigest()[:16] for t in texts]
    return rows


def _text_hashes(texts: list[str]) -> np.ndarray:
    """Hashes, uint64, of the texts without regard to case, spaces and ASCII punctuation."""
    bare = (text.lower().encode().translate(None, NOT_ALPHANUMERIC) for text in texts)
    return np.frombuffer(b"".join(hashlib.blake2b(text, digest_size=8).digest() for text in bare), np.uint64)


def _source_shares(corpus: Corpus, characters: dict[str, int]) -> Table:
    """Share of characters per source beside the share the settings ask for."""
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
    """Expectations per table of ``corpus_table.corpus_tables``."""
    return {
        "files": files_expectations("data/corpus", "corpus"),
        "splits": [
            gxe.ExpectColumnValuesToBeBetween(
                column="documents",
                min_value=1,
                severity=CRITICAL,
                description="both splits have documents",
                notes="give more text, or raise corpus.held_out_fraction",
            )
        ],
        "documents": [
            gxe.ExpectColumnValuesToMatchRegex(
                column="doc_id",
                regex=DOC_ID,
                severity=CRITICAL,
                description="doc_id is 16 hexadecimal digits",
                notes=REBUILD,
            ),
            gxe.ExpectColumnValuesToBeUnique(
                column="doc_id", severity=CRITICAL, description="no document stands twice", notes=REBUILD
            ),
            gxe.ExpectColumnValuesToBeInSet(
                column="in_both_splits",
                value_set=[False],
                severity=CRITICAL,
                description="no held-out document is in the training split",
                notes=REBUILD,
            ),
            gxe.ExpectColumnValuesToBeInSet(
                column="id_is_text_hash",
                value_set=[True],
                severity=CRITICAL,
                description="doc_id is the hash of the text",
                notes=REBUILD,
            ),
            gxe.ExpectColumnValuesToNotBeNull(
                column="begins", severity=CRITICAL, description="text is not null", notes=REBUILD
            ),
            gxe.ExpectColumnValuesToBeBetween(
                column="chars",
                min_value=corpus.min_chars,
                max_value=corpus.max_chars,
                severity=CRITICAL,
                description="length is within corpus.min_chars and corpus.max_chars",
                notes=REBUILD,
            ),
            gxe.ExpectColumnValuesToBeBetween(
                column="replacement_chars",
                max_value=0,
                severity=CRITICAL,
                description="no replacement characters (U+FFFD): text that was decoded wrongly and is lost",
                notes=CLEANING,
            ),
            gxe.ExpectColumnValuesToBeBetween(
                column="control_chars",
                max_value=0,
                severity=CRITICAL,
                description="no control characters",
                notes=CLEANING,
            ),
            gxe.ExpectColumnValuesToBeBetween(
                column="mean_word_chars",
                min_value=2,
                max_value=15,
                mostly=0.99,
                severity=WARNING,
                description="words have a usual length",
                notes="look for tables, code or text without spaces in the source",
            ),
            gxe.ExpectColumnValuesToBeBetween(
                column="digit_ratio",
                max_value=0.3,
                mostly=0.99,
                severity=WARNING,
                description="few documents are mostly digits",
                notes="look for tables and lists in the source",
            ),
        ],
        "totals": [
            gxe.ExpectColumnValuesToBeInSet(
                column="documents_missing",
                value_set=[0],
                severity=CRITICAL,
                description="there are as many documents as the manifest says",
                notes=REBUILD,
            ),
            gxe.ExpectColumnValuesToBeBetween(
                column="near_duplicate_share",
                max_value=0.01,
                severity=WARNING,
                description="few documents differ from another only in case, spaces or punctuation",
                notes="look for boilerplate in the source",
            ),
            gxe.ExpectColumnValuesToBeBetween(
                column="mojibake_share",
                max_value=0.001,
                severity=WARNING,
                description="few documents hold wrongly decoded characters",
                notes="set corpus.repair_mojibake: true, or decode the source with its own encoding",
            ),
        ],
        "sources": [
            gxe.ExpectColumnValuesToBeBetween(
                column="difference",
                min_value=-0.03,
                max_value=0.03,
                severity=WARNING,
                description="each source has the share of characters that its weight asks for",
                notes="a source ran out of text: lower its weight or give it more",
            )
        ],
    }
