"""Text files in other encodings and with other line ends, as what every reader takes: UTF-8 and line feeds."""

import codecs
import io
import re
from collections import deque
from typing import BinaryIO, Protocol

from electra.common.errors import DataError

CHUNK_BYTES = 1 << 20
# A carriage return that is a line end of its own. One or more before a line feed belong to that: "\r\r\n" is what comes
# of "\r\n" that is written as text twice.
LONE_CR = re.compile(rb"\r(?!\r*\n)")


class Lines(Protocol):
    """The least a file must offer."""

    def readline(self, size: int = -1, /) -> bytes: ...


def recoded(file: BinaryIO, name: str, encoding: str, next_step: str) -> BinaryIO:
    """The file's text in UTF-8; closing it closes the file. UTF-8 is checked too.

    Args:
        name: of the file, for messages.
        encoding: one that Python knows.
        next_step: what the user can do about text in another encoding.

    Reading raises :class:`DataError` with line and byte where the text is not of that encoding.
    """
    return io.BufferedReader(_Recoded(file, name, encoding, next_step), CHUNK_BYTES)


class _Recoded(io.RawIOBase):
    def __init__(self, file: BinaryIO, name: str, encoding: str, next_step: str):
        self._file, self._name, self._encoding, self._next_step = file, name, encoding, next_step
        self._decoder = codecs.getincrementaldecoder(encoding)()
        self._ready = memoryview(b"")
        self._num_bytes = self._num_lines = 0  # decoded so far
        self._ended = False

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        while not self._ready and not self._ended:
            chunk = self._file.read(CHUNK_BYTES)
            self._ended = not chunk
            try:
                text = self._decoder.decode(chunk, final=self._ended)
            except UnicodeError as error:
                raise self._undecodable(error, chunk) from None
            self._num_bytes += len(chunk)
            self._num_lines += _num_ends(text)
            self._ready = memoryview(text.encode("utf-8"))
        size = min(len(buffer), len(self._ready))
        buffer[:size] = self._ready[:size]
        self._ready = self._ready[size:]
        return size

    def _undecodable(self, error: UnicodeError, chunk: bytes) -> DataError:
        what, line = f"not {self._encoding.upper()} text", self._num_lines + 1
        if isinstance(error, UnicodeDecodeError):
            # what the decoder was given: bytes left over from the chunk before, and the chunk
            given, at = error.object, error.start
            offset = self._num_bytes + len(chunk) - len(given) + at
            what += f": byte 0x{given[at]:02x} at byte {offset}"
            line += _num_ends(given[:at].decode(self._encoding, errors="replace"))
        return DataError(what, where=f"{self._name}:{line}", next_step=self._next_step)


def _num_ends(text: str) -> int:
    return text.count("\n") or text.count("\r")


class LineFeeds:
    """Lines of a file in UTF-8 in which a carriage return alone ends a line too: it becomes a line feed.

    No byte is added or removed, and no more is held than a line and a chunk.
    """

    def __init__(self, file: Lines):
        self._file = file
        self._lines: deque[bytes] = deque()
        self._begun: list[bytes] = []  # parts of a line whose end was not read yet
        self._num_begun = 0
        self._undecided = b""  # carriage returns: what follows decides what they are

    def readline(self, size: int = -1, /) -> bytes:
        """The next line with its end, of a longer one the first ``size`` bytes; nothing at the end of the file."""
        size = size if size >= 0 else 1 << 62
        while not self._lines:
            part = self._file.readline(min(size, CHUNK_BYTES))
            if not (self._begun or self._undecided) and part.endswith(b"\n") and part.find(b"\r", 0, -2) < 0:
                return part
            self._add(part)
            if self._begun and (not part or self._num_begun >= size):
                self._end_line()
            if not part and not self._lines:
                return b""
        line = self._lines.popleft()
        if len(line) > size:
            self._lines.appendleft(line[size:])
        return line[:size]

    def _add(self, part: bytes) -> None:
        content = self._undecided + part
        end = len(content.rstrip(b"\r")) if part else len(content)
        content, self._undecided = content[:end], content[end:]
        for line in io.BytesIO(LONE_CR.sub(b"\n", content) if b"\r" in content else content):
            self._begun.append(line)
            self._num_begun += len(line)
            if line.endswith(b"\n"):
                self._end_line()

    def _end_line(self) -> None:
        self._lines.append(b"".join(self._begun))
        self._begun, self._num_begun = [], 0
