"""Cleaning of one document."""

import unicodedata
from itertools import product

import ftfy
import pytest
from ftfy.badness import is_bad
from hypothesis import given, settings
from hypothesis import strategies as st

from electra.text.corpus.cleaning.normalize import REPAIR, SOUND, clean, cut


def cleaned(text: str) -> str:
    return clean(text, repair_mojibake=True)[0]


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("  one\ttwo \u00a0 three\u3000 ", "one two three"),
        ("one\n\n \t\ntwo\n", "one\ntwo"),
        ("one\r\ntwo\rthree\u2028four\x0cfive", "one\ntwo\nthree\nfour\nfive"),
        ("a\x00b\x07c\x1b\x7fd", "abcd"),
        ("\ufeffzero\u200bwidth soft\u00adhyphen \u202ebidi\u202c", "zerowidth softhyphen bidi"),
        ("cafe\u0301", "café"),
        ("e\u200b\u0301", "é"),
        ("half \ud800 pair", "half pair"),
        ("می\u200cخواهم", "می\u200cخواهم"),
        ("", ""),
        (" \n\t\x00 ", ""),
    ],
)
def test_spaces_lines_and_unreadable_characters(raw: str, expected: str) -> None:
    assert cleaned(raw) == expected


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("It cost Â£5 at the cafÃ©.", "It cost £5 at the café."),
        ("a schÃ¶ner Tag â€” he saidâ€¦", "a schöner Tag — he said…"),
        ("he said \x93yes\x94", "he said “yes”"),
    ],
)
def test_mojibake_is_repaired_where_asked(raw: str, expected: str) -> None:
    assert cleaned(raw) == expected
    assert clean(raw, repair_mojibake=False)[0] != expected


@pytest.mark.parametrize("text", ["“Quotes” stay — ﬁne, ｗｉｄｅ, &amp; <b>", "Ælfric's naïve façade, £5, 20°"])
def test_sound_text_is_left_alone(text: str) -> None:
    assert cleaned(text) == text


def test_lines_that_lost_letters_are_dropped_and_counted() -> None:
    assert clean("good\nna\ufffdve\nbetter\n\ufffd", repair_mojibake=True) == ("good\nbetter", 2)


# every class of character that the cleaning treats in its own way
RAW = st.text(st.one_of(st.characters(), st.sampled_from("\n\r\t \x00\x85\x93\u2028\u200b\u0301\ufffd\ud800eÃ©")))


@settings(max_examples=200, deadline=None)
@given(RAW, st.booleans())
def test_clean_text_is_encodable_normal_and_without_blank_lines(raw: str, repair: bool) -> None:
    text, _ = clean(raw, repair)
    text.encode("utf-8")
    assert text == unicodedata.normalize("NFC", text)
    assert "\ufffd" not in text
    assert not any(unicodedata.category(c) in ("Cc", "Cs") for c in text if c != "\n")
    assert all(line and line == " ".join(line.split()) for line in text.split("\n")) or text == ""
    assert clean(text, False) == (text, 0)


@pytest.mark.parametrize(
    ("text", "max_chars", "expected"),
    [
        ("one\ntwo\nthree", 13, "one\ntwo\nthree"),
        ("one\ntwo\nthree", 12, "one\ntwo"),
        ("one\ntwo\nthree", 7, "one\ntwo"),
        ("one\ntwo\nthree", 6, "one"),
        ("one two\nthree", 5, "one"),
        ("word", 3, "wor"),
        ("one\ntwo three four", 14, "one\ntwo three"),  # a heading before one long paragraph
    ],
)
def test_cut_keeps_whole_lines_then_whole_words(text: str, max_chars: int, expected: str) -> None:
    assert cut(text, max_chars) == expected


def test_quotation_marks_and_dashes_alone_are_no_trace_of_wrong_decoding() -> None:
    """Lines with no other characters are not shown to ftfy: it would change none of them."""
    for length in (1, 2, 3):
        texts = ["".join(drawn) for drawn in product([*sorted(SOUND), *"aA 1."], repeat=length)]
        assert not any(map(is_bad, texts))
    for text in texts[::10]:
        assert ftfy.fix_text(text, REPAIR) == text
