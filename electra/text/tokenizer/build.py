"""The tokenizer stage: a sample of the corpus, the vocabulary trained on it, and its statistics."""

import hashlib
import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text
from tokenizers import Tokenizer

from electra.cluster.executors import Workers, job_folder, open_workers, whole_file
from electra.common.artifacts import (
    Listed,
    building,
    listed_files,
    read_manifest,
    renews,
    sha256,
    write_json,
    write_manifest,
    write_text,
)
from electra.common.corpus_file import read_documents
from electra.common.errors import ConfigError, DataError, ElectraError
from electra.common.lines import batches
from electra.common.parsing import read_tokenizer
from electra.common.paths import Paths
from electra.common.printing import printable, raw_stream
from electra.config import Settings
from electra.config import Tokenizer as Asked
from electra.config.text import SPECIAL_TOKENS
from electra.text.tokenizer.wordpiece import (
    Alphabet,
    alphabet_of,
    count_characters,
    make_tokenizer,
    read_vocab_file,
    single_entries,
    train_vocabulary,
    transformers_config,
)

BATCH_CHARS = 500_000  # characters per batch of lines; the tokenizer's result takes some hundred times the memory
SCHEMA = pa.schema([("text", pa.large_string())])


def count_file(file: Listed) -> Counter[str]:
    """Return the count of each character in a corpus file, whose checksum is verified first.

    Raises:
        DataError: the file is damaged.
    """
    file.verify()
    return count_characters(texts for _, texts in read_documents(file.path))


def sampled(path: Path, share: float) -> Iterator[list[str]]:
    """Yield batches of the texts that belong to the sample."""
    for ids, texts in read_documents(path):
        yield [text for doc_id, text in zip(ids, texts, strict=True) if in_sample(doc_id, share)]


def write_sample(path: Path, share: float, target: Path) -> Path:
    """Write the texts of a corpus file that belong to the sample to an Arrow file, for another process to read.

    Raises:
        DataError: the corpus file is damaged.
        InfrastructureError: the disk is full.
    """
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with (
        whole_file(target) as beside,
        pa.OSFile(str(beside), "wb") as sink,
        pa.ipc.new_stream(sink, SCHEMA, options=options) as stream,
    ):
        for texts in sampled(path, share):
            stream.write_batch(pa.record_batch([texts], schema=SCHEMA))
    return target


def read_sample(path: Path) -> Iterator[list[str]]:
    """Yield the batches that :func:`write_sample` wrote."""
    with pa.OSFile(str(path), "rb") as file, pa.ipc.open_stream(file) as stream:
        for batch in stream:
            yield batch.column(0).to_pylist()


def line_batches(texts: Iterable[str]) -> Iterator[list[str]]:
    """Yield the lines of documents in batches of about ``BATCH_CHARS`` characters: documents may be whole books."""
    return batches((line for text in texts for line in text.split("\n")), None, len, BATCH_CHARS)


def in_sample(doc_id: str, share: float) -> bool:
    """Return whether a document belongs to a hash sample of about ``share`` of all documents.

    Uses a new hash, so that the sample is independent of other selections by ``doc_id``.
    """
    digest = hashlib.blake2b(doc_id.encode(), digest_size=8, person=b"tokenizer").digest()
    return int.from_bytes(digest, "big") < share * 2**64


MEASURED_CHARS = 10_000_000  # characters of held-out text for the statistics in the manifest
SHOWN_LEFT_OUT = 20  # left-out characters listed in the log and the manifest


