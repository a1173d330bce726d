"""Checks of ``data/tokenizer`` and ``data/shards``: statistics from one pass, and the expectations on them.

Memory: one block of rows, a bounded table, and at most 32 MB of hashes per split.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from electra.checks.expectations import (
    Expectation,
    Suite,
    between,
    critical,
    files_expectations,
    is_in,
    is_unique,
    matches,
    warning,
)
from electra.checks.tables import DuplicateCount, RowSample, Table, files_table
from electra.checks.validate import validate
from electra.common.artifacts import (
    JudgedShardsManifest,
    TokenizerManifest,
    read_json,
    read_manifest,
    refuse_earlier,
    sha256,
)
from electra.common.errors import DataError
from electra.common.parsing import read_tokenizer
from electra.common.paths import Paths
from electra.common.subwords import labels_of
from electra.config import Settings
from electra.config.text import SPECIAL_TOKENS

BLOCK = 8192  # examples processed at a time
NAMED_BY = ["file", "row", "begins"]
RULES = ["spans_possible", "ids_known", "starts_with_cls", "segments_end_with_sep", "padding_is_zero"]
COLUMNS = ["file", "row", "begins", "tokens", "first_segment", "max_id", *RULES, "stray_specials"]


def validate_shards(settings: Settings, paths: Paths) -> None:
    """Validate ``data/tokenizer`` and ``data/shards``.

    Raises:
        DataError: a critical expectation failed; the message names the rows.
    """
    refuse_earlier(paths, "tokenizer")
    refuse_earlier(paths, "shards")
    tables, statistics = shards_tables(paths)
    validate("shards", tables, shards_suite(settings), statistics, paths)


def shards_tables(paths: Paths) -> tuple[dict[str, Table], dict[str, Any]]:
    """Return the tables of :func:`shards_suite` and the report's statistics.

    The tables are ``vocabulary``, ``tokenizer_files``, ``shard_files``, ``shards``, ``examples`` and ``totals``.
    """
    tokenizer_manifest = read_manifest(paths.tokenizer, TokenizerManifest)
    manifest = read_manifest(paths.shards, JudgedShardsManifest)
    tokenizer_files, usable = files_table(paths.tokenizer, tokenizer_manifest, Path.read_text, (UnicodeDecodeError,))
    shard_files, readable = files_table(paths.shards, manifest, np.load, (ValueError, EOFError, OSError))
    ids = _read_vocabulary(paths.tokenizer / "tokenizer.json")
    if paths.tokenizer / "vocab.txt" not in usable:
        raise DataError(
            "vocab.txt is missing, or is not UTF-8",
            where=str(paths.tokenizer / "vocab.txt"),
            next_step="make it again: dvc repro -f tokenizer",
        )
    entries = (paths.tokenizer / "vocab.txt").read_bytes().decode("utf-8").split("\n")
    entries = entries[:-1] if entries[-1] == "" else entries
    vocabulary = _vocabulary(entries, ids)

    scan = ShardScan(ids, manifest)
    listed = [(split, shard) for split, facts in sorted(manifest["splits"].items()) for shard in facts["shards"]]
    shards = pd.DataFrame([scan.shard(paths.shards, split, shard, readable) for split, shard in listed])
    statistics = {
        "vocabulary": len(entries),
        "continuation_share": _continuation_share(paths.tokenizer / "tokenizer.json", vocabulary.frame["token"]),
        **scan.statistics(),
    }
    totals = {
        **statistics,
        "size_difference": len(entries) - tokenizer_manifest["vocab_size"],
        "shards_size_difference": len(entries) - manifest["vocab_size"],
        "other_tokenizer": manifest["tokenizer_sha256"] != sha256(paths.tokenizer / "tokenizer.json"),
        "specials_missing": sum(token not in ids for token in SPECIAL_TOKENS),
        "held_out_examples": int(shards.loc[shards["split"] == "heldout", "examples"].sum()),
        "train_examples": int(shards.loc[shards["split"] == "train", "examples"].sum()),
    }
    tables = {
        "tokenizer_files": tokenizer_files,
        "vocabulary": vocabulary,
        "shard_files": shard_files,
        "shards": Table(shards, named_by=["shard"]),
        "examples": scan.sample.table(COLUMNS),
        "totals": Table(pd.DataFrame([totals]), named_by=[]),
    }
    return tables, statistics


def _read_vocabulary(path: Path) -> dict[str, int]:
    """Return token -> id from tokenizer.json."""
    try:
        facts = read_json(path)
        entries = facts["model"]["vocab"]
        if isinstance(entries, list):  # unigram: pairs of entry and score
            entries = {entry: number for number, (entry, _) in enumerate(entries)}
        return entries | {token["content"]: token["id"] for token in facts.get("added_tokens") or ()}
    except (KeyError, TypeError, ValueError):
        raise DataError(
            "the tokenizer holds no vocabulary", where=str(path), next_step="make it again: dvc repro -f tokenizer"
        ) from None


def _continuation_share(path: Path, entries: "pd.Series[str]") -> float:
    """Return the share of entries that continue a word."""
    if read_json(path)["model"].get("type") != "WordPiece":
        entries = pd.Series(labels_of(read_tokenizer(path)))
    return float(entries.str.startswith("##").mean())


def _vocabulary(entries: list[str], ids: dict[str, int]) -> Table:
    """Return one row per line of vocab.txt, with the difference between the tokenizer's id and the line number."""
    rows = pd.DataFrame({"line": np.arange(len(entries)), "token": entries})
    rows["id_minus_line"] = [ids.get(token, -1) - line for line, token in enumerate(entries)]
    rows["chars"] = rows["token"].str.len()
    return Table(rows, named_by=["line", "token"])


