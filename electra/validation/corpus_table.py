"""Statistics of a corpus, per document, per file and per source, read once as a stream.

Memory: one batch of documents, a bounded table, 8 bytes per document for its identity, and at most 32 MB of hashes.
"""

import hashlib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ftfy.badness
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from electra.artifacts import read_manifest
from electra.config import Corpus
from electra.validation.files_table import files_table
from electra.validation.sample import DuplicateCount, RowSample, Table

BATCH_BYTES = 16 * 2**20  # text looked at together; documents may hold up to corpus.max_chars characters each
DOC_ID = r"^[0-9a-f]{16}$"
CONTROL = r"[\x00-\x08\x0b-\x1f\x7f]"  # C0 and DEL without tab and line feed
NOT_ALPHANUMERIC = bytes(code for code in range(128) if not chr(code).isalnum())
NAMED_BY = ["file", "row", "doc_id", "begins"]
COUNTS = ["chars", "words", "lines", "control_chars", "replacement_chars", "non_ascii_chars", "digits"]
COLUMNS = ["file", "row", "split", "doc_id", "source", "begins", *COUNTS, "mean_word_chars", "digit_ratio",
           "id_is_text_hash", "in_both_splits"]  # fmt: skip


def corpus_tables(corpus: Corpus, folder: Path) -> tuple[dict[str, Table], dict[str, Any]]:
    """The tables ``documents``, ``sources``, ``splits``, ``totals`` and ``files``, and the statistics of the report.

    Raises:
        DataError: the folder has no manifest.
    """
    manifest = read_manifest(folder)
    files_state, readable = files_table(folder, manifest, pq.read_table, (pa.ArrowException, OSError))
    files = [path for path in readable if path.suffix == ".parquet"]
    num_documents = sum(pq.ParquetFile(path).metadata.num_rows for path in files)
    repeated, in_both = _shared_ids(files)
    sample = RowSample(num_documents, NAMED_BY)
    near_duplicates = DuplicateCount(num_documents)
    sums: defaultdict[str, int] = defaultdict(int)
    characters_by_source: defaultdict[str, int] = defaultdict(int)
    split_counts = {"train": 0, "heldout": 0}
    for path in files:
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
            sample.add(rows, keys, wrong.to_numpy())
            near_duplicates.add(_text_hashes(texts))
            first_row += len(rows)
            split_counts[path.name.split("-")[0]] += len(rows)
            sampled = [text for text, chosen in zip(texts, sample.chooses(keys), strict=True) if chosen]
            sums["sampled"] += len(sampled)
            sums["mojibake"] += sum(not text.isascii() and ftfy.badness.is_bad(text) for text in sampled)
            for name in COUNTS:
                sums[name] += int(rows[name].sum())
            for source, characters in rows.groupby("source")["chars"].sum().items():
                characters_by_source[str(source)] += int(characters)
    statistics = {
        "documents": num_documents,
        "held_out_documents": split_counts["heldout"],
        "characters": sums["chars"],
        "words": sums["words"],
        "characters_per_document": sums["chars"] / max(1, num_documents),
        "non_ascii_share": sums["non_ascii_chars"] / max(1, sums["chars"]),
        "digit_share": sums["digits"] / max(1, sums["chars"]),
        "near_duplicate_share": near_duplicates.share(),
        "mojibake_share": sums["mojibake"] / max(1, sums["sampled"]),
    }
    totals = {**statistics, "documents_missing": manifest["documents"] - num_documents}
    tables = {
        "documents": sample.table(COLUMNS),
        "totals": Table(pd.DataFrame([totals]), named_by=[]),
        "splits": Table(pd.DataFrame(split_counts.items(), columns=["split", "documents"]), named_by=["split"]),
        "sources": _source_shares(corpus, characters_by_source),
        "files": files_state,
    }
    return tables, statistics


def _batches(path: Path) -> Iterator[pa.RecordBatch]:
    """Batches of about ``BATCH_BYTES`` of text."""
    parquet = pq.ParquetFile(path)
    groups = [parquet.metadata.row_group(i) for i in range(parquet.num_row_groups)]
    bytes_per_row = sum(group.total_byte_size for group in groups) / max(1, parquet.metadata.num_rows)
    num_rows = max(1, min(10_000, int(BATCH_BYTES / max(1, bytes_per_row))))
    yield from parquet.iter_batches(num_rows, columns=["doc_id", "source", "text"])


def _shared_ids(files: list[Path]) -> tuple[np.ndarray, np.ndarray]:
    """Keys of document ids that occur more than once, and of those in both splits."""
    keys: dict[str, list[np.ndarray]] = {"train": [], "heldout": []}
    for path in files:
        ids = pq.read_table(path, columns=["doc_id"])["doc_id"].to_pandas()
        keys[path.name.split("-")[0]].append(_keys(ids))
    train, held_out = (np.concatenate([*keys[split], np.empty(0, np.uint64)]) for split in ("train", "heldout"))
    values, counts = np.unique(np.concatenate([train, held_out]), return_counts=True)
    return values[counts > 1], np.intersect1d(train, held_out)


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
    rows["split"] = file.split("-")[0]
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
