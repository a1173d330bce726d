"""Lines of files that others wrote, one at a time: no line beyond a bound is ever in memory.

Every reader of lines reads them here: corpus files, task files, and the inputs of `electra predict` and `score`.
"""

import csv
import io
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, Protocol, TypeVar

from electra.common.errors import DataError

MAX_LINE_BYTES = 4 << 20  # what the tokenizer returns takes some 170 bytes per byte of text
MAX_BATCH_CHARS = 1 << 20  # of texts that are tokenised together, for the same reason

Item = TypeVar("Item")


class ByteLines(Protocol):
    """The least a file must offer."""

    def readline(self, size: int = -1, /) -> bytes: ...


def open_input(path: Path) -> BinaryIO:
    """Open a file for reading.

    Raises:
        DataError: there is no such file, it is a folder, or it must not be read.
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
    """Lines with their ends; only a line feed ends one.

    Args:
        name: the file's name for messages.
        max_bytes: of one line, its end included.
        what, next_step: what a line is called and what the user can do, in the message about one that is too long.

    Raises:
        DataError: a longer line, with its number; while iterating.
    """
    number = 0
    while line := file.readline(max_bytes + 1):
        number += 1
        if len(line) > max_bytes:
            raise DataError(
                f"a {what} of more than {max_bytes >> 20} MiB",
                where=f"{name}:{number}",
                next_step=next_step,
            )
        yield line


def text_lines(file: ByteLines, name: str, max_bytes: int = MAX_LINE_BYTES) -> Iterator[tuple[int, str]]:
    """Numbers from 1 and lines with their ends of UTF-8 text, without the byte order mark it may begin with.

    Raises:
        DataError: a line of more than ``max_bytes``, or one that is not UTF-8, with its number; while iterating.
    """
    for number, line in enumerate(byte_lines(file, name, max_bytes), start=1):
        yield number, decoded(line, name, number)


def decoded(line: bytes, name: str, number: int) -> str:
    """A line as text; the first one of a file (number 1) without its byte order mark.

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
    """Records of a CSV file (RFC 4180), each with the number of its last line; blank lines are left out.

    A record may have several lines, within quotes; all together are bounded like a line, since a quote that is never
    closed would gather the rest of the file.

    Args:
        lines: what :func:`text_lines` gives.
        strict: refuse quotes that are not doubled or not closed.

    Raises:
        DataError: a record that is too long or, where ``strict``, malformed, with the number of its last line.
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
            # Some spreadsheets end lines with a carriage return alone.
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
    items: Iterable[Item], most: int, size: Callable[[Item], int], max_size: int = MAX_BATCH_CHARS
) -> Iterator[list[Item]]:
    """Lists of ``most`` items, fewer where their sizes add up to ``max_size``; the last may be shorter."""
    batch: list[Item] = []
    held = 0
    for item in items:
        batch.append(item)
        held += size(item)
        if len(batch) == most or held >= max_size:
            yield batch
            batch, held = [], 0
    if batch:
        yield batch
