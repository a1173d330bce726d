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

SUFFIXES = (".gz", ".xz", ".zst")
DAMAGED = (EOFError, zlib.error, gzip.BadGzipFile, lzma.LZMAError, zstandard.ZstdError)
BUFFER_BYTES = 1 << 20


class Readable(Protocol):
    """The least a file must offer."""

    def read(self, size: int = -1, /) -> bytes: ...


class HashingReader(io.RawIOBase):
    """Reads another file once, from its beginning, and remembers what it saw.

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
    """Decompresses zstd frames one after another, and notices a file that was cut short.

    ``zstandard``'s own stream reader ends silently there.
    """

    def __init__(self, file: Readable):
        self._file = file
        self._decompressor = zstandard.ZstdDecompressor(max_window_size=2**31)
        self._frame: zstandard.ZstdDecompressionObj | None = None
        self._rest = b""
        self._ready = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        while not self._ready:
            compressed = self._rest or self._file.read(zstandard.DECOMPRESSION_RECOMMENDED_INPUT_SIZE)
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


def decompressed(file: HashingReader, suffix: str) -> BinaryIO:
    """The content of a file whose name ends in ``suffix``: one of ``SUFFIXES``, or anything else for plain content.

    Reading raises one of ``DAMAGED`` if the compressed data is broken or cut short.
    """
    buffered = io.BufferedReader(file, BUFFER_BYTES)
    match suffix:
        case ".gz":
            return io.BufferedReader(gzip.GzipFile(fileobj=buffered), BUFFER_BYTES)
        case ".xz":
            return io.BufferedReader(lzma.LZMAFile(buffered), BUFFER_BYTES)
        case ".zst":
            return io.BufferedReader(ZstdReader(buffered), BUFFER_BYTES)
    return buffered


LINE = re.compile(r"([0-9a-fA-F]{64}) [ *](.+)")


def read_checksums(path: Path, names: list[str]) -> dict[str, str]:
    """The sha256 of each of the files named.

    Args:
        path: lines of a checksum and a name: relative to the folder of ``path``, or written as in ``names``.
        names: paths or URLs.

    Raises:
        ConfigError: there is no such file.
        DataError: a line is something else, or a file has no checksum.
    """
    by_name: dict[str, str] = {}
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
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


# a document is held in memory whole; a file without line ends would be one document otherwise
MAX_DOCUMENT_BYTES = 1 << 28


def text_documents(file: BinaryIO, name: str, documents: Literal["blank_line", "line", "file"]) -> Iterator[str]:
    """The documents of a text file.

    Args:
        file: UTF-8 text.
        name: the file's name for messages.
        documents: what separates documents.

    Raises:
        DataError: not UTF-8 text, or a document of more than ``MAX_DOCUMENT_BYTES``.
    """
    if documents == "line":
        for _, line in _lines(file, name):
            yield line
        return
    lines: list[str] = []
    size = 0
    for number, line in _lines(file, name):
        if documents == "blank_line" and not line.strip():
            if lines:
                yield "".join(lines)
            lines, size = [], 0
            continue
        lines.append(line)
        size += len(line)
        if size > MAX_DOCUMENT_BYTES:
            raise _too_long(name, number)
    if lines:
        yield "".join(lines)


def jsonl_documents(file: BinaryIO, name: str, text_field: str) -> Iterator[str]:
    """The documents of a JSON lines file: the field ``text_field`` of each line; null counts as empty.

    Raises:
        DataError: not UTF-8 text, a line that is no JSON object, a missing field, or one that holds no text.
    """
    for number, line in _lines(file, name):
        if not line.strip():
            continue
        where = f"{name}:{number}"
        expected = f'one JSON object a line, such as {{"{text_field}": "..."}}'
        try:
            record = json.loads(line)
        except (json.JSONDecodeError, RecursionError) as error:
            raise DataError(f"not valid JSON: {error}", where=where, next_step=f"expected {expected}") from None
        if not isinstance(record, dict):
            raise DataError(
                f"not a JSON object but {_json_type(record)}", where=where, next_step=f"expected {expected}"
            )
        if text_field not in record:
            raise DataError(
                f"no field {text_field!r}; the fields are: {', '.join(record) or 'none'}",
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
        yield text or ""


def _lines(file: BinaryIO, name: str) -> Iterator[tuple[int, str]]:
    """Line numbers from 1, and the lines with their ends."""
    offset = number = 0
    while line := file.readline(MAX_DOCUMENT_BYTES + 1):
        number += 1
        if len(line) > MAX_DOCUMENT_BYTES:
            raise _too_long(name, number)
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError as error:
            raise DataError(
                f"not UTF-8 text: byte 0x{line[error.start]:02x} at byte {offset + error.start}",
                where=f"{name}:{number}",
                next_step="convert the file (iconv -t UTF-8), or take it out of `paths` if it is no text",
            ) from None
        if "\0" in text:
            raise DataError(
                f"not text but binary: a NUL byte at byte {offset + line.index(0)}",
                where=f"{name}:{number}",
                next_step="take the file out of `paths`; if it is UTF-16, convert it: iconv -f UTF-16 -t UTF-8",
            )
        if offset == 0 and line.startswith(codecs.BOM_UTF8):
            text = text[1:]
        yield number, text
        offset += len(line)


def _too_long(name: str, number: int) -> DataError:
    return DataError(
        f"a document of more than {MAX_DOCUMENT_BYTES >> 20} MiB",
        where=f"{name}:{number}",
        next_step="set `documents` of the source to what separates documents in this file: blank_line or line",
    )


def _json_type(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "a string", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")
