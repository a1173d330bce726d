"""Compressed files: bytes are counted and hashed while they are read, and decompressed with bounded memory."""

import gzip
import hashlib
import io
import lzma
import zlib
from collections.abc import Callable
from typing import BinaryIO

import zstandard

from electra.common.lines import ByteReader, ChunkReader

SUFFIXES = (".gz", ".xz", ".zst")
DAMAGED = (EOFError, zlib.error, gzip.BadGzipFile, lzma.LZMAError, zstandard.ZstdError)
BUFFER_BYTES = 1 << 20
# Text compresses to a third or a twentieth of its size; a ratio of hundreds is a decompression bomb
MAX_RATIO = 300
ALWAYS_ALLOWED_BYTES = 1 << 26
ZSTD_INPUT_BYTES = 1 << 11  # input per call of the decompressor: a block of 4 bytes may decompress to 128 KiB
MAX_WINDOW_BYTES = 1 << 27  # window of a zstd frame, held in memory; that of `zstd --ultra -22`
MAX_XZ_BYTES = 1 << 28  # memory for decoding an .xz file: `xz -9` takes 65 MiB, the format allows 4 GiB


class DecompressionBomb(ValueError):
    """Compressed data expands to more than ``MAX_RATIO`` times its size, or takes too much memory to decode."""


class HashingReader(ChunkReader):
    """File wrapper that counts and hashes the bytes read; for one pass from the beginning.

    Attributes:
        num_bytes: bytes read so far.
        sha256: hash of the bytes read so far.
    """

    def __init__(self, file: ByteReader):
        self._file = file
        self.num_bytes = 0
        self.sha256 = hashlib.sha256()

    def next_chunk(self, size: int) -> bytes:
        chunk = self._file.read(size)
        self.num_bytes += len(chunk)
        self.sha256.update(chunk)
        return chunk


class ZstdReader(ChunkReader):
    """Decompressor of consecutive zstd frames that raises EOFError for a truncated file.

    ``zstandard``'s stream reader ends silently there.
    """

    def __init__(self, file: ByteReader):
        self._file = file
        self._decompressor = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW_BYTES)
        self._frame: zstandard.ZstdDecompressionObj | None = None
        self._rest = b""  # after the end of a frame

    def next_chunk(self, size: int) -> bytes:
        chunk = b""
        while not chunk:
            compressed = self._rest or self._file.read(ZSTD_INPUT_BYTES)
            self._rest = b""
            if not compressed:
                if self._frame is not None:
                    raise EOFError("the file ended within a zstd frame")
                break
            self._frame = self._frame or self._decompressor.decompressobj()
            try:
                chunk = self._frame.decompress(compressed)
            except zstandard.ZstdError as error:
                if "too much memory" in str(error):
                    most = MAX_WINDOW_BYTES >> 20
                    raise DecompressionBomb(f"decoding takes more than {most} MiB of memory") from None
                raise
            if self._frame.eof:
                self._rest, self._frame = self._frame.unused_data, None
        return chunk


class XzReader(ChunkReader):
    """Decompressor of consecutive xz streams with at most ``MAX_XZ_BYTES`` of memory; ``lzma.LZMAFile`` has no limit.

    The file states the size of the dictionary, which is allocated at once: a file of 100 bytes may request 4 GiB.
    """

    def __init__(self, file: ByteReader):
        self._file = file
        self._stream: lzma.LZMADecompressor | None = lzma.LZMADecompressor(memlimit=MAX_XZ_BYTES)
        self._rest = b""  # after the end of a stream

    def next_chunk(self, size: int) -> bytes:
        chunk = b""
        while not chunk:
            compressed = b""
            if self._stream is None or self._stream.needs_input:
                compressed = self._rest or self._file.read(BUFFER_BYTES)
                self._rest = b""
                if not compressed:
                    if self._stream is not None:
                        raise EOFError("the file ended within an xz stream")
                    break
            if self._stream is None:
                if not (compressed := compressed.lstrip(b"\0")):  # padding between streams
                    continue
                self._stream = lzma.LZMADecompressor(memlimit=MAX_XZ_BYTES)
            try:
                chunk = self._stream.decompress(compressed, max_length=size)
            except lzma.LZMAError as error:
                if "Memory usage limit" in str(error):
                    raise DecompressionBomb(f"decoding takes more than {MAX_XZ_BYTES >> 20} MiB of memory") from None
                raise
            if self._stream.eof:
                self._rest, self._stream = self._stream.unused_data, None
        return chunk


class BoundedReader(ChunkReader):
    """Reader of decompressed content that refuses content out of proportion to the compressed bytes.

    Raises:
        DecompressionBomb: there are more than ``MAX_RATIO`` bytes for each compressed byte.
    """

    def __init__(self, content: ByteReader, compressed: HashingReader):
        self._content, self._compressed = content, compressed
        self._num_bytes = 0

    def next_chunk(self, size: int) -> bytes:
        chunk = self._content.read(size)
        self._num_bytes += len(chunk)
        compressed_bytes = self._compressed.num_bytes
        if self._num_bytes > max(ALWAYS_ALLOWED_BYTES, MAX_RATIO * compressed_bytes):
            raise DecompressionBomb(f"{compressed_bytes:,} compressed bytes give more than {self._num_bytes:,}")
        return chunk


def decompressed(file: HashingReader, suffix: str) -> BinaryIO:
    """Return the decompressed content of a file.

    Reading raises one of ``DAMAGED`` if the compressed data is damaged or truncated, ``DecompressionBomb`` if it
    expands too much.

    Args:
        file: the compressed bytes.
        suffix: end of the file's name: one of ``SUFFIXES``; any other for plain content.
    """
    content = io.BufferedReader(file, BUFFER_BYTES)
    decompressors: dict[str, Callable[[BinaryIO], ByteReader]] = {
        ".gz": lambda compressed: gzip.GzipFile(fileobj=compressed),
        ".xz": XzReader,
        ".zst": ZstdReader,
    }
    if suffix not in decompressors:
        return content
    return io.BufferedReader(BoundedReader(decompressors[suffix](content), file), BUFFER_BYTES)
