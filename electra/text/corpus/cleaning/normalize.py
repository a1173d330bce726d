"""Normalisation of text: encoding repaired, unreadable characters removed, white space and Unicode made uniform.

The order matters. Mojibake is repaired first, because its traces (C1 control characters) look like unreadable
characters; those are removed next; Unicode NFC comes last, because removing a character can bring a letter and its
accent together.
"""

import re
import unicodedata

import ftfy

REPLACEMENT = "\ufffd"
LINE_ENDS = "\r\v\f\u2028\u2029"
LINE_END = re.compile(rf"\r\n|[{LINE_ENDS}]")
# Non-ASCII characters that alone are no sign of wrong decoding: ftfy, which is slow, skips lines with no others
SOUND = frozenset("“”‘’–—…")
NOT_ASCII = re.compile(r"[^\x00-\x7f]")
# Every pattern by which ftfy detects mojibake contains one of these: two non-ASCII characters in a row, a C1 control
# character, or one of four letters not followed by a letter. Accented letters in European texts are single.
SUSPECT = re.compile(r"[^\x00-\x7f](?:(?=[^\x00-\x7f])|(?<=[\x80-\x9f])|(?<=[ŒœÂÃ])(?![A-Za-z]))")
# C0 (except line feed and white space, which become spaces later), DEL, C1 (except U+0085, also white space), soft
# hyphen, zero-width space, marks of writing direction, word joiner and related characters, byte order mark, lone
# surrogates, non-characters. The joiners U+200C and U+200D stay: they change words in Persian and Indic scripts.
UNREADABLE = re.compile(
    "[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\xad\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufdd0-\ufdef\ufeff\ufff9-\ufffb"
    "\ufffe\uffff\ud800-\udfff]"
)
# Repair the encoding only: quotes, ligatures, character width and HTML entities stay as the author wrote them.
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

    A line with U+FFFD is dropped: some of its letters were lost when the text was decoded earlier.

    Returns:
        The text, and the number of lines dropped because letters were lost.
    """
    lines, lost = [], 0
    if any(map(text.__contains__, LINE_ENDS)):
        text = LINE_END.sub("\n", text)
    for line in text.split("\n"):
        is_ascii = line.isascii()
        if not is_ascii:
            if repair_mojibake and SUSPECT.search(line) and not SOUND.issuperset(NOT_ASCII.findall(line)):
                line = ftfy.fix_text(line, REPAIR)
            if REPLACEMENT in line:
                lost += 1
                continue
        printable = line.isprintable()  # True: the only white space is the space, and nothing is unreadable
        if not printable:
            line = UNREADABLE.sub("", line)
        if not is_ascii:
            line = unicodedata.normalize("NFC", line)
        if not printable or "  " in line or line[:1] == " " or line[-1:] == " ":
            line = " ".join(line.split())
        if line:
            lines.append(line)
    return "\n".join(lines), lost


def cut(text: str, max_chars: int) -> str:
    """Return the first ``max_chars`` characters or fewer: whole lines, else whole words, else the exact number.

    Whole lines only where they are at least half of it: a heading may stand before one long paragraph.
    """
    if len(text) <= max_chars:
        return text
    for separator, least in (("\n", max(1, max_chars // 2)), (" ", 1)):
        # the separator itself may be the first character that no longer fits
        end = text.rfind(separator, 0, max_chars + 1)
        if end >= least:
            return text[:end]
    return text[:max_chars]
