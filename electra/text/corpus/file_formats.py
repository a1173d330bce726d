"""Text files of all formats: decompression, checksums of the raw bytes, lines and JSON records."""

import codecs
import gzip
import hashlib
import io
import json
import lzma
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Literal, Protocol

import zstandard

from electra.common.errors import ConfigError, DataError
from electra.common.lines import ByteLines, JoinedBlanks, LineFeeds, byte_lines, text_lines
from electra.common.parsing import is_text
from electra.common.printing import listed

SUFFIXES = (".gz", ".xz", ".zst")
DAMAGED = (EOFError, zlib.error, gzip.BadGzipFile, lzma.LZMAError, zstandard.ZstdError)
BUFFER_BYTES = 1 << 20
# Text compresses to a third or a twentieth of its size; a ratio of hundreds is a decompression bomb
MAX_RATIO = 300
ALWAYS_ALLOWED_BYTES = 1 << 26
ZSTD_INPUT_BYTES = 1 << 11  # input per call of the decompressor: a block of 4 bytes may decompress to 128 KiB
MAX_WINDOW_BYTES = 1 << 27  # window of a zstd frame, held in memory; that of `zstd --ultra -22`
MAX_XZ_BYTES = 1 << 28  # memory for decoding an .xz file: `xz -9` takes 65 MiB, the format allows 4 GiB


class Exploding(ValueError):
    """Compressed data expands to more than ``MAX_RATIO`` times its size, or takes too much memory to decode."""


class Readable(Protocol):
    """Minimal interface of a file."""

    def read(self, size: int = -1, /) -> bytes: ...


class HashingReader(io.RawIOBase):
    """File wrapper that counts and hashes the bytes read; for one pass from the beginning.

    Attributes:
        num_bytes: bytes read so far.
        sha256: hash of the bytes read so far.
    """

    def __init__(self, file: Readable):
        self._file = file
        self.num_bytes = 0
        self.sha256 = hashlib.sha256()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        chunk = self._file.read(len(buffer))
        buffer[: len(chunk)] = chunk
        self.num_bytes += len(chunk)
        self.sha256.update(chunk)
        return len(chunk)


class ZstdReader(io.RawIOBase):
    """Decompressor of consecutive zstd frames that raises EOFError for a truncated file.

    ``zstandard``'s stream reader ends silently there.
    """

    def __init__(self, file: Readable):
        self._file = file
        self._decompressor = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW_BYTES)
        self._frame: zstandard.ZstdDecompressionObj | None = None
        self._rest = b""
        self._ready = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        while not self._ready:
            compressed = self._rest or self._file.read(ZSTD_INPUT_BYTES)
            self._rest = b""
            if not compressed:
                if self._frame is not None:
                    raise EOFError("the file ended within a zstd frame")
                return 0
            self._frame = self._frame or self._decompressor.decompressobj()
            self._ready = memoryview(self._frame.decompress(compressed))
            if self._frame.eof:
                self._rest, self._frame = self._frame.unused_data, None
        size = min(len(buffer), len(self._ready))
        buffer[:size] = self._ready[:size]
        self._ready = self._ready[size:]
        return size


class XzReader(io.RawIOBase):
    """Decompressor of consecutive xz streams with at most ``MAX_XZ_BYTES`` of memory; ``lzma.LZMAFile`` has no limit.

    The file states the size of the dictionary, which is allocated at once: a file of 100 bytes may request 4 GiB.
    """

    def __init__(self, file: Readable):
        self._file = file
        self._stream: lzma.LZMADecompressor | None = None
        self._rest = b""  # after the end of a stream
        self._any = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        while True:
            given = b""
            if self._stream is None or self._stream.needs_input:
                given = self._rest or self._file.read(BUFFER_BYTES)
                self._rest = b""
                if self._stream is None and self._any:
                    if not given:
                        return 0
                    if not (given := given.lstrip(b"\0")):  # padding between streams
                        continue
                if self._stream is not None and not given:
                    raise EOFError("the file ended within an xz stream")
                self._stream = self._stream or lzma.LZMADecompressor(memlimit=MAX_XZ_BYTES)
                self._any = True
            assert self._stream is not None
            chunk = self._decompress(given, len(buffer))
            if self._stream.eof:
                self._rest, self._stream = self._stream.unused_data, None
            if chunk:
                buffer[: len(chunk)] = chunk
                return len(chunk)

    def _decompress(self, given: bytes, size: int) -> bytes:
        assert self._stream is not None
        try:
            return self._stream.decompress(given, max_length=size)
        except lzma.LZMAError as error:
            if "Memory usage limit" in str(error):
                raise Exploding(f"decoding takes more than {MAX_XZ_BYTES >> 20} MiB of memory") from None
            raise


