"""Documents of files: .txt (or .train), .jsonl or .parquet, plain or compressed, on disk or at any fsspec URL."""

import codecs
import errno
import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

import fsspec
from fsspec import AbstractFileSystem
from fsspec.implementations.local import LocalFileSystem

from electra.common.artifacts import sha256
from electra.common.errors import ConfigError, DataError, ElectraError, InfrastructureError
from electra.common.globs import files_of
from electra.common.lines import recoded, text_lines
from electra.common.parsing import is_text
from electra.common.urls import check_url, without_secrets
from electra.config import FilesCorpus
from electra.text.corpus.compression import DAMAGED, SUFFIXES, DecompressionBomb, HashingReader, decompressed
from electra.text.corpus.file_formats import WRONG_ENCODING, jsonl_documents, parquet_documents, text_documents
from electra.text.corpus.sources import Part

FORMATS = {".txt": ".txt", ".train": ".txt", ".jsonl": ".jsonl", ".parquet": ".parquet"}  # by suffix


@dataclass(frozen=True)
class InputFile:
    """One file to read.

    Attributes:
        name: the path or URL as the user wrote it, with globs expanded.
        filesystem, path: the location for fsspec.
        format: one of the values of ``FORMATS``.
        compression: one of ``SUFFIXES``, or empty.
    """

    name: str
    filesystem: AbstractFileSystem
    path: str
    format: str
    compression: str

    @property
    def shown(self) -> str:
        """Name for messages and manifests, without secrets."""
        return without_secrets(self.name)

    @property
    def is_local(self) -> bool:
        return isinstance(self.filesystem, LocalFileSystem)


class FilesSource:
    """Source of documents in files, in the order of their names; each file is a part."""

    def __init__(self, settings: FilesCorpus):
        self.name, self.settings = settings.name, settings

    def parts(self) -> list[Part]:
        """Return the files.

        Raises:
            DataError: a pattern matches nothing, a file is of no known format, or ``checksums`` cannot be used.
        """
        files = find_files(self.settings.paths)
        sums = self.settings.checksums
        expected = read_checksums(Path(sums), [file.name for file in files]) if sums else {}
        return [FilePart(file, self.settings, expected.get(file.name)) for file in files]

    def describe(self, read: list[dict[str, Any]]) -> dict[str, Any]:
        """Return the files that were opened: bytes and sha256, or the size and etag that the remote side reports."""
        return {"files": read}


class FilePart:
    """The documents of one file.

    Args:
        file: the file.
        settings: the source's settings.
        expected: the file's sha256 according to ``checksums``, if given.
    """

    def __init__(self, file: InputFile, settings: FilesCorpus, expected: str | None):
        self._file, self._settings, self._expected = file, settings, expected
        self._read: dict[str, Any] = {}

    def texts(self) -> Iterator[str]:
        """Yield the documents.

        Raises:
            DataError: the file is not of the format in its name, or not the expected one; names file and line.
            InfrastructureError: a remote file cannot be fetched.
        """
        try:
            yield from self._documents()
        except DAMAGED as error:
            raise DataError(
                f"the compressed data is damaged or cut short: {error}",
                where=self._file.shown,
                next_step="fetch or write the file again",
            ) from error
        except DecompressionBomb as error:
            raise DataError(
                f"the compressed data is out of proportion: {error}",
                where=self._file.shown,
                next_step="decompress the file and look at it; a plain file may have any size",
            ) from error
        except (FileNotFoundError, PermissionError, IsADirectoryError) as error:
            raise DataError(f"cannot be opened: {error.strerror or error}", where=self._file.shown) from error
        except (ElectraError, MemoryError):
            raise
        except Exception as error:  # every file system has its own exception classes
            if self._file.is_local and not isinstance(error, OSError):
                raise
            if isinstance(error, OSError) and error.errno == errno.EINVAL:
                raise DataError(
                    "no regular file: the system does not know its size",
                    where=self._file.shown,
                    next_step="copy its content into a regular file, and name that file",
                ) from error
            raise InfrastructureError(
                f"cannot be fetched: {str(error).replace(self._file.name, self._file.shown)}",
                where=self._file.shown,
                next_step="check the disk or the network, and run again",
            ) from error

    def facts(self, *, complete: bool) -> dict[str, Any]:
        return {"path": self._file.shown, **((self._read if complete else {}) or _file_facts(self._file))}

    def _documents(self) -> Iterator[str]:
        settings, file = self._settings, self._file
        with file.filesystem.open(file.path, "rb") as opened:
            if file.format == ".parquet" and not file.compression:
                if self._expected:  # parquet is not read from beginning to end
                    self._compare(hashlib.file_digest(opened, "sha256").hexdigest())
                    opened.seek(0)
                yield from parquet_documents(opened, file.shown, settings.text_field, file.is_local)
                return
            raw = HashingReader(opened)
            content = decompressed(raw, file.compression)
            if codecs.lookup(settings.encoding).name != "utf-8" and file.format != ".parquet":
                content = recoded(content, file.shown, settings.encoding, WRONG_ENCODING)
            if file.format == ".txt":
                yield from text_documents(content, file.shown, settings.documents)
            elif file.format == ".jsonl":
                yield from jsonl_documents(content, file.shown, settings.text_field)
            else:
                with tempfile.TemporaryFile() as seekable:
                    shutil.copyfileobj(content, seekable)
                    yield from parquet_documents(seekable, file.shown, settings.text_field)
            self._read = {"bytes": raw.num_bytes, "sha256": raw.sha256.hexdigest()}
            self._compare(self._read["sha256"])

    def _compare(self, found: str) -> None:
        if self._expected and found != self._expected:
            raise DataError(
                f"the file was changed, damaged or cut short: its sha256 is {found}, {self._settings.checksums} says "
                f"{self._expected}",
                where=self._file.shown,
                next_step="fetch or write the file again, or correct the checksum",
            )


