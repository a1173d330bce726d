"""The steps of ``corpus.cleaning``: text that each removes and keeps, and the counts."""

import io
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError
from rich.console import Console

from electra.common.artifacts import read_json
from electra.common.errors import DataError
from electra.common.paths import Paths
from electra.config import Corpus
from electra.config.text import LANGUAGES, CleaningStep, Gopher, Repetition
from electra.text.corpus.cleaning.language import language_model
from electra.text.corpus.cleaning.lines import TAG, unwrap
from electra.text.corpus.cleaning.notes import EXAMPLE_CHARACTERS, NUM_EXAMPLES, Notes, show_corpus
from electra.text.corpus.cleaning.quality import repetition
from electra.text.corpus.cleaning.steps import apply_steps, before_cleaning
from tests.corpus.small import Build, cleaned_by_a_worker_too, sentences, write_documents
from tests.fixtures import text_source

STEP: TypeAdapter[Any] = TypeAdapter(CleaningStep)
PROSE = "The house that stood on the hill was old, and the people of the town said that nobody had lived in it."


def applied(kind: str, text: str, **options: Any) -> tuple[str | None, dict[str, Any]]:
    notes = Notes()
    return apply_steps(text, [STEP.validate_python({"kind": kind, **options})], notes), notes.report()


def test_licence_blocks_of_book_sites_are_removed() -> None:
    text = "\n".join(
        ["The Project Gutenberg EBook of Emma", "*** START OF THE PROJECT GUTENBERG EBOOK EMMA ***", "Title: Emma"]
        + [
            "Author: Jane Austen",
            "-------",
            PROSE,
            "Produced by Anne and the Online Distributed Proofreading Team",
            PROSE,
        ]
        + ["*** END OF THE PROJECT GUTENBERG EBOOK EMMA ***", "Updated editions will replace the previous one."]
    )
    left, report = applied("boilerplate", text)
    assert left == f"{PROSE}\n{PROSE}"
    assert {rule: facts["lines"] for rule, facts in report.items()} == {
        "boilerplate.licence_block": 4,
        "boilerplate.metadata_header": 3,
        "boilerplate.site_notice": 1,
    }


START, END = "*** START OF THE PROJECT GUTENBERG EBOOK {} ***", "*** END OF THE PROJECT GUTENBERG EBOOK {} ***"
LICENCE = "Updated editions will replace the previous one."


@pytest.mark.parametrize(
    ("lines", "left"),
    [
        (["The Project Gutenberg EBook of A", START, "a", END, LICENCE, START, "b", END, LICENCE], ["a", "b"]),
        (["mine", "The Project Gutenberg EBook of A", "by B", START, "a", END, LICENCE], ["mine", "a"]),
        (["a", END, LICENCE, START, "b"], ["a", "b"]),
        (["The Project Gutenberg EBook", START, "a", START, "b"], ["a", START, "b"]),
        (["a", END, LICENCE, END, LICENCE], ["a"]),
        (["*END THE SMALL PRINT!*", "a", "End of Project Gutenberg's A", END, LICENCE], ["a"]),
    ],
)
def test_every_book_of_a_file_stays_and_what_is_before_the_first(lines: list[str], left: list[str]) -> None:
    found, report = applied("boilerplate", "\n".join(lines))
    assert found == "\n".join(left)
    assert report["boilerplate.licence_block"]["lines"] == len(lines) - len(left)


@pytest.mark.parametrize(
    "line",
    [
        "Please enable JavaScript to view the comments.",
        "This site uses cookies to offer you a better experience.",
        "Copyright 2019 Example Ltd. All rights reserved.",
        "Transcriber's Note: obvious errors have been corrected.",
        "E-text prepared by John Doe",
    ],
)
def test_notices_of_pages_and_sites_are_removed(line: str) -> None:
    assert applied("boilerplate", f"{PROSE}\n{line}\n{PROSE}")[0] == f"{PROSE}\n{PROSE}"


