"""Oddities of a corpus are reported; properties that are ordinary in some language are not."""

import random
import re
import tarfile
import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from electra.checks import corpus as corpus_table
from electra.checks import repeated_text
from electra.checks.corpus import _text_files, corpus_suite, corpus_tables
from electra.checks.repeated_text import Repeat, RepeatedText
from electra.checks.text_measures import is_mojibake, mean_word_chars
from electra.checks.validate import run_checkpoint
from electra.common.paths import Paths
from electra.config import Corpus
from electra.text.corpus.build import build_corpus
from electra.text.corpus.cleaning.normalize import clean
from tests.checks.small import small_settings
from tests.fixtures import text_source

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
        corpus = Corpus.model_validate({"sources": [text_source()], **settings})
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


def typeset(text: str) -> str:
    """The text as another publisher sets it: typographic quotes, dashes, ellipses and ligatures."""
    signs = {" - ": " — ", "'": "’", "...": "…", "fi": "ﬁ", '"': "”"}
    for sign, other in signs.items():
        text = text.replace(sign, other)
    return text


def repeated(*texts: str) -> RepeatedText:
    found = RepeatedText(sum(map(len, texts)))
    found.add(list(texts))
    return found


def test_the_share_of_repeated_text_is_of_characters_and_names_the_documents() -> None:
    books = [book(number, words=20 * number) for number in range(5, 30)]
    share, pairs = repeated(*books, books[20].upper(), books[7].replace(" ", ", ")).find()
    # the longer text of each pair is where its text stands, the other repeats it
    again = len(books[20]) + len(books[7])
    total = sum(map(len, books)) + len(books[20]) + len(books[7].replace(" ", ", "))
    assert share == again / total
    assert pairs == [Repeat(25, 20, len(books[20]), 1.0), Repeat(7, 26, len(books[7]), 1.0)]


def test_editions_that_differ_in_typographic_signs_are_repeated_text() -> None:
    draw = random.Random(1)
    marks = ["'s", " - ", "...", ' "oh" ', "fi "]
    text = " ".join(word + (draw.choice(marks) if draw.random() < 0.3 else "") for word in book(1).split())
    other = typeset(text)
    assert not other.isascii()
    share, _ = repeated(text, other, book(2)).find()
    assert share == min(len(text), len(other)) / (len(text) + len(other) + len(book(2)))


def test_a_text_that_is_wholly_in_another_is_repeated_text_in_any_order() -> None:
    novel, rest = book(1, 600), book(2, 6000)
    collected = f"{rest[:9000]}\n{novel}\n{rest[9000:]}"
    for texts in ([novel, collected], [collected, novel]):
        share, pairs = repeated(*texts).find()
        assert share == pytest.approx(len(novel) / (len(novel) + len(collected)), rel=0.01)
        assert [(pair.document, pair.other) for pair in pairs] == [(texts.index(novel), texts.index(collected))]


def test_two_editions_cut_at_different_places_are_repeated_text_once() -> None:
    novel = book(1, 6000)
    third, half = len(novel) // 3, len(novel) // 2
    parts = [novel[:third], novel[third:], novel[:half].upper(), novel[half:].upper()]
    share, _ = repeated(*parts).find()
    assert share == pytest.approx(0.5, abs=0.01)


def test_a_passage_that_documents_share_is_no_repeated_text() -> None:
    quoted = book(9, 100)
    share, pairs = repeated(*(f"{book(number, 300)}\n{quoted}" for number in range(5))).find()
    assert share == 0 and not pairs


def test_short_documents_are_compared_as_a_whole() -> None:
    texts = ["Yes.", "YES!", "No.", "", "A line of two dozen letters", "a line of two dozen letters...", "…", "!"]
    share, _ = repeated(*texts).find()
    assert share == (4 + 27) / sum(map(len, texts))  # of each pair the shorter, else the later
    assert repeated().find() == (0.0, [])
    assert repeated("", "…", "…").find() == (0.0, [])


def test_a_corpus_without_repeated_text_has_none() -> None:
    assert repeated(*map(book, range(40))).find() == (0.0, [])


def test_repeated_text_is_the_same_for_any_division_of_the_corpus() -> None:
    books = [book(number, 400) for number in range(8)]
    texts = [*books, "short", *map(another_edition, books[:3]), "Short", ""]
    whole, parts = repeated(*texts), RepeatedText(sum(map(len, texts)))
    for start in (0, 1, 5, 9):
        part = RepeatedText(parts.expected_characters)
        for text in texts[start : {0: 1, 1: 5, 5: 9, 9: None}[start]]:
            part.add([text])
        parts.add_all(part)
    assert parts.find() == whole.find()
    share, pairs = whole.find()
    assert share > 0.2 and {(pair.document, pair.other) for pair in pairs} >= {(0, 9), (1, 10), (2, 11), (12, 8)}


def test_of_a_large_corpus_the_repeated_text_is_estimated_from_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(1)
    words = [str(number) for number in range(10**5)]
    lines = [" ".join(draw.choices(words, k=draw.randint(20, 400))) for _ in range(400)]
    texts = lines + [line.replace(" ", " - ") for line in lines[:100]]
    exact, _ = repeated(*texts).find()
    assert exact == sum(map(len, lines[:100])) / sum(map(len, texts))
    monkeypatch.setattr(repeated_text, "MAX_NGRAMS", 30_000)
    sampled = repeated(*texts)
    assert sum(map(len, sampled._ngrams)) < 0.07 * sum(len(text.split()) for text in texts)
    share, pairs = sampled.find()
    assert share == pytest.approx(exact, rel=0.1)
    assert len(pairs) == repeated_text.MAX_PAIRS and all(abs(pair.document - pair.other) == 400 for pair in pairs)


