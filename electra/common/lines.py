"""Reading lines of files from outside the project, one at a time and with bounded memory.

Used for corpus files, task files, and the inputs of `electra predict` and `score`. Other encodings and line ends are
converted while reading: readers get UTF-8 and line feeds.
"""

import codecs
import csv
import io
import os
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, Protocol, TypeVar

from electra.common.errors import DataError

CHUNK_BYTES = 1 << 20
BLANK_LINES = 64  # consecutive blank lines before searching for the rest: the search costs as much as reading 64
# A carriage return that ends a line alone. Carriage returns before a line feed belong to the line feed: writing "\r\n"
# in text mode twice gives "\r\r\n".
LONE_CR = re.compile(rb"\r(?!\r*\n)")


class ByteLines(Protocol):
    """File that is read line by line."""

    def readline(self, size: int = -1, /) -> bytes: ...


class ByteReader(Protocol):
    """File that is read in chunks."""

    def read(self, size: int = -1, /) -> bytes: ...


class ChunkReader(io.RawIOBase):
    """Binary stream of chunks of any size, which :meth:`next_chunk` returns."""

    _chunk = memoryview(b"")  # not read yet

    def next_chunk(self, size: int) -> bytes:
        """Return the next bytes, about ``size`` where a size can be chosen; none at the end of the stream."""
        raise NotImplementedError

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        self._chunk = self._chunk or memoryview(self.next_chunk(len(buffer)))
        size = min(len(buffer), len(self._chunk))
        buffer[:size] = self._chunk[:size]
        self._chunk = self._chunk[size:]
        return size


def recoded(file: BinaryIO, name: str, encoding: str, next_step: str) -> BinaryIO:
    """Return a file with the text converted to UTF-8; UTF-8 itself is validated. Closing it closes ``file``.

    Reading raises :class:`DataError` with line and byte if the text is not in the encoding.

    Args:
        name: the file's name for messages.
        encoding: an encoding known to Python.
        next_step: advice in the error for text in another encoding.
    """
    return io.BufferedReader(_Recoded(file, name, encoding, next_step), CHUNK_BYTES)


class _Recoded(ChunkReader):
    def __init__(self, file: BinaryIO, name: str, encoding: str, next_step: str):
        self._file, self._name, self._encoding, self._next_step = file, name, encoding, next_step
        self._decoder = codecs.getincrementaldecoder(encoding)()
        self._num_bytes = self._num_lines = 0  # decoded so far

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()

    def next_chunk(self, size: int) -> bytes:
        text, at_end = "", False
        while not (text or at_end):  # a chunk may hold part of a character only
            chunk = self._file.read(CHUNK_BYTES)
            at_end = not chunk
            try:
                text = self._decoder.decode(chunk, final=at_end)
            except UnicodeError as error:
                raise self._undecodable(error, chunk) from None
            self._num_bytes += len(chunk)
            self._num_lines += _num_ends(text)
        return text.encode("utf-8")

    def _undecodable(self, error: UnicodeError, chunk: bytes) -> DataError:
        what, line = f"not {self._encoding.upper()} text", self._num_lines + 1
        if isinstance(error, UnicodeDecodeError):
            # error.object: bytes left over from the previous chunk, then this chunk
            given, at = error.object, error.start
            offset = self._num_bytes + len(chunk) - len(given) + at
            what += f": byte 0x{given[at]:02x} at byte {offset}"
            line += _num_ends(given[:at].decode(self._encoding, errors="replace"))
        return DataError(what, where=f"{self._name}:{line}", next_step=self._next_step)


def _num_ends(text: str) -> int:
    return text.count("\n") or text.count("\r")


class JoinedBlanks:
    """Lines of a file in which many consecutive blank lines are returned together, as one "line".

    A blank line costs as much time as a line of text, and a megabyte holds a million of them.
    """

    def __init__(self, file: BinaryIO):
        self._file = file
        self._peek = getattr(file, "peek", None)
        self._num_blank = 0  # lines in a row

    def readline(self, size: int = -1, /) -> bytes:
        """Return the next line with its end, or several blank lines; at most ``size`` bytes."""
        line = self._file.readline(size)
        self._num_blank = self._num_blank + 1 if line.isspace() and line.endswith(b"\n") else 0
        if self._num_blank < BLANK_LINES or not self._peek:
            return line
        ready: bytes = self._peek(1)[: size - len(line) if size >= 0 else None]
        end = ready.rfind(b"\n", 0, len(ready) - len(ready.lstrip(b" \t\r\n"))) + 1
        return line + self._file.read(end)


class LineFeeds:
    """Lines of a UTF-8 file in which a lone carriage return also ends a line and is converted to a line feed.

    No byte is added or removed, and at most a line and a chunk are in memory.
    """

    def __init__(self, file: ByteLines):
        self._file = file
        self._lines: deque[bytes] = deque()
        self._begun: list[bytes] = []  # parts of a line whose end was not read yet
        self._num_begun = 0
        self._undecided = b""  # carriage returns at the end of a chunk; the next byte decides

    def readline(self, size: int = -1, /) -> bytes:
        """Return the next line with its end, at most ``size`` bytes; empty at the end of the file."""
        size = size if size >= 0 else 1 << 62
        while not self._lines:
            part = self._file.readline(min(size, CHUNK_BYTES))
            is_whole = part.endswith(b"\n") and (part.find(b"\r", 0, -2) < 0 or not LONE_CR.search(part))
            if is_whole and not (self._begun or self._undecided):
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


