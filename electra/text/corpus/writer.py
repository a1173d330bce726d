"""Writing documents: parquet files of bounded size, split into training and held-out documents.

If documents are few and long, splitting by whole documents is too coarse: of three books one would be held out, a third
of the text. Then groups of paragraphs are held out instead.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType

import pyarrow as pa
import pyarrow.parquet as pq

from electra.config import Corpus
from electra.text.corpus.document import Document, text_hash
from electra.text.corpus.near_duplicates import SeenIds

GROUP_CHARACTERS = 10_000


def by_split(documents: Iterable[Document], corpus: Corpus, seen: SeenIds, removed: Counter[str]) -> Iterator[Document]:
    """Yield the documents; cut those of more than ``corpus.split_longer_than`` characters into parts by split.

    Args:
        documents: documents to write.
        corpus: settings of the corpus.
        seen: ids of the documents kept so far.
        removed: counts of ``split_documents``, the documents cut, and of ``duplicate`` parts.
    """
    longest = corpus.split_longer_than
    for document in documents:
        if longest is None or len(document.text) <= longest or corpus.held_out_fraction in (0, 1):
            yield document
            continue
        parts = list(parts_by_split(document, corpus.held_out_fraction, corpus.min_chars))
        if len(parts) == 1:
            yield parts[0]
            continue
        removed["split_documents"] += 1
        for part in parts:
            if seen.add(part.digest[:8]):
                yield part
            else:
                removed["duplicate"] += 1


def parts_by_split(document: Document, held_out_fraction: float, min_chars: int = 1) -> Iterator[Document]:
    """Cut a long document into parts of at least ``min_chars`` characters that belong to one split each.

    Each group of whole lines of about ``GROUP_CHARACTERS`` is held out or not by its hash; consecutive groups of the
    same split are joined. A document whose groups all belong to one split is yielded whole, in that split.
    """
    groups = [(group, text_hash(group)) for group in _groups(document.text, max(GROUP_CHARACTERS, min_chars + 1))]
    held_out = [Document("", "", digest).split_point < held_out_fraction for _, digest in groups]
    if len(groups) > 1 and len(groups[-1][0]) < min_chars:  # too short for a document: it goes with the one before it
        held_out[-1] = held_out[-2]
    start = 0
    for end in range(1, len(groups) + 1):
        if end == len(groups) or held_out[end] != held_out[start]:
            text = "\n".join(group for group, _ in groups[start:end])
            # the part's id is the hash of its whole text; the hash of its first group decides the split
            digest = text_hash(text)[:8] + groups[start][1][8:]
            yield Document(document.source, text, digest)
            start = end


def last_paragraphs(document: Document, characters: float, min_chars: int = 1) -> tuple[Document, Document] | None:
    """Cut a document before its last lines, which have about ``characters`` characters; None if it cannot be cut.

    Each part has at least one line and ``min_chars`` characters.
    """
    lines = document.text.split("\n")
    first = len(lines) - 1
    size = len(lines[-1])
    while first > 1 and (size < min_chars or size + len(lines[first - 1]) + 1 <= characters):
        first -= 1
        size += len(lines[first]) + 1
    if first < 1 or size > len(document.text) / 2 or size < min_chars:
        return None
    before, after = ("\n".join(part) for part in (lines[:first], lines[first:]))
    return (
        Document(document.source, before, text_hash(before)),
        Document(document.source, after, text_hash(after)),
    )


def _groups(text: str, characters: int) -> Iterator[str]:
    group: list[str] = []
    size = 0
    for line in text.split("\n"):
        group.append(line)
        size += len(line) + 1
        if size >= characters:
            yield "\n".join(group)
            group, size = [], 0
    if group:
        yield "\n".join(group)


SCHEMA = pa.schema([("doc_id", pa.string()), ("source", pa.string()), ("text", pa.string())])
# Small row groups bound the memory of readers and of this writer; documents vary from a line to a book
ROW_GROUP_DOCUMENTS = 512
ROW_GROUP_CHARACTERS = 4_000_000


class ParquetFiles:
    """Writer of ``<split>-00000.parquet``, ``<split>-00001.parquet`` ...: zstd, small row groups, reproducible bytes.

    Attributes:
        documents: documents added so far.
        characters: characters of their texts.
        waiting: documents not yet written.
    """

    def __init__(self, folder: Path, split: str, documents_per_file: int):
        self.documents = self.characters = 0
        self.waiting: list[Document] = []
        self._folder, self._split, self._documents_per_file = folder, split, documents_per_file
        self._writer: pq.ParquetWriter | None = None
        self._waiting_characters = self._files = 0

    def __enter__(self) -> "ParquetFiles":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._write_row_group()
            self._close_file()
        else:
            # the folder is discarded; on a full disk the file's footer cannot be written either
            with suppress(OSError):
                self._close_file()

    def add(self, document: Document) -> None:
        """Add a document.

        Raises:
            OSError: the disk is full.
        """
        self.waiting.append(document)
        self._waiting_characters += len(document.text)
        self.documents += 1
        self.characters += len(document.text)
        file_is_full = self.documents % self._documents_per_file == 0
        if file_is_full or len(self.waiting) >= ROW_GROUP_DOCUMENTS or self._waiting_characters >= ROW_GROUP_CHARACTERS:
            self._write_row_group()
        if file_is_full:
            self._close_file()

    def _write_row_group(self) -> None:
        if not self.waiting:
            return
        if self._writer is None:
            path = self._folder / f"{self._split}-{self._files:05d}.parquet"
            # every option that affects the bytes is set, so that new defaults of pyarrow do not change them
            self._writer = pq.ParquetWriter(
                path,
                SCHEMA,
                version="2.6",
                data_page_version="1.0",
                compression="zstd",
                compression_level=3,
                use_dictionary=["source"],
                write_statistics=False,
                store_schema=False,
            )
            self._files += 1
        rows = [(document.doc_id, document.source, document.text) for document in self.waiting]
        columns = [pa.array(column, pa.string()) for column in zip(*rows, strict=True)]
        self._writer.write_table(pa.Table.from_arrays(columns, schema=SCHEMA), row_group_size=ROW_GROUP_DOCUMENTS)
        self.waiting = []
        self._waiting_characters = 0

    def _close_file(self) -> None:
        if self._writer is not None:
            writer, self._writer = self._writer, None
            writer.close()


class SplitFiles:
    """Training and held-out files; a document's split depends only on its hash.

    The one exception is a corpus so small that no document's ``split_point`` is below the held-out fraction: then the
    document with the lowest one is held out, or only its last paragraphs if it is long and has more than twice the
    requested characters. This is known only at the end, so until a document is held out, that document is kept back.

    Attributes:
        train: the training files.
        held_out: the held-out files.
        cut: the document whose last paragraphs were held out, if any.
    """

    def __init__(
        self, train: ParquetFiles, held_out: ParquetFiles, held_out_fraction: float, may_cut: bool, min_chars: int
    ):
        self.train, self.held_out = train, held_out
        self._fraction, self._may_cut, self._min_chars = held_out_fraction, may_cut, min_chars
        self._nearest: Document | None = None
        self.cut: Document | None = None

    def add(self, document: Document) -> None:
        """Add a document to its split."""
        to_train: Document | None = document
        if document.split_point < self._fraction:
            self.held_out.add(document)
            to_train, self._nearest = self._nearest, None
        elif self.held_out.documents == 0 and (
            self._nearest is None or document.split_point < self._nearest.split_point
        ):
            to_train, self._nearest = self._nearest, document
        if to_train is not None:
            self.train.add(to_train)

    def finish(self) -> None:
        """Hold out the document that was kept back, if no other is held out; call it after the last document."""
        if self._nearest is None:
            return
        size = len(self._nearest.text)
        wanted = self._fraction * (self.train.characters + size)
        parts = None
        if self._may_cut and self._fraction > 0 and wanted < size / 2 and size >= GROUP_CHARACTERS:
            parts = last_paragraphs(self._nearest, wanted, self._min_chars)
        if parts:
            self.train.add(parts[0])
            self.cut = self._nearest
        self.held_out.add(parts[1] if parts else self._nearest)
        self._nearest = None


@contextmanager
def split_files(
    folder: Path, documents_per_file: int, held_out_fraction: float, may_cut: bool = True, min_chars: int = 1
) -> Iterator[SplitFiles]:
    """Yield the files of both splits in ``folder``, which are complete when the block ends without an error.

    Args:
        may_cut: whether a single held-out document may be cut to ``held_out_fraction``.
        min_chars: characters that a part of it needs.
    """
    with (
        ParquetFiles(folder, "train", documents_per_file) as train,
        ParquetFiles(folder, "heldout", documents_per_file) as held_out,
    ):
        files = SplitFiles(train, held_out, held_out_fraction, may_cut, min_chars)
        yield files
        files.finish()