@pytest.mark.parametrize(
    "text",
    [
        PROSE,
        "Title: a word he disliked.\nHe said so.",  # one line of it is no header
        "The wine was produced by monks, and sold by their abbot at http prices." * 8,
        "He was a distributor of cookies in the old days, and the cookies were good.",
        "The end of the project was near.",
    ],
)
def test_prose_that_resembles_boilerplate_stays(text: str) -> None:
    assert applied("boilerplate", text) == (text, {})


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("<p>He said <i class='x'>yes</i>.</p>", "He said yes."),
        ("Smith &amp; Sons &#8211; caf&eacute;", "Smith & Sons – café"),
        (
            "I love &#55357;&#56832; it &#xD83D;&#xde00;",
            "I love \U0001f600 it \U0001f600",
        ),  # UTF-16, as older pages have it
        ("half &#55357; of a pair, &#0; nothing, &#12345;&#12346;", "half of a pair, nothing, \u3039\u303a"),
        ("zero&#8203;width, so&shy;ft, e&#769;", "zerowidth, soft, \xe9"),
        ("the [[Paris|French capital]] and [[Rome]]{{citation needed}}", "the French capital and Rome"),
        ("see [https://x.org/a the page] there", "see the page there"),
        ("He came. [Illustration: a ship] She {123} went.", "He came. She went."),
        ("It was _very_ cold, said snake_case_name.", "It was very cold, said snake_case_name."),
        ("* * * * *", ""),
        ("<STYLE>p {}</STYLE>So<ref name='a'>Doe 2002</ref> it is.<ref name='a'/>", "So it is."),
        ("x<y, but z>y: a vector<int> of <names>", "x<y, but z>y: a vector<int> of <names>"),
        ("if a < b and c > d then 5 & 6", "if a < b and c > d then 5 & 6"),
        ("He [she said] went, and x_1 and y_2 too.", "He [she said] went, and x_1 and y_2 too."),
    ],
)
def test_markup_goes_and_its_text_stays(before: str, after: str) -> None:
    assert applied("markup", before)[0] == after


@pytest.mark.parametrize(
    "line",
    [
        r"E = mc^{2} and 10^{23} atoms; \frac{1}{2} of x_{12}.",
        r"He wrote \sqrt {2} and \hspace{3} there.",
        "print(f'{0} {1}')",
        "print(f'page {1} of {2} pages')",
        '"{1} {2}".format(a, b)',
        "matches [a-z]{3} and (ab){2}, year = {1999},",
        "if a <b and c> d then stop",
        "while i <p or q> 3 and x <s == y> z",
    ],
)
def test_formulas_programs_and_inequalities_are_no_markup(line: str) -> None:
    assert applied("markup", line) == (line, {})


def test_a_million_spaces_after_the_beginning_of_a_tag_are_searched_once() -> None:
    """Searched anew from each of them it would take an hour, and pytest-timeout would end the test."""
    assert TAG.search("<b" + " " * 1_000_000 + "x") is None


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("the{27} house", "the house"),
        ("{27}The house.{28}", "The house."),
        ("{27}", ""),
        ('{27}"Come," he said. "Now."{28} She went to M^{rs} B. {29}', '"Come," he said. "Now." She went to M^{rs} B.'),
        ("which is 10^{23},{27} as he said", "which is 10^{23}, as he said"),
        ("{{{1}}} is a parameter", "is a parameter"),
    ],
)
def test_page_numbers_of_transcribers_are_removed(before: str, after: str) -> None:
    assert applied("markup", before)[0] == after


@pytest.mark.parametrize(
    "tag",
    [
        "<input disabled>", "<option value='a' selected>", "<table border cellpadding=3>", "<td nowrap >", "<br / >",
        "<p class = x>", "<A HREF=x title>", "<div data-own hidden>", "</p >", "<hr noshade/>",
    ],
)  # fmt: skip
def test_tags_with_attributes_are_removed(tag: str) -> None:
    assert applied("markup", f"He{tag} came.")[0] == "He came."


