"""Values of `corpus.sources paths`: odd names, links, special files, URLs, parquet files made to fill memory."""

import io
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from electra.common.errors import DataError, ElectraError
from electra.common.globs import expanded
from electra.common.parquet_pages import MAX_PAGE_BYTES, largest_page
from electra.config import FilesCorpus
from electra.inputs import list_inputs
from electra.preflight import warnings
from electra.text.corpus.file_formats import jsonl_documents, text_documents
from electra.text.corpus.files import FilesSource, find_files
from tests.workspace import ROOT, Workspace


def documents(*paths: object) -> list[str]:
    source = FilesCorpus(kind="files", name="f", paths=[str(path) for path in paths])
    return [text for part in FilesSource(source).parts() for text in part.texts()]


def refused(*paths: object) -> ElectraError:
    with pytest.raises(ElectraError) as caught:
        documents(*paths)
    str(caught.value).encode()
    return caught.value


def test_a_name_that_is_not_utf_8_is_refused_before_any_document_is_read(tmp_path: Path) -> None:
    """It could not be written to the manifest, at the end of hours."""
    (tmp_path / "a.txt").write_text("text")
    Path(os.fsdecode(bytes(tmp_path) + b"/\xff.txt")).write_text("text")
    with pytest.raises(DataError, match=r"name is not UTF-8") as caught:
        find_files([f"{tmp_path}/*.txt"])
    assert r"/\xff.txt" in str(caught.value)


