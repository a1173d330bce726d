"""A document after cleaning, and a document of the corpus; batches of the former."""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from electra.common.lines import batches

BATCH_DOCUMENTS = 64


@dataclass(frozen=True)
class CleanedDocument:
    """One raw document after cleaning.

    Attributes:
        text: one sentence or paragraph per line; empty if fewer than ``min_chars`` characters were left.
        digest: sha256 of the text; null bytes if the text is empty.
        lost_lines: number of lines dropped because letters were lost in them.
        cut_characters: number of characters beyond ``max_chars``.
        notes: what the steps of ``corpus.cleaning`` removed (:meth:`electra.text.corpus.cleaning.notes.Notes.dump`).
        dropped: kind of the step that dropped the document; empty if none did.
        shingles, bands: as in :class:`electra.text.corpus.near_duplicates.Signature`; empty where near-duplicates
            are kept.
        leaks: numbers of the evaluation texts found, int64 as bytes (:class:`electra.text.corpus.leaks.Leaks`).
        leaked_lines: number of lines that contain a part of these texts.
        raw_words: number of words, separated by white space, before cleaning; 0 where ``max_words`` is not set.
    """

    text: str
    digest: bytes
    lost_lines: int
    cut_characters: int
    notes: str = ""
    dropped: str = ""
    shingles: bytes = b""
    bands: bytes = b""
    leaks: bytes = b""
    leaked_lines: int = 0
    raw_words: int = 0


def document_batches(documents: Iterable[CleanedDocument], max_characters: int) -> Iterator[list[CleanedDocument]]:
    """Group documents into lists of at most 64; a list ends with the document that brings it to ``max_characters``."""
    return batches(documents, BATCH_DOCUMENTS, lambda document: len(document.text), max_characters)


@dataclass(frozen=True)
class Document:
    """A cleaned document.

    Attributes:
        source: name of its source.
        text: one sentence or paragraph per line.
        digest: sha256 of the text; the first 8 bytes are the document's id, the next 8 decide the split.
    """

    source: str
    text: str
    digest: bytes

    @property
    def doc_id(self) -> str:
        return self.digest[:8].hex()

    @property
    def split_point(self) -> float:
        """Uniform number in [0, 1), independent of ``doc_id``; documents below the held-out fraction are held out."""
        return (int.from_bytes(self.digest[8:16], "big") >> 11) / 2**53


def text_hash(text: str) -> bytes:
    """Return the sha256 of a cleaned text: its identity for removing duplicates, for ids and for the split."""
    return hashlib.sha256(text.encode("utf-8")).digest()
