"""Counts of the corpus' files, which the workers of validate-corpus make.

Apart from the expectations (corpus.py), because a worker that imported Great Expectations for them would start with
seconds of imports.
"""

import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from electra.checks.repeated_text import RepeatedText
from electra.checks.tables import RowSample
from electra.checks.text_measures import is_mojibake, mean_word_chars
from electra.config import Corpus

BATCH_BYTES = 16 * 2**20  # text processed at a time; documents may hold up to corpus.max_chars characters each
DOC_ID = r"^[0-9a-f]{16}$"
CONTROL = r"[\x00-\x08\x0b-\x1f\x7f]"  # C0 and DEL without tab and line feed
NAMED_BY = ["file", "row", "doc_id", "begins"]
COUNTS = ["chars", "words", "lines", "control_chars", "replacement_chars", "non_ascii_chars", "digits"]


@dataclass
class FileCounts:
    """Counts of one file, or of several files added up.

    Args:
        num_documents: documents in the whole corpus, which determine the sampled rows.
        num_characters: characters in the whole corpus, which determine the compared n-grams.
    """

    num_documents: int
    num_characters: int
    sample: RowSample = field(init=False)
    repeated: RepeatedText = field(init=False)
    sums: Counter[str] = field(default_factory=Counter)
    characters_by_source: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.sample = RowSample(self.num_documents, NAMED_BY)
        self.repeated = RepeatedText(self.num_characters)

    def add_all(self, part: "FileCounts") -> None:
        """Add the counts of the next file."""
        self.sample.add_all(part.sample)
        self.repeated.add_all(part.repeated)
        self.sums.update(part.sums)
        self.characters_by_source.update(part.characters_by_source)


def count_file(
    corpus: Corpus, path: Path, size: tuple[int, int], repeated: np.ndarray, in_both: np.ndarray
) -> FileCounts:
    """Count one file of the corpus.

    Args:
        size: documents and characters of the whole corpus.
        repeated: keys, uint64, of the file's documents that occur more than once in the corpus.
        in_both: keys of the file's documents that occur in both splits.
    """
    counts = FileCounts(*size)
    first_row = 0
    for batch in _batches(path):
        texts = pc.fill_null(batch["text"], "").to_pylist()
        rows = _describe(path.name, first_row, batch, texts)
        keys = keys_of(rows["doc_id"])
        rows["in_both_splits"] = np.isin(keys, in_both)
        wrong = (
            ~rows["id_is_text_hash"]
            | np.isin(keys, repeated)
            | (rows[["control_chars", "replacement_chars"]].sum(axis=1) > 0)
            | ~rows["chars"].between(corpus.min_chars, corpus.max_chars)
        )
        counts.sample.add(rows, keys, wrong.to_numpy())
        counts.repeated.add(texts)
        first_row += len(rows)
        sampled = [text for text, chosen in zip(texts, counts.sample.chooses(keys), strict=True) if chosen]
        counts.sums["sampled"] += len(sampled)
        counts.sums["mojibake"] += sum(map(is_mojibake, sampled))
        counts.sums["held_out_chars"] += int(rows["chars"].sum()) if split_of(path) == "heldout" else 0
        for name in COUNTS:
            counts.sums[name] += int(rows[name].sum())
        for source, characters in rows.groupby("source")["chars"].sum().items():
            counts.characters_by_source[str(source)] += int(characters)
    return counts


def _batches(path: Path) -> Iterator[pa.RecordBatch]:
    """Yield batches of about ``BATCH_BYTES`` of text."""
    parquet = pq.ParquetFile(path)
    groups = [parquet.metadata.row_group(i) for i in range(parquet.num_row_groups)]
    bytes_per_row = sum(group.total_byte_size for group in groups) / max(1, parquet.metadata.num_rows)
    num_rows = max(1, min(10_000, int(BATCH_BYTES / max(1, bytes_per_row))))
    yield from parquet.iter_batches(num_rows, columns=["doc_id", "source", "text"])


def split_of(path: Path) -> str:
    return path.name.split("-")[0]


def keys_of(ids: pd.Series) -> np.ndarray:
    """Return document ids as uint64; ids are hashes, so they also serve as sampling keys. Malformed ids are hashed."""
    ids = ids.fillna("")
    if ids.str.fullmatch(DOC_ID.strip("^$")).all():
        return np.frombuffer(bytes.fromhex("".join(ids)), ">u8").astype(np.uint64)
    return pd.util.hash_array(ids.to_numpy(object), categorize=False)


def _describe(file: str, first_row: int, batch: pa.RecordBatch, texts: list[str]) -> pd.DataFrame:
    """Return one row per document of the batch, without its text."""
    text = pa.array(texts, pa.large_string())
    rows = pd.DataFrame({"file": file, "row": np.arange(first_row, first_row + len(texts))})
    rows["split"] = split_of(Path(file))
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
    measures = zip(texts, rows["chars"].tolist(), rows["words"].tolist(), strict=True)
    rows["mean_word_chars"] = np.array([mean_word_chars(*measured) for measured in measures], dtype=float)
    rows["digit_ratio"] = rows["digits"] / rows["chars"].clip(lower=1)
    rows["id_is_text_hash"] = rows["doc_id"] == [hashlib.sha256(t.encode()).hexdigest()[:16] for t in texts]
    return rows
