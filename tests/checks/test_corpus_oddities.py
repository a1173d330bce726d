"""What is odd about a corpus is said, and what is ordinary in some language is not."""

import random
import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from electra.checks import corpus as corpus_table
from electra.checks import resemblance
from electra.checks.corpus import _text_files, corpus_suite, corpus_tables
from electra.checks.judge import judge
from electra.checks.resemblance import NearDuplicateCount, is_mojibake, least_hashes, mean_word_chars
from electra.common.paths import Paths
from electra.config import Corpus
from electra.corpus.build import build_corpus
from electra.corpus.cleaned import clean
from tests.checks.small import small_settings

HUNGARIAN = (
    "»Én nem tudom«, mondta Édesanyám. »Óriási öröm ez, »Édes fiam, hogy eljöttél. »És most?« Őrült tükörfúrógép. "
)
PORTUGUESE = "A rua n.ª 5, a «1.ª» edição e a 2.ª»; não há razão para coração. Dizia «a ª» e a 3.ª» outra vez. "
ENGLISH = "The phœnix, the letter œ, and Œ again: cœ, œ. It costs £5 or €7 at 20 °C, “say ½”. Encyclopædia. "
FRENCH = "Le cœur d’Œdipe, «Été» à la sœur ; l’œil, l’œuvre : on écrit «bœuf» avec œ, «É» avec accent. "
GERMAN = "»Über« und »Äpfel« sind Wörter, »Österreich« auch; 5 €, § 3, 7 m². "
RUSSIAN = "Все счастливые семьи похожи друг на друга, каждая несчастливая семья несчастлива по-своему. "
ORDINARY = [HUNGARIAN, PORTUGUESE, ENGLISH, FRENCH, GERMAN, RUSSIAN, "幸福的家庭都是相似的。", "Příliš žluťoučký kůň."]


@pytest.mark.parametrize("text", ORDINARY)
def test_what_languages_write_is_no_mojibake(text: str) -> None:
    for written in (text, text * 300, unicodedata.normalize("NFD", text)):
        assert not is_mojibake(written)


@pytest.mark.parametrize(
    ("text", "written", "read"),
    [
        (HUNGARIAN, "utf-8", "latin-1"),
        (PORTUGUESE, "utf-8", "latin-1"),
        ("It’s plain English but for that. ", "utf-8", "cp1252"),
        ("“Curly quotes” and a dash — that is all. ", "utf-8", "cp1252"),
        (GERMAN, "utf-8", "mac-roman"),
        (RUSSIAN, "utf-8", "cp1251"),
        (RUSSIAN, "cp1251", "cp1252"),
        (RUSSIAN, "koi8-r", "latin-1"),
        ("幸福的家庭都是相似的，不幸的家庭各有各的不幸。", "gb18030", "latin-1"),
    ],
)
def test_what_was_decoded_wrongly_is(text: str, written: str, read: str) -> None:
    assert is_mojibake(text.encode(written).decode(read, errors="ignore"))


def test_a_few_unlikely_pairs_in_a_book_are_no_mojibake_and_repaired_text_is_none() -> None:
    assert not is_mojibake(HUNGARIAN * 300 + "É× " * 3)
    assert is_mojibake("É× " * 3) and not is_mojibake("É× " * 2)
    assert not is_mojibake("an enemy in the last moment ( Ã fortiori ) it would be")  # nothing to repair it to
    spoilt = (FRENCH * 5).encode().decode("latin-1")
    assert is_mojibake(spoilt) and not is_mojibake(clean(spoilt, True)[0])


def test_the_advice_about_mojibake_is_not_what_is_done_already() -> None:
    def advice(**settings: bool) -> str:
        corpus = Corpus.model_validate({"sources": [{"kind": "embedded", "num_documents": 1}], **settings})
        (found,) = (e for e in corpus_suite(corpus)["totals"] if getattr(e, "column", "") == "mojibake_share")
        return str(found.notes)

    assert "repair_mojibake: true" in advice(repair_mojibake=False)
    assert "repair_mojibake" not in advice() and "`encoding` of the source" in advice()