def test_lines_that_repeat_are_removed_once_they_are_long() -> None:
    text = "\n".join([PROSE, "Yes.", "Yes.", PROSE.upper(), PROSE + " More."])
    left, report = applied("repeated_lines", text)
    assert left == "\n".join([PROSE, "Yes.", "Yes.", PROSE + " More."])
    assert report["repeated_lines.document"]["lines"] == 1


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("write to jane.doe+x@mail.example.co.uk now", "write to email@example.com now"),
        ("call +44 20 7946 0958 or (212) 555-7890.", "call 555-0100 or 555-0100."),
        ("call 212-555-7890 today", "call 555-0100 today"),
        ("in 1914-1918, page 12-13, 3.14159 and 10.000.000, ISBN 978-3-16-148410-0", None),
        ("at 10:30 on 2024-01-02 he paid 1,250.50, a @ sign", None),
    ],
)
def test_addresses_and_phone_numbers_are_masked_and_other_numbers_stay(before: str, after: str | None) -> None:
    assert applied("personal_data", before)[0] == (after or before)


WORDS = "the cat and the dog with a hat have to be of that kind said he when she came home again".split()


def document(num_words: int, seed: int = 1) -> list[str]:
    generator = random.Random(seed)
    rare = ["".join(generator.choices("abcdefghij", k=6)) for _ in range(3000)]
    words = [generator.choice(WORDS if generator.random() < 0.3 else rare) for _ in range(num_words)]
    return [" ".join(words[i : i + 12]) + "." for i in range(0, num_words, 12)]


@pytest.mark.parametrize(
    ("rule", "change"),
    [
        ("too_few_words", lambda lines: lines[:2]),
        ("too_many_words", lambda lines: lines * 500),
        ("short_words", lambda lines: ["a b c d e f g of"] * 40),
        ("long_words", lambda lines: ["extraordinarily incomprehensible internationalisation the of"] * 40),
        ("symbols", lambda lines: [line.replace(" ", " # ") for line in lines]),
        ("symbols", lambda lines: [line.replace(" ", "... ", 4) for line in lines]),
        ("bullets", lambda lines: [f"- {line}" for line in lines]),
        ("ellipses", lambda lines: [f"{line[:-1]}…" for line in lines]),
        ("not_alphabetic", lambda lines: [f"{line} 12 13 14 15 16" for line in lines]),
        ("stop_words", lambda lines: [" ".join(w for w in x.split() if w not in WORDS) for x in lines]),
    ],
)
def test_each_gopher_rule_drops_a_document_made_to_break_it(
    rule: str, change: Callable[[list[str]], list[str]]
) -> None:
    lines = document(400)
    assert applied("gopher", "\n".join(lines))[0] == "\n".join(lines)
    left, report = applied("gopher", "\n".join(change(lines)))
    assert left is None and list(report) == [f"gopher.{rule}"]
    assert report[f"gopher.{rule}"]["documents"] == 1
    assert report[f"gopher.{rule}"]["characters"] == len("\n".join(change(lines)))


def test_gopher_rules_are_switched_off_by_null() -> None:
    off = {name: None for name in Gopher.model_fields if name.startswith(("min_", "max_"))}
    assert applied("gopher", "- # # 1 2 3 ...", **off)[0] == "- # # 1 2 3 ..."
    assert list(applied("gopher", "- # # 1 2 3 ...", **{**off, "max_digits": 0.3})[1]) == ["gopher.digits"]


@pytest.mark.parametrize(
    ("rule", "change"),
    [
        ("duplicate_lines", lambda lines: lines + lines[:20]),
        ("duplicate_line_chars", lambda lines: lines + [" ".join(lines[:12])] * 2),
        ("top_2_gram", lambda lines: [f"{x} wonderful world" for x in lines]),
        ("duplicate_5_grams", lambda lines: [*lines, " ".join(lines[:8]) + " end."]),
    ],
)
def test_each_repetition_rule_drops_a_document_made_to_break_it(
    rule: str, change: Callable[[list[str]], list[str]]
) -> None:
    lines = document(360) if rule != "top_2_gram" else [" ".join(x.split()[:4]) for x in document(360)]
    options = {"max_duplicate_line_chars": 0.2}
    if rule == "duplicate_lines":
        options["max_duplicate_line_chars"] = 1.0
    assert applied("repetition", "\n".join(lines), **options)[0] == "\n".join(lines)
    left, report = applied("repetition", "\n".join(change(lines)), **options)
    assert left is None and list(report) == [f"repetition.{rule}"]


