"""Files that explode when they are decompressed, and secrets in URLs."""

import gzip
import json
import lzma
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import zstandard

from electra.common.errors import DataError, InfrastructureError
from electra.common.urls import without_secrets
from electra.config import FilesCorpus, Settings
from electra.config.loading import load_settings
from electra.results.report.content import settings_table
from electra.results.report.facts import Facts
from electra.text.corpus import compression as compressed
from electra.text.corpus.files import FilePart, FilesSource, find_files

REPO = Path(__file__).resolve().parents[2]
SECRET = "https://jane:pass-word@host.example/a.txt?token=se-cret"


def documents(path: Path, **options: Any) -> Iterator[str]:
    source = FilesCorpus(kind="files", name="f", paths=[str(path)], **options)
    for part in FilesSource(source).parts():
        yield from part.texts()


@pytest.mark.parametrize(
    ("suffix", "compress"),
    [
        (".gz", lambda data: gzip.compress(data, 9, mtime=0)),
        (".xz", lzma.compress),
        (".zst", lambda data: zstandard.compress(data, 19)),
    ],
)
def test_an_archive_that_explodes_is_refused_before_it_fills_memory(
    suffix: str, compress: Callable[[bytes], bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compressed, "ALWAYS_ALLOWED_BYTES", 1 << 20)
    lines = b"all the same line " * 256 + b"\n"
    path = tmp_path / f"a.txt{suffix}"
    path.write_bytes(compress(lines * (1 << 14)))  # 75 MB
    tracemalloc.start()
    with pytest.raises(DataError, match="out of proportion") as error:
        for _ in documents(path, documents="line"):
            pass
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert error.value.exit_code == 3 and str(path) in str(error.value)
    assert peak < 40 << 20


def test_well_compressed_text_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compressed, "ALWAYS_ALLOWED_BYTES", 1 << 16)
    text = "".join(json.dumps({"n": number}) + "\n" for number in range(60_000))
    (tmp_path / "a.txt.xz").write_bytes(lzma.compress(text.encode()))
    assert len(list(documents(tmp_path / "a.txt.xz", documents="line"))) == 60_000


def test_zstd_is_given_little_at_a_time() -> None:
    """One call may give 128 KiB for every 4 bytes."""
    assert compressed.ZSTD_INPUT_BYTES / 4 * (128 << 10) <= 1 << 26
    with pytest.raises(compressed.DecompressionBomb, match="more than 128 MiB of memory"):
        bomb = zstandard.ZstdCompressor(compression_params=zstandard.ZstdCompressionParameters(window_log=30)).compress
        reader = compressed.ZstdReader(_Bytes(bomb(b"x" * (1 << 28))))
        reader.read(1)


def asking_for(dictionary: int, data: bytes) -> bytes:
    """An .xz file whose header declares a dictionary of 2^``dictionary`` bytes, made with a small one."""
    filters = [{"id": lzma.FILTER_LZMA2, "dict_size": 1 << 20}]
    content = bytearray(lzma.compress(data, filters=filters))
    assert content[12:17] == bytes([2, 0, 0x21, 1, 16])  # block header: its size, flags, LZMA2, one byte of options
    content[16] = 2 * (dictionary - 12)
    content[20:24] = zlib.crc32(content[12:20]).to_bytes(4, "little")
    return bytes(content)


@pytest.mark.parametrize("bits", [29, 31])
def test_an_xz_file_that_asks_for_much_memory_is_refused(bits: int, tmp_path: Path) -> None:
    path = tmp_path / "a.txt.xz"
    path.write_bytes(asking_for(bits, b"a line of text\n"))
    with pytest.raises(DataError, match="decoding takes more than 256 MiB of memory") as error:
        list(documents(path))
    assert error.value.exit_code == 3 and str(path) in str(error.value)
    path.write_bytes(asking_for(26, b"a line of text\n"))  # as `xz -9` does
    assert list(documents(path)) == ["a line of text\n"]


def test_xz_streams_one_after_another_with_padding_are_one_text(tmp_path: Path) -> None:
    path = tmp_path / "a.txt.xz"
    first, second = lzma.compress(b"one\n" * 100_000), lzma.compress(b"two\n")
    path.write_bytes(first + b"\0" * 8 + second + b"\0" * 4)
    assert "".join(documents(path)) == "one\n" * 100_000 + "two\n"
    for damaged in (first[:-20], first + second[:-1], first + b"garbage", b""):
        path.write_bytes(damaged)
        with pytest.raises(DataError, match="damaged or cut short"):
            list(documents(path))


class _Bytes:
    def __init__(self, data: bytes):
        self._data = data

    def read(self, size: int = -1, /) -> bytes:
        found, self._data = self._data[:size], self._data[size:]
        return found


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (SECRET, "https://host.example/a.txt?***"),
        ("s3://key:secret@bucket/a/*.jsonl", "s3://bucket/a/*.jsonl"),
        ("https://host.example:8080/a.txt", "https://host.example:8080/a.txt"),
        ("corpus/a?b@c.txt", "corpus/a?b@c.txt"),
    ],
)
def test_secrets_in_urls_are_masked(url: str, shown: str) -> None:
    assert without_secrets(url) == shown


@pytest.mark.parametrize(("encoding", "content"), [("utf-8", b"text \xff"), ("cp1252", b"text \x81")])
def test_manifest_and_messages_show_no_secret(tmp_path: Path, encoding: str, content: bytes) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(content)
    (file,) = find_files([str(path)])
    settings = FilesCorpus(kind="files", name="f", paths=[SECRET], encoding=encoding)
    part = FilePart(replace(file, name=SECRET), settings, None)
    with pytest.raises(DataError) as error:
        list(part.texts())
    shown = f"{error.value} {part.facts(complete=False)}"
    assert "host.example/a.txt" in shown
    assert "pass-word" not in shown and "se-cret" not in shown


def test_a_failing_fetch_shows_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.txt"
    path.write_text("text")
    (file,) = find_files([str(path)])

    def fail(*_: object, **__: object) -> None:
        raise ConnectionError(f"cannot connect to {SECRET}")

    monkeypatch.setattr(type(file.filesystem), "open", fail)
    part = FilePart(replace(file, name=SECRET), FilesCorpus(kind="files", name="f", paths=[SECRET]), None)
    with pytest.raises(InfrastructureError) as error:
        list(part.texts())
    assert "pass-word" not in str(error.value) and "se-cret" not in str(error.value)


def test_the_report_shows_no_secret_of_the_settings() -> None:
    loaded = load_settings(REPO)
    source = FilesCorpus(kind="files", name="f", paths=[SECRET, "s3://bucket/a.txt"])
    settings: Settings = loaded.model_copy(update={"corpus": loaded.corpus.model_copy(update={"sources": [source]})})
    rows = settings_table(Facts(settings, None, None, None, {}, {})).rows
    (paths,) = [value for key, value in rows if key.endswith("paths")]
    assert paths == "https://host.example/a.txt?, s3://bucket/a.txt"