@renews("tokenizer")
def build_tokenizer(settings: Settings, paths: Paths) -> None:
    """Train a WordPiece vocabulary on the corpus, or use ``tokenizer.vocab_file`` with its size.

    Writes ``vocab.txt``, ``tokenizer.json`` and ``tokenizer_config.json`` (a folder that ``AutoTokenizer`` loads), the
    same bytes on every run.

    Raises:
        ConfigError: the requested vocabulary is larger than the corpus allows, or too small for its characters.
        DataError: the corpus or the vocabulary file cannot be used.
        InfrastructureError: workers died, or the disk is full.
    """
    asked = settings.tokenizer
    with building(paths.tokenizer) as folder:
        if asked.vocab_file is not None:
            path = paths.root / asked.vocab_file
            vocabulary = read_vocab_file(path)
            origin: dict[str, dict[str, Any]] = {"vocab_file": {"name": path.name, "sha256": sha256(path)}}
        else:
            vocabulary, origin = _train(settings, paths.corpus, folder)
        tokenizer = make_tokenizer(vocabulary, lowercase=asked.lowercase, strip_accents=asked.strip_accents)
        held_out = _measure(tokenizer, paths.corpus).facts()
        write_text(folder / "vocab.txt", "\n".join(vocabulary) + "\n")
        tokenizer.save(str(folder / "tokenizer.json"))
        write_json(
            folder / "tokenizer_config.json",
            transformers_config(
                lowercase=asked.lowercase,
                strip_accents=asked.strip_accents,
                max_length=settings.model.max_positions,
            ),
        )
        write_manifest(
            folder,
            vocab_size=len(vocabulary),
            lowercase=asked.lowercase,
            **({} if asked.strip_accents is None else {"strip_accents": asked.strip_accents}),
            special_tokens={token: tokenizer.token_to_id(token) for token in SPECIAL_TOKENS},
            **origin,
            held_out=held_out,
        )
    print(
        f"tokenizer: {len(vocabulary):,} entries; on held-out text: {held_out['wordpieces_per_word']} pieces a word, "
        f"{held_out['unknown_rate']} of them [UNK]"
    )


def _train(settings: Settings, corpus: Path, folder: Path) -> tuple[list[str], dict[str, dict[str, Any]]]:
    """Return the vocabulary, and the manifest's entries on the training text and the left-out characters.

    The workers set in ``cluster`` count the characters and draw the sample, file by file.
    """
    files = listed_files(corpus.absolute(), "train-*.parquet")
    with (
        job_folder(folder) as scratch,
        open_workers(settings.cluster, len(files), scratch, "tokenizer.max_training_chars") as workers,
    ):
        characters: Counter[str] = Counter()
        for counts in workers.map(count_file, ((file,) for file in files)):
            characters.update(counts)
        if not characters:
            raise DataError("the corpus holds no training text", where=str(corpus), next_step="dvc repro corpus")
        share = min(1.0, settings.tokenizer.max_training_chars / characters.total())
        return _train_on(settings, characters, _sample([file.path for file in files], share, workers, scratch))


def _sample(paths: list[Path], share: float, workers: Workers, scratch: Path) -> Iterator[list[str]]:
    """Yield the texts to train on, in the order of the corpus."""
    if workers.in_process or share == 1.0:  # with the whole corpus, workers have nothing to select
        for path in paths:
            yield from sampled(path, share)
        return
    jobs = ((path, share, scratch / f"{path.stem}.arrow") for path in paths)
    for written in workers.map(write_sample, jobs):
        yield from read_sample(written)
        written.unlink()


def _train_on(
    settings: Settings, characters: Counter[str], texts: Iterator[list[str]]
) -> tuple[list[str], dict[str, dict[str, Any]]]:
    asked = settings.tokenizer
    alphabet = alphabet_of(
        characters,
        lowercase=asked.lowercase,
        strip_accents=asked.strip_accents,
        coverage=asked.character_coverage,
        max_alphabet=asked.max_alphabet,
    )
    if asked.vocab_size < (needed := len(single_entries(alphabet))):
        raise ConfigError(
            f"{asked.vocab_size} entries cannot hold the corpus' {len(alphabet.characters)} single characters, which "
            f"need {needed}",
            where="tokenizer.vocab_size",
            next_step=f"raise tokenizer.vocab_size well above {needed}, or set tokenizer.max_alphabet to fewer than "
            f"{len(alphabet.characters)} (words with the rarest characters then become [UNK])",
        )

    trained_on = {"documents": 0, "characters": 0}

    def counted() -> Iterator[list[str]]:
        for chosen in texts:
            trained_on["documents"] += len(chosen)
            trained_on["characters"] += sum(map(len, chosen))
            yield from line_batches(chosen)

    vocabulary = train_vocabulary(
        counted(),
        alphabet,
        size=asked.vocab_size,
        min_frequency=asked.min_frequency,
        lowercase=asked.lowercase,
        strip_accents=asked.strip_accents,
    )
    if len(vocabulary) < asked.vocab_size:
        raise ConfigError(
            f"the corpus yields {len(vocabulary)} vocabulary entries, {asked.vocab_size} are asked for",
            where="tokenizer.vocab_size",
            next_step=(f"{_more_characters(asked)}: {_left_out(alphabet)}; or " if alphabet.left_out else "")
            + f"lower tokenizer.vocab_size to at most {len(vocabulary)}"
            + (f", lower tokenizer.min_frequency (now {asked.min_frequency})" if asked.min_frequency > 1 else "")
            + ", or add text",
        )
    if not alphabet.left_out:
        return vocabulary, {"trained_on": trained_on}
    print(f"tokenizer: {_left_out(alphabet)}; to keep more, {_more_characters(asked)}")
    facts = {
        "characters": len(alphabet.characters),
        "left_out": len(alphabet.left_out),
        "left_out_share": float(f"{alphabet.left_out_share:.3g}"),
        "most_frequent_left_out": "".join(alphabet.left_out[:SHOWN_LEFT_OUT]),
    }
    return vocabulary, {"trained_on": trained_on, "alphabet": facts}


