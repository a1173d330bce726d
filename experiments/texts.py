"""Texts of the experiments: documents of archives, each in a file of its own."""

import itertools
import lzma
import random
import shutil
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from electra.common.errors import ConfigError


def write_chosen(archives: Sequence[Path], names: Sequence[str], folder: Path) -> None:
    """Write the named members of ``.tar.xz`` archives to ``NAME.txt``; the folder appears when it is complete.

    Raises:
        ConfigError: the archives do not have a name.
    """
    members = (member for archive in archives for member in members_of(archive))
    found = {stem: text for name, text in members if (stem := Path(name).stem) in names}
    if missing := sorted(set(names) - found.keys()):
        raise ConfigError(
            f"not in {', '.join(map(str, archives))}: {', '.join(missing)}", next_step="correct texts in the settings"
        )
    _write(folder, ((name, found[name]) for name in names))


def write_texts(archives: Sequence[Path], folder: Path, seed: int) -> None:
    """Write all documents, numbered in a random order; the folder appears when it is complete."""
    documents = sorted(document for archive in archives for document in documents_of(archive))
    random.Random(seed).shuffle(documents)
    _write(folder, ((f"{number:04}", document) for number, document in enumerate(documents)))


def documents_of(archive: Path) -> Iterator[bytes]:
    """Yield the documents of a ``.tar.xz`` with one in a file, or of a ``.txt.xz`` with blank lines between them."""
    if archive.name.endswith(".tar.xz"):
        for _, text in members_of(archive):
            yield text
        return
    with lzma.open(archive) as lines:
        for is_text, paragraphs in itertools.groupby(lines, lambda line: bool(line.strip())):
            if is_text:
                yield b"\n".join(paragraphs)  # a blank line after each paragraph, as in the novels


def members_of(archive: Path) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of the files in a ``.tar.xz``."""
    with tarfile.open(archive) as files:
        for member in files:
            if source := files.extractfile(member):
                yield member.name, source.read()


def _write(folder: Path, documents: Iterable[tuple[str, bytes]]) -> None:
    partial = folder.with_name(folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    for name, document in documents:
        (partial / f"{name}.txt").write_bytes(document)
    partial.rename(folder)