NOVELS = Path(__file__).resolve().parents[3] / "shared/data/prose/novels.tar.xz"
TWICE = {  # of the 199 novels; the first of the last pair is a third of the second
    "eltec_ENG18530_Dickens n100_Dickens_Bleak_1853",
    "eltec_ENG18551_Trollope n100_Trollope_Warden_1855",
    "eltec_ENG18621_Braddon n100_Braddon_Audley_1862",
    "eltec_ENG18640_Blackmore n100_Anon_Clara_1864",
    "eltec_ENG18660_Eliot n100_Eliot_Felix_1866",
    "eltec_ENG18972_Morris n100_Morris_Water_1897",
    "eltec_ENG19080_Chesterton n100_Chesterton_Thursday_1908",
    "eltec_ENG19100_Forster n100_Forster_Howards_1910",
    "eltec_ENG19192_Woolf n100_Woolf_Night_1919",
    "eltec_ENG19200_Lawrence n100_Lawrence_Women_1920",
    "eltec_ENG18840_Lee n100_Lee_Brown_1884",
}


@pytest.mark.skipif(not NOVELS.exists(), reason=f"{NOVELS} is not there")
@pytest.mark.timeout(0)  # 11 s of processor time, but more than the other tests' limit of 300 s on a busy machine
def test_of_199_novels_the_eleven_that_are_there_twice_are_found_and_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(repeated_text, "MAX_PAIRS", 20)
    novels: dict[str, str] = {}
    with tarfile.open(NOVELS) as archive:
        for member in archive:
            if member.isfile() and (file := archive.extractfile(member)):
                novels[Path(member.name).stem] = file.read().decode()
    names = list(novels)
    assert len(names) == 199
    share, pairs = repeated(*novels.values()).find()
    assert {" ".join(sorted([names[pair.document], names[pair.other]])) for pair in pairs} == TWICE
    assert min(pair.share for pair in pairs) > 0.85
    copies = sum(min(len(novels[name]) for name in pair.split()) for pair in TWICE)
    assert share == pytest.approx(copies / sum(map(len, novels.values())), rel=0.05)


def complaints(tmp_path: Path, table: str, source: dict[str, Any], **corpus: Any) -> str:
    """Return the complaints of the validation of a corpus made from the files in ``tmp_path``."""
    paths = Paths(tmp_path / "run")
    sources = [{"kind": "files", "name": "novels", "paths": [f"{tmp_path}/*.txt"], **source}]
    section = Corpus.model_validate({"sources": sources, "held_out_fraction": 0.05, **corpus})
    settings = small_settings().model_copy(update={"corpus": section})
    build_corpus(settings, paths)
    tables, _ = corpus_tables(section, paths.corpus, settings.cluster)
    checks = run_checkpoint("corpus", tables, {table: corpus_suite(section)[table]}, paths)
    failed = [check for check in checks if not check.success]
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
    assert complaints(novels, "text_files", {"documents": "blank_line"}) == said, "`electra init` writes every key"
    assert complaints(novels, "text_files", {"documents": "file"}) == ""
    monkeypatch.setattr(corpus_table, "MANY_PARAGRAPHS", 151)  # of a file
    assert complaints(novels, "text_files", {}) == ""


def test_a_corpus_without_text_files_is_not_asked_about_them(tmp_path: Path) -> None:
    corpus = small_settings().corpus
    tables = {"text_files": _text_files(corpus, {"documents": 60})}
    (check,) = run_checkpoint("corpus", tables, {"text_files": corpus_suite(corpus)["text_files"]}, Paths(tmp_path))
    assert check.success


def test_text_files_whose_endings_are_in_upper_case_are_counted_too() -> None:
    corpus = small_settings().corpus
    facts = {"files": [{"path": "A.TXT"}, {"path": "b.Txt.GZ"}, {"path": "c.txt"}], "documents": 6, "characters": 60}
    frame = _text_files(corpus, {"sources": {corpus.sources[0].name: facts}}).frame
    assert list(frame["files"]) == [3]


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


def test_editions_in_a_corpus_are_named_though_their_ends_are_held_out(tmp_path: Path) -> None:
    for number in range(6):
        (tmp_path / f"{number}.txt").write_text(book(number, 8000))
    (tmp_path / "0 again.txt").write_text(typeset(book(0, 8000).upper().replace(" ", "... ")))
    said = complaints(tmp_path, "totals", {"documents": "file"}, split_longer_than=20_000, held_out_fraction=0.2)
    assert said.startswith("little text (by characters) is in another document too")
    assert "results/validation/corpus.json names (near_duplicates)" in said
    corpus = small_settings().corpus
    tables, statistics = corpus_tables(corpus, tmp_path / "run/data/corpus", small_settings().cluster)
    whole = sum((tmp_path / f"{number}.txt").stat().st_size for number in range(6))
    again = len((tmp_path / "0 again.txt").read_text())
    assert statistics["near_duplicate_share"] == pytest.approx(len(book(0, 8000)) / (whole + again), rel=0.2)
    assert all(
        re.match(r"(train|heldout)-00000.parquet row \d+ \('.{1,44}'\): ", line)
        for line in statistics["near_duplicates"]
    )
    (tmp_path / "0 again.txt").unlink()
    assert complaints(tmp_path, "totals", {"documents": "file"}, split_longer_than=20_000, held_out_fraction=0.2) == ""


def test_words_of_chinese_text_raise_no_alarm(tmp_path: Path) -> None:
    draw = np.random.default_rng(1)
    for number in range(40):
        characters = "".join(map(chr, draw.integers(0x4E00, 0x5E00, 400)))
        (tmp_path / f"{number}.txt").write_text(characters.replace(chr(0x4F60), "。"))
    assert complaints(tmp_path, "documents", {"documents": "file"}) == ""