class ShardScan:
    """Collect statistics of every example of every shard.

    Args:
        ids: token -> id of the tokenizer the shards were made with.
        manifest: the shards' manifest.
    """

    def __init__(self, ids: dict[str, int], manifest: dict[str, Any]):
        self._token_of = {id: token for token, id in ids.items()}
        self._pads_with_zero = ids.get("[PAD]", 0) == 0  # not in vocabularies of other projects
        self._vocab_size, self._max_length = manifest["vocab_size"], manifest["max_length"]
        self._unk, self._cls, self._sep, self._mask = (ids.get(token, -1) for token in SPECIAL_TOKENS[1:])
        expected = {split: facts["examples"] for split, facts in manifest["splits"].items()}
        self.sample = RowSample(sum(expected.values()), NAMED_BY)
        self._duplicates = {split: DuplicateCount(num) for split, num in expected.items()}
        self._is_used = np.zeros(max(1, self._vocab_size), bool)
        self._specials = [ids[token] for token in SPECIAL_TOKENS if ids.get(token, self._vocab_size) < self._vocab_size]
        self._examples = self._tokens = self._held_out_tokens = self._held_out_unknown = self._two_segments = 0
        # Row hash: dot product with fixed odd 64-bit numbers, modulo 2^64
        self._multipliers = np.random.Generator(np.random.Philox(0)).integers(
            0, 2**63, self._max_length, np.uint64
        ) * np.uint64(2) + np.uint64(1)

    def shard(self, folder: Path, split: str, facts: dict[str, Any], readable: list[Path]) -> dict[str, Any]:
        """Scan one shard and return its row of the table ``shards``."""
        name = facts["name"]
        row = {"shard": name, "split": split, "examples": 0, "layout": "as listed", "examples_missing": 0}
        files = [folder / f"{name}.tokens.npy", folder / f"{name}.spans.npy"]
        if not set(files) <= set(readable):
            return {**row, "layout": "cannot be read", "tokens_missing": facts["tokens"], "pad_share": 0.0}
        tokens, spans = (np.load(file, mmap_mode="r") for file in files)
        token_type = "uint16" if self._vocab_size <= 2**16 else "uint32"
        if (tokens.dtype, spans.dtype) != (token_type, "uint16"):
            row["layout"] = f"types are {tokens.dtype}, {spans.dtype}"
        if (tokens.shape, spans.shape) != ((len(spans), self._max_length), (len(tokens), 2)):
            return {**row, "layout": f"shapes are {tokens.shape}, {spans.shape}", "tokens_missing": 0, "pad_share": 0.0}
        num_tokens = sum(self._block(f"{name}.tokens.npy", split, *block) for block in _blocks(tokens, spans))
        return {
            **row,
            "examples": len(tokens),
            "examples_missing": facts["examples"] - len(tokens),
            "tokens_missing": facts["tokens"] - num_tokens,
            "pad_share": 1 - num_tokens / max(1, tokens.size),
        }

    def _block(self, file: str, split: str, first_row: int, tokens: np.ndarray, spans: np.ndarray) -> int:
        """Scan examples [B, max_length] with spans [B, 2] and return their number of real tokens."""
        width, length, first = tokens.shape[1], spans[:, 0].astype(np.int64), spans[:, 1].astype(np.int64)
        two_segments = first < length
        real = np.arange(width) < length[:, None]
        rows = pd.DataFrame({"file": file, "row": np.arange(first_row, first_row + len(tokens))})
        rows["tokens"], rows["first_segment"], rows["max_id"] = length, first, tokens.max(axis=1)
        # the shortest segment is [CLS] x [SEP]; the shortest second one is x [SEP]
        rows["spans_possible"] = (first >= 3) & (length <= width) & ((first == length) | (first + 2 <= length))
        rows["ids_known"] = rows["max_id"] < self._vocab_size
        rows["starts_with_cls"] = tokens[:, 0] == self._cls
        rows["segments_end_with_sep"] = (_last(tokens, length) == self._sep) & (_last(tokens, first) == self._sep)
        zero = tokens == 0
        rows["padding_is_zero"] = ((zero == ~real) if self._pads_with_zero else (zero | real)).all(axis=1)
        rows["stray_specials"] = (
            (tokens == self._cls).sum(axis=1) + (tokens == self._sep).sum(axis=1) + (tokens == self._mask).sum(axis=1)
        ) - (2 + two_segments)
        hashes = (tokens.astype(np.uint64) * self._multipliers).sum(axis=1, dtype=np.uint64)
        wrong = ~rows[RULES].all(axis=1).to_numpy() | (rows["stray_specials"] != 0).to_numpy()
        rows["begins"] = [self._begins(ids) if bad else "" for ids, bad in zip(tokens[:, :8], wrong, strict=True)]
        self.sample.add(rows, hashes, wrong)
        self._duplicates[split].add(hashes)
        self._examples += len(tokens)
        self._tokens += int(length.sum())
        self._two_segments += int(two_segments.sum())
        if split == "train":
            self._is_used[tokens[tokens < self._vocab_size]] = True
        else:
            self._held_out_tokens += int(length.sum())
            self._held_out_unknown += int(((tokens == self._unk) & real).sum())
        return int(length.sum())

    def _begins(self, ids: np.ndarray) -> str:
        return " ".join(self._token_of.get(int(i), f"<{i}>") for i in ids)

    def statistics(self) -> dict[str, Any]:
        """Return figures over all scanned examples."""
        train, held_out = (self._duplicates[split].hashes() for split in ("train", "heldout"))
        used = np.delete(self._is_used, self._specials)
        return {
            "examples": self._examples,
            "tokens": self._tokens,
            "tokens_per_example": self._tokens / max(1, self._examples),
            "pad_share": 1 - self._tokens / max(1, self._examples * self._max_length),
            "two_segment_share": self._two_segments / max(1, self._examples),
            "duplicate_share": self._duplicates["train"].share(),
            "held_out_seen_share": float(np.isin(held_out, train).mean()) if len(held_out) else 0.0,
            "held_out_unknown_share": self._held_out_unknown / max(1, self._held_out_tokens),
            "unused_entries_share": 1 - float(used.mean()) if len(used) else 0.0,
        }


