"""The tokenizer stage: ``data/corpus`` (or an existing vocab.txt) -> ``data/tokenizer``."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from electra.artifacts import building, sha256, write_json, write_manifest, write_text
from electra.config import Settings
from electra.errors import ConfigError, DataError
from electra.paths import Paths
from electra.tokenizer.documents import documents, in_sample, line_batches
from electra.tokenizer.vocab_file import read_vocab_file
from electra.tokenizer.wordpiece import (
    SPECIAL_TOKENS,
    alphabet_of,
    count_characters,
    make_tokenizer,
    single_entries,
    train_vocabulary,
)

MEASURED_CHARS = 10_000_000  # held-out text the figures in the manifest are taken from


def build_tokenizer(settings: Settings, paths: Paths) -> None:
    """Train a WordPiece vocabulary on the corpus, or take ``tokenizer.vocab_file`` (then its size counts).

    Writes ``vocab.txt``, ``tokenizer.json`` and ``tokenizer_config.json`` (a folder that ``AutoTokenizer`` loads), the
    same bytes on every run.

    Raises:
        ConfigError: the vocabulary asked for is larger than the corpus allows, or too small for its characters.
        DataError: the corpus or the vocabulary file cannot be used.
    """
    asked = settings.tokenizer
    if asked.vocab_file is not None:
        path = paths.root / asked.vocab_file
        vocabulary = read_vocab_file(path)
        origin: dict[str, dict[str, Any]] = {"vocab_file": {"name": path.name, "sha256": sha256(path)}}
    else:
        vocabulary, trained_on = _train(settings, paths.corpus)
        origin = {"trained_on": trained_on}
    tokenizer = make_tokenizer(vocabulary, lowercase=asked.lowercase)
    held_out = _measure(tokenizer, paths.corpus)

    with building(paths.tokenizer) as folder:
        write_text(folder / "vocab.txt", "\n".join(vocabulary) + "\n")
        tokenizer.save(str(folder / "tokenizer.json"))
        write_json(folder / "tokenizer_config.json", _transformers_config(settings))
        write_manifest(
            folder,
            vocab_size=len(vocabulary),
            lowercase=asked.lowercase,
            special_tokens={token: tokenizer.token_to_id(token) for token in SPECIAL_TOKENS},
            **origin,
            held_out=held_out,
        )
    print(
        f"tokenizer: {len(vocabulary):,} entries; on held-out text: {held_out['wordpieces_per_word']} pieces a word, "
        f"{held_out['unknown_rate']} of them [UNK]"
    )


def _train(settings: Settings, corpus: Path) -> tuple[list[str], dict[str, int]]:
    asked = settings.tokenizer
    characters = count_characters(texts for _, texts in documents(corpus, "train"))
    total = characters.total()
    if not total:
        raise DataError("the corpus holds no training text", where=str(corpus), next_step="dvc repro corpus")
    alphabet, inside = alphabet_of(characters, lowercase=asked.lowercase, max_alphabet=asked.max_alphabet)
    if asked.vocab_size < (needed := len(single_entries(alphabet, inside))):
        raise ConfigError(
            f"{asked.vocab_size} entries cannot hold the corpus' single characters, which need {needed}",
            where="tokenizer.vocab_size",
            next_step=f"raise tokenizer.vocab_size well above {needed}, or lower tokenizer.max_alphabet",
        )

    share = min(1.0, asked.max_training_chars / total)
    trained_on = {"documents": 0, "characters": 0}

    def sample() -> Iterator[list[str]]:
        for ids, texts in documents(corpus, "train"):
            chosen = [text for doc_id, text in zip(ids, texts, strict=True) if in_sample(doc_id, share)]
            trained_on["documents"] += len(chosen)
            trained_on["characters"] += sum(map(len, chosen))
            yield from line_batches(chosen)

    vocabulary = train_vocabulary(
        sample(),
        alphabet,
        inside,
        size=asked.vocab_size,
        min_frequency=asked.min_frequency,
        lowercase=asked.lowercase,
    )
    if len(vocabulary) < asked.vocab_size:
        raise ConfigError(
            f"the corpus yields {len(vocabulary)} vocabulary entries, {asked.vocab_size} are asked for",
            where="tokenizer.vocab_size",
            next_step=f"lower tokenizer.vocab_size to at most {len(vocabulary)}"
            + (f", lower tokenizer.min_frequency (now {asked.min_frequency})" if asked.min_frequency > 1 else "")
            + ", or add text",
        )
    return vocabulary, trained_on


def _measure(tokenizer: Tokenizer, corpus: Path) -> dict[str, float | int | None]:
    """Wordpieces per word and the share of ``[UNK]`` among wordpieces on (the start of) the held-out split."""
    words = pieces = unknown = characters = 0
    unknown_id = tokenizer.get_vocab()["[UNK]"]
    for _, texts in documents(corpus, "heldout"):
        for lines in line_batches(texts):
            for encoding in tokenizer.encode_batch(lines, add_special_tokens=False):
                pieces += len(encoding)
                words += len(set(encoding.word_ids))
                unknown += encoding.ids.count(unknown_id)
        characters += sum(map(len, texts))
        if characters >= MEASURED_CHARS:
            break
    return {
        "characters": characters,
        "words": words,
        "wordpieces_per_word": round(pieces / words, 4) if words else None,
        "unknown_rate": round(unknown / pieces, 6) if pieces else None,
    }


def _transformers_config(settings: Settings) -> dict[str, str | bool | int]:
    """What ``transformers`` needs besides tokenizer.json to load the folder as ``ElectraTokenizerFast``."""
    roles = {f"{token[1:-1].lower()}_token": token for token in SPECIAL_TOKENS}
    return {
        "tokenizer_class": "ElectraTokenizer",
        "do_lower_case": settings.tokenizer.lowercase,
        "model_max_length": settings.model.max_positions,
        **roles,
    }