def slow_ngram_shares(words: list[str], n: int) -> tuple[int, int]:
    """Characters in the most frequent n-gram, and in n-grams that stood before, by the definition."""
    grams = [tuple(words[i : i + n]) for i in range(len(words) - n + 1)]
    counts = {gram: grams.count(gram) for gram in grams}
    most = max(counts.values())
    top = max(sum(map(len, gram)) * most for gram, count in counts.items() if count == most) if most > 1 else 0
    seen: set[tuple[str, ...]] = set()
    inside: set[int] = set()
    for i, gram in enumerate(grams):
        if gram in seen:
            inside.update(range(i, i + n))
        seen.add(gram)
    return top, sum(len(words[i]) for i in inside)


@pytest.mark.parametrize("seed", range(60))
def test_ngram_rules_are_those_of_the_definition(seed: int) -> None:
    draw = random.Random(seed)
    words = draw.choices(["a", "bb", "ccc", "dddddddd"][: draw.randrange(2, 5)], k=draw.randrange(3, 60))
    top, inside = ({n: draw.random() for n in draw.sample(range(2, 8), 3)} for _ in range(2))
    least = {"max_duplicate_lines": None, "max_duplicate_line_chars": None}
    rules = Repetition(kind="repetition", **least, max_top_ngram_chars=top, max_duplicate_ngram_chars=inside)
    broken, size = [], len(" ".join(words))
    for n in range(2, min(8, len(words) + 1)):
        in_top, repeated = slow_ngram_shares(words, n)
        broken += [f"top_{n}_gram"] if n in top and in_top > top[n] * size else []
        broken += [f"duplicate_{n}_grams"] if n in inside and repeated > inside[n] * size else []
    assert repetition([" ".join(words)], rules) == next(iter(broken), None)


def test_repetition_rules_can_be_reduced_to_few() -> None:
    text = "\n".join(document(360))
    only = Repetition(
        kind="repetition",
        max_duplicate_lines=None,
        max_duplicate_line_chars=None,
        max_top_ngram_chars={},
        max_duplicate_ngram_chars={},
    )
    notes = Notes()
    assert apply_steps(f"{text}\n{text}", [only], notes) is not None and not notes.rules


@pytest.mark.parametrize(
    ("rule", "lines"),
    [
        ("unpunctuated_lines", [PROSE[:-1]] * 2 + [PROSE[:-2]] * 9 + [PROSE]),
        ("short_lines", ["Yes, he said."] * 3 + [PROSE]),
        ("duplicate_line_chars", [PROSE, PROSE, PROSE + " And more."]),
    ],
)
def test_each_fineweb_rule_drops_a_document_made_to_break_it(rule: str, lines: list[str]) -> None:
    assert list(applied("fineweb", "\n".join(lines))[1]) == [f"fineweb.{rule}"]
    assert applied("fineweb", "\n".join([PROSE, PROSE + " More.", "Yes.", "No."]))[1] == {}


def wrapped(text: str, width: int) -> str:
    lines, line = [], ""
    for word in text.split():
        if line and len(line) + 1 + len(word) > width:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}".strip()
    return "\n".join([*lines, line])


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("hu", "A kutya a kertben ugat, a macska a fán ül, és a szomszéd az ablakból nézi őket."),
        ("fr", "Il pleuvait sur la ville, et personne ne voulait sortir avant la fin de l'après-midi."),
        ("ja", "庭で犬が吠え、猫は木の上に座り、隣の人が窓からそれを見ている。"),
        ("ar", "كان المطر يهطل على المدينة ولم يرغب أحد في الخروج قبل نهاية فترة بعد الظهر."),
    ],
)
def test_documents_of_other_languages_are_dropped_and_named(code: str, text: str) -> None:
    kept, report = applied("language", text, languages=["en"])
    assert kept is None and f"language.{code}" in str(report)
    assert applied("language", text, languages=["en", code])[0] == text


def test_a_document_whose_language_is_uncertain_stays() -> None:
    assert applied("language", "The cat sat.", languages=["de"])[0] == "The cat sat."
    english = "The dog barked in the garden while the neighbours watched it from their window."
    assert applied("language", english, languages=["de"])[0] is None
    foreign_header = "Le titre de la page et le nom de son auteur\n" + f"{english}\n" * 60
    assert applied("language", foreign_header, languages=["en"])[0] is not None, "the middle counts, not the header"


