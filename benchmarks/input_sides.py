"""Sides of ``benchmarks.input``: each takes a workspace with corpus and tokenizer, and prints its seconds.

python -m benchmarks.input_sides WORKSPACE SIDE WORKERS
"""

import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from tokenizers import Tokenizer

from electra.common.paths import Paths
from electra.config.loading import load_settings

OURS, RAW, IDS_ONLY, AS_RUN_MLM = "ours", "tokenizer alone", "datasets.map, ids only", "datasets.map as run_mlm"
CHUNK = 2_000  # lines per call of the tokenizer


def read_lines(paths: Paths) -> list[str]:
    """Return all lines of the corpus."""
    tables = (pq.read_table(file, columns=["text"]) for file in sorted(paths.corpus.glob("*.parquet")))
    return [line for table in tables for text in table["text"].to_pylist() for line in text.split("\n")]


def read_tokenizer(paths: Paths) -> Tokenizer:
    return Tokenizer.from_file(str(paths.tokenizer / "tokenizer.json"))


def count_tokens(paths: Paths) -> tuple[int, int]:
    """Return the numbers of wordpieces and characters of the corpus."""
    tokenizer, lines = read_tokenizer(paths), read_lines(paths)
    tokens = 0
    for begin in range(0, len(lines), CHUNK):
        tokens += sum(map(len, tokenizer.encode_batch_fast(lines[begin : begin + CHUNK], add_special_tokens=False)))
    return tokens, sum(map(len, lines))


def ours(paths: Paths, workers: int) -> float:
    from electra.text.shards.build import build_shards

    settings = load_settings(paths.root)
    cluster = settings.cluster.model_copy(update={"num_workers": workers})
    shutil.rmtree(paths.shards, ignore_errors=True)
    begin = time.perf_counter()
    build_shards(settings.model_copy(update={"cluster": cluster}), paths)
    return time.perf_counter() - begin


def tokenizer_alone(paths: Paths, workers: int) -> float:
    tokenizer, lines = read_tokenizer(paths), read_lines(paths)
    begin = time.perf_counter()
    for start in range(0, len(lines), CHUNK):
        tokenizer.encode_batch_fast(lines[start : start + CHUNK], add_special_tokens=False)
    return time.perf_counter() - begin


def ids_only(paths: Paths, workers: int) -> float:
    tokenizer = read_tokenizer(paths)

    def encode(batch: dict[str, list[str]]) -> dict[str, Any]:
        found = tokenizer.encode_batch_fast(batch["text"], add_special_tokens=False)
        return {"input_ids": [encoding.ids for encoding in found]}

    return _timed_maps(paths, workers, [encode])


def as_run_mlm(paths: Paths, workers: int) -> float:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(paths.tokenizer)
    length = load_settings(paths.root).shards.max_length

    def encode(batch: dict[str, list[str]]) -> Any:
        return tokenizer(batch["text"], return_special_tokens_mask=True)

    def group(batch: dict[str, list[Any]]) -> dict[str, Any]:
        joined = {name: list(chain(*values)) for name, values in batch.items()}
        end = len(next(iter(joined.values()))) // length * length
        return {
            name: [values[start : start + length] for start in range(0, end, length)] for name, values in joined.items()
        }

    return _timed_maps(paths, workers, [encode, group])


def _timed_maps(paths: Paths, workers: int, functions: list[Callable[..., Any]]) -> float:
    """Return the seconds of batched maps that run one after the other, each writing new Arrow files."""
    from datasets import Dataset, disable_progress_bars

    disable_progress_bars()
    with tempfile.TemporaryDirectory() as folder:
        Dataset.from_dict({"text": read_lines(paths)}).save_to_disk(f"{folder}/lines")
        rows = Dataset.load_from_disk(f"{folder}/lines")
        begin = time.perf_counter()
        for number, function in enumerate(functions):
            rows = rows.map(
                function,
                batched=True,
                num_proc=workers if workers > 1 else None,
                remove_columns=rows.column_names if number == 0 else None,
                cache_file_name=f"{folder}/{number}.arrow",
                load_from_cache_file=False,
            )
        return time.perf_counter() - begin


SIDES: dict[str, Callable[[Paths, int], float]] = {
    OURS: ours,
    RAW: tokenizer_alone,
    IDS_ONLY: ids_only,
    AS_RUN_MLM: as_run_mlm,
}

if __name__ == "__main__":
    print(SIDES[sys.argv[2]](Paths(Path(sys.argv[1])), int(sys.argv[3])))
