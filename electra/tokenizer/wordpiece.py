"""WordPiece as BERT and ELECTRA use it: repeatable training, and reading an existing ``vocab.txt``."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from electra.common.errors import ConfigError, DataError

CHUNK_CHARS = 1_000_000  # counted at a time: sixteen bytes each
SPECIAL_TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def make_tokenizer(vocabulary: list[str], *, lowercase: bool) -> Tokenizer:
    """A tokenizer of a finished vocabulary: BERT's normaliser and pre-tokeniser, ``[CLS] A [SEP] B [SEP]``.

    Args:
        vocabulary: entries in the order of their ids; holds the special tokens.
        lowercase: lowercase the text and strip its accents.
    """
    ids = {entry: index for index, entry in enumerate(vocabulary)}
    tokenizer = _blank(models.WordPiece(ids, unk_token="[UNK]"), lowercase)
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL_TOKENS])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0",
        pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=[("[CLS]", ids["[CLS]"]), ("[SEP]", ids["[SEP]"])],
    )
    tokenizer.decoder = decoders.WordPiece(prefix="##")
    return tokenizer


def alphabet_of(characters: Counter[str], *, lowercase: bool, max_alphabet: int) -> tuple[list[str], list[str]]:
    """The single characters that get vocabulary entries.

    Args:
        characters: how often each character stands in the raw text.
        lowercase: as in :func:`make_tokenizer`.
        max_alphabet: keep this many characters, the most frequent ones (the lower code point among equals).

    Returns:
        The characters after normalising, sorted; and those of them that can continue a word (no punctuation, no
        Chinese characters: the pre-tokeniser makes these words of their own), sorted.
    """
    blank = _blank(models.WordPiece(unk_token="[UNK]"), lowercase)
    normalised: Counter[str] = Counter()
    for character, count in characters.items():
        for part in "".join(blank.normalizer.normalize_str(character).split()):
            normalised[part] += count
    kept = sorted(sorted(normalised, key=lambda c: (-normalised[c], c))[:max_alphabet])

    def continues_a_word(character: str) -> bool:
        pieces = blank.pre_tokenizer.pre_tokenize_str(blank.normalizer.normalize_str("a" + character))
        return [piece for piece, _ in pieces] == ["a" + character]

    return kept, [character for character in kept if continues_a_word(character)]


def train_vocabulary(
    texts: Iterator[list[str]],
    alphabet: list[str],
    inside: list[str],
    *,
    size: int,
    min_frequency: int,
    lowercase: bool,
) -> list[str]:
    """Train WordPiece; the same texts give the same entries in the same order on every run and machine.

    The trainer breaks ties between equally frequent pairs by the ids of their parts, but gives ``##`` characters their
    ids in the order of a randomly seeded hash table, so that it alone differs from run to run (tokenizers issue 1794).
    Listing all single characters as special tokens fixes their ids, and with them every later tie.

    Args:
        texts: batches of documents, or of their lines: no word goes beyond one.
        alphabet, inside: see :func:`alphabet_of`.
        size: entries asked for; there are fewer if no pair is left that occurs ``min_frequency`` times.
        min_frequency: least count of a pair to be merged.
        lowercase: as in :func:`make_tokenizer`.

    Returns:
        The special tokens, the alphabet, the ``##`` alphabet, then the merged pieces, most frequent merge first.
    """
    tokenizer = _blank(models.WordPiece(unk_token="[UNK]"), lowercase)
    trainer = trainers.WordPieceTrainer(
        vocab_size=size,
        min_frequency=min_frequency,
        special_tokens=single_entries(alphabet, inside),
        initial_alphabet=alphabet,
        limit_alphabet=len(alphabet),  # nothing but the alphabet given: the trainer's own cut has unordered ties
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    ids = tokenizer.get_vocab()
    return sorted(ids, key=ids.__getitem__)


def single_entries(alphabet: list[str], inside: list[str]) -> list[str]:
    """The entries every vocabulary begins with: special tokens, characters, characters that continue a word."""
    return [*SPECIAL_TOKENS, *alphabet, *("##" + character for character in inside)]


def count_characters(batches: Iterator[list[str]]) -> Counter[str]:
    """How often each character stands in the texts (vectorised: ten times faster than counting strings)."""
    counts = np.zeros(0x110000, dtype=np.int64)
    for texts in batches:
        joined = "".join(texts)
        for start in range(0, len(joined), CHUNK_CHARS):
            points = np.frombuffer(joined[start : start + CHUNK_CHARS].encode("utf-32-le"), dtype=np.uint32)
            counts += np.bincount(points, minlength=len(counts))
    return Counter({chr(point): int(counts[point]) for point in np.flatnonzero(counts)})


def _blank(model: models.WordPiece, lowercase: bool) -> Tokenizer:
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)  # accents are stripped where it lowercases
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return tokenizer


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
