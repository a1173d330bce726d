"""Selection of documents: without duplicates, and mixed by weight."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from electra.config.text import CleaningStep, RepeatedLines
from electra.text.corpus.cleaning.lines import line_digest
from electra.text.corpus.cleaning.notes import Notes
from electra.text.corpus.decontamination import LeakTable
from electra.text.corpus.document import CleanedDocument, Document, text_hash
from electra.text.corpus.near_duplicates import NearDuplicateIndex, SeenIds, Signature


class RepeatedAcross:
    """Removal of lines that an earlier document had; needs all documents in their order.

    Args:
        seen: hashes of the lines of all documents so far, on disk: about 20 bytes per line.
        min_chars: shorter lines may repeat.
        notes: record of the removed lines.
    """

    def __init__(self, seen: SeenIds, min_chars: int, notes: Notes):
        self._seen, self._min_chars, self._notes = seen, min_chars, notes

    def remove(self, text: str) -> str:
        """Return the text without the lines of earlier documents."""
        lines = text.split("\n")
        kept = []
        for line in lines:
            if len(line) >= self._min_chars and not self._seen.add(line_digest(line)):
                self._notes.line("repeated_lines.corpus", line)
            else:
                kept.append(line)
        return text if len(kept) == len(lines) else "\n".join(kept)


def kept_documents(
    source: str,
    cleaned: Iterable[CleanedDocument],
    seen: SeenIds,
    removed: Counter[str],
    notes: Notes | None = None,
    near: NearDuplicateIndex | None = None,
    across: RepeatedAcross | None = None,
    leaks: LeakTable | None = None,
    min_chars: int = 1,
) -> Iterator[Document]:
    """Yield the documents of a source that are long enough and new.

    Args:
        seen: ids of the documents kept so far, over all sources.
        removed: counts of what was left out: documents ``duplicate`` and ``too_short``; ``lines_with_lost_letters``;
            ``cut_documents`` and ``cut_characters`` beyond ``max_chars``; documents that a step of
            ``corpus.cleaning`` dropped, by the kind of the step. ``raw_words`` counts all words before cleaning.
        notes: record of what the steps of ``corpus.cleaning`` removed.
        near: index of the documents kept so far; documents similar to one of them count as ``near_duplicate``.
        leaks: counter of evaluation text.
        across: filter of lines that earlier documents had; a document of only such lines counts as ``duplicate``, one
            with fewer than ``min_chars`` characters of others as ``too_short``.
    """
    notes = Notes() if notes is None else notes
    for document in cleaned:
        removed["lines_with_lost_letters"] += document.lost_lines
        removed["raw_words"] += document.raw_words
        notes.add(document.notes)
        if leaks:
            leaks.add(document)
        if document.dropped:
            removed[document.dropped] += 1
            continue
        if not document.text:
            removed["too_short"] += 1
            continue
        if not seen.add(document.digest[:8]):
            removed["duplicate"] += 1
            continue
        text, digest = document.text, document.digest
        if near and not near.add(text, Signature(document.shingles, document.bands)):
            removed["near_duplicate"] += 1
            continue
        if across and (text := across.remove(text)) != document.text:
            digest = text_hash(text)
            if text and len(text) < min_chars:
                removed["too_short"] += 1
                continue
            if not text or not seen.add(digest[:8]):
                removed["duplicate"] += 1
                continue
        if document.cut_characters:
            removed["cut_documents"] += 1
            removed["cut_characters"] += document.cut_characters
        yield Document(source, text, digest)


def interleave(streams: Sequence[Iterator[Document]], weights: Sequence[float]) -> Iterator[Document]:
    """Mix streams of documents so that the characters of every prefix are in the ratio of the weights.

    The next document comes from the stream that is furthest behind its share (the first one in a tie), so no stream
    is ever ahead by more than one document. When a stream ends, the others continue.
    """
    running = dict(enumerate(streams))
    characters = [0] * len(streams)
    while running:
        behind = min(running, key=lambda i: characters[i] / weights[i])
        document = next(running[behind], None)
        if document is None:
            del running[behind]
            continue
        characters[behind] += len(document.text)
        yield document


@contextmanager
def repeated_across(steps: list[CleaningStep], path: Path, notes: Notes) -> Iterator[RepeatedAcross | None]:
    """Yield the filter that the steps configure, or None; its table is stored at ``path`` until the block ends."""
    step = next((step for step in steps if isinstance(step, RepeatedLines) and step.scope == "corpus"), None)
    if step is None:
        yield None
        return
    with SeenIds(path) as seen:
        yield RepeatedAcross(seen, step.min_chars, notes)
