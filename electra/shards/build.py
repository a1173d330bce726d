"""The shards stage: ``data/corpus`` + ``data/tokenizer`` -> ``data/shards``, in parallel over corpus files."""

import multiprocessing
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from electra.artifacts import building, read_manifest, sha256, write_manifest
from electra.config import Settings
from electra.errors import DataError, InfrastructureError
from electra.paths import Paths
from electra.shards.worker import limit_threads, shard_file

SPLITS = ["train", "heldout"]


def build_shards(settings: Settings, paths: Paths) -> None:
    """Turn every document into fixed-length examples; the same bytes for any number of workers.

    Writes per corpus file ``train-00003-00000.tokens.npy`` (uint16, or uint32 for more than 65,536 entries; shape
    [num_examples, max_length], zero-padded), ``train-00003-00000.spans.npy`` (uint16 [num_examples, 2]: number of
    tokens, length of the first segment) and so on, each at most ``shards.max_shard_bytes`` long.

    Raises:
        DataError: corpus or tokenizer are missing or damaged, or the corpus gives no training example.
        InfrastructureError: a worker process died, or the disk is full.
    """
    vocab_size = read_manifest(paths.tokenizer)["vocab_size"]
    tokenizer_file = paths.tokenizer / "tokenizer.json"
    if not tokenizer_file.is_file():
        raise DataError(f"{tokenizer_file} does not exist", next_step="dvc repro tokenizer")
    corpus_files = {split: sorted(paths.corpus.glob(f"{split}-*.parquet")) for split in SPLITS}
    if not corpus_files["train"]:
        raise DataError("the corpus holds no training text", where=str(paths.corpus), next_step="dvc repro corpus")

    with building(paths.shards) as folder:
        jobs = [(file, tokenizer_file, folder, settings.shards) for split in SPLITS for file in corpus_files[split]]
        parts = [part for written in _run(shard_file, jobs, settings.cluster.num_workers) for part in written]
        splits = {split: _facts(split, parts) for split in SPLITS}
        if not splits["train"]["examples"]:
            raise DataError("no training document holds a word", where=str(paths.corpus), next_step="dvc repro corpus")
        write_manifest(
            folder,
            max_length=settings.shards.max_length,
            vocab_size=vocab_size,
            tokenizer_sha256=sha256(tokenizer_file),
            splits=splits,
        )
    for split, facts in splits.items():
        filled = facts["tokens"] / max(1, facts["examples"] * settings.shards.max_length)
        print(
            f"shards: {split}: {facts['examples']:,} examples, {facts['tokens']:,} tokens ({filled:.0%} of the places) "
            f"in {len(facts['shards'])} parts"
        )


def _facts(split: str, parts: list[dict[str, Any]]) -> dict[str, Any]:
    shards = [part for part in parts if part["name"].startswith(f"{split}-")]
    totals = {key: sum(shard[key] for shard in shards) for key in ["examples", "tokens"]}
    return {**totals, "shards": shards}


def _run(function: Callable[..., Any], jobs: list[tuple], num_workers: int | str) -> Iterator[Any]:
    """Results of ``function(*job)`` in the order of the jobs; in this process if one worker is enough."""
    cores = os.cpu_count() or 1
    wanted = cores if num_workers == "auto" else int(num_workers)
    workers = min(wanted, len(jobs))
    if workers == 1:
        yield from (function(*job) for job in jobs)
        return
    # Not fork: the tokenizer's threads of this process would not exist in the child, which then waits for them forever
    context = multiprocessing.get_context("spawn")
    threads = max(1, wanted // workers)
    with ProcessPoolExecutor(workers, context, initializer=limit_threads, initargs=(threads,)) as pool:
        futures = [pool.submit(function, *job) for job in jobs]
        try:
            for future in futures:
                yield future.result()
        except BrokenProcessPool:
            raise InfrastructureError(
                "a worker process died (killed, or out of memory)",
                where="the shards stage",
                next_step="lower cluster.num_workers or shards.max_shard_bytes, and run the same command again",
            ) from None
        finally:
            pool.shutdown(cancel_futures=True)  # after an error: do not start what waits