def find_files(patterns: list[str]) -> list[InputFile]:
    """Return the files matched by paths, globs and URLs, each once, sorted by name.

    Raises:
        DataError: a pattern matches nothing, or a file is of no known format.
    """
    found: dict[str, InputFile] = {}
    for pattern in patterns:
        local = pattern.removeprefix("file://")
        matches = _match_url(local) if "://" in local else _match_local(local, pattern[: -len(local)])
        if not matches:
            raise DataError(
                "no file matches",
                where=f"corpus.sources paths: {without_secrets(pattern)}",
                next_step="check the path; it is relative to the folder that holds dvc.yaml",
            )
        found |= {file.name: file for file in matches}
    return [found[name] for name in sorted(found)]


def _match_local(pattern: str, scheme: str = "") -> list[InputFile]:
    filesystem = fsspec.filesystem("file")
    here = os.getcwd()  # absolute: a worker's current folder may differ
    return [_input_file(f"{scheme}{name}", filesystem, os.path.join(here, name)) for name in files_of(pattern)]


def _match_url(pattern: str) -> list[InputFile]:
    check_url(pattern)
    try:
        opened = fsspec.open_files(pattern, "rb")
    except (ValueError, ImportError) as error:
        raise DataError(f"cannot be opened: {error}", where=without_secrets(pattern)) from error
    except FileNotFoundError:
        return []
    except Exception as error:  # every file system has its own exceptions, and many need more than a URL
        shown = without_secrets(pattern)
        raise (InfrastructureError if isinstance(error, OSError) else DataError)(
            f"cannot be opened: {type(error).__name__}: {error}".replace(pattern, shown),
            where=shown,
            next_step="check the URL and the network, or fetch the files first and name them by their paths",
        ) from error
    is_glob = "*" in pattern
    return [_input_file(f.full_name if is_glob else pattern, f.fs, f.path) for f in opened]


def _input_file(name: str, filesystem: AbstractFileSystem, path: str) -> InputFile:
    if not is_text(name):
        raise DataError(
            "the file's name is not UTF-8, and manifests can only hold text",
            where=name,
            next_step="rename the file; convmv -f latin1 -t utf8 renames many",
        )
    # in other URLs and in paths, "?" is part of the name
    is_http = name.startswith(("http://", "https://"))
    path_in_name = PurePosixPath(urlsplit(name).path if is_http else name)
    suffixes = [suffix.lower() for suffix in path_in_name.suffixes]
    compression = suffixes.pop() if suffixes and suffixes[-1] in SUFFIXES else ""
    format = FORMATS.get(suffixes[-1] if suffixes else "")
    if format is None:
        raise DataError(
            "of no known format: the name must end in "
            + f"{', '.join(FORMATS)}, and may have {', '.join(SUFFIXES)} after it",
            where=without_secrets(name),
            next_step="rename the file, or narrow the glob in corpus.sources paths",
        )
    return InputFile(name, filesystem, path, format, compression)


def _file_facts(file: InputFile) -> dict[str, Any]:
    """Return size and sha256 or etag of a file that was not read from beginning to end."""
    if file.is_local:
        path = Path(file.path)
        return {"bytes": path.stat().st_size, "sha256": sha256(path)}
    info = file.filesystem.info(file.path)
    etag = info.get("ETag") or info.get("etag")
    return {"bytes": info.get("size")} | ({"etag": etag} if etag else {})


CHECKSUM_LINE = re.compile(r"([0-9a-fA-F]{64}) [ *](.+)")


def read_checksums(path: Path, names: list[str]) -> dict[str, str]:
    """Return the sha256 of each named file.

    Args:
        path: file with a checksum and a name per line; names are relative to the folder of ``path``, or written as in
            ``names``.
        names: paths or URLs.

    Raises:
        ConfigError: ``path`` cannot be read.
        DataError: a line is not a checksum and a name, or a file has no checksum.
    """
    by_name: dict[str, str] = {}
    try:
        with open(path, "rb") as file:
            lines = [line.rstrip("\r\n") for _, line in text_lines(file, str(path))]
    except OSError as error:
        raise ConfigError(f"cannot be read: {error}", where=f"corpus.sources checksums: {path}") from None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        match = CHECKSUM_LINE.fullmatch(line)
        if not match:
            raise DataError(
                "not a checksum and a file name",
                where=f"{path}:{number}",
                next_step=f"write it with: sha256sum ... > {path.name}",
            )
        digest, name = match[1].lower(), match[2]
        by_name[name] = by_name[os.path.abspath(path.parent / name)] = digest
    found = {name: by_name.get(name) or by_name.get(os.path.abspath(name.removeprefix("file://"))) for name in names}
    if unknown := [name for name, digest in found.items() if digest is None]:
        raise DataError(
            f"{len(unknown)} input files have no checksum there, first {unknown[0]}",
            where=f"corpus.sources checksums: {path}",
            next_step="add them, or narrow `paths`",
        )
    return {name: digest for name, digest in found.items() if digest}
