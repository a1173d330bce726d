"""What reaches a terminal: texts and names from outside cannot control it, and no message is endless."""

import re
import sys
from collections.abc import Iterable
from typing import Any, TextIO

# C0 but tab and line feed, DEL, C1, marks that turn the direction of writing, and bytes of names that are not UTF-8
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
# In a stream also the carriage return of progress bars and the bold of headings pass. JSON may hold characters from DEL
# on as they are, and texts any mark: only on a terminal, where they act, do they become escapes.
_PIPED = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\ud800-\udfff]|\x1b(?!\\[[01]m)")
_TERMINAL = re.compile(f"{_PIPED.pattern}|[\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def printable(text: str, control: re.Pattern[str] = CONTROL) -> str:
    """Return the text with characters that control a terminal, or cannot be written, as escapes such as ``\\x1b``."""
    return text if text.isascii() and text.isprintable() else control.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    number = ord(match[0])
    if 0xDC80 <= number <= 0xDCFF:  # a byte of a file's name that is not UTF-8
        number -= 0xDC00
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}"


def shortened(text: str, most: int) -> str:
    """Return the text, or of a longer one its beginning and its end with what is left out between them."""
    if len(text) <= most:
        return text
    end = most // 4
    return f"{text[: most - end]} ... ({len(text) - most:,} characters left out) ... {text[-end:]}"


def listed(names: Iterable[Any], most: int = 20) -> str:
    """Return names for a message, separated by commas: the first ones, and how many there are."""
    every = [shortened(str(name), 100) for name in names]
    return ", ".join(every[:most]) + (f", ... ({len(every):,} in all)" if len(every) > most else "")


class PlainStream:
    """A text stream that shows control characters instead of obeying them.

    Attributes:
        raw: the stream itself, for data that must arrive as they are and for what draws with control characters.
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
    """Make what is printed safe for a terminal of any encoding: standard output and standard error, from here on."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None or isinstance(stream, PlainStream):
            continue
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # a locale that is not UTF-8 lacks most characters
        setattr(sys, name, PlainStream(stream))


def raw_stream(stream: TextIO) -> TextIO:
    """Return the stream behind a guarded one."""
    return stream.raw if isinstance(stream, PlainStream) else stream
