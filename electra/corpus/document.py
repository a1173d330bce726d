"""A cleaned document and its hash, and the way from raw text to it."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from electra.config import Corpus
from electra.corpus.clean import clean, cut
from electra.corpus.seen import SeenIds


@dataclass(frozen=True)
class Document:
    """A cleaned document.

    Attributes:
        source: name of the source it came from.
        text: one sentence or paragraph a line.
        digest: sha256 of the text; its first 8 bytes name the document, the next 8 decide the split.
    """

    source: str
    text: str
    digest: bytes

    @property
    def doc_id(self) -> str:
        return self.digest[:8].hex()

    @property
    def split_point(self) -> float:
        """In [0, 1), spread evenly, independent of ``doc_id``; documents below the held-out fraction are held out."""
        return (int.from_bytes(self.digest[8:16], "big") >> 11) / 2**53


def make_document(source: str, text: str) -> Document:
    """A document from cleaned text."""
    return Document(source, text, hashlib.sha256(text.encode("utf-8")).digest())


def kept_documents(
    source: str, texts: Iterable[str], corpus: Corpus, seen: SeenIds, removed: Counter[str]
) -> Iterator[Document]:
    """Clean the raw texts of a source, and keep those that are long enough and new.

    Args:
        seen: ids of the documents kept so far, over all sources.
        removed: counts what was left out: documents ``duplicate`` and ``too_short``; ``lines_with_lost_letters``;
            ``cut_documents`` and ``cut_characters`` beyond ``max_chars``.
    """
    for raw in texts:
        whole, lost_lines = clean(raw, corpus.repair_mojibake)
        text = cut(whole, corpus.max_chars)
        removed["lines_with_lost_letters"] += lost_lines
        if len(text) < corpus.min_chars:
            removed["too_short"] += 1
            continue
        document = make_document(source, text)
        if not seen.add(document.digest[:8]):
            removed["duplicate"] += 1
            continue
        if len(text) < len(whole):
            removed["cut_documents"] += 1
            removed["cut_characters"] += len(whole) - len(text)
        yield document
