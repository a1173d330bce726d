"""Cleaning steps that change or remove lines.

Hard-wrapped lines are joined to paragraphs in the raw text, where blank lines separate paragraphs. Lines with
boilerplate, markup, repetition or personal data are changed or removed.
"""

import hashlib
import html
import re
import unicodedata
from collections.abc import Callable

from electra.common.scripts import UNSPACED
from electra.config.text import PersonalData, RepeatedLines, Unwrap
from electra.text.corpus.cleaning.normalize import REPLACEMENT, UNREADABLE
from electra.text.corpus.cleaning.notes import Notes

# Book sites
LICENCE_START = re.compile(r"^\W*START OF (THE|THIS) PROJECT GUTENBERG|^\W*END\W*THE SMALL PRINT", re.I)
LICENCE_END = re.compile(r"^\W*END OF (THE |THIS )?PROJECT GUTENBERG", re.I)
METADATA = re.compile(
    r"^(Title|Author|Year|Editor|Translator|Illustrator|Release Date|Posting Date|Publication Date|Language|Encoding|"
    r"Character set encoding|Publisher|Source|Credits|Subject|ISBN|Date|URL|Original publication)\s*:.{0,300}$"
)
RULER = re.compile(r"^[-=_*~#]{3,}$")
HEADER_LINES = 40  # a metadata header is within the first lines
NOTICE = re.compile(
    r"^(produced by\b.*(distributed proofread|pgdp|gutenberg|internet archive|online|http)"
    r"|this (e-?book|file) (is|was) (for the use of anyone|produced from (images|scans))"
    r"|transcribed from the\b.*\bby\b.*@|e-?text (prepared|produced|scanned) by\b|scanned (and proofed )?by\b"
    r"|distributed proofread(ers|ing)|transcriber['’]?s['’]? notes?\b)",
    re.I,
)
CREDIT = re.compile(r"^(?:Produced|Prepared|Scanned|Digitized) by(?: (?:and )?[A-Z][\w.'’-]*,?){2,12}$")  # names only
# From C4 (Raffel et al. 2020, section 2.2): lines of web pages about the page itself
POLICY = re.compile(
    r"\b(terms of use|privacy policy|cookie policy|uses cookies|use of cookies|use cookies|enable javascript)\b"
    r"|^(copyright|\(c\)|©).{0,120}all rights reserved",
    re.I,
)
# Every line with a notice or a policy contains one of these strings; most documents contain none
HINTS = (
    "gutenberg", "proofread", "http", "for the use of anyone", "produced from", "transcri", "scanned", "text prepared",
    "text produced", "internet archive", "terms of use", "privacy policy", "cookie", "javascript", "rights reserved",
    "produced by", "prepared by", "digitized by",
)  # fmt: skip
NOTICE_CHARACTERS = 400  # longer lines are paragraphs that mention a notice or a policy

