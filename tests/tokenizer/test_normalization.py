"""Equivalent Unicode texts have the same ids; differences from the original are those listed in the docs."""

import unicodedata
from collections import Counter
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from electra.common.artifacts import read_json, read_manifest
from electra.common.paths import Paths
from electra.config.text import SPECIAL_TOKENS
from electra.text.tokenizer.build import build_tokenizer
from electra.text.tokenizer.wordpiece import MAX_WORD_CHARS, alphabet_of, make_tokenizer, normalizer_facts
from tests.text_stages import text_settings, write_corpus

VIETNAMESE = "Tiếng Việt có sáu thanh điệu"
JAPANESE = "ガギグ がぎぐ パピプ"
YORUBA = "Ẹ kú àárọ̀, ẹ̀gbọ́n"  # ọ̀ and ẹ̀ have no composed form
TEXTS = [VIETNAMESE, JAPANESE, YORUBA, "한국어", "Ünïcödé ÉTÉ", "हिन्दी में", "a ≠ b"]


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    paths = Paths(tmp_path)
    for split in ("train", "heldout"):
        write_corpus(paths.corpus, f"{split}-00000", ["\n".join(TEXTS)] * 3)
    return paths


def built(paths: Paths, **tokenizer: object) -> Tokenizer:
    build_tokenizer(text_settings(tokenizer={"min_frequency": 1, "vocab_size": 120, **tokenizer}), paths)
    return Tokenizer.from_file(str(paths.tokenizer / "tokenizer.json"))


KINDS = [
    {"lowercase": False},
    {"lowercase": True},
    {"lowercase": True, "strip_accents": False},
    {"lowercase": False, "strip_accents": True},
]


@pytest.mark.parametrize("kind", KINDS)
def test_decomposed_text_gives_the_ids_of_composed_text_and_nothing_is_unknown(paths: Paths, kind: dict) -> None:
    tokenizer = built(paths, **kind)
    for text in TEXTS:
        expected = tokenizer.encode(text).ids
        assert tokenizer.encode(unicodedata.normalize("NFD", text)).ids == expected
        assert 1 not in expected, text


def test_lowercase_text_keeps_its_accents_where_asked(paths: Paths) -> None:
    kept = built(paths, lowercase=True, strip_accents=False)
    for text in TEXTS:
        spelled = kept.decode(kept.encode(text).ids).replace(" ", "")
        assert spelled == unicodedata.normalize("NFC", text.lower()).replace(" ", "")
    stripped = built(paths, lowercase=True)
    assert stripped.decode(stripped.encode("ガパ").ids) == "カハ"
    assert stripped.decode(stripped.encode("ÉTÉ").ids) == "ete"


def test_words_of_decomposed_text_are_where_they_stand(paths: Paths) -> None:
    tokenizer = built(paths, lowercase=False)
    text = unicodedata.normalize("NFD", "sáu thanh")
    encoding = tokenizer.encode(text, add_special_tokens=False)
    starts = [start for (start, _), word in zip(encoding.offsets, encoding.word_ids, strict=True) if word == 1]
    assert min(starts) == text.index("thanh")


@pytest.mark.parametrize("kind", KINDS)
def test_transformers_normalizes_as_the_folder_says(paths: Paths, kind: dict) -> None:
    transformers = pytest.importorskip("transformers")
    ours = built(paths, **kind)
    theirs = transformers.AutoTokenizer.from_pretrained(paths.tokenizer)
    long_word = "thanh" * 30
    for text in [*TEXTS, *(unicodedata.normalize("NFD", text) for text in TEXTS), long_word]:
        assert theirs(text)["input_ids"] == ours.encode(text).ids
    assert set(theirs("a", "b")) == {"input_ids", "token_type_ids", "attention_mask"}


def test_the_published_settings_say_what_was_asked_for(paths: Paths) -> None:
    for kind in KINDS:
        tokenizer = built(paths, **kind)
        for facts in (read_json(paths.tokenizer / "tokenizer_config.json"), read_manifest(paths.tokenizer)):
            assert facts.get("strip_accents") == kind.get("strip_accents")
        config = read_json(paths.tokenizer / "tokenizer_config.json")
        assert config["do_lower_case"] == kind["lowercase"]
        facts = normalizer_facts(tokenizer)
        assert (facts["lowercase"], facts["strip_accents"]) == (kind["lowercase"], kind.get("strip_accents"))


