"""The corpus stage as a whole: weights, de-duplication, the held-out split, bytes, memory."""

import hashlib
import sqlite3
from collections import Counter
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from electra.common.artifacts import sha256
from electra.text.corpus.document import CleanedDocument, Document, text_hash
from electra.text.corpus.near_duplicates import SeenIds
from electra.text.corpus.selection import interleave, kept_documents
from electra.text.corpus.writer import ROW_GROUP_CHARACTERS, ROW_GROUP_DOCUMENTS, split_files
from tests.corpus.small import Build, sentences, write_documents
from tests.fixtures import text_source
from tests.text_stages import REPO

BOOKS = REPO / "../shared/data/prose/books.txt.xz"


def make_document(source: str, text: str) -> Document:
    return Document(source, text, text_hash(text))


def endless(source: str, lengths: tuple[int, ...]) -> Iterator[Document]:
    while True:
        for length in lengths:
            yield make_document(source, "x" * length)


def test_weights_hold_at_every_prefix() -> None:
    """No source is further from its share than the longest document."""
    streams = [endless("a", (10, 70)), endless("b", (33,)), endless("c", (1, 2, 90))]
    weights = [1.0, 2.0, 5.0]
    mixture = interleave(streams, weights)
    characters = {"a": 0, "b": 0, "c": 0}
    for _ in range(2000):
        document = next(mixture)
        characters[document.source] += len(document.text)
        per_weight = [count / weight for count, weight in zip(characters.values(), weights, strict=True)]
        assert max(per_weight) - min(per_weight) <= 90
    total = sum(characters.values())
    assert [count / total for count in characters.values()] == pytest.approx([1 / 8, 2 / 8, 5 / 8], abs=0.01)


def test_when_a_source_ends_the_others_go_on_and_the_manifest_says_so(build: Build) -> None:
    write_documents("a.txt", ["a" * 100 + str(i) for i in range(10, 20)])
    write_documents("b.txt", ["b" * 100 + str(i) for i in range(10, 70)])
    built = build(
        {"name": "a", "paths": ["a.txt"], "weight": 3}, {"name": "b", "paths": ["b.txt"]}, held_out_fraction=1e-9
    )
    order = [row["source"] for row in built.rows("train")]
    assert order[:11].count("b") in (2, 3, 4)
    # at most one: until a document is held out, one is kept back and may be written later
    assert order[20:].count("a") <= 1
    sources = built.manifest["sources"]
    assert {name: (s["documents"], s["characters"]) for name, s in sources.items()} == {
        "a": (10, 1020),
        "b": (60, 6120),
    }
    assert (sources["a"]["asked_share"], sources["a"]["share"]) == (0.75, round(1020 / 7140, 6))


def test_dropped_documents_do_not_count_towards_the_share(build: Build) -> None:
    write_documents("a.txt", ["the very same long document " * 5] * 50 + sentences(40))
    write_documents("b.txt", sentences(200, start=1000))
    built = build({"name": "a", "paths": ["a.txt"]}, {"name": "b", "paths": ["b.txt"]}, max_documents=60)
    assert built.manifest["dropped"]["duplicate"] == 49
    assert built.manifest["sources"]["a"]["share"] == pytest.approx(0.5, abs=0.05)


def test_duplicates_are_found_across_files_and_sources_after_cleaning(build: Build) -> None:
    write_documents("a.txt", ["Une café.\nTwo  lines.", "Only in a."])
    write_documents("b.txt", ["Une cafe\u0301.\r\nTwo lines. ", "Only in b."])
    built = build({"name": "a", "paths": ["a.txt"]}, {"name": "b", "paths": ["b.txt"]})
    assert sorted(built.texts()) == ["Only in a.", "Only in b.", "Une café.\nTwo lines."]
    assert built.manifest["dropped"] == {"duplicate": 1, "too_short": 0}


def test_documents_that_begin_alike_are_different_documents(build: Build) -> None:
    beginning = "The same title page. " * 5000
    write_documents("a.txt", [beginning + ending for ending in ("One.", "Two.", "Three.")])
    built = build({"paths": ["a.txt"]})
    assert sorted(text.removeprefix(beginning) for text in built.texts()) == ["One.", "Three.", "Two."]
    assert len({row["doc_id"] for row in built.rows()}) == 3


def test_a_duplicate_is_told_by_the_eight_bytes_that_name_a_document(tmp_path: Path) -> None:
    digests = [bytes([1] * 7 + [last] + [9] * 24) for last in (1, 2)] + [bytes([1] * 8 + [3] * 24)]
    removed: Counter[str] = Counter()
    with SeenIds(tmp_path / "seen") as seen:
        cleaned = [CleanedDocument(f"text {number}", digest, 0, 0) for number, digest in enumerate(digests)]
        kept = list(kept_documents("s", cleaned, seen, removed))
    assert [document.text for document in kept] == ["text 0", "text 1"]
    assert removed["duplicate"] == 1


def test_the_split_is_decided_by_other_bytes_than_the_name() -> None:
    low, high = bytes(8), b"\xff" * 8
    assert Document("s", "", low + high + low + low).split_point > 0.999
    assert Document("s", "", high + low + high + high).split_point == 0


def test_length_limits(build: Build) -> None:
    write_documents("a.txt", ["short", "exactly ten", "long line one\nlong line two\nlong line three"])
    built = build({"paths": ["a.txt"]}, min_chars=11, max_chars=30)
    assert sorted(built.texts()) == ["exactly ten", "long line one\nlong line two"]
    assert built.manifest["dropped"] == {"duplicate": 0, "too_short": 1}
    assert built.manifest["cut"] == {"documents": 1, "characters": 16}


