"""The user's texts: files, what separates documents in them, scripts, and the vocabulary that they can fill."""

import codecs
import glob
import os
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from electra.cluster.estimate.text_size import COMPRESSION, SAMPLE_BYTES, spread, text_bytes
from electra.common.errors import ConfigError, DataError
from electra.common.globs import expanded
from electra.common.lines import open_input
from electra.config import Corpus, FilesCorpus, Tokenizer
from electra.config.text import MANY_PARAGRAPHS, PARAGRAPH_CHARS
from electra.init.script import Script, scripts_of
from electra.inputs import holds_outputs
from electra.text.corpus.compression import SUFFIXES
from electra.text.corpus.files import FORMATS, FilePart, InputFile, find_files
from electra.text.corpus.writer import GROUP_CHARACTERS
from electra.text.tokenizer.wordpiece import alphabet_of, single_entries

MAX_COUNTED_BYTES = 16_000_000  # of text whose words are counted
BYTES_PER_ENTRY = 120  # bytes of text per entry of the vocabulary
MIN_CHARS = Corpus.model_fields["min_chars"].default  # shorter documents are dropped
COVERAGE = Tokenizer.model_fields["character_coverage"].default  # rarer characters get no entry
HAN = "\u2e80-\u2fdf\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
WORD = re.compile(rf"[^\W_{HAN}]{{2,}}")  # BERT's pre-tokenizer makes a word of each Han character, and splits at _
LONG_LINE = 120  # characters; a file of such lines without blank lines has a document per line


@dataclass(frozen=True)
class Texts:
    """Text files that were found.

    Attributes:
        patterns: paths for ``corpus.sources``.
        num_bytes: bytes of text in UTF-8; estimated for files other than plain text.
        documents: separator of documents in text files; ``reason``: why it was chosen.
        scripts: scripts in a sample of the local files.
        vocabulary: number of vocabulary entries for which the text is large enough.
        left_out: files of given folders that are of no known format, as text for the user; empty if there are none.
    """

    patterns: list[str]
    field: str
    files: list[InputFile]
    num_bytes: int
    documents: str
    reason: str
    scripts: list[Script]
    vocabulary: int
    left_out: str = ""

    @property
    def keeps_marks(self) -> bool:
        """Whether stripping marks would change letters of a script in which they are regular."""
        return any(script.keeps_marks for script in self.scripts)

    @property
    def size(self) -> str:
        """Number of files and their size, as text for the user."""
        size = self.num_bytes
        shown = f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.1f} MB" if size >= 1e5 else f"{size:,} bytes"
        about = "about " if any(file.compression or file.format != ".txt" for file in self.files) else ""
        return f"{len(self.files)} {'file' if len(self.files) == 1 else 'files'}, {about}{shown}"


def find_texts(given: list[str], root: Path, field: str, encoding: str) -> Texts:
    """Find and sample the texts.

    Args:
        given: files, folders, globs or URLs; relative to ``root``.
        field: field of .jsonl and .parquet files with the text.

    Raises:
        ConfigError: a path does not exist.
        DataError: there is no text, or a single document of it, or a file cannot be read.
    """
    others: Counter[str] = Counter()
    patterns = [pattern for text in given for pattern in _patterns(text, root, others)]
    files = find_files([pattern if "://" in pattern else str(root / pattern) for pattern in patterns])
    local = [Path(file.path) for file in files if file.is_local]
    num_bytes = text_bytes(local, field, encoding)
    num_bytes += sum(_remote_bytes(file) for file in files if not file.is_local)
    plain = [file for file in files if file.is_local and not file.compression and file.format == ".txt"]
    if not num_bytes:
        raise DataError("the files are empty", where=", ".join(given), next_step="name files with text")
    documents, reason = _separator([_sample(Path(file.path), encoding) for file in spread(plain)], len(plain))
    if len(plain) == len(files) and num_bytes <= MAX_COUNTED_BYTES:
        _require_two_documents([line for file in plain for line in _text(file, encoding).splitlines()], given)
    beginnings = {file.name: _beginning(file, field, encoding) for file in spread(files) if file.is_local}
    sampled = [text for texts in beginnings.values() for text in texts]
    if len(plain) < len(files) == len(beginnings):
        _require_two_documents([unit for text in sampled for unit in _units(text)], given)
    sample = "\n".join(sampled)
    scripts = scripts_of(sample)
    vocabulary = _vocabulary(files, plain, num_bytes, encoding)
    if scripts and scripts[0].name == "Han":  # WordPiece joins no such characters: few words, whatever the size
        vocabulary = min(vocabulary, _entries([sample]))
    most = sorted(others.items(), key=lambda ending: (-ending[1], ending[0]))[:5]
    endings = ", ".join(f"{ending} {number}" for ending, number in most)
    left_out = f"left out, not {', '.join(FORMATS)}: {endings}" if others else ""
    return Texts(patterns, field, files, num_bytes, documents, reason, scripts, vocabulary, left_out)


