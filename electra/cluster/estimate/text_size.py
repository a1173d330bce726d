"""Size of a profile's text, before it is read: UTF-8 bytes, without the other fields of records."""

import codecs
import json
import os
from collections import defaultdict
from pathlib import Path
from typing import TypeVar

from electra.common.globs import expanded
from electra.config import FilesCorpus, Settings
from electra.text.corpus.compression import DAMAGED, SUFFIXES, DecompressionBomb, HashingReader, decompressed

BYTES_PER_TOKEN = 4.5  # of text that has not been tokenized yet
COMPRESSION = 3.5  # bytes of English text per byte of a compressed file
SAMPLE_BYTES = 1 << 18  # read from a file
SAMPLED_FILES = 20
MAX_LINE_BYTES = 1 << 28  # read where a line is longer than the sample

Item = TypeVar("Item")


def local_text_bytes(settings: Settings, root: Path = Path(".")) -> int:
    """Return the bytes of text in local files of the corpus, estimated where they are no plain text in UTF-8."""
    total, counted = 0, set[str]()
    for source in settings.corpus.sources:
        if isinstance(source, FilesCorpus):
            names = {name for pattern in source.paths if "://" not in pattern for name in expanded(pattern, root)}
            new = sorted(name for name in names - counted if os.path.isfile(root / name))
            total += text_bytes([root / name for name in new], source.text_field, source.encoding)
            counted |= names
    return total


def text_bytes(paths: list[Path], field: str, encoding: str) -> int:
    """Return the bytes of text in files; the share of text in some of each ending stands for all of that ending.

    Args:
        field: field of .jsonl and .parquet files with the text.
    """
    by_ending: dict[str, list[Path]] = defaultdict(list)
    for path in paths:
        by_ending["".join(path.suffixes[-2:] if path.suffix in SUFFIXES else path.suffixes[-1:])].append(path)
    total = 0
    for alike in by_ending.values():
        sizes = {path: os.path.getsize(path) for path in alike}
        sampled = {path: _text_of(path, sizes[path], field, encoding) for path in spread(alike)}
        others = sum(sizes.values()) - sum(sizes[path] for path in sampled)
        of_sampled = sum(sampled.values())
        total += of_sampled + others * of_sampled // max(1, sum(sizes[path] for path in sampled))
    return total


def spread(items: list[Item]) -> list[Item]:
    """Return at most ``SAMPLED_FILES`` of the items, evenly spaced."""
    return items[:: -(-len(items) // SAMPLED_FILES) or 1]


def _text_of(path: Path, size: int, field: str, encoding: str) -> int:
    """Return the bytes of text in a file by its beginning or, for Parquet, its footer.

    A file that cannot be read counts with its size: those who read it whole say what is wrong.
    """
    compression = path.suffix if path.suffix in SUFFIXES else ""
    format = path.with_suffix("").suffix if compression else path.suffix
    unpacked = int(size * (COMPRESSION if compression else 1))
    if format == ".parquet":
        return unpacked if compression else _column_bytes(path, field, size)
    is_utf8 = codecs.lookup(encoding).name == "utf-8"
    if not size or (is_utf8 and format != ".jsonl"):
        return unpacked
    try:
        with open(path, "rb") as file:
            content = decompressed(HashingReader(file), compression)
            head = content.read(SAMPLE_BYTES)
            if format == ".jsonl":
                head += content.readline(MAX_LINE_BYTES)  # a record may be longer than the sample
        text = codecs.getincrementaldecoder(encoding)("ignore").decode(head)
    except (OSError, UnicodeError, DecompressionBomb, *DAMAGED):
        return unpacked
    num_bytes = unpacked if is_utf8 else unpacked * len(text.encode("utf-8", "ignore")) // max(1, len(head))
    if format == ".jsonl":
        of_field, of_records = _field_bytes(text, field)
        num_bytes = num_bytes * of_field // of_records if of_records else num_bytes
    return num_bytes


def _field_bytes(text: str, field: str) -> tuple[int, int]:
    """Return the bytes of a field of JSON lines, and of the lines that have it."""
    of_field = of_records = 0
    for line in text.split("\n"):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(record, dict) and field in record:
            of_records += len(line.encode("utf-8", "ignore")) + 1
            of_field += len(str(record[field] or "").encode("utf-8", "ignore"))
    return of_field, of_records


def _column_bytes(path: Path, field: str, size: int) -> int:
    """Return the bytes of a column of a Parquet file before compression; ``size`` if there is no such column."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        footer = pq.read_metadata(path)
    except (OSError, pa.ArrowException):
        return size
    columns = [number for number in range(footer.num_columns) if footer.schema.column(number).path == field]
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    return sum(group.column(columns[0]).total_uncompressed_size for group in groups) if columns else size


def is_local(settings: Settings) -> bool:
    """Return whether all text is in local files, so that its size is known."""
    return all(
        isinstance(source, FilesCorpus) and not any("://" in pattern for pattern in source.paths)
        for source in settings.corpus.sources
    )
