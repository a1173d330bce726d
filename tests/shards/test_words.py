"""Encoding word by word has the same ids as the tokenizer for any text, and the cache stays small."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from electra.config.text import SPECIAL_TOKENS
from electra.text.shards import words
from electra.text.shards.words import WordEncoder
from electra.text.tokenizer.wordpiece import make_tokenizer

PIECES = [*SPECIAL_TOKENS, *"abcdeĂéİσς.,-'[]<=~$+*中国가", *("##" + c for c in "abcdeéσς가"), "the", "##ing"]
# what could reach beyond a space if anything did: accents, final sigma, marks, white space of other kinds, joiners
TRICKY = "ab eéÉİσΣς.-'[]<=~{|}^`@_$+*中가\u0338\u0300\u0301\u0345\u00a0\u3000\u2009\t\u0085\u200b\u200d\ufffdMASK"


def tokenizer(*, lowercase: bool) -> Tokenizer:
    made = make_tokenizer(PIECES, lowercase=lowercase)
    made.encode_special_tokens = True
    return made


@pytest.mark.parametrize("lowercase", [True, False])
@given(lines=st.lists(st.text(st.sampled_from(TRICKY) | st.characters(exclude_categories=["Cs"]), max_size=30)))
def test_ids_are_the_tokenizers_own(lines, lowercase):
    made = tokenizer(lowercase=lowercase)
    encoder = WordEncoder(made, np.dtype(np.uint16))
    for _ in range(2):  # the second time from the cache
        found = [np.frombuffer(ids, np.uint16).tolist() for ids in encoder.encode(lines)]
        assert found == [made.encode(line, add_special_tokens=False).ids for line in lines]


@pytest.mark.parametrize("line", ["a=\u0338b", "=\u0323\u0338 <\u0338", ">\u0338é=", "<é\u0338b>", "=="])
def test_marks_that_are_composed_with_punctuation_are_not_cut_off(line):
    made = make_tokenizer([*PIECES, "≠", "##≠", "≮", "≯", "##b"], lowercase=False)
    (ids,) = WordEncoder(made, np.dtype(np.uint16)).encode([line])
    assert np.frombuffer(ids, np.uint16).tolist() == made.encode(line, add_special_tokens=False).ids


@pytest.mark.parametrize("dtype", [np.uint16, np.uint32])
def test_ids_have_the_width_of_the_shards(dtype):
    (ids,) = WordEncoder(tokenizer(lowercase=True), np.dtype(dtype)).encode(["a b"])
    assert np.frombuffer(ids, dtype).tolist() == [PIECES.index("a"), PIECES.index("b")]


def test_the_cache_is_bounded(monkeypatch):
    monkeypatch.setattr(words, "CACHE_BYTES", 10 * words.WORD_BYTES)
    made = tokenizer(lowercase=True)
    encoder = WordEncoder(made, np.dtype(np.uint16))
    for number in range(50):
        line = f"{'a' * (number + 1)} b {'c' * (number + 1)}"
        assert (
            np.frombuffer(encoder.encode([line])[0], np.uint16).tolist()
            == made.encode(line, add_special_tokens=False).ids
        )
        assert len(encoder._ids) <= 13 and len(encoder._older) <= 13


def test_what_is_frequent_is_not_tokenized_again(monkeypatch):
    monkeypatch.setattr(words, "CACHE_BYTES", 10 * words.WORD_BYTES)
    asked = []

    class Watched:
        def encode_batch_fast(self, new, **options):
            asked.extend(new)
            return made.encode_batch_fast(new, **options)

    made = tokenizer(lowercase=True)
    encoder = WordEncoder(Watched(), np.dtype(np.uint16))
    for number in range(50):
        encoder.encode([f"the {'a' * (number + 2)}"])
    assert asked.count("the") == 1 and len(asked) == 51
