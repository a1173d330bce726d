"""Word tags and the entities they mark.

A tag is ``O`` or a prefix and a type, ``B-PER``. Three schemes are in use, and one reading fits them all: an entity
begins at B or S, at another type than the entity before, and at any other tag with no entity open; it ends before O
and before the next one, and after E or S. For B, I and O that is what the script ``conlleval`` does.

    IOB1   I-PER I-PER B-PER O     B only where an entity follows another of its type
    IOB2   B-PER I-PER B-PER O     B at every beginning; also called BIO
    BIOES  B-PER E-PER S-PER O     E at the end, S for a single word
"""

import re
from collections.abc import Iterable, Sequence

Entity = tuple[int, int, str]  # first word, one past the last word, type
_TAG = re.compile(r"O|[BIES]-.+")


def is_entity_tag(tag: str) -> bool:
    """Return whether a tag is of one of the three schemes."""
    return _TAG.fullmatch(tag) is not None


def entities(tags: Sequence[str]) -> list[Entity]:
    """The entities of a sentence in order, whichever the scheme; an I or E without a beginning begins one."""
    found: list[Entity] = []
    begin, open_type = 0, ""
    for position, tag in enumerate(tags):
        prefix, _, type_ = tag.partition("-")
        if open_type and (prefix in "BSO" or type_ != open_type):
            found.append((begin, position, open_type))
            open_type = ""
        if prefix == "O":
            continue
        if not open_type:
            begin, open_type = position, type_
        if prefix in "ES":
            found.append((begin, position + 1, open_type))
            open_type = ""
    if open_type:
        found.append((begin, len(tags), open_type))
    return found


def iob2(found: Iterable[Entity], length: int) -> list[str]:
    """Tags of a sentence of ``length`` words in the scheme IOB2."""
    tags = ["O"] * length
    for begin, end, type_ in found:
        tags[begin:end] = [f"B-{type_}", *[f"I-{type_}"] * (end - begin - 1)]
    return tags


def bioes(found: Iterable[Entity], length: int) -> list[str]:
    """Tags of a sentence of ``length`` words in the scheme BIOES, which the original trains on."""
    tags = ["O"] * length
    for begin, end, type_ in found:
        if end - begin == 1:
            tags[begin] = f"S-{type_}"
        else:
            tags[begin:end] = [f"B-{type_}", *[f"I-{type_}"] * (end - begin - 2), f"E-{type_}"]
    return tags


def bioes_labels(types: Iterable[str]) -> tuple[str, ...]:
    """All tags of the scheme BIOES over these types."""
    return ("O", *(f"{prefix}-{type_}" for type_ in types for prefix in "BIES"))
