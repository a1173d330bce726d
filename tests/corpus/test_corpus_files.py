"""Sources of kind files: formats, compressions, places."""

import gzip
import hashlib
import io
import lzma
from collections.abc import Callable
from pathlib import Path

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from electra.text.corpus import file_formats
from electra.text.corpus.file_formats import text_documents
from tests.corpus.small import Build, jsonl, sentences

TEXTS = sentences(6)


def parquet(texts: list[str | None]) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(pa.table({"id": range(len(texts)), "text": texts}), buffer, row_group_size=2)
    return buffer.getvalue()


def two_frames(data: bytes) -> bytes:
    compress = zstandard.ZstdCompressor().compress
    return compress(data[:100]) + compress(data[100:])


CONTENT = {
    **dict.fromkeys((".txt", ".train"), "\n\n".join(TEXTS).encode()),
    ".jsonl": jsonl(TEXTS).encode(),
    ".parquet": parquet(list(TEXTS)),
}
COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".zst": two_frames,
}


@pytest.mark.parametrize("compression", COMPRESS)
@pytest.mark.parametrize("format", CONTENT)
def test_every_format_in_every_compression(build: Build, workspace: Path, format: str, compression: str) -> None:
    data = COMPRESS[compression](CONTENT[format])
    (workspace / f"input{format}{compression}").write_bytes(data)
    built = build({"paths": [f"input{format}{compression}"]})
    assert sorted(built.texts()) == sorted(TEXTS)
    assert built.manifest["sources"]["source 0"]["files"] == [
        {"path": f"input{format}{compression}", "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    ]


@pytest.mark.parametrize("name", ["BOOK.TXT", "Book.Txt.GZ", "book.txt.XZ", "POSTS.JSONL", "T.Parquet"])
def test_endings_may_be_in_upper_case(build: Build, workspace: Path, name: str) -> None:
    _, format, compression = (*name.lower().split("."), "")[:3]
    (workspace / name).write_bytes(COMPRESS[compression and f".{compression}"](CONTENT[f".{format}"]))
    built = build({"paths": [name]})
    assert sorted(built.texts()) == sorted(TEXTS)
    assert built.manifest["sources"]["source 0"]["files"][0]["path"] == name


@pytest.mark.parametrize(
    ("documents", "expected"),
    [
        ("blank_line", ["one\ntwo", "three"]),
        ("line", ["one", "two", "three"]),
        ("lines", ["one\ntwo", "three"]),  # the second line makes it long enough
        ("file", ["one\ntwo\nthree"]),
    ],
)
def test_what_separates_documents_in_a_text_file(
    build: Build, monkeypatch: pytest.MonkeyPatch, documents: str, expected: list[str]
) -> None:
    monkeypatch.setattr(file_formats, "LINES_CHARACTERS", 6)
    Path("a.txt").write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\n \t\r\n\r\nthree")
    Path("b.txt").write_text("another")
    texts = build({"paths": ["*.txt"], "documents": documents}).texts()
    assert sorted(texts) == sorted([*expected, "another"])


def test_files_are_read_once_each_in_sorted_order_and_named_as_written(build: Build) -> None:
    Path("in/deep").mkdir(parents=True)
    for number, name in enumerate(["in/deep/a.txt", "in/b.txt", "in/c[1].txt"]):
        Path(name).write_text(sentences(3)[number])
    built = build({"paths": ["in/c[1].txt", "in/**/*.txt", "in/b.txt"]}, held_out_fraction=1e-9)
    files = built.manifest["sources"]["source 0"]["files"]
    assert [file["path"] for file in files] == ["in/b.txt", "in/c[1].txt", "in/deep/a.txt"]
    assert built.manifest["documents"] == 3


def test_urls_are_read_and_described(build: Build, tmp_path: Path) -> None:
    memory = fsspec.filesystem("memory")
    memory.pipe("/corpus-test/b.txt.gz", gzip.compress(TEXTS[1].encode(), mtime=0))
    memory.pipe("/corpus-test/a.txt", TEXTS[0].encode())
    memory.pipe("/corpus-test/c.parquet", parquet([TEXTS[2]]))
    (tmp_path / "d.txt").write_text(TEXTS[3])
    built = build({"paths": ["memory://corpus-test/*", f"file://{tmp_path}/d.txt"]})
    assert sorted(built.texts()) == TEXTS[:4]
    files = {file.pop("path"): file for file in built.manifest["sources"]["source 0"]["files"]}
    assert set(files) == {
        f"file://{tmp_path}/d.txt",
        *(f"memory:///corpus-test/{n}" for n in ["a.txt", "b.txt.gz", "c.parquet"]),
    }
    assert files["memory:///corpus-test/a.txt"]["sha256"] == hashlib.sha256(TEXTS[0].encode()).hexdigest()
    assert "sha256" not in files["memory:///corpus-test/c.parquet"]
    assert files["memory:///corpus-test/c.parquet"]["bytes"] == len(parquet([TEXTS[2]]))


def test_a_file_left_early_is_still_hashed_whole(build: Build) -> None:
    data = "\n\n".join(TEXTS).encode()
    Path("a.txt").write_bytes(data)
    Path("b.txt").write_text("not reached")
    built = build({"paths": ["*.txt"]}, max_documents=3)
    assert sorted(built.texts()) == TEXTS[:3]
    assert built.manifest["sources"]["source 0"]["files"] == [
        {"path": "a.txt", "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    ]


def test_null_and_empty_texts_are_dropped_not_fatal(build: Build) -> None:
    Path("a.parquet").write_bytes(parquet([TEXTS[0], None, TEXTS[1]]))
    Path("b.jsonl").write_text('{"text": null}\n\n{"text": ""}\n')
    built = build({"paths": ["a.parquet", "b.jsonl"]})
    assert sorted(built.texts()) == TEXTS[:2]
    assert built.manifest["dropped"] == {"duplicate": 0, "too_short": 3}


def test_text_files_are_read_no_further_than_asked() -> None:
    """Memory stays flat because nothing is read ahead but the next document and one buffer."""
    endless = EndlessText()
    documents = text_documents(io.BufferedReader(endless, buffer_size=64), "endless.txt", "blank_line")
    for number in range(1, 200):
        assert next(documents).startswith("one line")
        assert endless.num_bytes <= number * len(EndlessText.DOCUMENT) + 64


class EndlessText(io.RawIOBase):
    """A text file that never ends, and counts the bytes read of it."""

    DOCUMENT = b"one line of text\n\n"

    def __init__(self) -> None:
        self.num_bytes = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        for i in range(len(buffer)):
            buffer[i] = self.DOCUMENT[(self.num_bytes + i) % len(self.DOCUMENT)]
        self.num_bytes += len(buffer)
        return len(buffer)
