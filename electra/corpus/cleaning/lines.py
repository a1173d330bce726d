"""Steps that remove or change lines: boilerplate, markup, repeated lines, personal data."""

import hashlib
import html
import re
from collections.abc import Callable

from electra.config.cleaning import PersonalData, RepeatedLines
from electra.corpus.cleaning.notes import Notes

# Book sites
LICENCE_START = re.compile(r"^\W*START OF (THE|THIS) PROJECT GUTENBERG|^\W*END\W*THE SMALL PRINT", re.I)
LICENCE_END = re.compile(r"^\W*END OF (THE |THIS )?PROJECT GUTENBERG", re.I)
METADATA = re.compile(
    r"^(Title|Author|Year|Editor|Translator|Illustrator|Release Date|Posting Date|Publication Date|Language|Encoding|"
    r"Character set encoding|Publisher|Source|Credits|Subject|ISBN|Date|URL|Original publication)\s*:.{0,300}$"
)
RULER = re.compile(r"^[-=_*~#]{3,}$")
HEADER_LINES = 40  # a header with metadata stands within the first lines
NOTICE = re.compile(
    r"^(produced by\b.*(distributed proofread|pgdp|gutenberg|internet archive|online|http)"
    r"|this (e-?book|file) (is|was) (for the use of anyone|produced from (images|scans))"
    r"|transcribed from the\b.*\bby\b.*@|e-?text (prepared|produced|scanned) by\b|scanned (and proofed )?by\b"
    r"|distributed proofread(ers|ing)|transcriber['’]?s['’]? notes?\b)",
    re.I,
)
# C4's (Raffel et al. 2020, section 2.2): lines of pages that speak of the page
POLICY = re.compile(
    r"\b(terms of use|privacy policy|cookie policy|uses cookies|use of cookies|use cookies|enable javascript)\b"
    r"|^(copyright|\(c\)|©).{0,120}all rights reserved",
    re.I,
)
# A line that a notice or a policy is in has one of these; most documents have none
HINTS = (
    "gutenberg", "proofread", "http", "for the use of anyone", "produced from", "transcri", "scanned", "text prepared",
    "text produced", "internet archive", "terms of use", "privacy policy", "cookie", "javascript", "rights reserved",
    "produced by",
)  # fmt: skip
NOTICE_CHARACTERS = 400  # longer lines are paragraphs that mention such a thing

# Markup
TAG = re.compile(r"</?[a-zA-Z][a-zA-Z0-9]*(\s[^<>]{0,500})?/?>|<!--.{0,2000}?-->")
ENTITY = re.compile(r"&(#\d{1,6}|#x[0-9a-fA-F]{1,5}|[a-zA-Z][a-zA-Z0-9]{1,30});")
WIKI_LINK = re.compile(r"\[\[(?:[^\[\]|]{0,200}\|)?([^\[\]|]{1,200})\]\]")
WIKI_TEMPLATE = re.compile(r"\{\{[^{}]{0,500}\}\}")
EXTERNAL_LINK = re.compile(r"\[https?://\S+ ([^\[\]]{1,200})\]")
TRANSCRIBER = re.compile(
    r"\[(Illustration|Footnote|Sidenote|Transcriber['’]?s note|Pg\.?|Page)\b[^\[\]]{0,300}\]|\{\d{1,4}\}", re.I
)
EMPHASIS = re.compile(r"(?<![\w_])_(?=\S)([^_]{1,300}?)(?<=\S)_(?![\w_])")
SCENE_BREAK = re.compile(r"^[\s*·•.~=_#-]+$")

# Personal data
EMAIL = re.compile(r"\b[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63})*\.[A-Za-z]{2,24}\b")
PHONE_HINT = re.compile(r"\d[). -]|\+\d")  # every number that PHONE matches has it
PHONE = re.compile(
    r"(?<![\w.,-])(?:\+\d{1,3}[ .-]?(?:\(?\d{1,4}\)?[ .-]?){2,5}\d{2,4}"
    r"|\(\d{3}\) ?\d{3}[ .-]\d{4}|\d{3}[.-]\d{3}[.-]\d{4})"
    r"(?![\w-]|[.,]\d)"
)


def remove_boilerplate(lines: list[str], notes: Notes) -> list[str]:
    """Lines without licence blocks, headers of metadata and notices of sites."""
    starts = (n + 1 for n, line in enumerate(lines) if line[:1] in "*SsEe-=" and LICENCE_START.match(line))
    start = next(starts, 0)
    ends = (n for n in range(start, len(lines)) if lines[n][:1] in "*Ee-=" and LICENCE_END.match(lines[n]))
    end = next(ends, len(lines))
    for line in (*lines[:start], *lines[end:]):
        notes.line("boilerplate.licence_block", line)
    kept = lines[start:end]
    header = _header_length(kept)
    for line in kept[:header]:
        notes.line("boilerplate.metadata_header", line)
    lowered = "\n".join(kept).lower()
    if not any(hint in lowered for hint in HINTS):
        return kept[header:]
    result = []
    for line in kept[header:]:
        if len(line) <= NOTICE_CHARACTERS and NOTICE.search(line):
            notes.line("boilerplate.site_notice", line)
        elif len(line) <= NOTICE_CHARACTERS and POLICY.search(line):
            notes.line("boilerplate.page_policy", line)
        else:
            result.append(line)
    return result


def _header_length(lines: list[str]) -> int:
    """Lines of metadata at the beginning, with the ruler below them; at least two, or one with a ruler."""
    length = 0
    while length < min(len(lines), HEADER_LINES) and METADATA.match(lines[length]):
        length += 1
    ruled = 0 < length < len(lines) and RULER.match(lines[length]) is not None
    return length + ruled if length >= 2 or ruled else 0


def remove_markup(lines: list[str], notes: Notes) -> list[str]:
    """Lines without tags, entities, wiki links, transcribers' marks; lines of nothing but ornaments are removed."""
    result = []
    for line in lines:
        before = line
        if "<" in line:
            line = _replaced(TAG, "", line, "markup.tag", notes)
        if "&" in line:
            unescaped = ENTITY.sub(lambda match: html.unescape(match[0]), line)
            line = _noted(line, unescaped, "markup.entity", notes)
        if "[" in line or "{" in line:
            line = _replaced(TRANSCRIBER, "", line, "markup.transcriber", notes)
            line = _replaced(WIKI_LINK, r"\1", line, "markup.wiki", notes)
            line = _replaced(WIKI_TEMPLATE, "", line, "markup.wiki", notes)
            line = _replaced(EXTERNAL_LINK, r"\1", line, "markup.wiki", notes)
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


def remove_repeated(lines: list[str], rules: RepeatedLines, notes: Notes) -> list[str]:
    """Lines without those that stood before in the document; short ones may repeat."""
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
    """8 bytes that name a line, whatever its case."""
    return hashlib.blake2b(line.casefold().encode("utf-8"), digest_size=8).digest()


def mask_personal_data(lines: list[str], rules: PersonalData, notes: Notes) -> list[str]:
    """Lines with e-mail addresses and phone numbers replaced; numbers need separators or a + to count as phones."""
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
