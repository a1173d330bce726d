"""Line ends and encodings of all kinds come out as lines of UTF-8, byte for byte where nothing has to change."""

import gzip
import io
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from electra.common import lines
from electra.common.errors import DataError
from electra.common.lines import LineFeeds, recoded
from electra.config import FilesCorpus
from electra.readers.custom import CustomSource
from electra.text.corpus.file_formats import text_documents
from tests.corpus.small import Build, jsonl

TEXTS = ["Ein Märchen.\nZweite Zeile.", "Übermut tut selten gut.", "Wörter und Sätze."]
CONTENT = st.lists(st.sampled_from([b"a", b"bc", b"\n", b"\r", b"\r\n"]), max_size=20).map(b"".join)


def lines_of(file: LineFeeds, size: int = -1) -> list[bytes]:
    return list(iter(lambda: file.readline(size), b""))


@given(content=CONTENT, chunk=st.integers(1, 7))
def test_a_carriage_return_alone_ends_a_line_and_no_byte_is_moved(content: bytes, chunk: int) -> None:
    whole = re.sub(rb"\r(?!\r*\n)", b"\n", content)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "CHUNK_BYTES", chunk)
        assert lines_of(LineFeeds(io.BytesIO(content))) == io.BytesIO(whole).readlines()
        cut = lines_of(LineFeeds(io.BytesIO(content)), 2)
    assert b"".join(cut) == whole and max(map(len, cut), default=0) <= 2


def test_a_line_without_end_is_cut_where_the_reader_says() -> None:
    class Endless:
        def readline(self, size: int = -1, /) -> bytes:
            assert 0 < size <= lines.CHUNK_BYTES
            return b"x" * size

    assert len(LineFeeds(Endless()).readline(3 << 20)) == 3 << 20


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r", "\r\r\n"])
def test_documents_are_the_same_with_every_line_end(end: str) -> None:
    content = "\n\n".join(TEXTS).replace("\n", end).encode()
    for documents, expected in (("blank_line", 3), ("line", 4), ("file", 1)):
        found = list(text_documents(io.BytesIO(content), "a.txt", documents))  # type: ignore[arg-type]
        assert len(found) == expected
    assert [text.split() for text in text_documents(io.BytesIO(content), "a.txt", "blank_line")] == [
        text.split() for text in TEXTS
    ]


ENCODINGS = ["cp1252", "latin-1", "utf-16", "utf-16-le", "utf-32", "utf-8-sig", "mac-roman", "gb18030"]


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_source_in_another_encoding_is_read(build: Build, encoding: str) -> None:
    Path("a.txt").write_bytes("\n\n".join(TEXTS[:2]).encode(encoding))
    Path("b.jsonl.gz").write_bytes(gzip.compress(jsonl(TEXTS[2:]).replace("\\u00f6", "ö").encode(encoding)))
    built = build({"paths": ["*.*"], "encoding": encoding})
    assert sorted(built.texts()) == sorted(TEXTS)
    assert built.manifest["sources"]["source 0"]["files"][0]["bytes"] == len(Path("a.txt").read_bytes())


def test_multibyte_text_is_decoded_across_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "吾輩は猫である。\n名前はまだ無い。\n" * 3
    monkeypatch.setattr(lines, "CHUNK_BYTES", 3)
    for encoding in ("shift_jis", "euc_jp", "iso2022_jp", "utf-16"):
        assert recoded(io.BytesIO(text.encode(encoding)), "a.txt", encoding, "").read().decode() == text


@pytest.mark.parametrize("chunk", [1, 5, 1000])
def test_text_that_is_not_of_the_encoding_is_named_with_line_and_byte(
    build: Build, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    monkeypatch.setattr(lines, "CHUNK_BYTES", chunk)
    Path("a.txt").write_bytes("日本\n語だ".encode("shift_jis") + b"\xfd\xfd\n")
    with pytest.raises(DataError, match=r"not SHIFT_JIS text: byte 0xfd at byte 9\n.*a.txt:2\n.*set `encoding`"):
        build({"paths": ["a.txt"], "encoding": "shift_jis"})


def test_messages_about_other_encodings_name_the_key(build: Build) -> None:
    Path("a.txt").write_bytes(TEXTS[0].encode("cp1252"))
    with pytest.raises(DataError, match="set `encoding` of the source, such as cp1252"):
        build({"paths": ["a.txt"]})
    Path("a.txt").write_bytes("plain".encode("utf-16-le"))
    with pytest.raises(DataError, match="set `encoding: utf-16` of the source"):
        build({"paths": ["a.txt"]})


@pytest.mark.parametrize("encoding", ["utf8x", "rot13", "base64", ""])
def test_an_encoding_that_python_does_not_know_is_refused(encoding: str) -> None:
    with pytest.raises(ValidationError, match="no text encoding that Python knows"):
        FilesCorpus(kind="files", name="a", paths=["a.txt"], encoding=encoding)


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl"])
@pytest.mark.parametrize("encoding", ["cp1252", "utf-16", "utf-8"])
def test_tables_of_own_tasks_are_read_in_their_encoding(tmp_path: Path, suffix: str, encoding: str) -> None:
    separator = {".csv": ",", ".tsv": "\t"}.get(suffix)
    rows = [("schön", "gut"), ("nicht übel", "gut"), ("häßlich", "schlecht")]
    if separator:
        table = "".join(separator.join(row) + "\r\n" for row in [("text", "label"), *rows])
    else:
        table = "".join(f'{{"text": "{text}", "label": "{label}"}}\n' for text, label in rows)
    (tmp_path / f"t{suffix}").write_bytes(table.encode(encoding))
    description = f"kind: classification\ntrain: t{suffix}\ndev: t{suffix}\ntext: text\nlabel: label\n"
    (tmp_path / "mine.yaml").write_text(description + f"encoding: {encoding}\n")
    source = CustomSource(tmp_path / "mine.yaml")
    assert [row["text_a"] for row in source.read(source.spec, "train")] == [text for text, _ in rows]
    if encoding == "cp1252":
        (tmp_path / "mine.yaml").write_text(description)
        line = 1 if suffix == ".jsonl" else 2
        with pytest.raises(DataError, match=rf"not UTF-8 text: byte 0xf6 .*\n.*t{suffix}:{line}\n.*set `encoding`"):
            CustomSource(tmp_path / "mine.yaml")