class BoundedReader(io.RawIOBase):
    """Reader of decompressed content that raises Exploding if its size is out of proportion to the compressed bytes."""

    def __init__(self, content: Readable, compressed: HashingReader):
        self._content, self._compressed = content, compressed
        self._num_bytes = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        chunk = self._content.read(len(buffer))
        buffer[: len(chunk)] = chunk
        self._num_bytes += len(chunk)
        if self._num_bytes > max(ALWAYS_ALLOWED_BYTES, MAX_RATIO * self._compressed.num_bytes):
            raise Exploding(f"{self._compressed.num_bytes:,} compressed bytes give more than {self._num_bytes:,}")
        return len(chunk)


def decompressed(file: HashingReader, suffix: str) -> BinaryIO:
    """Return the decompressed content of a file.

    Reading raises one of ``DAMAGED`` if the compressed data is damaged or truncated, ``Exploding`` if it expands too
    much.

    Args:
        file: the compressed bytes.
        suffix: end of the file's name: one of ``SUFFIXES``; any other for plain content.
    """
    buffered = io.BufferedReader(file, BUFFER_BYTES)
    match suffix:
        case ".gz":
            return io.BufferedReader(BoundedReader(gzip.GzipFile(fileobj=buffered), file), BUFFER_BYTES)
        case ".xz":
            return io.BufferedReader(BoundedReader(XzReader(buffered), file), BUFFER_BYTES)
        case ".zst":
            return io.BufferedReader(BoundedReader(ZstdReader(buffered), file), BUFFER_BYTES)
    return buffered


LINE = re.compile(r"([0-9a-fA-F]{64}) [ *](.+)")


def read_checksums(path: Path, names: list[str]) -> dict[str, str]:
    """Return the sha256 of each named file.

    Args:
        path: file with a checksum and a name per line; names are relative to the folder of ``path``, or written as in
            ``names``.
        names: paths or URLs.

    Raises:
        ConfigError: ``path`` cannot be read.
        DataError: a line is not a checksum and a name, or a file has no checksum.
    """
    by_name: dict[str, str] = {}
    try:
        with open(path, "rb") as file:
            lines = [line.rstrip("\r\n") for _, line in text_lines(file, str(path))]
    except OSError as error:
        raise ConfigError(f"cannot be read: {error}", where=f"corpus.sources checksums: {path}") from None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        match = LINE.fullmatch(line)
        if not match:
            raise DataError(
                "not a checksum and a file name",
                where=f"{path}:{number}",
                next_step=f"write it with: sha256sum ... > {path.name}",
            )
        digest, name = match[1].lower(), match[2]
        by_name[name] = by_name[str((path.parent / name).absolute())] = digest
    found = {name: by_name.get(name) or by_name.get(str(Path(name).absolute())) for name in names}
    if unknown := [name for name, digest in found.items() if digest is None]:
        raise DataError(
            f"{len(unknown)} input files have no checksum there, first {unknown[0]}",
            where=f"corpus.sources checksums: {path}",
            next_step="add them, or narrow `paths`",
        )
    return {name: digest for name, digest in found.items() if digest}


# A document is held in memory; without this limit a file without line ends would be one document
MAX_DOCUMENT_BYTES = 1 << 28
_SEPARATE = "set `documents` of the source to what separates documents in this file: blank_line or line"
WRONG_ENCODING = (
    "set `encoding` of the source, such as cp1252 or latin-1 (files of another one are a source of their own), or take "
    "the file out of `paths` if it is no text"
)