@pytest.mark.parametrize("width", [50, 72])
def test_hard_wrapped_paragraphs_are_joined(width: int) -> None:
    paragraphs = [" ".join(document(60, seed)) for seed in range(4)]
    text = "CHAPTER I\n\n" + "\n\n".join(wrapped(paragraph, width) for paragraph in paragraphs)
    joined = before_cleaning(text, [STEP.validate_python({"kind": "unwrap"})], Notes())
    assert joined.split("\n\n") == ["CHAPTER I", *paragraphs]


@pytest.mark.parametrize(
    ("end", "joined"), [("well-", "well-known"), ("well -", "well - known"), ("well", "well known")]
)
def test_a_compound_that_was_broken_at_its_hyphen_is_joined_without_a_space(end: str, joined: str) -> None:
    paragraph = " ".join(document(60, 1))
    broken = f"the old man of the harbour was {end}\nknown to every captain who came there\nand to all."
    text = f"{wrapped(paragraph, 40)}\n\n{broken}"
    found = unwrap(text, STEP.validate_python({"kind": "unwrap"}), Notes())
    assert f"the harbour was {joined} to every captain" in found


def test_text_without_spaces_is_joined_at_full_lines_only_and_without_spaces() -> None:
    generator = random.Random(1)
    letters = [chr(0x4E00 + n) for n in range(500)]
    rules = STEP.validate_python({"kind": "unwrap"})
    sentences = ["".join(generator.choices(letters, k=generator.randint(20, 45))) + "\u3002" for _ in range(60)]
    assert unwrap("\n".join(sentences), rules, Notes()) == "\n".join(sentences), "a sentence a line"
    paragraphs = ["".join(sentences[n : n + 10]) for n in range(0, 60, 10)]
    broken = ["\n".join(text[at : at + 38] for at in range(0, len(text), 38)) for text in paragraphs]
    assert unwrap("\n\n".join(broken), rules, Notes()) == "\n\n".join(paragraphs)


def test_verse_and_paragraphs_a_line_are_not_joined() -> None:
    verse = "\n".join(f"The {word} of night was deep,\nand all the {word}s asleep." for word in WORDS)
    rules = STEP.validate_python({"kind": "unwrap"})
    for text in (verse, "\n".join(" ".join(document(60, seed)) for seed in range(5)), "a\nb\nc\nd\ne\nf"):
        assert unwrap(text, rules, Notes()) == text


def test_examples_are_few_short_and_the_same_in_any_order() -> None:
    lines = [f"<b>{i}</b>" + "x" * 2 * EXAMPLE_CHARACTERS for i in range(60)]
    reports = []
    for order in (lines, lines[::-1]):
        whole, parts = Notes(), Notes()
        for line in order:
            apply_steps(line, [STEP.validate_python({"kind": "markup"})], whole)
            part = Notes()
            apply_steps(line, [STEP.validate_python({"kind": "markup"})], part)
            parts.add(part.dump())
        assert whole.report() == parts.report()
        reports.append(whole.report())
    assert reports[0] == reports[1]
    tags = reports[0]["markup.tag"]
    assert (tags["lines"], tags["characters"], len(tags["examples"])) == (60, 60 * 7, NUM_EXAMPLES)
    assert all(len(example["before"]) == EXAMPLE_CHARACTERS for example in tags["examples"])


STEPS = [{"kind": "boilerplate"}, {"kind": "markup"}, {"kind": "gopher"}]


def write_dirty() -> None:
    texts = ["\n".join(f"{line} <br> {PROSE}" for line in sentences(4, start)) for start in range(0, 400, 4)]
    write_documents("a.txt", texts[:50] + sentences(20, 5000))
    write_documents("b.txt", texts[50:] + ["Scanned by John Doe"])


def test_the_manifest_counts_what_cleaning_dropped_and_cleaning_json_says_why(build: Build) -> None:
    write_dirty()
    built = build({"paths": ["a.txt"]}, {"paths": ["b.txt"]}, cleaning=STEPS)
    assert built.manifest["dropped"] == {"duplicate": 0, "too_short": 1, "cleaning": 20}
    report = read_json(built.folder / "cleaning.json")
    assert {rule: (facts["documents"], facts["lines"]) for rule, facts in report.items()} == {
        "boilerplate.site_notice": (0, 1),
        "gopher.too_few_words": (20, 0),
        "markup.tag": (0, 400),
    }
    assert "cleaning.json" in [file["path"] for file in built.manifest["files"]]
    assert not any("<br>" in text for text in built.texts())


