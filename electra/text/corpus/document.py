"""Documents on their way to the corpus: interfaces of sources, cleaning steps, identity, mixing by weight."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from electra.config.text import (
    Boilerplate,
    CleaningStep,
    FineWeb,
    Gopher,
    Language,
    Markup,
    PersonalData,
    RepeatedLines,
    Repetition,
    Unwrap,
)
from electra.text.corpus.cleaning.lines import (
    fineweb,
    gopher,
    line_digest,
    mask_personal_data,
    remove_boilerplate,
    remove_markup,
    remove_repeated,
    repetition,
    unwrap,
)
from electra.text.corpus.cleaning.notes import Notes
from electra.text.corpus.near_duplicates import NearDuplicateIndex, SeenIds, Signature


@dataclass(frozen=True)
class Cleaned:
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


def batches(documents: Iterable[Cleaned], max_characters: int) -> Iterator[list[Cleaned]]:
    """Group documents into lists of at most 64; a list ends with the document that brings it to ``max_characters``."""
    batch: list[Cleaned] = []
    characters = 0
    for document in documents:
        batch.append(document)
        characters += len(document.text)
        if len(batch) >= 64 or characters >= max_characters:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


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


class LeakCounter(Protocol):
    """Counter of evaluation text (:class:`electra.text.corpus.decontamination.LeakTable`)."""

    def add(self, document: Cleaned) -> None:
        """Count a document's leaks."""
        ...


def kept_documents(
    source: str,
    cleaned: Iterable[Cleaned],
    seen: SeenIds,
    removed: Counter[str],
    notes: Notes | None = None,
    near: NearDuplicateIndex | None = None,
    across: RepeatedAcross | None = None,
    leaks: LeakCounter | None = None,
) -> Iterator[Document]:
    """Yield the documents of a source that are long enough and new.

    Args:
        seen: ids of the documents kept so far, over all sources.
        removed: counts of what was left out: documents ``duplicate`` and ``too_short``; ``lines_with_lost_letters``;
            ``cut_documents`` and ``cut_characters`` beyond ``max_chars``; documents that a step of
            ``corpus.cleaning`` dropped, by the kind of the step.
        notes: record of what the steps of ``corpus.cleaning`` removed.
        near: index of the documents kept so far; documents similar to one of them count as ``near_duplicate``.
        leaks: counter of evaluation text.
        across: filter of lines that earlier documents had; a document of only such lines counts as ``duplicate``.
    """
    notes = Notes() if notes is None else notes
    for made in cleaned:
        removed["lines_with_lost_letters"] += made.lost_lines
        notes.add(made.notes)
        if leaks:
            leaks.add(made)
        if made.dropped:
            removed[made.dropped] += 1
            continue
        if not made.text:
            removed["too_short"] += 1
            continue
        if not seen.add(made.digest[:8]):
            removed["duplicate"] += 1
            continue
        text, digest = made.text, made.digest
        if near and not near.add(text, Signature(made.shingles, made.bands)):
            removed["near_duplicate"] += 1
            continue
        if across and (text := across.remove(text)) != made.text:
            digest = text_hash(text)
            if not text or not seen.add(digest[:8]):
                removed["duplicate"] += 1
                continue
        if made.cut_characters:
            removed["cut_documents"] += 1
            removed["cut_characters"] += made.cut_characters
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


class Part(Protocol):
    """Part of a source that one worker reads: a file, or the whole source. Can be pickled."""

    def texts(self) -> Iterator[str]:
        """Yield the raw documents in a fixed order, one in memory at a time; a missing text is an empty string."""
        ...

    def facts(self, *, complete: bool) -> dict[str, Any]:
        """Return the manifest's entry: what was read, all documents or (not ``complete``) the first ones."""
        ...


class Source(Protocol):
    """Raw documents in parts."""

    name: str

    def parts(self) -> list[Part]:
        """Return the parts in the order of their documents, without reading their content."""
        ...

    def describe(self, read: list[dict[str, Any]]) -> dict[str, Any]:
        """Return the source's entry in the manifest, made from the facts of the parts that were read."""
        ...


@contextmanager
def repeated_across(steps: list[CleaningStep], path: Path, notes: Notes) -> Iterator[RepeatedAcross | None]:
    """Yield the filter that the steps configure, or None; its table is stored at ``path`` until the block ends."""
    asked = [step for step in steps if isinstance(step, RepeatedLines) and step.scope == "corpus"]
    if not asked:
        yield None
        return
    with SeenIds(path) as seen:
        yield RepeatedAcross(seen, asked[0].min_chars, notes)