@pytest.mark.parametrize(
    "text",
    [
        "幸福的家庭都是相似的，不幸的家庭各有各的不幸。" * 20,
        "吾輩は猫である。名前はまだ無い。どこで生れたかとんと見当がつかぬ。ＡＢＣ" * 10,
        "มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกันในเกียรติศักดิ์และสิทธิ" * 10,
        "མི་རིགས་ཚང་མ་སྐྱེ་ཙམ་ཉིད་ནས" * 10,
    ],
)
def test_scripts_without_spaces_have_no_length_of_words(text: str) -> None:
    assert mean_word_chars(text, len(text), len(text.split())) is None


def test_words_are_measured_in_what_has_spaces() -> None:
    korean = "모든 행복한 가정은 서로 닮았고 불행한 가정은 제각각 나름으로 불행하다"
    for text in ("five words stand in here", korean, "Ünïcödé wörds hère"):
        assert mean_word_chars(text, len(text), len(text.split())) == len(text) / len(text.split())
    mixed = "the word 中文 stands among English words"
    assert mean_word_chars(mixed, len(mixed), len(mixed.split())) == pytest.approx(30 / 6 + 1)
    assert mean_word_chars("x" * 100 + "中", 101, 1) == 101


VOCABULARY = ["".join(np.random.default_rng(n).choice([*"abcdefghijklmnop"], 2 + n % 8)) for n in range(900)]