def test_marks_without_a_composed_form_continue_words() -> None:
    for mark in "\u0301\u0323\u093f\u3099":  # the first composes with most letters
        assert alphabet_of(Counter(mark), lowercase=False).inside == [mark]


@pytest.mark.parametrize("lowercase", [True, False])
def test_words_of_up_to_200_characters_are_split(lowercase: bool) -> None:
    tokenizer = make_tokenizer([*SPECIAL_TOKENS, "a", "##a"], lowercase=lowercase)
    assert MAX_WORD_CHARS == 200
    assert tokenizer.encode("a" * 200, add_special_tokens=False).ids == [5] + [6] * 199
    assert tokenizer.encode("a" * 201, add_special_tokens=False).ids == [1]


def words_of_the_original(text: str, lowercase: bool) -> list[str]:
    """BasicTokenizer of google-research/electra (model/tokenization.py)."""

    def is_chinese(code: int) -> bool:
        ranges = [(0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F), (0x2B740, 0x2B81F)]
        return any(a <= code <= b for a, b in [*ranges, (0x2B820, 0x2CEAF), (0xF900, 0xFAFF), (0x2F800, 0x2FA1F)])

    def is_punctuation(character: str) -> bool:
        ascii_marks = any(a <= ord(character) <= b for a, b in [(33, 47), (58, 64), (91, 96), (123, 126)])
        return ascii_marks or unicodedata.category(character).startswith("P")

    cleaned = ""
    for character in text:
        category = unicodedata.category(character)
        if character in "\t\n\r" or category == "Zs":
            cleaned += " "
        elif character not in "\0\ufffd" and category not in ("Cc", "Cf"):
            cleaned += f" {character} " if is_chinese(ord(character)) else character
    words = []
    for word in cleaned.split():
        if lowercase:
            decomposed = unicodedata.normalize("NFD", word.lower())
            word = "".join(c for c in decomposed if unicodedata.category(c) != "Mn")
        words += "".join(f" {c} " if is_punctuation(c) else c for c in word).split(" ")
    return [word for word in words if word]


CASED, UNCASED = (make_tokenizer(SPECIAL_TOKENS, lowercase=lowercase) for lowercase in (False, True))


def words_here(text: str, lowercase: bool) -> list[str]:
    tokenizer = UNCASED if lowercase else CASED
    normalized = tokenizer.normalizer.normalize_str(text)
    return [word for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(normalized)]


@pytest.mark.parametrize("lowercase", [True, False])
def test_words_are_those_of_the_original_but_for_what_the_docs_list(lowercase: bool) -> None:
    """Characters of Unicode 3.2, of the large blocks every 64th, between two letters."""
    old = unicodedata.ucd_3_2_0
    letters = [
        character
        for code in [*range(0x3400), *range(0x3400, 0xD800, 64), *range(0xF900, 0x20000), *range(0x20000, 0x2A6E0, 64)]
        if old.category(character := chr(code)) not in ("Cn", "Cs")
    ]
    differing = {
        character
        for character in letters
        if words_here(f"q{character}q", lowercase) != words_of_the_original(f"q{character}q", lowercase)
    }
    composed = set() if lowercase else {c for c in letters if not unicodedata.is_normalized("NFC", c)}
    # Unicode has put these into other categories since version 8
    assert differing - composed == ({"\u166d", "\u1734", "\u1885", "\u1886"} if lowercase else {"\u166d"})


def test_what_the_docs_list_as_different_is() -> None:
    for listed in ("\ue000", "\uf8ff", "\U000f0000"):  # private use: kept there, removed here
        assert words_of_the_original(f"q{listed}q", True) == [f"q{listed}q"] and words_here(f"q{listed}q", True) == [
            "qq"
        ]
    for listed in ("\U0002b820", "\U0002b91f"):  # Chinese characters there, not here
        assert words_of_the_original(f"q{listed}q", True) == ["q", listed, "q"]
        assert words_here(f"q{listed}q", True) == [f"q{listed}q"]
    assert words_here("q\U0002b920q", True) == ["q", "\U0002b920", "q"]
    assert words_here("q\u2e43q", True) == ["q\u2e43q"]  # punctuation since Unicode 9