# Markup
TAGS = (
    "a abbr address article aside b bdi bdo big blockquote body br button caption center chapter cite code col dd del "
    "dfn div dl dt em figcaption figure font footer form frame h[1-6] head header hr html i iframe img input ins kbd "
    "label li link main map mark math meta nav nobr noscript nowiki object ol option p para poem pre q ref s samp "
    "section select small source span strike strong sub sup svg table tbody td text textarea tfoot th thead title tr "
    "tt u ul var video wbr"
)
VALUELESS = (  # attributes that pages write without a value
    "allowfullscreen async autofocus autoplay border checked compact controls crossorigin declare default defer "
    "disabled download formnovalidate hidden inert ismap itemscope loop multiple muted nohref nomodule noresize "
    "noshade novalidate nowrap open playsinline readonly required reversed selected data-[\\w-]+"
)
# Names from HTML and wikis; other names count as tags only with attributes or when closed: "x<y, y>z" and vector<int>
# are no tags. Nor are the names with other words than attributes: "a <b and c> d"
TAG = re.compile(
    rf"</(?:{TAGS.replace(' ', '|')})(?:\s[^<>]{{0,500}})?>|<!--.{{0,2000}}?-->"
    rf"|<(?:{TAGS.replace(' ', '|')})(?:\s+(?:{VALUELESS.replace(' ', '|')}))*"
    r"(?:\s+[a-z_:@][\w:.-]*\s*=(?!=)[^<>]{0,500}|\s*(?:/\s*)?)>"
    r"|<[a-z][a-z0-9:-]*(?:\s+[a-z][\w:-]*=(?:\"[^\"]*\"|'[^']*'|[^\s\"'<>]+))+\s*/?>|</[a-z][a-z0-9:-]*>|<[a-z][a-z0-9:-]*\s*/>",
    re.I,
)
PAGE_CODE = re.compile(r"<(script|style|ref)\b[^<>]{0,500}(?<!/)>.{0,5000}?</\1>", re.I)  # the content is no text
TWO_ENTITIES = re.compile(r"&#(\d{5}|x[0-9a-fA-F]{4});&#(\d{5}|x[0-9a-fA-F]{4});")
ENTITY = re.compile(r"&(#\d{1,6}|#x[0-9a-fA-F]{1,5}|[a-zA-Z][a-zA-Z0-9]{1,30});")
WIKI_MEDIA = re.compile(r"\[\[(?:File|Image|Category):[^\[\]]{0,500}\]\]", re.I)
WIKI_HEADING = re.compile(r"^(={2,6}) ?([^=].{0,200}?) ?\1$")
WIKI_BOLD = re.compile(r"'''([^']{1,300})'''(?!')")
WIKI_LINK = re.compile(r"\[\[(?:[^\[\]|]{0,200}\|)?([^\[\]|]{1,200})\]\]")
WIKI_TEMPLATE = re.compile(r"\{{3}[^{}]{0,500}\}{3}|\{\{[^{}]{0,500}\}\}")
EXTERNAL_LINK = re.compile(r"\[https?://\S+ ([^\[\]]{1,200})\]")
TRANSCRIBER = re.compile(
    r"\[(Illustration|Footnote|Sidenote|Transcriber['’]?s note|Pg\.?|Page)\b[^\[\]]{0,300}\]", re.I
)
# Alone or beside words and their punctuation. x^{2} and x_{12} are formulas, '{1}' is a placeholder
PAGE_NUMBER = re.compile(
    r"(?:(?<![^\s.,;:!?’”—-])|(?<=[^\W_])|(?<=[.!?][\"']))\{\d{1,4}\}(?=['\"“‘]?[^\W_]|[\s.,;:!?’”—-]|$)"
)
CODE = re.compile(r"\\[A-Za-z]|\{0?\}|[$=%#] ?\{|\bf['\"]|\.format\(")  # LaTeX and programs number otherwise
EMPHASIS = re.compile(r"(?<![\w_])_(?=\S)([^_]{1,300}?)(?<=\S)_(?![\w_])")
SCENE_BREAK = re.compile(r"^[\s*·•.~=_#-]+$")

# Personal data
EMAIL = re.compile(r"\b[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63})*\.[A-Za-z]{2,24}\b")
PHONE_HINT = re.compile(r"\d[). -]|\+\d")  # matches within every number that PHONE matches
PHONE = re.compile(
    r"(?<![\w.,-])(?:\+\d{1,3}[ .-]?(?:\(?\d{1,4}\)?[ .-]?){2,5}\d{2,4}"
    r"|\(\d{3}\) ?\d{3}[ .-]\d{4}|\d{3}[.-]\d{3}[.-]\d{4})"
    r"(?![\w-]|[.,]\d)"
)


def remove_boilerplate(lines: list[str], notes: Notes) -> list[str]:
    """Return the lines without licence blocks, metadata headers and site notices."""
    kept = _without_licences(lines, notes)
    header = _header_length(kept)
    for line in kept[:header]:
        notes.line("boilerplate.metadata_header", line)
    lowered = "\n".join(kept).lower()
    if not any(map(lowered.__contains__, HINTS)):
        return kept[header:]
    result = []
    for line in kept[header:]:
        if len(line) <= NOTICE_CHARACTERS and (NOTICE.search(line) or CREDIT.match(line)):
            notes.line("boilerplate.site_notice", line)
        elif len(line) <= NOTICE_CHARACTERS and POLICY.search(line):
            notes.line("boilerplate.page_policy", line)
        else:
            result.append(line)
    return result


