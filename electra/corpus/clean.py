"""Cleaning of one document: pure functions on text.

The order matters. Mojibake is repaired first, since its traces (C1 control characters) look like rubbish; then what
nobody can read is removed; then Unicode NFC, because removing a character can bring a letter and its accent together.
"""

import re
import unicodedata

import ftfy

REPLACEMENT = "\ufffd"
LINE_END = re.compile(r"\r\n|[\r\v\f\u2028\u2029]")
# C0 (but line feed and white space, which become spaces later), DEL, C1 (but U+0085, white space too), soft hyphen,
# zero-width space, marks of writing direction, word joiner and its kin, byte order mark, lone surrogates,
# non-characters. The joiners U+200C and U+200D stay: they change words in Persian and Indic scripts.
UNREADABLE = re.compile(
    "[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\xad\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufdd0-\ufdef\ufeff\ufff9-\ufffb"
    "\ufffe\uffff\ud800-\udfff]"
)
# The encoding only: no change of quotes, ligatures, character width or HTML entities, which are the author's.
REPAIR = ftfy.TextFixerConfig(
    unescape_html=False,
    remove_terminal_escapes=False,
    fix_latin_ligatures=False,
    fix_character_width=False,
    uncurl_quotes=False,
    fix_line_breaks=False,
    fix_surrogates=False,
    remove_control_chars=False,
    normalization=None,
    explain=False,
)


def clean(text: str, repair_mojibake: bool) -> tuple[str, int]:
    """Clean text: one space between words, one line feed between lines, no blank lines, NFC, nothing unreadable.

    A line with U+FFFD is dropped: some of its letters were lost before the text came here.

    Returns:
        The text, and the number of lines dropped because letters were lost.
    """
    lines, lost = [], 0
    for line in LINE_END.sub("\n", text).split("\n"):
        if not line.isascii():
            if repair_mojibake:
                line = ftfy.fix_text(line, REPAIR)
            if REPLACEMENT in line:
                lost += 1
                continue
            line = unicodedata.normalize("NFC", UNREADABLE.sub("", line))
        elif not line.isprintable():
            line = UNREADABLE.sub("", line)
        if line := " ".join(line.split()):
            lines.append(line)
    return "\n".join(lines), lost


def cut(text: str, max_chars: int) -> str:
    """At most ``max_chars`` characters: whole lines, else whole words, else what fits."""
    if len(text) <= max_chars:
        return text
    for separator in ("\n", " "):
        # the separator itself may be the first character that no longer fits
        end = text.rfind(separator, 0, max_chars + 1)
        if end > 0:
            return text[:end]
    return text[:max_chars]
