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