def _without_licences(lines: list[str], notes: Notes) -> list[str]:
    """Return the texts of the books of Project Gutenberg in a file, of which there may be several.

    A licence reaches from the line that ends a book to the one that begins the next. Before the first book it begins
    with the first line that names Gutenberg, so that other text before it stays.
    """
    starts = [n for n, line in enumerate(lines) if line[:1] in "*SsEe-=" and LICENCE_START.match(line)]
    ends = [n for n, line in enumerate(lines) if line[:1] in "*Ee-=" and LICENCE_END.match(line)]
    if not starts and not ends:
        return lines
    texts: list[range] = []
    begin: int | None = 0
    if starts and starts[0] < min(ends, default=len(lines)):
        texts.append(range(next(n for n, line in enumerate(lines) if "gutenberg" in line.lower() or n == starts[0])))
        begin = starts[0] + 1
    while begin is not None:
        end = next((n for n in ends if n >= begin), len(lines))
        texts.append(range(begin, end))
        begin = next((n + 1 for n in starts if n > end), None)
    kept = {n for text in texts for n in text}
    for n, line in enumerate(lines):
        if n not in kept:
            notes.line("boilerplate.licence_block", line)
    return [lines[n] for n in sorted(kept)]


def _header_length(lines: list[str]) -> int:
    """Return the length of the metadata header with the ruler below it: at least two lines, or one with a ruler."""
    length = 0
    while length < min(len(lines), HEADER_LINES) and METADATA.match(lines[length]):
        length += 1
    ruled = 0 < length < len(lines) and RULER.match(lines[length]) is not None
    return length + ruled if length >= 2 or ruled else 0


def remove_markup(lines: list[str], notes: Notes) -> list[str]:
    """Return the lines without tags, entities, wiki links and transcribers' marks; drop lines of ornaments only."""
    result = []
    for line in lines:
        before = line
        if "<" in line:
            line = _replaced(PAGE_CODE, "", line, "markup.tag", notes)
            line = _replaced(TAG, "", line, "markup.tag", notes)
        if "&" in line:
            line = _noted(line, _unescaped(line), "markup.entity", notes)
        if "[" in line or "{" in line:
            line = _replaced(TRANSCRIBER, "", line, "markup.transcriber", notes)
            if not CODE.search(line):
                line = _replaced(PAGE_NUMBER, "", line, "markup.transcriber", notes)
            line = _replaced(WIKI_MEDIA, "", line, "markup.wiki", notes)
            line = _replaced(WIKI_LINK, r"\1", line, "markup.wiki", notes)
            line = _replaced(WIKI_TEMPLATE, "", line, "markup.wiki", notes)
            line = _replaced(EXTERNAL_LINK, r"\1", line, "markup.wiki", notes)
        if "'''" in line:
            line = _replaced(WIKI_BOLD, r"\1", line, "markup.wiki", notes)
        if line.startswith("=="):
            line = _replaced(WIKI_HEADING, r"\2", line, "markup.wiki", notes)
        if "_" in line:
            line = _replaced(EMPHASIS, r"\1", line, "markup.emphasis", notes)
        if line is not before:
            line = " ".join(line.split())
        if not line:
            continue
        if not line[0].isalnum() and SCENE_BREAK.match(line):
            notes.line("markup.ornament", line)
            continue
        result.append(line)
    return result


def _unescaped(line: str) -> str:
    """Return the line with the characters that its entities stand for, normalised as the rest of the text is."""
    line = ENTITY.sub(lambda match: html.unescape(match[0]), TWO_ENTITIES.sub(_joined_surrogates, line))
    return unicodedata.normalize("NFC", UNREADABLE.sub("", line).replace(REPLACEMENT, ""))


def _joined_surrogates(match: re.Match[str]) -> str:
    """Return the character that two entities encode in UTF-16, as older pages write an emoji; else the match."""
    high, low = (int(digits[1:], 16) if digits[0] == "x" else int(digits) for digits in match.groups())
    if not (0xD800 <= high < 0xDC00 <= low < 0xE000):
        return match[0]
    return chr(0x10000 + ((high - 0xD800) << 10) + low - 0xDC00)


