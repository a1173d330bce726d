"""The held-out share where documents are few and long."""

import random
from pathlib import Path

import pytest

from electra.text.corpus.document import Document, text_hash
from electra.text.corpus.writer import GROUP_CHARACTERS, last_paragraphs, parts_by_split
from tests.corpus.small import Build, Built


def book(seed: int, characters: int) -> str:
    generator = random.Random(seed)
    lines: list[str] = []
    while sum(map(len, lines)) < characters:
        lines.append(" ".join(f"word{generator.randrange(10**6)}" for _ in range(generator.randrange(5, 60))) + ".")
    return "\n".join(lines)


def make(text: str) -> Document:
    return Document("s", text, text_hash(text))


def share(built: Built) -> float:
    return built.manifest["held_out"]["characters"] / built.manifest["characters"]


def build_books(
    build: Build, sizes: list[int], capsys: pytest.CaptureFixture[str], **corpus: object
) -> tuple[Built, str]:
    for number, size in enumerate(sizes):
        Path(f"{number}.txt").write_text(book(number, size))
    built = build({"paths": ["*.txt"], "documents": "file"}, **corpus)
    return built, capsys.readouterr().out


def test_of_three_books_groups_of_paragraphs_are_held_out(build: Build, capsys: pytest.CaptureFixture[str]) -> None:
    built, said = build_books(build, [600_000, 700_000, 500_000], capsys, held_out_fraction=0.05)
    assert 0.02 < share(built) < 0.1
    assert built.manifest["split_documents"] == 3 and "groups of paragraphs" in said
    lines = {
        split: [line for text in built.texts(split) for line in text.split("\n")] for split in ("train", "heldout")
    }
    assert not set(lines["train"]) & set(lines["heldout"])
    books = [line for number in range(3) for line in Path(f"{number}.txt").read_text().split("\n")]
    assert sorted(lines["train"] + lines["heldout"]) == sorted(books)
    assert built.manifest["documents"] == len(built.rows())
    assert built.manifest["characters"] == sum(map(len, built.texts()))


def test_of_three_books_too_short_to_be_grouped_the_last_paragraphs_are_held_out(
    build: Build, capsys: pytest.CaptureFixture[str]
) -> None:
    built, _ = build_books(build, [60_000, 70_000, 50_000], capsys, held_out_fraction=0.05)
    assert 0.03 < share(built) <= 0.05
    assert built.manifest["split_documents"] == 1
    (held_out,) = built.texts("heldout")
    assert any(Path(f"{number}.txt").read_text().endswith("\n" + held_out) for number in range(3))
    assert built.manifest["documents"] == len(built.rows()) == 4
    assert built.manifest["characters"] == sum(map(len, built.texts()))


def test_whole_documents_are_held_out_where_asked_and_a_share_far_off_is_told(
    build: Build, capsys: pytest.CaptureFixture[str]
) -> None:
    built, said = build_books(build, [20_000] * 12, capsys, held_out_fraction=0.02, split_longer_than=None)
    (held_out,) = built.texts("heldout")
    assert held_out in [path.read_text() for path in Path().glob("*.txt")]
    assert "split_documents" not in built.manifest
    assert "8.2% of the text is held out, corpus.held_out_fraction is 2.0%" in said


def test_a_part_depends_on_its_own_text_only() -> None:
    first, second = book(1, 300_000), book(2, 300_000)
    fraction = 0.2

    def held_out(text: str) -> set[str]:
        found = [part for part in parts_by_split(make(text), fraction) if part.split_point < fraction]
        assert all(part.digest[:8] == text_hash(part.text)[:8] for part in found)
        return {line for part in found for line in part.text.split("\n")}

    assert len(held_out(first)) > 0
    # of the last group of the first text more may be held out, or less: it is a larger group now
    same = set(first.split("\n")) - set(first[-2 * GROUP_CHARACTERS :].split("\n"))
    assert held_out(first) & same == held_out(f"{first}\n{second}") & same != set()


def test_parts_join_to_the_document() -> None:
    document = make(book(3, 200_000))
    parts = list(parts_by_split(document, 0.3))
    assert len(parts) > 3
    assert "\n".join(part.text for part in parts) == document.text
    points = [part.split_point < 0.3 for part in parts]
    assert all(one != two for one, two in zip(points, points[1:], strict=False))
    (whole,) = parts_by_split(document, 1e-9)
    assert (whole.text, whole.doc_id) == (document.text, document.doc_id)


def test_a_long_document_is_held_out_whole_only_if_all_of_its_groups_are() -> None:
    fraction, would_be_held_out = 0.15, 0
    for number in range(120):
        document = make(book(number, 30_000))
        parts = list(parts_by_split(document, fraction))
        assert [part.text for part in parts if part.split_point < fraction] != [document.text]
        would_be_held_out += len(parts) == 1 and document.split_point < fraction
    assert would_be_held_out > 3, "by the hash of the whole text"


@pytest.mark.parametrize("fraction", [0.3, 0.7])
def test_no_part_is_shorter_than_a_document_may_be(fraction: float) -> None:
    """validate-corpus refuses a corpus with such a document, and making it again gives the same."""
    ends_alone = 0
    for number in range(40):
        line = f"{number} " + "word " * 400
        document = make("\n".join([*[line] * 10, "The end."]))  # groups of five lines, and one of the last line
        assert "\n".join(part.text for part in parts_by_split(document, fraction)) == document.text
        ends_alone += [part.text for part in parts_by_split(document, fraction)][-1] == "The end."
        parts = [part.text for part in parts_by_split(document, fraction, 20)]
        assert min(map(len, parts)) >= 20 and "\n".join(parts) == document.text
    assert ends_alone, "what is asserted above would happen"
    paragraphs = [line * 20 for line in book(1, 2_000).split("\n")]
    parts = last_paragraphs(make("\n".join([*paragraphs, "The end."])), 200, 20)
    assert parts and parts[1].text == "\n".join([paragraphs[-1], "The end."])
    assert last_paragraphs(make("a long line of its own\nThe end."), 2, 20) is None


@pytest.mark.parametrize(
    ("text", "characters", "after"), [("aaa\nbb\ncc", 2, "cc"), ("aaaaaaa\nbb\ncc", 5, "bb\ncc"), ("aaaa\nb", 0.1, "b")]
)
def test_the_last_paragraphs_have_about_the_size_asked(text: str, characters: float, after: str) -> None:
    parts = last_paragraphs(make(text), characters)
    assert parts and parts[1].text == after and f"{parts[0].text}\n{parts[1].text}" == text
    assert parts[1].digest == text_hash(after)


def test_a_document_of_one_line_and_one_with_a_long_end_are_not_cut() -> None:
    assert last_paragraphs(make("one line"), 3) is None
    assert last_paragraphs(make("one\nanother much longer line"), 3) is None
