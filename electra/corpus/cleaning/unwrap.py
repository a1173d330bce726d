"""Joining hard-wrapped lines to paragraphs, on raw text: blank lines are what separates paragraphs."""

import re

from electra.config.cleaning import Unwrap
from electra.corpus.cleaning.notes import Notes

LEAST_BREAKS = 3  # a text of fewer is not judged
NARROWEST, WIDEST = 30, 120  # characters of a wrapped line
LINE_END = re.compile(r"\r\n|\r|\n")


def unwrap(text: str, rules: Unwrap, notes: Notes) -> str:
    """Join the lines of paragraphs if the text was wrapped at a fixed width; otherwise the text as it is.

    A line of wrapped text ends where the next word would not fit. So a break counts as one of wrapping if the line, a
    space and the next line's first word are longer than the width, the longest line of the text but a few. Verse and
    lists, whose lines end early, have few such breaks; and only such breaks are joined.
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
    joined: list[str] = []
    for number, line in enumerate(lines):
        if number - 1 in wrapped:
            # the hyphen of a compound at the end of a line stays, without a space after it
            separator = "" if re.search(r"\w-$", joined[-1]) else " "
            joined[-1] += separator + line
        else:
            joined.append(line)
    first = min(wrapped)
    notes.line("unwrap.joined", "\n".join(lines[first : first + 4]), joined[first])
    notes.rules["unwrap.joined"].lines += len(wrapped) - 1
    return "\n".join(joined)


def _next_does_not_fit(line: str, following: str, width: int) -> bool:
    return len(line) + 1 + len(following.split(" ", 1)[0]) > width