def remove_repeated(lines: list[str], rules: RepeatedLines, notes: Notes) -> list[str]:
    """Return the lines without repetitions of earlier lines of the document; short lines may repeat."""
    seen: set[bytes] = set()
    result = []
    for line in lines:
        if len(line) >= rules.min_chars:
            digest = line_digest(line)
            if digest in seen:
                notes.line("repeated_lines.document", line)
                continue
            seen.add(digest)
        result.append(line)
    return result


def line_digest(line: str) -> bytes:
    """Return an 8-byte, case-insensitive hash of a line."""
    return hashlib.blake2b(line.casefold().encode("utf-8"), digest_size=8).digest()


def mask_personal_data(lines: list[str], rules: PersonalData, notes: Notes) -> list[str]:
    """Return the lines with e-mail addresses and phone numbers replaced.

    A number counts as a phone number only with separators or a plus sign.
    """
    text = "\n".join(lines)
    if "@" not in text and not PHONE_HINT.search(text):
        return lines
    result = []
    for line in lines:
        if "@" in line:
            line = _replaced(EMAIL, lambda _: rules.email, line, "personal_data.email", notes)
        if PHONE_HINT.search(line):
            line = _replaced(PHONE, lambda _: rules.phone, line, "personal_data.phone", notes)
        result.append(line)
    return result


def _replaced(
    pattern: re.Pattern[str], by: str | Callable[[re.Match[str]], str], line: str, rule: str, notes: Notes
) -> str:
    return _noted(line, pattern.sub(by, line), rule, notes)


def _noted(before: str, after: str, rule: str, notes: Notes) -> str:
    if after == before:
        return before
    notes.line(rule, before, after)
    return after


LEAST_BREAKS = 3  # a text with fewer line breaks is not unwrapped
NARROWEST, WIDEST = 30, 120  # characters of a wrapped line
LINE_END = re.compile(r"\r\n|\r|\n")
MOST_CAPITALS = 0.75  # share of the lines after a break that begin with a capital; a third in German prose


def unwrap(text: str, rules: Unwrap, notes: Notes) -> str:
    """Join the lines of paragraphs if the text was wrapped at a fixed width; otherwise return the text unchanged.

    A line of wrapped text ends where the next word would not fit. So a break counts as wrapping if the line, a space
    and the next line's first word together exceed the width, which is the 98th percentile of the line lengths. Only
    such breaks are joined. Verse and lists have few of them, because their lines end early; verse with lines of equal
    length is recognised by the capitals at the beginnings of lines.
    """
    lines = [line.strip() for line in LINE_END.split(text)]
    lengths = sorted(len(line) for line in lines if line)
    if len(lengths) <= LEAST_BREAKS:
        return text
    width = lengths[int(0.98 * (len(lengths) - 1))]
    if not NARROWEST <= width <= WIDEST:
        return text
    inside = [number for number in range(len(lines) - 1) if lines[number] and lines[number + 1]]
    wrapped = {number for number in inside if _next_does_not_fit(lines[number], lines[number + 1], width)}
    if len(inside) < LEAST_BREAKS or len(wrapped) < rules.min_share * len(inside):
        return text
    if sum(lines[number + 1][0].isupper() for number in wrapped) > MOST_CAPITALS * len(wrapped):
        return text
    parts: list[list[str]] = []  # of a line each
    for number, line in enumerate(lines):
        if number - 1 in wrapped:
            parts[-1] += ["" if _needs_no_space(lines[number - 1], line) else " ", line]
        else:
            parts.append([line])
    joined = ["".join(line) for line in parts]
    first = min(wrapped)
    notes.line("unwrap.joined", "\n".join(lines[first : first + 4]), joined[first])
    notes.rules["unwrap.joined"].lines += len(wrapped) - 1
    return "\n".join(joined)


def _next_does_not_fit(line: str, following: str, width: int) -> bool:
    if UNSPACED.match(following):  # without words, only a full line is wrapped; punctuation may have moved one along
        return len(line) + 2 > width
    return len(line) + 1 + len(following.split(" ", 1)[0]) > width


def _needs_no_space(line: str, following: str) -> bool:
    """Return whether a line ends in the hyphen of a compound, or the break is inside text without spaces."""
    return re.search(r"\w-$", line) is not None or bool(UNSPACED.match(line[-1]) and UNSPACED.match(following))
