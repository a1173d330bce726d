"""Bad input: the message names the error and its place, the exit code is right, and no partial output is left."""

import errno
import gzip
import lzma
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
import zstandard
from fsspec.implementations.memory import MemoryFileSystem

from electra.common.errors import DataError, InfrastructureError
from electra.text.corpus import file_formats as textfile
from tests.corpus.small import Build, jsonl, sentences, write_documents
from tests.text_stages import REPO


def check(build: Build, message: str, where: str, **source: Any) -> None:
    """The build ends with exit code 3, says what and where, and leaves no corpus."""
    with pytest.raises(DataError, match=message) as error:
        build({"paths": ["*.*"], **source})
    assert error.value.exit_code == 3
    assert where in str(error.value)
    assert not list(Path("data").iterdir())


def test_no_file_matches(build: Build) -> None:
    check(build, "no file matches", "nowhere/*.txt", paths=["nowhere/*.txt"])
    check(build, "no file matches", "memory://nowhere/*.txt", paths=["memory://nowhere/*.txt"])


def test_a_missing_url(build: Build) -> None:
    check(build, "cannot be opened", "memory://nowhere.txt", paths=["memory://nowhere.txt"])


def test_an_unknown_protocol(build: Build) -> None:
    check(build, "cannot be opened", "gopher9://x.txt", paths=["gopher9://x.txt"])


def test_a_folder_instead_of_files(build: Build) -> None:
    Path("texts").mkdir()
    check(build, "a folder", "texts/*.txt", paths=["texts"])


def test_an_unknown_format(build: Build) -> None:
    Path("a.pdf").write_bytes(b"%PDF")
    check(build, "no known format", "a.pdf")


def test_a_corpus_with_nothing_left_shows_what_was_dropped(build: Build) -> None:
    Path("a.txt").write_text("too short\n\nshort too\n\n \n\n")
    with pytest.raises(DataError, match=r"empty.*2 too_short") as error:
        build({"paths": ["a.txt"]}, min_chars=20)
    assert error.value.exit_code == 3
    assert not list(Path("data").iterdir())


def test_an_empty_file_is_an_empty_corpus(build: Build) -> None:
    Path("a.txt").touch()
    check(build, "corpus is empty", "source 0")


def test_a_single_document_cannot_be_split(build: Build) -> None:
    Path("a.txt").write_text("one\ntwo\nthree")
    check(build, "single document", "documents")


def test_everything_held_out(build: Build) -> None:
    write_documents("a.txt", sentences(5))
    with pytest.raises(DataError, match="none is left to train on"):
        build({"paths": ["a.txt"]}, held_out_fraction=1 - 1e-9)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"fine\nbad \xff\xfe\n", "0xff at byte 9"),
        (b"fine\n\x89PNG\r\n", "0x89 at byte 5"),
        (b"fine\nnul \x00\n", "NUL byte at byte 9"),
        (b"fine\ncut \xc3", "0xc3 at byte 9"),
    ],
)
@pytest.mark.parametrize("compress", [bytes, gzip.compress])
def test_a_binary_file_given_as_text(
    build: Build, data: bytes, message: str, compress: Callable[[bytes], bytes]
) -> None:
    name = "a.txt" if compress is bytes else "a.txt.gz"
    Path(name).write_bytes(compress(data))
    check(build, message, f"{name}:2")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{broken", "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        ('["text"]', "not a JSON object but a list"),
        ('{"title": "t", "body": "b"}', "no field 'text'; the fields are: title, body"),
        ('{"text": 5}', "holds a number, not text"),
    ],
)
def test_a_wrong_jsonl_line_is_named(build: Build, line: str, message: str) -> None:
    Path("a.jsonl").write_text(jsonl(sentences(2)) + line + "\n")
    check(build, message, "a.jsonl:3")


def test_wrong_parquet_columns(build: Build) -> None:
    pq.write_table(pa.table({"id": [1], "body": ["b"]}), "a.parquet")
    check(build, "no column 'text'; the columns are: id, body", "a.parquet")
    check(build, "holds int64, not text", "a.parquet", text_field="id")