def before_cleaning(raw: str, steps: list[CleaningStep], notes: Notes) -> str:
    """Apply the steps that need the text with its blank lines: unwrapping."""
    return unwrap(raw, steps[0], notes) if steps and isinstance(steps[0], Unwrap) else raw


def apply_steps(text: str, steps: list[CleaningStep], notes: Notes) -> str | None:
    """Return a document's text after all steps; None if a rule drops it."""
    lines = text.split("\n") if text else []
    for step in steps:
        if not lines:
            break
        broken: str | None = None
        match step:
            case Boilerplate():
                lines = remove_boilerplate(lines, notes)
            case Markup():
                lines = remove_markup(lines, notes)
            case RepeatedLines():
                lines = remove_repeated(lines, step, notes)
            case PersonalData():
                lines = mask_personal_data(lines, step, notes)
            case Gopher():
                broken = gopher(lines, step)
            case Repetition():
                broken = repetition(lines, step)
            case FineWeb():
                broken = fineweb(lines, step)
            case Language():
                broken = other_language(lines, step)
        if broken:
            notes.document(f"{step.kind}.{broken}", lines)
            return None
    return "\n".join(lines)


SAMPLE_CHARS = 1000  # from the middle of a document, where headers and licences are not
# The first PIECE_CHARS of every 100 characters of the sample are enough to keep most documents; if their language is
# less than SURE, the whole sample decides
PIECE_CHARS, SURE = 25, 0.99


def other_language(lines: list[str], step: Language) -> str | None:
    """Return the code of the document's language if it is not to be kept; None if it is, or if it is uncertain."""
    text = "\n".join(lines)
    start = max(0, (len(text) - SAMPLE_CHARS) // 2)
    sample = text[start : start + SAMPLE_CHARS]
    model = language_model()
    if len(sample) == SAMPLE_CHARS:
        pieces = "\n".join([sample[i : i + PIECE_CHARS] for i in range(0, SAMPLE_CHARS, 100)])
        language, probability = model.classify(pieces)
        if language in step.languages and probability >= SURE:
            return None
    language, probability = model.classify(sample)
    is_other = language not in step.languages and probability >= step.min_probability
    return str(language) if is_other else None


_ZERO = np.int32(0)


@cache
def language_model() -> Any:
    """Return py3langid's model with a vectorised scan of a text's bytes: the same results in a tenth of the time."""
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    class ArrayIdentifier(LanguageIdentifier):
        def __init__(self, nb_ptc: np.ndarray, *args: Any, **options: Any):
            super().__init__(nb_ptc.astype(np.float32), *args, **options)
            self.rows = np.asarray(self.tk_row).astype(np.intp) << 8
            self.moves = np.asarray(self.tk_nextmove)
            self.features = np.asarray(self.tk_output, dtype=np.int32)
            letters = np.arange(256)
            after_two = self.moves[self.rows[self.moves[self.rows[0] + letters]][:, None] + letters].ravel()
            self.row_after_two = self.rows[after_two]

        def _raw_score(self, text: bytes) -> Any:
            found = self.features.take(self._states(text))
            found.sort()
            found = found[found.searchsorted(_ZERO) :]  # -1: no feature ends here
            if not len(found):
                return np.zeros(len(self.nb_classes), dtype=np.float32)
            is_edge = np.ones(len(found) + 1, dtype=bool)
            np.not_equal(found[1:], found[:-1], out=is_edge[1:-1])
            edges = is_edge.nonzero()[0]
            counts = (edges[1:] - edges[:-1]).astype(np.float32)
            return np.log1p(counts) @ self.nb_ptc.take(found.take(edges[:-1]), axis=0) + self.nb_pc

        def _states(self, text: bytes) -> np.ndarray:
            """Return the automaton's state after each byte.

            A state depends only on the last six bytes, so six steps from the initial state are taken for all positions
            at once, the first two by a table. The text is preceded by five bytes that lead from every state to the
            initial one.
            """
            letters = np.frombuffer(b"\xff\xff\xff\xff\xff" + text, dtype=np.uint8).astype(np.intp)
            pairs = letters[:-1] << 8
            pairs += letters[1:]
            at = self.row_after_two.take(pairs[:-1])
            at += letters[2:]
            for begin in (3, 4, 5):
                at = self.rows.take(self.moves.take(at)[:-1])
                at += letters[begin:]
            return self.moves.take(at)

    return ArrayIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
