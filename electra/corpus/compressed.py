"""Raw bytes of a file, hashed as they are read, and their decompression."""

import gzip
import hashlib
import io
import lzma
import zlib
from typing import BinaryIO, Protocol

import zstandard

SUFFIXES = (".gz", ".xz", ".zst")
DAMAGED = (EOFError, zlib.error, gzip.BadGzipFile, lzma.LZMAError, zstandard.ZstdError)
BUFFER_BYTES = 1 << 20
# Text compresses to a third or a twentieth; what gives hundreds of bytes for one was made to fill memory or disk
MAX_RATIO = 300
ALWAYS_ALLOWED_BYTES = 1 << 26
ZSTD_INPUT_BYTES = 1 << 11  # given to the decompressor at a time: a block of 4 bytes may hold 128 KiB
MAX_WINDOW_BYTES = 1 << 27  # of a zstd frame, as `zstd --ultra -22` has it; held in memory


class Exploding(ValueError):
    """Compressed data that gives more than ``MAX_RATIO`` times its size."""


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


class BoundedReader(io.RawIOBase):
    """Reads decompressed content, and stops where it is out of proportion to the compressed bytes read so far."""

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
    """The content of a file whose name ends in ``suffix``: one of ``SUFFIXES``, or anything else for plain content.

    Reading raises one of ``DAMAGED`` if the compressed data is broken or cut short, ``Exploding`` if there is far too
    much in it.
    """
    buffered = io.BufferedReader(file, BUFFER_BYTES)
    match suffix:
        case ".gz":
            return io.BufferedReader(BoundedReader(gzip.GzipFile(fileobj=buffered), file), BUFFER_BYTES)
        case ".xz":
            return io.BufferedReader(BoundedReader(lzma.LZMAFile(buffered), file), BUFFER_BYTES)
        case ".zst":
            return io.BufferedReader(BoundedReader(ZstdReader(buffered), file), BUFFER_BYTES)
    return buffered