def _remote_bytes(file: InputFile) -> int:
    return int((file.filesystem.size(file.path) or 0) * (COMPRESSION if file.compression else 1))


def _beginning(file: InputFile, field: str, encoding: str) -> list[str]:
    """Return the first ``SAMPLE_BYTES`` characters of a file's lines or documents; two at least, if it has them."""
    source = FilesCorpus(
        kind="files", name="sample", paths=[file.path], text_field=field, encoding=encoding, documents="line"
    )
    texts, size = [], 0
    try:
        for text in FilePart(file, source, None).texts():
            if not text.strip():
                continue
            texts.append(text[: max(MIN_CHARS, SAMPLE_BYTES - size)])
            size += len(texts[-1])
            if size >= SAMPLE_BYTES and len(texts) > 1:
                break
    except DataError as error:
        if "text_field" not in (error.next_step or ""):
            raise
        step = "name the one with the text: electra init ... --field NAME"
        raise DataError(error.what, where=error.where, next_step=step) from None
    return texts


def _units(document: str) -> list[str]:
    """Return the parts of a document of which the stage ``corpus`` may hold some out: its lines if it is long."""
    return document.splitlines() if len(document) >= GROUP_CHARACTERS else [document]


def _vocabulary(files: list[InputFile], plain: list[InputFile], num_bytes: int, encoding: str) -> int:
    """Return a lower bound on the entries of a vocabulary of these texts: each word that occurs twice becomes one.

    A fifth is subtracted for text that cleaning removes. Large texts and files other than plain .txt are estimated by
    their size.
    """
    if len(plain) < len(files) or num_bytes > MAX_COUNTED_BYTES:
        return num_bytes // BYTES_PER_ENTRY
    return _entries(_text(file, encoding) for file in plain)


def _text(file: InputFile, encoding: str) -> str:
    return Path(file.path).read_text(encoding, errors="ignore")


def _require_two_documents(lines: list[str], given: list[str]) -> None:
    """Raise DataError for texts from which the stage ``corpus`` cannot make two documents, however they are cut."""
    filled = [line.strip() for line in lines if line.strip()]
    if len(filled) < 2 or sum(map(len, filled)) < 2 * MIN_CHARS:
        raise DataError(
            "a single document; a run needs one to train on and one held out",
            where=", ".join(given),
            next_step="give more text, or put each document on a line of its own",
        )


def _entries(texts: Iterable[str]) -> int:
    """Return the number of entries of single characters, and of four fifths of the longer words that occur twice."""
    characters: Counter[str] = Counter()
    words: Counter[str] = Counter()
    for text in texts:
        lower = text.lower()
        characters.update(lower)
        words.update(WORD.findall(lower))
    alphabet = alphabet_of(characters, lowercase=True, strip_accents=False, coverage=COVERAGE)
    return len(single_entries(alphabet)) + int(0.8 * sum(count > 1 for count in words.values()))


