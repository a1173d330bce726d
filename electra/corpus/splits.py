"""Held-out text from long documents: groups of paragraphs instead of whole documents.

Where documents are few and long, whole ones make a bad split: of three books one would be held out, a third of all.
"""

from collections import Counter
from collections.abc import Iterable, Iterator

from electra.config import Corpus
from electra.corpus.document import Document, text_hash
from electra.corpus.seen import SeenIds

GROUP_CHARACTERS = 10_000


def by_split(documents: Iterable[Document], corpus: Corpus, seen: SeenIds, removed: Counter[str]) -> Iterator[Document]:
    """The documents, those of more than ``corpus.split_longer_than`` characters in parts of one split each.

    Args:
        documents: new ones.
        corpus: the rules.
        seen: ids of the documents kept so far.
        removed: counts ``split_documents``, those cut, and parts that are ``duplicate``.
    """
    longest = corpus.split_longer_than
    for document in documents:
        if longest is None or len(document.text) <= longest or corpus.held_out_fraction in (0, 1):
            yield document
            continue
        parts = list(pieces(document, corpus.held_out_fraction))
        if len(parts) == 1:
            yield document
            continue
        removed["split_documents"] += 1
        for part in parts:
            if seen.add(part.digest[:8]):
                yield part
            else:
                removed["duplicate"] += 1


def pieces(document: Document, held_out_fraction: float) -> Iterator[Document]:
    """A long document in parts that belong to one split each.

    Groups of whole lines of about ``GROUP_CHARACTERS`` are held out or not by their own hashes; neighbours of one split
    stay together. A document of which no group is held out, or every one, comes back as it is.
    """
    groups = [(group, text_hash(group)) for group in _groups(document.text)]
    held_out = [Document("", "", digest).split_point < held_out_fraction for _, digest in groups]
    if len(set(held_out)) < 2:
        yield document
        return
    start = 0
    for end in range(1, len(groups) + 1):
        if end == len(groups) or held_out[end] != held_out[start]:
            text = "\n".join(group for group, _ in groups[start:end])
            # what decides the split of a part is the hash of its first group: the part's name is of its whole text
            digest = text_hash(text)[:8] + groups[start][1][8:]
            yield Document(document.source, text, digest)
            start = end


def last_paragraphs(document: Document, characters: float) -> tuple[Document, Document] | None:
    """A document cut before its last lines, which have about so many characters; None if it cannot be cut.

    Each part has at least one line.
    """
    lines = document.text.split("\n")
    first = len(lines) - 1
    size = len(lines[-1])
    while first > 1 and size + len(lines[first - 1]) + 1 <= characters:
        first -= 1
        size += len(lines[first]) + 1
    if first < 1 or size > len(document.text) / 2:
        return None
    before, after = ("\n".join(part) for part in (lines[:first], lines[first:]))
    return (
        Document(document.source, before, text_hash(before)),
        Document(document.source, after, text_hash(after)),
    )


def _groups(text: str) -> Iterator[str]:
    group: list[str] = []
    size = 0
    for line in text.split("\n"):
        group.append(line)
        size += len(line) + 1
        if size >= GROUP_CHARACTERS:
            yield "\n".join(group)
            group, size = [], 0
    if group:
        yield "\n".join(group)
