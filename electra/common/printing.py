"""Safe printing: texts and names from outside cannot control the terminal, and messages have a maximum length."""

import re
import sys
from collections.abc import Iterable
from typing import Any, TextIO

# C0 except tab and line feed, DEL, C1, marks that change the writing direction, and bytes of names that are not UTF-8
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
# Streams also pass the carriage return of progress bars and the bold of headings. JSON may contain characters from DEL
# on, and texts any mark: these are escaped only on a terminal, where they have an effect.
_PIPED = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\ud800-\udfff]|\x1b(?!\\[[01]m)")
_TERMINAL = re.compile(f"{_PIPED.pattern}|[\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def printable(text: str, control: re.Pattern[str] = CONTROL) -> str:
    """Return the text with terminal control characters and unencodable characters escaped, such as ``\\x1b``."""
    return text if text.isascii() and text.isprintable() else control.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    number = ord(match[0])
    if 0xDC80 <= number <= 0xDCFF:  # a byte of a file's name that is not UTF-8
        number -= 0xDC00
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}"


def shortened(text: str, most: int) -> str:
    """Return the text; if it is longer than ``most``, its beginning and end with the number of characters between."""
    if len(text) <= most:
        return text
    end = most // 4
    return f"{text[: most - end]} ... ({len(text) - most:,} characters left out) ... {text[-end:]}"


def listed(names: Iterable[Any], most: int = 20) -> str:
    """Return names for a message, separated by commas: the first ``most`` and, if there are more, their number."""
    every = [shortened(str(name), 100) for name in names]
    return ", ".join(every[:most]) + (f", ... ({len(every):,} in all)" if len(every) > most else "")


class PlainStream:
    """A text stream that escapes control characters.

    Attributes:
        raw: the underlying stream, for data that must stay unchanged and for libraries that use control characters.
    """

    def __init__(self, raw: TextIO):
        self.raw = raw
        self._control = _TERMINAL if raw.isatty() else _PIPED

    def write(self, text: str) -> int:
        self.raw.write(printable(text, self._control))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.raw, name)


def guard_streams() -> None:
    """Replace standard output and standard error by streams that are safe for a terminal of any encoding."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None or isinstance(stream, PlainStream):
            continue
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # a locale that is not UTF-8 lacks most characters
        setattr(sys, name, PlainStream(stream))


def raw_stream(stream: TextIO) -> TextIO:
    """Return the stream underlying a :class:`PlainStream`; any other stream unchanged."""
    return stream.raw if isinstance(stream, PlainStream) else stream