def _patterns(text: str, root: Path, others: Counter[str]) -> list[str]:
    """Return globs for the formats of the files in a folder, or any other path or URL as one pattern.

    Paths in the workspace become relative to it.

    Args:
        others: counts of the endings of files in a folder that are of no known format; added to.
    """
    if "://" in text:
        return [text]
    if not glob.has_magic(text) and not (root / text).exists():
        raise ConfigError(f"no file matches {text}", where="the texts", next_step="correct the path of your texts")
    path = relative_to(root / text, root)
    if not (root / text).is_dir():
        return [path]
    if holds_outputs(path, root):
        raise ConfigError(
            "the pipeline writes into this folder",
            where=text,
            next_step="move the texts into a folder of their own, such as corpus/",
        )
    names = [name for name in expanded(f"{glob.escape(path)}/**/*", root) if (root / name).is_file()]
    found: set[str] = set()
    for name in names:  # as the corpus stage finds them: links to folders are followed, hidden files are left out
        file = Path(name)
        suffixes = file.suffixes[-2:] if file.suffix in SUFFIXES else file.suffixes[-1:]
        if suffixes and suffixes[0] in FORMATS:
            found.add(f"{glob.escape(path)}/**/*{''.join(suffixes)}")
        else:
            others[file.suffix or "no ending"] += 1
    if not found:
        raise DataError(
            f"no text in it: no file ends in {', '.join(FORMATS)}",
            where=text,
            next_step="name the files, or convert them; labelled tables go to --table",
        )
    if all(os.path.dirname(name) == path for name in names):
        return sorted(pattern.replace("/**/", "/") for pattern in found)
    return sorted(found)


def relative_to(path: Path, root: Path) -> str:
    """Return a path in the workspace relative to it, any other path as absolute."""
    absolute = Path(os.path.abspath(path))
    inside = absolute.is_relative_to(root.absolute())
    return str(absolute.relative_to(root.absolute()) if inside else absolute)


@dataclass(frozen=True)
class Sample:
    """Statistics of the beginning of a text file.

    Attributes:
        documents: separator of documents, estimated from this file alone.
        number: number of lines, or of blocks between blank lines, by ``documents``; estimated for the whole file.
        mean_characters: their mean length.
    """

    documents: str
    number: int
    mean_characters: float


def _separator(samples: list[Sample], num_files: int) -> tuple[str, str]:
    """Return the separator of documents in the text files, and the reason.

    Many short lines or blocks are taken for the paragraphs of a file.
    """
    if not samples:
        return "blank_line", ""
    most = Counter(sample.documents for sample in samples).most_common(1)[0][0]
    if most == "file":
        return most, "no blank lines, and lines are short: a file is a document"
    chosen = sorted((sample for sample in samples if sample.documents == most), key=lambda sample: sample.number)
    middle = chosen[len(chosen) // 2]
    number, characters = middle.number, middle.mean_characters
    units, place = ("lines", "without") if most == "line" else ("blocks", "between")
    what = f"{number:,} {units} of {characters:,.0f} characters {place} blank lines"
    is_short = number >= MANY_PARAGRAPHS and characters < PARAGRAPH_CHARS
    if is_short and num_files > 1:
        return "file", f"files have about {what}, which look like paragraphs: a file is a document"
    if is_short:
        return most, f"about {what}: each is a document; if they are the paragraphs of one text, set file"
    return most, f"about {what}" + (" in a file" if num_files > 1 else "") + ": each is a document"


def _sample(path: Path, encoding: str) -> Sample:
    """Return statistics of the beginning of a text file."""
    with open_input(path) as file:
        head = file.read(SAMPLE_BYTES)
    try:
        decoder = codecs.getincrementaldecoder(encoding)()  # the sample may end within a character
        text = decoder.decode(head, final=len(head) < SAMPLE_BYTES)
    except UnicodeError as error:
        raise DataError(
            f"no text in {encoding}: {error}",
            where=str(path),
            next_step="say its encoding: electra init ... --encoding cp1252 (or latin-1, utf-16, shift_jis, ...)",
        ) from None
    blocks = [block for block in re.split(r"\n(?:[ \t\r]*\n)+", text) if block.strip()]
    documents, units = "blank_line", blocks
    if len(blocks) < 2:
        units = [line for line in text.splitlines() if line.strip()]
        lengths = sorted(map(len, units))
        documents = "line" if units and lengths[len(units) // 2] >= LONG_LINE else "file"
    number = round(len(units) * path.stat().st_size / max(1, len(head)))
    return Sample(documents, number, sum(map(len, units)) / max(1, len(units)))