def _last(tokens: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Return the token before position ``end`` [B] of each example [B, max_length]."""
    return np.take_along_axis(tokens, np.clip(end - 1, 0, tokens.shape[1] - 1)[:, None], 1)[:, 0]


def _blocks(tokens: np.ndarray, spans: np.ndarray) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    for start in range(0, len(tokens), BLOCK):
        yield start, np.asarray(tokens[start : start + BLOCK]), np.asarray(spans[start : start + BLOCK])


CONTINUES = {"wordpiece": "##", "bpe": "no Ġ", "unigram": "no ▁"}
RESHARD = "make the shards again: dvc repro -f shards"
RETOKENIZE = "make the tokenizer again: dvc repro -f tokenizer"
RULE_TEXT = {
    "spans_possible": "spans fit: 3 <= first segment <= tokens <= max_length",
    "ids_known": "token ids are in the vocabulary",
    "starts_with_cls": "examples start with [CLS]",
    "segments_end_with_sep": "both segments end with [SEP]",
    "padding_is_zero": "padding, and nothing else, is zero",
}


def shards_suite(settings: Settings) -> Suite:
    """Return the expectations per table of :func:`shards_tables`."""
    return {
        "tokenizer_files": files_expectations("data/tokenizer", "tokenizer"),
        "vocabulary": [
            critical("token", is_unique(), "no entry stands twice", RETOKENIZE),
            critical(
                "id_minus_line",
                is_in(0),
                "ids in tokenizer.json are the line numbers of vocab.txt: 0, 1, 2, ... without gaps",
                RETOKENIZE,
            ),
            *([] if settings.tokenizer.vocab_file else _trained_entries()),
        ],
        "shard_files": files_expectations("data/shards", "shards"),
        "shards": [
            critical("layout", is_in("as listed"), "types and shapes are those of the manifest", RESHARD),
            critical("examples_missing", is_in(0), "examples are as many as the manifest says", RESHARD),
            critical("tokens_missing", is_in(0), "tokens are as many as the manifest says", RESHARD),
        ],
        "examples": [
            *(critical(rule, is_in(True), RULE_TEXT[rule], RESHARD) for rule in RULES),
            warning(
                "stray_specials",
                is_in(0),
                "special tokens stand only at the ends of segments",
                "the text itself holds [CLS], [SEP] or [MASK]: remove them from the source",
            ),
        ],
        "totals": [
            critical("size_difference", is_in(0), "the vocabulary has the size its manifest says", RETOKENIZE),
            critical(
                "shards_size_difference", is_in(0), "the shards were made with a vocabulary of this size", RESHARD
            ),
            critical(
                "other_tokenizer",
                is_in(False),
                "the shards were made with this tokenizer (sha256 of tokenizer.json)",
                RESHARD,
            ),
            critical(
                "specials_missing", is_in(0), "[PAD], [UNK], [CLS], [SEP] and [MASK] are in the vocabulary", RETOKENIZE
            ),
            *(
                critical(
                    f"{split}_examples",
                    between(1),
                    f"the {split.replace('_', '-')} split has examples",
                    "give more text, or raise corpus.held_out_fraction",
                )
                for split in ("train", "held_out")
            ),
            warning(
                "vocabulary",
                between(1 if settings.tokenizer.vocab_file else settings.tokenizer.vocab_size),
                "the vocabulary is as large as tokenizer.vocab_size asks",
                "lower tokenizer.vocab_size or tokenizer.min_frequency, or give more text",
            ),
            warning(
                "continuation_share",
                between(0.03, 0.7),
                f"a usual share of entries continue a word ({CONTINUES[settings.tokenizer.kind]})",
                "look at data/tokenizer/vocab.txt: does it hold words and word parts?",
            ),
            warning(
                "held_out_unknown_share",
                between(high=0.001),
                "hardly any held-out token is [UNK]",
                "look for foreign scripts in the corpus; or raise tokenizer.character_coverage (or max_alphabet, "
                "where it is set): data/tokenizer/manifest.json says which characters have no entry",
            ),
            warning(
                "unused_entries_share",
                between(high=0.5),
                "most entries of the vocabulary occur in the training text",
                "lower tokenizer.vocab_size, or use a vocabulary of the corpus' own language",
            ),
            warning(
                "pad_share",
                between(high=0.5),
                "less than half of the shards is padding",
                "documents are short: check `documents` of the corpus' sources, or lower shards.max_length",
            ),
            warning(
                "duplicate_share",
                between(high=0.05),
                "few training examples stand twice",
                "look for boilerplate in the corpus",
            ),
            warning(
                "held_out_seen_share",
                between(high=0.05),
                "few held-out examples are training examples too",
                "look for boilerplate in the corpus",
            ),
        ],
    }


def _trained_entries() -> list[Expectation]:
    """Return expectations on trained vocabularies.

    Given vocabularies are not checked: for example, bert-base-chinese has U+2028 in two entries.
    """
    return [
        critical(
            "token",
            matches(r"^[^\s\x00-\x1f\x7f-\x9f]+$"),
            "entries hold no spaces and no control characters",
            RETOKENIZE,
        ),
        warning(
            "chars",
            between(high=100),
            "no entry is longer than 100 characters",
            "look for text without spaces in the corpus",
        ),
    ]
