"""Cleaning of documents: pure functions on text, and a source that cleans its documents as they are read.

The order matters. Mojibake is repaired first, because its traces (C1 control characters) look like unreadable
characters; those are removed next; Unicode NFC comes last, because removing a character can bring a letter and its
accent together."""

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import ftfy
import pyarrow as pa

from electra.cluster.executors import Workers, whole_file
from electra.config import Corpus
from electra.text.corpus.cleaning.notes import Notes
from electra.text.corpus.decontamination import without_leaks
from electra.text.corpus.document import Cleaned, Part, Source, apply_steps, batches, before_cleaning, text_hash
from electra.text.corpus.near_duplicates import Signer

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
    """Return the first ``max_chars`` characters or fewer: whole lines, else whole words, else the exact number."""
    if len(text) <= max_chars:
        return text
    for separator in ("\n", " "):
        # the separator itself may be the first character that no longer fits
        end = text.rfind(separator, 0, max_chars + 1)
        if end > 0:
            return text[:end]
    return text[:max_chars]


BATCH_CHARACTERS = 1_000_000
SIGNED_CHARACTERS = 20_000  # per call of the signer: large enough that short documents cost no more per character
SCHEMA = pa.schema(
    [
        ("text", pa.large_string()),
        ("digest", pa.binary(32)),
        ("lost_lines", pa.int64()),
        ("cut_characters", pa.int64()),
        ("notes", pa.large_string()),
        ("dropped", pa.string()),
        ("shingles", pa.large_binary()),
        ("bands", pa.binary()),
        ("leaks", pa.binary()),
        ("leaked_lines", pa.int64()),
    ]
)


class CleanedSource:
    """The cleaned documents of a source, in their order.

    Worker processes clean parts ahead of the iterator: ``folder`` holds at most twice as many parts as there are
    workers. A part's file is removed once its documents were read.

    Args:
        source: source of the raw documents.
        parts: parts of the source.
        corpus: cleaning rules.
        evaluation_texts: output folder of the stage evaluation_texts.
        workers: processes that clean.
        folder: folder for the workers' files.
    """

    def __init__(
        self,
        source: Source,
        parts: list[Part],
        corpus: Corpus,
        evaluation_texts: Path,
        workers: Workers,
        folder: Path,
    ):
        self._source, self._parts, self._corpus, self._workers, self._folder = source, parts, corpus, workers, folder
        self._evaluation_texts = evaluation_texts.absolute()  # a worker's current folder may differ
        self._facts: list[dict[str, Any]] = []  # of the parts read to the end
        self._begun: Part | None = None

    def __iter__(self) -> Iterator[Cleaned]:
        if self._workers.in_process:
            for part in self._parts:
                self._begun = part
                yield from clean_documents(part.texts(), self._corpus, self._evaluation_texts)
                self._finish(part.facts(complete=True))
            return
        rules = (self._corpus, self._evaluation_texts)
        jobs = ((part, *rules, self._folder / f"{uuid4().hex}.arrow") for part in self._parts)
        for part, (file, facts) in zip(self._parts, self._workers.map(write_cleaned, jobs), strict=True):
            self._begun = part
            yield from read_cleaned(file)
            file.unlink()
            self._finish(facts)

    def facts(self) -> dict[str, Any]:
        """Return the manifest's entry: what was read so far."""
        begun = [self._begun.facts(complete=False)] if self._begun else []
        return self._source.describe(self._facts + begun)

    def _finish(self, facts: dict[str, Any]) -> None:
        self._facts.append(facts)
        self._begun = None


def clean_documents(texts: Iterator[str], corpus: Corpus, evaluation_texts: Path) -> Iterator[Cleaned]:
    """Clean raw documents one at a time; every document yields one record, even if it is too short.

    Args:
        texts: raw documents.
        corpus: cleaning rules.
        evaluation_texts: folder with the texts that ``corpus.decontamination`` looks for.
    """
    documents: Iterator[Cleaned] = (_cleaned(raw, corpus) for raw in texts)
    if corpus.decontamination:
        documents = without_leaks(documents, corpus, evaluation_texts)
    if not corpus.near_duplicates:
        yield from documents
        return
    signer = Signer(corpus.near_duplicates)
    for batch in batches(documents, SIGNED_CHARACTERS):
        for document, signed in zip(batch, signer.sign([made.text for made in batch]), strict=True):
            yield replace(document, shingles=signed.shingles, bands=signed.bands)


def _cleaned(raw: str, corpus: Corpus) -> Cleaned:
    notes = Notes()
    whole, lost_lines = clean(before_cleaning(raw, corpus.cleaning, notes), corpus.repair_mojibake)
    after = apply_steps(whole, corpus.cleaning, notes) if corpus.cleaning else whole
    if after is None:
        return Cleaned("", bytes(32), lost_lines, 0, notes.dump(), "cleaning")
    text = cut(after, corpus.max_chars)
    if len(text) < corpus.min_chars:
        return Cleaned("", bytes(32), lost_lines, 0, notes.dump())
    return Cleaned(text, text_hash(text), lost_lines, len(after) - len(text), notes.dump())


def write_cleaned(part: Part, corpus: Corpus, evaluation_texts: Path, file: Path) -> tuple[Path, dict[str, Any]]:
    """Clean a part into an Arrow file; for dedicated worker processes, since it changes Arrow's memory pool.

    Returns:
        The file, and the part's entry in the manifest.

    Raises:
        DataError: the part cannot be read.
        InfrastructureError: the disk is full, or a remote source cannot be reached.
    """
    # Arrow's default allocator holds some 30 MiB for half a MiB in use, and a little more with every job
    pa.set_memory_pool(pa.system_memory_pool())
    options = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
    with (
        whole_file(file) as beside,
        pa.OSFile(str(beside), "wb") as sink,
        pa.ipc.new_stream(sink, SCHEMA, options=options) as stream,
    ):
        for batch in batches(clean_documents(part.texts(), corpus, evaluation_texts), BATCH_CHARACTERS):
            columns = [[getattr(document, name) for document in batch] for name in SCHEMA.names]
            stream.write_batch(pa.record_batch(columns, schema=SCHEMA))
    return file, part.facts(complete=True)


def read_cleaned(file: Path) -> Iterator[Cleaned]:
    """Yield the documents that :func:`write_cleaned` wrote; one batch is in memory at a time."""
    with pa.OSFile(str(file), "rb") as opened, pa.ipc.open_stream(opened) as stream:
        for batch in stream:
            for values in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                yield Cleaned(*values)
