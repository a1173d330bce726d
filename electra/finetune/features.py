"""Texts to token ids: single sentences and pairs.

    [CLS] a [SEP]        or        [CLS] a [SEP] b [SEP]

The first segment, with its [CLS] and [SEP], has segment id 0, the second 1. Encoders that want other special tokens
have another :class:`InputFormat`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from electra.artifacts import read_json
from electra.errors import DataError
from electra.finetune.input_format import InputFormat
from electra.finetune.rows import Row
from electra.finetune.tasks import TaskSpec
from electra.paths import Paths

_CHUNK = 10_000  # texts tokenised at a time: bounds the memory of what the tokenizer returns


@dataclass
class Feature:
    """One model input.

    Attributes:
        token_ids: with special tokens, not padded.
        first_length: tokens of the first segment, its special tokens included.
        target: class number, score in 0..1, (start, end, impossible) of a span, or a class number per token; None
            where unlabelled.
        row: number of the row it comes from.
    """

    token_ids: Sequence[int]
    first_length: int
    target: Any
    row: int


@dataclass(frozen=True)
class Vocabulary:
    """The tokenizer, and how its model wants inputs."""

    tokenizer: Tokenizer
    inputs: InputFormat

    @classmethod
    def load(cls, paths: Paths) -> "Vocabulary":
        """Read ``data/tokenizer/tokenizer.json``.

        Raises:
            DataError: the file is missing or no tokenizer.
        """
        return cls.read(paths.tokenizer / "tokenizer.json")

    @classmethod
    def read(cls, path: Path, inputs: InputFormat | None = None) -> "Vocabulary":
        """Read a ``tokenizer.json``; the format is BERT's where none is given.

        Raises:
            DataError: the file is missing or no tokenizer.
        """
        read_json(path)  # a missing or broken file gets the message of every other artefact
        tokenizer = Tokenizer.from_file(str(path))
        tokenizer.no_padding()
        tokenizer.no_truncation()
        if inputs is not None:
            return cls(tokenizer, inputs)
        pad, cls_id, sep = (tokenizer.token_to_id(token) for token in ("[PAD]", "[CLS]", "[SEP]"))
        if pad is None or cls_id is None or sep is None:
            raise DataError("the vocabulary lacks [PAD], [CLS] or [SEP]", where=str(path))
        return cls(tokenizer, InputFormat.bert(cls_id, sep, pad))

    @property
    def pad(self) -> int:
        return self.inputs.pad

    @property
    def size(self) -> int:
        return self.tokenizer.get_vocab_size()

    def encode(self, texts: list[str]) -> list[list[int]]:
        """Token ids of each text, without special tokens."""
        ids: list[list[int]] = []
        for start in range(0, len(texts), _CHUNK):
            chunk = self.tokenizer.encode_batch_fast(texts[start : start + _CHUNK], add_special_tokens=False)
            ids.extend(encoding.ids for encoding in chunk)
        return ids


def sentence_features(spec: TaskSpec, rows: list[Row], vocabulary: Vocabulary, max_length: int) -> list[Feature]:
    """One feature per row, in order; texts that are too long lose tokens at the end of the longer one."""
    ids_a = vocabulary.encode([row["text_a"] for row in rows])
    ids_b = vocabulary.encode([row["text_b"] for row in rows]) if spec.text_b else None
    inputs, features = vocabulary.inputs, []
    room = max_length - inputs.num_special(pair=ids_b is not None)
    for number, row in enumerate(rows):
        a, b = ids_a[number], ids_b[number] if ids_b else None
        if b is None:
            first, second = inputs.single(a[:room]), []
        else:
            keep_a, keep_b = truncated_lengths(len(a), len(b), room)
            first, second = inputs.first_part(a[:keep_a]), inputs.second_part(b[:keep_b])
        features.append(Feature(first + second, len(first), _target(spec, row["label"]), number))
    return features


def both_orders(rows: list[Row]) -> list[Row]:
    """The rows, and after them the same with their two texts in the other order."""
    return [*rows, *({**row, "text_a": row["text_b"], "text_b": row["text_a"]} for row in rows)]


def truncated_lengths(a: int, b: int, limit: int) -> tuple[int, int]:
    """Lengths after taking tokens from the longer of two texts, from the second on a tie, until both fit."""
    if a + b <= limit:
        return a, b
    short, half = min(a, b), limit // 2
    if short <= half:  # the shorter one stays whole
        return (short, limit - short) if a <= b else (limit - short, short)
    return limit - half, half


def _target(spec: TaskSpec, label: Any) -> Any:
    if label is None:
        return None
    if spec.kind == "regression":  # learned as a share of the range, 0..1
        low, high = spec.score_range
        return (label - low) / (high - low)
    return spec.labels.index(label)