MAX_LINE_BYTES = 4 << 20  # the tokenizer's result takes some 170 bytes per byte of text
MAX_BATCH_CHARS = 1 << 20  # characters tokenised together, for the same reason

Item = TypeVar("Item")


def open_input(path: Path) -> BinaryIO:
    """Open a file for reading.

    Raises:
        DataError: there is no such file, it is a folder, or reading is not permitted.
    """
    try:
        return open(path, "rb")
    except OSError as error:
        raise DataError(f"cannot be read: {os.strerror(error.errno or 0)}", where=str(path)) from None


def byte_lines(
    file: ByteLines,
    name: str,
    max_bytes: int = MAX_LINE_BYTES,
    *,
    what: str = "line",
    next_step: str = "split or shorten what the line holds; only a line feed (\\n) ends a line",
) -> Iterator[bytes]:
    """Yield lines with their ends; only a line feed ends a line.

    Args:
        name: the file's name for messages.
        max_bytes: maximum length of a line with its end.
        what, next_step: name of a line and advice, in the error for a line that is too long.

    Raises:
        DataError: a line is too long; raised during iteration, with the line's number.
    """
    number = 0
    while line := file.readline(max_bytes + 1):
        number += line.count(b"\n") or 1  # blank lines may be returned together
        if len(line) > max_bytes:
            raise DataError(
                f"a {what} of more than {max_bytes >> 20} MiB",
                where=f"{name}:{number}",
                next_step=next_step,
            )
        yield line


def text_lines(file: ByteLines, name: str, max_bytes: int = MAX_LINE_BYTES) -> Iterator[tuple[int, str]]:
    """Yield line numbers from 1 and lines with their ends of UTF-8 text, without the byte order mark.

    Raises:
        DataError: a line is longer than ``max_bytes`` or not UTF-8; raised during iteration, with the line's number.
    """
    for number, line in enumerate(byte_lines(file, name, max_bytes), start=1):
        yield number, decoded(line, name, number)


def decoded(line: bytes, name: str, number: int) -> str:
    """Return a line as text; the first one of a file (number 1) without its byte order mark.

    Raises:
        DataError: it is not UTF-8.
    """
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(
            f"not UTF-8 text: byte 0x{line[error.start]:02x} at byte {error.start} of the line",
            where=f"{name}:{number}",
            next_step="convert the file: iconv -f <its encoding> -t UTF-8",
        ) from None
    return text.removeprefix("\ufeff") if number == 1 else text


def csv_records(lines: Iterable[tuple[int, str]], name: str, *, strict: bool = True) -> Iterator[tuple[int, list[str]]]:
    """Yield the records of a CSV file (RFC 4180), each with the number of its last line; skip blank lines.

    A quoted record may span several lines. Its length is limited like that of a line, since an unclosed quote would
    take in the rest of the file.

    Args:
        lines: numbers and lines from :func:`text_lines`.
        strict: raise an error for quotes that are not doubled or not closed.

    Raises:
        DataError: a record is too long or, if ``strict``, malformed; with the number of its last line.
    """
    held = 0

    def bounded() -> Iterator[str]:
        nonlocal held
        for number, line in lines:
            held += len(line)
            if held > MAX_LINE_BYTES:
                raise DataError(
                    f"a record of more than {MAX_LINE_BYTES >> 20} MiB, up to this line",
                    where=f"{name}:{number}",
                    next_step="close the quote that was opened before it, or shorten the texts",
                )
            # some spreadsheets end lines with a lone carriage return
            yield from io.StringIO(line, newline="") if "\r" in line else (line,)

    csv.field_size_limit(max(csv.field_size_limit(), MAX_LINE_BYTES))  # 128 KiB by default: contexts may be longer
    reader = csv.reader(bounded(), strict=strict)
    while True:
        held = 0
        try:
            cells = next(reader, None)
        except csv.Error as error:
            raise DataError(
                f"not valid CSV: {error}", where=f"{name}:{reader.line_num}", next_step="quotes in a text are doubled"
            ) from None
        if cells is None:
            return
        if cells:
            yield reader.line_num, cells


def batches(
    items: Iterable[Item], most: int | None, size: Callable[[Item], int], max_size: int = MAX_BATCH_CHARS
) -> Iterator[list[Item]]:
    """Yield lists of ``most`` items (None: any number), or fewer if their sizes add up to ``max_size``."""
    batch: list[Item] = []
    batch_size = 0
    for item in items:
        batch.append(item)
        batch_size += size(item)
        if len(batch) == most or batch_size >= max_size:
            yield batch
            batch, batch_size = [], 0
    if batch:
        yield batch
