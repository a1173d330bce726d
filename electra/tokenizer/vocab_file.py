"""An existing ``vocab.txt``: one entry per line, the line number is the id."""

from collections import Counter
from pathlib import Path

from electra.errors import ConfigError, DataError
from electra.tokenizer.wordpiece import SPECIAL_TOKENS


def read_vocab_file(path: Path) -> list[str]:
    """Read and check a vocabulary; ids are kept.

    Raises:
        ConfigError: there is no such file.
        DataError: it is no UTF-8 text, lacks a special token, repeats an entry, or ``[PAD]`` is not its first line
            (shards are padded with zeros).
    """
    try:
        entries = path.read_text(encoding="utf-8").split("\n")
    except (FileNotFoundError, IsADirectoryError):
        raise ConfigError(
            f"there is no file {path}", where="tokenizer.vocab_file", next_step="correct the path, or train: null"
        ) from None
    except UnicodeDecodeError as error:
        raise DataError(f"the vocabulary is not UTF-8 text: {error.reason}", where=str(path)) from None
    entries = [entry.removesuffix("\r") for entry in entries]
    if entries[-1] == "":
        entries.pop()

    if missing := [token for token in SPECIAL_TOKENS if token not in entries]:
        raise DataError(
            f"the vocabulary lacks {', '.join(missing)}",
            where=str(path),
            next_step=f"use a BERT or ELECTRA vocab.txt: one entry per line, with {' '.join(SPECIAL_TOKENS)}",
        )
    if repeated := [entry for entry, count in Counter(entries).items() if count > 1]:
        lines = [number for number, entry in enumerate(entries, 1) if entry == repeated[0]]
        raise DataError(
            f"the vocabulary repeats {len(repeated)} entries, first {repeated[0]!r} in lines {lines}", where=str(path)
        )
    if entries[0] != "[PAD]":
        raise DataError(
            f"the first line of the vocabulary is {entries[0]!r}, it must be [PAD]: examples are padded with zeros",
            where=f"{path}, line 1",
        )
    return entries
