"""Fast paths: each has the same result as the plain rule, or the library itself."""

from collections import Counter
from typing import Any

import ftfy
import numpy as np
import pytest
from ftfy.badness import MOJIBAKE_CATEGORIES, is_bad
from hypothesis import given
from hypothesis import strategies as st

from electra.config.text import Gopher, Language, Repetition
from electra.text.corpus.cleaning.language import language_model, other_language
from electra.text.corpus.cleaning.normalize import REPAIR, SUSPECT, UNREADABLE, clean
from electra.text.corpus.cleaning.quality import gopher, repetition
from electra.text.corpus.near_duplicates import SpacedWords

SUSPICIOUS = "".join(MOJIBAKE_CATEGORIES.values()).replace("-", "") + "aZ. !œŒÂÃ\x85é"
WORDS = st.lists(st.sampled_from(["a", "bb", "cc,", "été", "d", "日本", "...", "1984", "The"]), min_size=1, max_size=60)


@given(st.text(SUSPICIOUS, max_size=8))
def test_no_line_that_ftfy_would_repair_is_kept_from_it(line: str) -> None:
    assert not is_bad(line) or SUSPECT.search(line)
    if not SUSPECT.search(line):
        assert ftfy.fix_text(line, REPAIR) == line


def test_accented_letters_that_stand_alone_are_not_given_to_ftfy() -> None:
    assert not SUSPECT.search("Fűnyíró, garçon, naïve, Bäume, Æsop's œuvre") and SUSPECT.search("BlÃ¼cher")
    assert clean("voilÃ  le travail à Â£100", repair_mojibake=True)[0] == "voilà le travail à £100"


def test_what_is_printable_has_nothing_unreadable_and_no_white_space_but_spaces() -> None:
    characters = [chr(point) for point in range(0x110000) if chr(point).isprintable()]
    assert not [c for c in characters if UNREADABLE.match(c) or (c.isspace() and c != " ")]


def test_the_model_of_languages_on_arrays_gives_the_scores_of_the_library() -> None:
    model = language_model()
    library = type(model).__mro__[1]
    texts = [
        "It was a dark and stormy night.",
        "吾輩は猫である。名前はまだ無い。",
        "مرحبا بالعالم",
        "Szép ősz",
        "x",
        "",
        "\x01",
    ]
    for text in [*texts, " ".join(texts) * 20]:
        data = text.encode()
        assert np.allclose(model._raw_score(data), library._raw_score(model, data), rtol=1e-5, atol=1e-4), text
        assert model.classify(text)[0] == library.classify(model, text)[0]


def test_the_model_of_languages_remembers_six_bytes_and_none_before_ff() -> None:
    model = language_model()
    moves = model.moves.reshape(-1, 256)
    assert not moves[:, 0xFF].any()
    depths = [np.array([0])]  # states that are reached in so many bytes, and not in fewer
    known = np.zeros(len(model.rows), dtype=bool)
    while len(depths[-1]):
        known[depths[-1]] = True
        following = np.zeros_like(known)
        following[moves[model.rows[depths[-1]] >> 8]] = True
        depths.append(np.flatnonzero(following & ~known))
    assert known.all() and len(depths[:-1]) == 1 + 6


def test_ten_pieces_tell_a_document_that_stays_and_the_whole_sample_one_in_two_languages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, asked = language_model(), []
    plain = model._raw_score

    def score(text: bytes) -> Any:
        asked.append(len(text))
        return plain(text)

    monkeypatch.setattr(model, "_raw_score", score)
    english = "The house that stood on the hill was old, and the people of the town said that nobody had lived in it."
    french = "Le vieux capitaine marchait lentement le long du quai et comptait les bateaux qui rentraient au port."
    step = Language(kind="language", languages=["en"])
    assert other_language([english] * 30, step) is None
    assert asked == [10 * 25 + 9]
    asked.clear()
    mixed = f"The house that stood {french}"[:100] * 10  # the pieces are English rather than French, the rest is not
    assert other_language([mixed], step) == "fr"
    assert asked == [10 * 25 + 9, len(mixed.encode())]


@given(WORDS, st.integers(1, 5))
def test_ngrams_have_the_same_hash_just_where_they_are_the_same(words: list[str], n: int) -> None:
    spaced = SpacedWords(" ".join(words))
    assert spaced.lengths.tolist() == list(map(len, words))
    hashes = spaced.ngrams(min(n, len(words))).tolist()
    plain = [tuple(words[i : i + min(n, len(words))]) for i in range(len(hashes))]
    assert [hashes.index(value) for value in hashes] == [plain.index(value) for value in plain]


def plain_repetition(lines: list[str], rules: Repetition) -> str | None:
    """The rules for n-grams word by word."""
    words = " ".join(lines).split(" ")
    characters = sum(map(len, lines))
    for n in range(2, 11):
        grams = [tuple(words[i : i + n]) for i in range(len(words) - n + 1)]
        counts = Counter(grams)
        most = max(counts.values(), default=0)
        top = max((len("".join(gram)) * most for gram in counts if counts[gram] == most), default=0)
        if most > 1 and top > rules.max_top_ngram_chars.get(n, 2) * characters:
            return f"top_{n}_gram"
        inside = {i + k for i, gram in enumerate(grams) if gram in grams[:i] for k in range(n)}
        if sum(len(words[i]) for i in inside) > rules.max_duplicate_ngram_chars.get(n, 2) * characters:
            return f"duplicate_{n}_grams"
    return None


@given(WORDS, st.integers(0, 40), st.integers(1, 5))
def test_the_rules_for_repetition_are_those_of_the_plain_loops(words: list[str], start: int, times: int) -> None:
    lines = [
        " ".join(words + words[start : start + 7] * times),
        "another line of ten different words that are never there",
    ]
    rules = Repetition(kind="repetition", max_duplicate_lines=None, max_duplicate_line_chars=None)
    assert repetition(lines, rules) == plain_repetition(lines, rules)


@given(WORDS, st.lists(st.sampled_from(["a", "the", "The", "d", "x y"]), max_size=4))
def test_gophers_rules_for_letters_digits_and_stop_words_are_those_of_the_plain_loops(
    words: list[str], stop_words: list[str]
) -> None:
    off = {"min_words": None, "min_word_length": None, "max_symbol_ratio": None, "max_ellipsis_lines": None}
    rules = Gopher.model_validate({"kind": "gopher", **off, "max_digits": 0.3, "stop_words": stop_words})
    lowered = {word.lower() for word in words}
    alphabetic = sum(any(map(str.isalpha, word)) for word in words)
    digits = sum(character in "0123456789" for word in words for character in word)
    expected = None
    if rules.min_alphabetic_words and len(words) - alphabetic > (1 - rules.min_alphabetic_words) * len(words):
        expected = "not_alphabetic"
    elif rules.max_digits is not None and digits > rules.max_digits * len("".join(words)):
        expected = "digits"
    elif rules.min_stop_words and sum(word in lowered for word in stop_words) < rules.min_stop_words:
        expected = "stop_words"
    assert gopher([" ".join(words)], rules) == expected