def book(number: int, words: int = 3000) -> str:
    draw = random.Random(number)
    return "\n".join(" ".join(draw.choices(VOCABULARY, k=20)) for _ in range(words // 20))


def another_edition(text: str) -> str:
    draw = random.Random(1)
    words = [word + "e" if draw.random() < 0.01 else word for word in text.upper().split(" ")]
    return "A PREFACE OF ITS OWN.\n" * 20 + ", ".join(words)


def test_books_in_two_editions_are_near_duplicates() -> None:
    books = [book(number) for number in range(30)]
    for second, expected in ([another_edition(b) for b in books[:10]], 10), ([book(n) for n in range(40, 50)], 0):
        counted = NearDuplicateCount(40)
        counted.add(books + second)
        assert counted.share() == expected / 40


def test_short_documents_are_near_duplicates_in_another_case_only() -> None:
    counted = NearDuplicateCount(6)
    counted.add(["Yes.", "YES!", "No.", "", "A line of two dozen letters", "a line of two dozen letters..."])
    assert counted.share() == 2 / 6


def test_the_share_is_the_same_for_any_division_of_the_corpus(monkeypatch: pytest.MonkeyPatch) -> None:
    books = [book(number, 400) for number in range(8)] + ["short", "Short"]
    texts = [*books, *map(another_edition, books[:3])]
    whole, parts = NearDuplicateCount(len(texts)), NearDuplicateCount(len(texts))
    whole.add(texts)
    expected = least_hashes(texts)
    monkeypatch.setattr(resemblance, "BLOCK_BYTES", 500)
    assert (least_hashes(texts) == expected).all()
    for text in texts:
        part = NearDuplicateCount(len(texts))
        part.add([text])
        parts.add_all(part)
    assert parts.share() == whole.share() == 4 / len(texts)


def test_documents_that_agree_in_a_few_hashes_only_are_no_near_duplicates() -> None:
    hashes = np.random.default_rng(1).integers(0, 2**16, (5, 32), dtype=np.uint16)
    hashes[1:, :4] = hashes[0, :4]  # all agree in a band
    hashes[2, :21] = hashes[1, :21]
    hashes[3, :22] = hashes[2, :22]  # nearly the one before, not the first
    in_no_other_band = [0, 1, 2, 3, *(4 * band + n for band in range(1, 8) for n in range(3))]
    hashes[4, in_no_other_band] = hashes[0, in_no_other_band]  # nearly the first, not the one before
    assert NearDuplicateCount(5, [hashes]).share() == 2 / 5


def test_long_texts_are_told_apart() -> None:
    counted = NearDuplicateCount(3)
    counted.add([book(1, 80_000), book(2, 80_000), another_edition(book(1, 80_000))])
    assert counted.share() == 1 / 3
    assert np.concatenate(counted._held).std() > 2**13  # what is held of hashes that are all near zero is not


def test_of_many_documents_a_sample_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(1)
    lines = [" ".join(str(draw.randint(0, 10**6)) for _ in range(40)) for _ in range(400)]
    texts = [f"{line} {copy}" for line in lines for copy in "ab"]
    monkeypatch.setattr(resemblance, "MAX_DOCUMENTS", 200)
    counted = NearDuplicateCount(len(texts))
    counted.add(texts)
    assert 140 < sum(map(len, counted._held)) < 260
    assert 0.4 < counted.share() <= 0.5


def test_the_least_hashes_of_a_long_text_are_those_of_all_its_passages() -> None:
    (found,) = least_hashes([text := book(1, 20_000)])
    pieces = [text[start : start + 2000] for start in range(0, len(text), 1000)]
    assert (found == least_hashes(pieces).min(axis=0)).mean() > 0.9  # a passage at a cut may be missing


def complaints(tmp_path: Path, table: str, source: dict[str, Any], **corpus: Any) -> str:
    """What judging a table of the corpus of the files in ``tmp_path`` finds wrong."""
    paths = Paths(tmp_path / "run")
    sources = [{"kind": "files", "name": "novels", "paths": [f"{tmp_path}/*.txt"], **source}]
    section = Corpus.model_validate({"sources": sources, "held_out_fraction": 0.05, **corpus})
    settings = small_settings().model_copy(update={"corpus": section})
    build_corpus(settings, paths)
    tables, _ = corpus_tables(section, paths.corpus, settings.cluster)
    failed = [check for check in judge(tables, {table: corpus_suite(section)[table]}) if not check.success]
    assert all(check.severity == "warning" for check in failed)
    return "\n".join(f"{check.description} {check.observed} {check.examples} {check.hint}" for check in failed)


@pytest.fixture
def novels(tmp_path: Path) -> Path:
    """Three novels of 150 paragraphs."""
    for number in range(3):
        paragraphs = [book(1000 * number + paragraph, 60) for paragraph in range(150)]
        (tmp_path / f"{number}.txt").write_text("\n\n".join(paragraphs))
    return tmp_path


def test_paragraphs_of_novels_that_are_taken_for_documents_are_noticed(
    novels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = complaints(novels, "text_files", {})
    assert "source=novels files=3 documents=450 characters_per_document=3" in said
    assert "set `documents: file` of the source" in said
    assert complaints(novels, "text_files", {"documents": "blank_line"}) == ""
    assert complaints(novels, "text_files", {"documents": "file"}) == ""
    monkeypatch.setattr(corpus_table, "MANY_PARAGRAPHS", 151)  # of a file
    assert complaints(novels, "text_files", {}) == ""


def test_a_corpus_without_text_files_is_not_asked_about_them() -> None:
    corpus = small_settings().corpus
    (check,) = judge(
        {"text_files": _text_files(corpus, {"documents": 60})}, {"text_files": corpus_suite(corpus)["text_files"]}
    )
    assert check.success


def test_another_share_of_held_out_text_than_was_asked_for_is_noticed(novels: Path) -> None:
    whole = {"split_longer_than": None}
    said = complaints(novels, "totals", {"documents": "file"}, **whole)
    assert said.startswith("about as much text is held out as corpus.held_out_fraction asks for 0.33")
    assert complaints(novels, "totals", {"documents": "file"}, held_out_fraction=0.3, **whole) == ""
    assert complaints(novels, "totals", {"documents": "blank_line"}) == ""


def test_a_corpus_in_very_many_small_files_is_noticed(novels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus_table, "MANY_PARTS", 9)
    said = complaints(novels, "totals", {"documents": "blank_line"}, documents_per_file=50)
    assert "in very many small files 10 " in said and "raise corpus.documents_per_file" in said
    assert complaints(novels, "totals", {"documents": "blank_line"}, documents_per_file=60) == ""


def test_words_of_chinese_text_raise_no_alarm(tmp_path: Path) -> None:
    draw = np.random.default_rng(1)
    for number in range(40):
        characters = "".join(map(chr, draw.integers(0x4E00, 0x5E00, 400)))
        (tmp_path / f"{number}.txt").write_text(characters.replace(chr(0x4F60), "。"))
    assert complaints(tmp_path, "documents", {"documents": "file"}) == ""