def test_a_link_to_nothing_is_not_left_out(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("text")
    (tmp_path / "b.txt").symlink_to("nothing")
    for pattern in (tmp_path / "*.txt", tmp_path / "b.txt", tmp_path / "**/*.txt"):
        error = refused(pattern)
        assert "a link to nothing" in error.what and "b.txt" in str(error.where)


def test_special_files_are_not_left_out(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.txt")
    assert "no regular file" in refused(tmp_path / "*.txt").what
    (tmp_path / "b.txt").symlink_to("/proc/cpuinfo")  # of 0 bytes by its facts
    assert "no regular file" in refused(tmp_path / "b.txt").what
    (tmp_path / "c.txt").symlink_to("/dev/zero")
    assert "no regular file" in refused(tmp_path / "c.txt").what


def test_folders_that_a_glob_matches_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "a.txt").mkdir()
    (tmp_path / "b.txt").write_text("text")
    assert documents(tmp_path / "*") == ["text"]


def test_links_that_lead_in_a_circle_are_followed_once(tmp_path: Path) -> None:
    """With two links to the folder above, each file would have 2^40 names."""
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/b/x.txt").write_text("text")
    for name in ("up", "back", "once more"):
        (tmp_path / "a" / name).symlink_to("..")
    (tmp_path / "a/b/self").symlink_to(".")
    assert [file.name for file in find_files([f"{tmp_path}/**/*.txt"])] == [f"{tmp_path}/a/b/x.txt"]
    assert expanded("**/*.txt", tmp_path) == ["a/b/x.txt"]


def test_a_folder_behind_a_link_is_read(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/x.txt").write_text("text")
    (tmp_path / "a").mkdir()
    (tmp_path / "a/link").symlink_to("../elsewhere")
    assert expanded("a/**/*.txt", tmp_path) == ["a/link/x.txt"]


@pytest.mark.parametrize(
    "pattern", ["**/*.txt", "a/**/*.txt", "*/**/[xy]*.txt", "**/b/**", "**", "?/*.txt", "./**/*.t*"]
)
def test_globs_mean_what_they_mean_elsewhere(pattern: str, tmp_path: Path) -> None:
    import glob

    for name in ("x.txt", "a/x.txt", "a/b/y.txt", "a/b/c/z.txt", "a/.hidden/h.txt", "a/[1].txt", ".h.txt", "z/b/w.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("text")
    known = [name for name in glob.glob(pattern, root_dir=tmp_path, recursive=True) if (tmp_path / name).is_file()]
    assert [name for name in expanded(pattern, tmp_path) if (tmp_path / name).is_file()] == sorted(known)


def test_a_url_of_local_files_may_have_any_glob(tmp_path: Path, workspace: Workspace) -> None:
    for name in "ab":
        (tmp_path / f"{name}.txt").write_text(f"A text of more than twenty characters, {name}.")
    patterns = [f"file://{tmp_path}/?.txt"]
    assert [file.name for file in find_files(patterns)] == [f"file://{tmp_path}/{name}.txt" for name in "ab"]
    assert len(documents(*patterns)) == 2
    source = {"kind": "files", "name": "f", "paths": patterns}
    list_inputs(workspace.write(corpus={"sources": [source]}).settings(), workspace.paths)


@pytest.mark.parametrize(
    "url",
    ["github://a.txt", "reference://a.txt", "generic://a.txt", "jupyter://a.txt", "tar://a.txt", "git://a.txt",
     "dir://a.txt", "nope://a.txt", "cached://a.txt", "http://[/a.txt", "http://host:port/a.txt",
     "file://\0.txt", "x" * 5000],
)  # fmt: skip
def test_a_url_that_cannot_be_opened_is_named(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert refused(url).where


def test_a_link_to_nothing_does_not_end_the_checks_before_a_run(workspace: Workspace) -> None:
    (workspace.root / "texts").mkdir()
    (workspace.root / "texts/a.txt").symlink_to("nothing")
    workspace.write(corpus={"sources": [{"kind": "files", "name": "f", "paths": ["texts/*.txt"]}]})
    list(warnings(workspace.root))


# ---- blank lines


class Counting(io.BytesIO):
    """Reader that counts the lines requested one by one."""

    lines = 0

    def readline(self, size: int | None = -1, /) -> bytes:
        self.lines += 1
        return super().readline(size)

    def peek(self, size: int = 0, /) -> bytes:
        at = self.tell()
        ready = self.read(1 << 16)
        self.seek(at)
        return ready


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r\r\n", b" \t \n"])
@pytest.mark.parametrize("kind", ["blank_line", "line", "file", "jsonl"])
def test_megabytes_of_blank_lines_are_not_read_one_by_one(kind: str, end: bytes) -> None:
    """The rest is as without them: documents, line numbers and bytes of messages."""
    blank = b"\n" * 100 + end * 500_000
    first, last = (b'{"text": "one"}\n', b'{"text": "two"}\n') if kind == "jsonl" else (b"one\n", b"two\n")
    file = Counting(first + blank + last + b"\xff\n")

    def read(content: BinaryIO) -> Iterator[str]:
        return jsonl_documents(content, "x", "text") if kind == "jsonl" else text_documents(content, "x", kind)  # type: ignore[arg-type]

    found: list[str] = []
    with pytest.raises(DataError, match=f"at byte {len(first + blank + last)}") as caught:
        found.extend(read(file))
    assert caught.value.where == "x:500103" and file.lines < 1000
    found = list(read(Counting(first + blank + last)))
    assert [text.split() for text in found] == ([["one", "two"]] if kind == "file" else [["one"], ["two"]])


# ---- parquet


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    table = pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"])], names=["text", "text"])
    pq.write_table(table, tmp_path / "a.parquet")
    assert "several columns 'text'" in refused(tmp_path / "a.parquet").what


READ = """
import resource, sys
from electra.common.errors import DataError
from electra.config import FilesCorpus
from electra.text.corpus.file_formats import jsonl_documents, text_documents
from electra.text.corpus.files import FilesSource
from electra.readers.tables import Layout, read_table
import fsspec, pyarrow, ftfy
from pathlib import Path
path, how = sys.argv[1:]
fsspec.filesystem("memory").pipe("/a.parquet", Path(path).read_bytes())
resource.setrlimit(resource.RLIMIT_DATA, (1 << 30, 1 << 30))
try:
    if how == "table":
        texts = (row["text"] for _, row in read_table(Path(path), ["text"], Layout()))
    else:
        name = "memory://a.parquet" if how == "remote" else path
        texts = FilesSource(FilesCorpus(kind="files", name="f", paths=[name])).parts()[0].texts()
    sys.exit(f"{sum(len(text) for text in texts)} characters")
except DataError as error:
    sys.exit(str(error))
"""


def read_with_a_gigabyte(path: Path, how: str) -> str:
    command = [sys.executable, "-c", READ, str(path), how]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT).stderr


WAYS = pytest.mark.parametrize("how", ["local", "remote", "table"])


@pytest.mark.skipif(not hasattr(resource, "RLIMIT_DATA"), reason="needs a limit of memory")
@WAYS
def test_a_parquet_document_that_unpacks_to_gigabytes_is_refused(how: str, tmp_path: Path) -> None:
    """10 kB on disk: the bound of documents holds before the page is unpacked."""
    path = tmp_path / "a.parquet"
    text = pa.array(["a" * (MAX_PAGE_BYTES + 1), "b"], pa.large_string())
    pq.write_table(pa.table({"text": text}), path, compression="zstd", use_dictionary=False)
    assert path.stat().st_size < 1 << 20
    assert "a document of more than 256 MiB" in read_with_a_gigabyte(path, how)


@WAYS
def test_long_parquet_documents_are_read_a_few_at_a_time(how: str, tmp_path: Path) -> None:
    """64 rows of one value: a dictionary holds it once, a batch as often as there are rows."""
    path = tmp_path / "a.parquet"
    text = pa.DictionaryArray.from_arrays([0] * 64, pa.array(["a" * (20 << 20)], pa.large_string()))
    pq.write_table(pa.table({"text": text}), path, compression="zstd")
    assert f"{64 * (20 << 20)} characters" in read_with_a_gigabyte(path, how)


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("compression", ["none", "zstd", "snappy"])
@pytest.mark.parametrize("dictionary", [True, False])
def test_the_largest_page_is_found_in_every_kind_of_file(
    version: str, compression: str, dictionary: bool, tmp_path: Path
) -> None:
    path = tmp_path / "a.parquet"
    texts = [f"{number:04d}" * 100 for number in range(3000)]
    texts[1234] = "x" * 500_000
    pq.write_table(
        pa.table({"other": ["y" * 1_000] * 3000, "text": texts}), path, compression=compression,
        use_dictionary=dictionary, data_page_version=version, row_group_size=500, data_page_size=4096,
        write_page_index=True, write_page_checksum=True,
    )  # fmt: skip
    with open(path, "rb") as file, pq.ParquetFile(path) as parquet:
        assert 500_000 <= largest_page(file, parquet, "text") < 900_000
        chunks = [parquet.metadata.row_group(number).column(1) for number in range(6)]
        largest_chunk = max(chunk.total_uncompressed_size for chunk in chunks)
        assert largest_page(file, parquet, "text", ignored=1 << 28) == largest_chunk >= 500_000


def test_headers_of_pages_that_are_damaged_are_left_to_the_reader(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": ["a text"] * 100}), path, use_dictionary=False)
    content = path.read_bytes()
    for start in range(4, 60):
        path.write_bytes(content[:start] + b"\xff" * 12 + content[start + 12 :])
        try:
            documents(path)
        except DataError as error:
            assert str(path) in str(error)
