"""The shards stage: ``data/corpus`` + ``data/tokenizer`` -> ``data/shards``, in parallel over corpus files."""

from typing import Any

from electra.artifacts import building, read_manifest, sha256, write_manifest
from electra.checksums import listed_files, verify_folder
from electra.config import Settings
from electra.errors import DataError
from electra.executors import job_folder, open_workers
from electra.paths import Paths
from electra.shards.worker import shard_file

SPLITS = ["train", "heldout"]


def build_shards(settings: Settings, paths: Paths) -> None:
    """Turn every document into fixed-length examples; the same bytes for any number of workers.

    Writes per corpus file ``train-00003-00000.tokens.npy`` (uint16, or uint32 for more than 65,536 entries; shape
    [num_examples, max_length], zero-padded), ``train-00003-00000.spans.npy`` (uint16 [num_examples, 2]: number of
    tokens, length of the first segment) and so on, each at most ``shards.max_shard_bytes`` long.

    Raises:
        DataError: corpus or tokenizer are missing or damaged, or the corpus gives no training example.
        InfrastructureError: workers died, or the disk is full.
    """
    vocab_size = read_manifest(paths.tokenizer)["vocab_size"]
    verify_folder(paths.tokenizer)
    tokenizer_file = paths.tokenizer / "tokenizer.json"
    corpus = paths.corpus.absolute()  # a worker may stand in another folder
    corpus_files = {split: listed_files(corpus, f"{split}-*.parquet") for split in SPLITS}
    if not corpus_files["train"]:
        raise DataError("the corpus holds no training text", where=str(paths.corpus), next_step="dvc repro corpus")

    with building(paths.shards) as folder:
        files = [file for split in SPLITS for file in corpus_files[split]]
        with (
            job_folder(folder) as unfinished,
            open_workers(settings.cluster, len(files), folder, "corpus.max_chars") as workers,
        ):
            target = (tokenizer_file.absolute(), settings.shards, folder.absolute(), unfinished)
            jobs = ((file, *target) for file in files)
            parts = [part for written in workers.map(shard_file, jobs) for part in written]
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