def text_documents(file: BinaryIO, name: str, documents: Literal["blank_line", "line", "file"]) -> Iterator[str]:
    """Yield the documents of a text file.

    Args:
        file: UTF-8 text; a line ends with a line feed, a carriage return or both.
        name: the file's name for messages.
        documents: what separates documents; blank lines alone are none.

    Raises:
        DataError: not UTF-8 text, or a document of more than ``MAX_DOCUMENT_BYTES``.
    """
    lines: list[str] = []
    size = 0
    for number, line in _lines(LineFeeds(JoinedBlanks(file)), name):
        is_blank = not line.strip()
        if documents == "line":
            if not is_blank:
                yield line
            continue
        if documents == "blank_line" and is_blank:
            if lines:
                yield "".join(lines)
            lines, size = [], 0
            continue
        lines.append(line)
        size += len(line)
        if size > MAX_DOCUMENT_BYTES:
            raise DataError(
                f"a document of more than {MAX_DOCUMENT_BYTES >> 20} MiB", where=f"{name}:{number}", next_step=_SEPARATE
            )
    if lines:
        yield "".join(lines)


def jsonl_documents(file: BinaryIO, name: str, text_field: str) -> Iterator[str]:
    """Yield the documents of a JSON lines file: the field ``text_field`` of each line; null counts as empty.

    Raises:
        DataError: not UTF-8 text, a line of more than ``MAX_DOCUMENT_BYTES``, a line that is no JSON object, a missing
            field, or a field that holds no text.
    """
    next_step = "split the document; each line of a .jsonl file is one"
    for number, line in _lines(JoinedBlanks(file), name, "line", next_step):
        if not line.strip():
            continue
        where = f"{name}:{number}"
        expected = f'one JSON object a line, such as {{"{text_field}": "..."}}'
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:  # ValueError: also numbers of thousands of digits
            raise DataError(f"not valid JSON: {error}", where=where, next_step=f"expected {expected}") from None
        if not isinstance(record, dict):
            raise DataError(
                f"not a JSON object but {_json_type(record)}", where=where, next_step=f"expected {expected}"
            )
        if text_field not in record:
            raise DataError(
                f"no field {text_field!r}; the fields are: {listed(record) or 'none'}",
                where=where,
                next_step="set text_field of the source",
            )
        text = record[text_field]
        if not isinstance(text, str | None):
            raise DataError(
                f"field {text_field!r} holds {_json_type(text)}, not text",
                where=where,
                next_step=f"expected {expected}; or set text_field of the source",
            )
        if text and "\\u" in line and not is_text(text):
            raise DataError(
                f"field {text_field!r} holds half of a surrogate pair, which is no character",
                where=where,
                next_step="write the text again with whole characters, or remove the line",
            )
        yield text or ""


def _lines(file: ByteLines, name: str, what: str = "document", next_step: str = _SEPARATE) -> Iterator[tuple[int, str]]:
    """Yield line numbers from 1 and lines with their line ends; the last two arguments are passed to ``byte_lines``.

    Blank lines that are returned together have the number of the last one.
    """
    offset = number = 0
    lines = byte_lines(file, name, MAX_DOCUMENT_BYTES, what=what, next_step=next_step)
    for line in lines:
        number += line.count(b"\n") or 1
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError as error:
            raise DataError(
                f"not UTF-8 text: byte 0x{line[error.start]:02x} at byte {offset + error.start}",
                where=f"{name}:{number}",
                next_step=WRONG_ENCODING,
            ) from None
        if "\0" in text:
            raise DataError(
                f"not text but binary: a NUL byte at byte {offset + line.index(0)}",
                where=f"{name}:{number}",
                next_step="take the file out of `paths`; if it is UTF-16, set `encoding: utf-16` of the source",
            )
        if offset == 0 and line.startswith(codecs.BOM_UTF8):
            text = text[1:]
        yield number, text
        offset += len(line)


def _json_type(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "a string", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")