def test_rows_and_manifest_agree(build: Build) -> None:
    texts = sentences(250)
    write_documents("a.txt", texts)
    built = build({"paths": ["a.txt"]}, documents_per_file=100, held_out_fraction=0.1)
    rows = built.rows()
    assert sorted(row["text"] for row in rows) == sorted(texts)
    assert all(row["doc_id"] == hashlib.sha256(row["text"].encode()).hexdigest()[:16] for row in rows)
    held_out = built.texts("heldout")
    assert 10 <= len(held_out) <= 45
    manifest = built.manifest
    assert manifest["held_out"] == {"documents": len(held_out), "characters": sum(map(len, held_out))}
    assert (manifest["documents"], manifest["characters"]) == (250, sum(map(len, texts)))
    sizes = [pq.ParquetFile(path).metadata.num_rows for path in sorted(built.folder.glob("train-*"))]
    assert sizes == [100, 100, 250 - len(held_out) - 200]
    assert pq.ParquetFile(built.folder / "train-00000.parquet").metadata.row_group(0).column(2).compression == "ZSTD"
    assert {entry["path"]: entry["sha256"] for entry in manifest["files"]} == {
        path.name: sha256(path) for path in built.folder.glob("*.parquet")
    }


def test_the_split_of_a_document_does_not_depend_on_the_others(build: Build) -> None:
    write_documents("all.txt", sentences(400))
    write_documents("some.txt", sentences(400)[::-2] + sentences(300, start=5000))
    everything = build({"paths": ["all.txt"]}, root="one", held_out_fraction=0.1)
    something = build({"paths": ["some.txt"]}, root="two", held_out_fraction=0.1)
    shared = set(everything.texts()) & set(something.texts())
    assert len(shared) == 200
    assert shared & set(everything.texts("heldout")) == shared & set(something.texts("heldout")) != set()


@pytest.mark.parametrize("order", [1, -1])
def test_a_tiny_corpus_holds_out_the_same_document_in_any_order(build: Build, order: int) -> None:
    texts = sentences(5)
    write_documents("a.txt", texts[::order])
    built = build({"paths": ["a.txt"]}, held_out_fraction=1e-9)
    assert built.texts("heldout") == [min(texts, key=lambda text: make_document("", text).split_point)]
    assert len(built.texts("train")) == 4


def test_same_input_same_bytes(build: Build) -> None:
    write_documents("a.txt", sentences(300))
    sources = [
        text_source(weight=2.0),
        {"paths": ["a.txt"]},
    ]
    one = build(*sources, root="one", documents_per_file=64).bytes()
    two = build(*sources, root="two", documents_per_file=64).bytes()
    assert one == two
    assert len(one) > 5


def test_the_writer_holds_no_more_than_a_row_group(tmp_path: Path) -> None:
    """The stream is consumed one by one, and what waits to be written stays bounded, in documents and characters."""
    taken = 0

    def stream() -> Iterator[Document]:
        nonlocal taken
        for taken in range(1, 3001):
            yield make_document("s", f"{taken} " + "x" * (ROW_GROUP_CHARACTERS // 3 if taken % 500 < 4 else 10))

    with split_files(tmp_path, documents_per_file=1000, held_out_fraction=0.2) as files:
        for number, document in enumerate(stream(), start=1):
            files.add(document)
            assert taken == number
            for split in (files.train, files.held_out):
                assert len(split.waiting) < ROW_GROUP_DOCUMENTS
                assert sum(len(document.text) for document in split.waiting) < ROW_GROUP_CHARACTERS
    written = sum(pq.ParquetFile(path).metadata.num_rows for path in tmp_path.glob("*.parquet"))
    assert written == 3000


def test_sources_are_not_read_ahead() -> None:
    taken = {"a": 0, "b": 0}

    def stream(name: str) -> Iterator[Document]:
        for document in endless(name, (5,)):
            taken[name] += 1
            yield document

    mixture = interleave([stream("a"), stream("b")], [1.0, 1.0])
    for count in accumulate([1] * 20):
        next(mixture)
        assert sum(taken.values()) == count


def test_seen_ids_remember_and_leave_nothing_behind(tmp_path: Path) -> None:
    ids = [bytes([i, *range(7)]) for i in range(0, 256, 5)]
    with SeenIds(tmp_path / "seen") as seen:
        assert all(seen.add(id) for id in ids)
        assert not any(seen.add(id) for id in ids)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_under_the_table_of_seen_ids_is_an_os_error(tmp_path: Path) -> None:
    with SeenIds(tmp_path / "seen") as seen:
        seen._database.execute("PRAGMA max_page_count = 3")
        with pytest.raises(OSError, match="No space left") as error:
            for i in range(10_000):
                seen.add(i.to_bytes(8, "big"))
    assert isinstance(error.value.__cause__, sqlite3.OperationalError)


@pytest.mark.skipif(not BOOKS.exists(), reason="the shared books are not on this machine")
def test_real_books_come_out_clean(build: Build) -> None:
    built = build({"name": "books", "paths": [str(BOOKS)]}, max_documents=8, split_longer_than=None)
    text = "\n".join(built.texts())
    assert built.manifest["documents"] == 8
    assert text.count("\n") > 5000
    assert not any(mark in text for mark in ("Ã", "Â", "â€", "\ufffd", "\n\n", "  ", "\x93"))