def test_unreadable_parquet(build: Build) -> None:
    Path("a.parquet").write_text("no parquet at all")
    check(build, "not a readable parquet file", "a.parquet")


def test_parquet_damaged_in_the_middle(build: Build) -> None:
    pq.write_table(pa.table({"text": sentences(2000)}), "a.parquet", compression="zstd", use_dictionary=False)
    data = bytearray(Path("a.parquet").read_bytes())
    data[200:2000] = bytes(1800)
    Path("a.parquet").write_bytes(data)
    check(build, "not a readable parquet file", "a.parquet")


@pytest.mark.parametrize(
    ("suffix", "compress"),
    [(".gz", gzip.compress), (".xz", lzma.compress), (".zst", zstandard.ZstdCompressor().compress)],
)
@pytest.mark.parametrize("damage", [lambda data: data[: len(data) // 2], lambda data: b"plain text after all"])
def test_damaged_compression(
    build: Build, suffix: str, compress: Callable[[bytes], bytes], damage: Callable[[bytes], bytes]
) -> None:
    Path(f"a.txt{suffix}").write_bytes(damage(compress("\n\n".join(sentences(500)).encode())))
    check(build, "damaged or cut short", f"a.txt{suffix}")


def test_a_zstd_window_larger_than_allowed_is_not_called_damage(build: Build) -> None:
    """As `zstd --long=31` writes it."""
    parameters = zstandard.ZstdCompressionParameters(window_log=28, enable_ldm=True)
    stream = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    Path("a.txt.zst").write_bytes(stream.compress(b"A line of text.\n" * 10) + stream.flush())
    check(build, "decoding takes more than 128 MiB of memory", "decompress the file")


def test_a_document_without_end(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(textfile, "MAX_DOCUMENT_BYTES", 1000)
    Path("a.txt").write_text("\n".join(sentences(100)))
    check(build, "a document of more than", "a.txt:")
    Path("a.txt").write_text("x" * 1001)
    check(build, "a document of more than", "a.txt:1", documents="line")


def test_a_lost_connection_is_an_infrastructure_error(build: Build) -> None:
    class Unplugged(MemoryFileSystem):
        protocol = "unplugged"

        def _open(self, path: str, mode: str = "rb", **options: Any) -> Any:
            raise ConnectionResetError("connection reset by peer")

    fsspec.register_implementation("unplugged", Unplugged, clobber=True)
    with pytest.raises(InfrastructureError, match="reset by peer") as error:
        build({"paths": ["unplugged://a.txt"]})
    assert error.value.exit_code == 5
    assert not list(Path("data").iterdir())


def test_a_full_disk_keeps_the_old_corpus_and_leaves_nothing_half_written(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_documents("a.txt", sentences(20))
    before = build({"paths": ["a.txt"]}).bytes()

    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(pq.ParquetWriter, "write_table", full)
    write_documents("a.txt", sentences(30))
    with pytest.raises(InfrastructureError, match="No space left on device") as error:
        build({"paths": ["a.txt"]})
    assert error.value.exit_code == 5
    assert {path.name: path.read_bytes() for path in Path("data/corpus").iterdir()} == before
    assert [path.name for path in Path("data").iterdir()] == ["corpus"]


def test_the_command_ends_with_the_exit_code_and_no_traceback(workspace: Path) -> None:
    shutil.copy(REPO / "params.yaml", workspace)
    values = yaml.safe_load((REPO / "params/books.yaml").read_text())
    values["corpus"] = {"sources": [{"kind": "files", "name": "mine", "paths": ["*.jsonl"]}]}
    Path("params").mkdir()
    Path("params/books.yaml").write_text(yaml.safe_dump(values))
    Path("a.jsonl").write_text("{broken\n")
    command = [sys.executable, "-m", "electra", "corpus"]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(REPO)})
    assert done.returncode == 3
    assert "a.jsonl:1" in done.stderr
    assert "Traceback" not in done.stderr