def _left_out(alphabet: Alphabet) -> str:
    return (
        f"{len(alphabet.left_out):,} characters, {alphabet.left_out_share:.2%} of the text, have no entry, and words "
        f"with them become [UNK] (the most frequent: {' '.join(alphabet.left_out[:SHOWN_LEFT_OUT])})"
    )


def _more_characters(asked: Asked) -> str:
    if asked.max_alphabet is not None:
        return f"raise tokenizer.max_alphabet (now {asked.max_alphabet})"
    return f"raise tokenizer.character_coverage (now {asked.character_coverage})"


@dataclass
class _Fit:
    """Counts of a tokenizer on held-out text."""

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


def _measure(tokenizer: Tokenizer, corpus: Path) -> _Fit:
    """Count words, wordpieces and ``[UNK]`` in the first ``MEASURED_CHARS`` characters of the held-out split."""
    found = _Fit()
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


def show_beside(paths: Paths, others: list[Path], console: Console | None = None) -> None:
    """Print statistics of ``data/tokenizer`` and of other vocabularies on the held-out text.

    All rows use the word count of ``data/tokenizer``, so that wordpieces per word can be compared.

    Args:
        others: BERT's ``vocab.txt``, ``tokenizer.json`` of any kind, or folders with one of them. A ``vocab.txt``
            without a capital letter is taken to be for lowercased text.

    Raises:
        ConfigError: a path in ``others`` does not exist.
        DataError: there is no vocabulary or no held-out text yet, or a path in ``others`` cannot be read.
    """
    read_manifest(paths.tokenizer)
    tokenizers = [(path, _load(path)) for path in (paths.tokenizer, *others)]  # first, to fail early on a wrong path
    columns = ("vocabulary", "entries", "wordpieces per word", "characters per wordpiece", "[UNK] among wordpieces")
    table = Table(*columns, box=box.SIMPLE)
    table.columns[0].no_wrap = True  # so that rich wraps the other headers first
    words = 0
    for path, tokenizer in tokenizers:
        found = _fit_of(tokenizer, paths.corpus, path)
        words = words or found.words
        if not found.pieces:
            raise DataError("there is no held-out text to measure on", where=str(paths.corpus))
        table.add_row(
            Text(printable(str(path))),
            f"{tokenizer.get_vocab_size():,}",
            f"{found.pieces / words:.2f}",
            f"{found.characters / found.pieces:.2f}",
            f"{found.unknown / found.pieces:.3%}",
        )
    (console or Console(file=raw_stream(sys.stdout))).print(table)


def _fit_of(tokenizer: Tokenizer, corpus: Path, path: Path) -> _Fit:
    """Return the counts of a tokenizer from any source; all its errors become DataError."""
    try:
        return _measure(tokenizer, corpus)
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
    return make_tokenizer(vocabulary, lowercase=all(entry == entry.lower() for entry in entries))


def _heldout_texts(corpus: Path) -> Iterator[list[str]]:
    for file in listed_files(corpus, "heldout-*.parquet"):
        file.verify()
        for _, texts in read_documents(file.path):
            yield texts
