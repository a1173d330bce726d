"""Small valid artefacts in the stages' formats, into which tests inject faults."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from electra.common.artifacts import sha256, write_json, write_manifest
from electra.common.paths import Paths
from electra.config import Settings
from electra.config.loading import parse_settings
from electra.config.text import SPECIAL_TOKENS
from tests.fixtures import LABELLED, text_source

WORDS = [f"{a}{b}{c}" for a in "bdfgk" for b in "aeiou" for c in "lmnrst"]
LENGTH = 16


OTHER_ROWS = "row counts are those of the benchmark as released"  # the one warning of the small tasks


def small_settings() -> Settings:
    """Settings that fit the small artefacts."""
    return parse_settings(
        {
            "profile": "small-artefacts",
            "cells": {"tasks": ["MRPC", "STS-B", "SQuAD1.1"], "seeds": [1]},
            "cluster": {"num_workers": 1},
            "corpus": {"sources": [text_source()], "held_out_fraction": 0.15},
            "tokenizer": {"vocab_size": 100},
            "shards": {"max_length": LENGTH},
            "model": {"num_layers": 1, "hidden_size": 8, "num_heads": 1, "intermediate_size": 8, "embedding_size": 8},
            "pretrain": {"num_steps": 10, "batch_size": 4, "learning_rate": 1e-3, "warmup_steps": 1, "eval_every": 5},
            "tasks": {"source": LABELLED},
            "finetune": {"learning_rate": 1e-3},
        },
        where="tests",
    )


def make_small_artefacts(root: Path) -> Paths:
    """Corpus, tokenizer, shards and tasks, all sound."""
    paths = Paths(root)
    rng = np.random.Generator(np.random.Philox(1))
    texts = ["\n".join(" ".join(rng.choice(WORDS, 6)) for _ in range(3)) for _ in range(60)]
    write_corpus(paths, {"train": texts[:50], "heldout": texts[50:]})
    _write_tokenizer(paths)
    _write_shards(paths, rng)
    _write_tasks(paths, rng)
    return paths


def write_corpus(paths: Paths, texts: dict[str, list[str]], ids: dict[str, list[str]] | None = None) -> None:
    """Write ``data/corpus``; ids are the hashes of the texts unless given."""
    paths.corpus.mkdir(parents=True, exist_ok=True)
    for split, documents in texts.items():
        hashes = [hashlib.sha256(text.encode()).hexdigest()[:16] for text in documents]
        columns = {
            "doc_id": ids[split] if ids else hashes,
            "source": ["stories"] * len(documents),
            "text": documents,
        }
        pq.write_table(pa.table(columns), paths.corpus / f"{split}-00000.parquet", compression="zstd")
    count = sum(map(len, texts.values()))
    characters = sum(len(text) for documents in texts.values() for text in documents)
    write_manifest(paths.corpus, documents=count, characters=characters)


def _write_tokenizer(paths: Paths) -> None:
    vocabulary = [*SPECIAL_TOKENS, *"abcdefgh", *(f"##{c}" for c in "abcdefgh"), *WORDS][:100]
    paths.tokenizer.mkdir(parents=True)
    (paths.tokenizer / "vocab.txt").write_text("\n".join(vocabulary) + "\n")
    ids = {token: number for number, token in enumerate(vocabulary)}
    write_json(paths.tokenizer / "tokenizer.json", {"model": {"type": "WordPiece", "vocab": ids}})
    write_manifest(paths.tokenizer, vocab_size=len(vocabulary))


def _write_shards(paths: Paths, rng: np.random.Generator) -> None:
    paths.shards.mkdir(parents=True)
    splits = {}
    for split, num in {"heldout": 10, "train": 40}.items():
        tokens, spans = np.zeros((num, LENGTH), np.uint16), np.zeros((num, 2), np.uint16)
        for row in range(num):
            first, second = (int(n) for n in rng.integers(4, LENGTH // 2 + 1, 2))
            second *= row % 5 > 0
            body = rng.integers(5, 100, first + second)
            body[0], body[first - 1], body[-1] = 2, 3, 3
            tokens[row, : len(body)], spans[row] = body, (len(body), first)
        np.save(paths.shards / f"{split}-00000-00000.tokens.npy", tokens)
        np.save(paths.shards / f"{split}-00000-00000.spans.npy", spans)
        shard = {"name": f"{split}-00000-00000", "examples": num, "tokens": int(spans[:, 0].sum())}
        splits[split] = {"examples": num, "tokens": shard["tokens"], "shards": [shard]}
    tokenizer_hash = sha256(paths.tokenizer / "tokenizer.json")
    write_manifest(paths.shards, max_length=LENGTH, vocab_size=100, tokenizer_sha256=tokenizer_hash, splits=splits)


def _write_tasks(paths: Paths, rng: np.random.Generator) -> None:
    def sentence() -> str:
        return " ".join(rng.choice(WORDS, 5))

    def question(number: int) -> dict:
        context = sentence()
        start = context.index(" ") + 1
        answer = {"text": context.split()[1], "start": start}
        return {
            "id": f"q{number}",
            "question": sentence(),
            "context": context,
            "answers": [answer],
            "impossible": False,
        }

    facts = {}
    for task in ("MRPC", "STS-B", "SQuAD1.1"):
        for split, num in (("train", 20), ("dev", 100)):
            if task == "SQuAD1.1":
                rows = [question(number) for number in range(num)]
            else:
                labels = ["0", "1"] if task == "MRPC" else [0.5, 4.0]
                rows = [
                    {"id": f"{split}-{n}", "text_a": sentence(), "text_b": sentence(), "label": labels[n % 2]}
                    for n in range(num)
                ]
            write_lines(paths, task, split, rows)
        facts[task] = {"rows": {"train": 20, "dev": 100}}
    write_manifest(paths.tasks, source={"kind": "files"}, tasks=facts)


def write_lines(paths: Paths, task: str, split: str, rows: list[dict]) -> None:
    """Write one task file."""
    path = paths.tasks / task / f"{split}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def renew_manifest(folder: Path) -> None:
    """Make the checksums fit after a fault was put in, so that the fault itself must be found."""
    facts = json.loads((folder / "manifest.json").read_text())
    del facts["files"]
    write_manifest(folder, **facts)