def test_a_workers_file_says_what_this_process_would_have_said(tmp_path: Path) -> None:
    texts = [f"{PROSE} <i>{number}</i>" * (1 + number % 3 * 20) for number in range(30)]
    corpus = Corpus.model_validate({"sources": [text_source()], "cleaning": STEPS})
    here = cleaned_by_a_worker_too(texts, corpus, tmp_path, tmp_path / "part.arrow")
    assert any(made.dropped for made in here) and any("markup.tag" in made.notes for made in here)


def test_without_steps_nothing_is_noted(build: Build) -> None:
    write_dirty()
    built = build({"paths": ["a.txt"]})
    assert set(built.manifest["dropped"]) == {"duplicate", "too_short"}
    assert not (built.folder / "cleaning.json").exists()


def test_lines_of_earlier_documents_are_removed_in_the_order_of_the_mixture(build: Build) -> None:
    Path("a.txt").write_text(f"{PROSE}\nOne.\n\nTwo.\n{PROSE}\n\n{PROSE}\n\nThree.\nTwo.")
    built = build({"paths": ["a.txt"]}, cleaning=[{"kind": "repeated_lines", "scope": "corpus"}])
    assert sorted(built.texts()) == sorted([f"{PROSE}\nOne.", "Two.", "Three.\nTwo."])
    assert built.manifest["dropped"] == {"duplicate": 1, "too_short": 0, "cleaning": 0}
    assert read_json(built.folder / "cleaning.json")["repeated_lines.corpus"]["lines"] == 2
    assert sorted(path.suffix for path in built.folder.iterdir()) == [".json", ".json", ".parquet", ".parquet"]


def test_what_is_left_of_a_document_is_as_long_as_a_document_must_be(build: Build) -> None:
    Path("a.txt").write_text(f"{PROSE}\nA line of its own.\n\n{PROSE}\nSee also\n\nA text of its own.....")
    steps = [{"kind": "repeated_lines", "scope": "corpus"}]
    built = build({"paths": ["a.txt"]}, cleaning=steps, min_chars=20)
    assert sorted(built.texts()) == sorted([f"{PROSE}\nA line of its own.", "A text of its own....."])
    assert built.manifest["dropped"] == {"duplicate": 0, "too_short": 1, "cleaning": 0}


def test_show_prints_before_and_after_beside_each_other(build: Build, workspace: Path) -> None:
    write_dirty()
    build({"paths": ["a.txt"]}, cleaning=STEPS)
    screen = io.StringIO()
    show_corpus(Paths(), 2, Console(file=screen, width=200))
    shown = screen.getvalue()
    assert "gopher.too_few_words" in shown and "(dropped)" in shown
    assert shown.count("<br>") == 2  # of two examples, in the column before
    assert "documents kept" in shown


def test_show_says_when_there_is_nothing_to_show(build: Build) -> None:
    write_dirty()
    build({"paths": ["a.txt"]})
    with pytest.raises(DataError, match=r"corpus\.cleaning"):
        show_corpus(Paths(), 2)


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ([{"kind": "markup"}, {"kind": "unwrap"}], "unwrap must be the first"),
        ([{"kind": "markup"}, {"kind": "markup"}], "listed twice"),
        ([{"kind": "repeated_lines", "scope": "corpus"}, {"kind": "markup"}], "must be the last"),
        ([{"kind": "magic"}], "magic"),
        ([{"kind": "markup", "level": 3}], "level"),
        ([{"kind": "language", "languages": ["english"]}], "languages"),
        ([{"kind": "language", "languages": ["eng"]}], "'eng' is no language of py3langid.*near: en"),
    ],
)
def test_steps_that_cannot_be_are_refused(steps: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Corpus.model_validate({"sources": [text_source()], "cleaning": steps})


def test_the_codes_of_languages_are_those_of_the_library() -> None:
    assert set(language_model().nb_classes) == LANGUAGES
