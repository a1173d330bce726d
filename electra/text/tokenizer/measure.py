"""Statistics of vocabularies on held-out text: wordpieces per word, and how many of them are unknown."""

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text
from tokenizers import Tokenizer

from electra.common.artifacts import listed_files, read_manifest
from electra.common.corpus_file import read_documents
from electra.common.errors import ConfigError, DataError, ElectraError
from electra.common.parsing import read_tokenizer
from electra.common.paths import Paths
from electra.common.printing import printable, raw_stream
from electra.text.tokenizer.sample import line_batches
from electra.text.tokenizer.wordpiece import bert_normalizer, make_tokenizer, read_vocab_file

MEASURED_CHARS = 10_000_000  # characters of held-out text for the statistics in the manifest


@dataclass
class Statistics:
    """Counts of a tokenizer on held-out text.

    Attributes:
        characters, words, pieces: of the text; pieces are wordpieces.
        unknown: wordpieces that are ``[UNK]``.
    """

    characters: int = 0
    words: int = 0
    pieces: int = 0
    unknown: int = 0

    def facts(self) -> dict[str, float | int | None]:
        """Return the manifest's entry."""
        return {
            "characters": self.characters,
            "words": self.words,
            "wordpieces_per_word": round(self.pieces / self.words, 4) if self.words else None,
            "unknown_rate": round(self.unknown / self.pieces, 6) if self.pieces else None,
        }


def measure(tokenizer: Tokenizer, corpus: Path) -> Statistics:
    """Count words, wordpieces and ``[UNK]`` in the first ``MEASURED_CHARS`` characters of the held-out split."""
    found = Statistics()
    unknown_id = tokenizer.token_to_id(_unknown_token(tokenizer))
    for texts in _heldout_texts(corpus):
        for lines in line_batches(texts):
            for encoding in tokenizer.encode_batch(lines, add_special_tokens=False):
                found.pieces += len(encoding)
                found.words += len(set(encoding.word_ids))
                found.unknown += encoding.ids.count(unknown_id) if unknown_id is not None else 0
        found.characters += sum(map(len, texts))
        if found.characters >= MEASURED_CHARS:
            break
    return found


def _unknown_token(tokenizer: Tokenizer) -> str:
    """Return the tokenizer's unknown token, usually ``[UNK]``; empty if it has none."""
    model = json.loads(tokenizer.to_str())["model"]
    if "unk_id" in model:  # Unigram: entries are pairs of text and score
        return str(model["vocab"][model["unk_id"]][0]) if model["unk_id"] is not None else ""
    return str(model.get("unk_token") or "")


def show_beside(paths: Paths, others: list[Path], console: Console | None = None, own: Path | None = None) -> None:
    """Print statistics of ``data/tokenizer`` and of other vocabularies on the held-out text.

    All rows use the word count of ``data/tokenizer``, so that wordpieces per word can be compared.

    Args:
        others: BERT's ``vocab.txt``, ``tokenizer.json`` of any kind, or folders with one of them. A ``vocab.txt``
            without a capital letter is taken to be for lowercased text.
        own: the vocabulary in place of ``data/tokenizer``.

    Raises:
        ConfigError: a path in ``others`` does not exist.
        DataError: there is no vocabulary or no held-out text yet, or a path in ``others`` cannot be read.
    """
    own = own or paths.tokenizer
    read_manifest(own)
    tokenizers = [(path, _load(path)) for path in (own, *others)]  # first, to fail early on a wrong path
    columns = ("vocabulary", "entries", "wordpieces per word", "characters per wordpiece", "[UNK] among wordpieces")
    table = Table(*columns, box=box.SIMPLE)
    table.columns[0].no_wrap = True  # so that rich wraps the other headers first
    words = 0
    for path, tokenizer in tokenizers:
        found = _measured(tokenizer, paths.corpus, path)
        words = words or found.words
        if not found.pieces:
            raise DataError("there is no held-out text to measure on", where=str(paths.corpus))
        table.add_row(
            Text(printable(str(path if own == paths.tokenizer else path.name))),
            f"{tokenizer.get_vocab_size():,}",
            f"{found.pieces / words:.2f}",
            f"{found.characters / found.pieces:.2f}",
            f"{found.unknown / found.pieces:.3%}",
        )
    (console or Console(file=raw_stream(sys.stdout))).print(table)


def _measured(tokenizer: Tokenizer, corpus: Path, path: Path) -> Statistics:
    """Return the counts of a tokenizer from any source; all its errors become DataError."""
    try:
        return measure(tokenizer, corpus)
    except (ElectraError, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic in the library is not an Exception; its errors are plain Exceptions
        raise DataError(f"the tokenizer cannot be used: {error}", where=str(path)) from None


def _load(path: Path) -> Tokenizer:
    """Return the tokenizer of a folder, a ``tokenizer.json`` or a ``vocab.txt``."""
    if path.is_dir():
        path = path / ("tokenizer.json" if (path / "tokenizer.json").is_file() else "vocab.txt")
    if not path.is_file():
        raise ConfigError(
            f"there is no file {path}", where="--beside", next_step="name a vocab.txt, a tokenizer.json or its folder"
        )
    if path.suffix == ".json":
        tokenizer = read_tokenizer(path)
        tokenizer.no_truncation()
        tokenizer.no_padding()
        return tokenizer
    vocabulary = read_vocab_file(path)
    entries = [entry for entry in vocabulary if not entry.startswith("[")]
    lowercase = all(entry == entry.lower() for entry in entries)
    stripping = bert_normalizer(lowercase=False, strip_accents=True, handle_chinese_chars=False)
    has_accents = any(stripping.normalize_str(entry) != entry for entry in entries)  # never found in stripped text
    return make_tokenizer(vocabulary, lowercase=lowercase, strip_accents=False if has_accents else None)


def _heldout_texts(corpus: Path) -> Iterator[list[str]]:
    for file in listed_files(corpus, "heldout-*.parquet"):
        file.verify()
        for _, texts in read_documents(file.path):
            yield texts
