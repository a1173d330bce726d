"""The files source (.txt, .jsonl, .parquet, plain or compressed, on disk or at any fsspec URL) and the hub source."""

import codecs
import errno
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO
from urllib.parse import urlsplit

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
from fsspec import AbstractFileSystem
from fsspec.implementations.local import LocalFileSystem

from electra.common.artifacts import sha256
from electra.common.errors import DataError, ElectraError, InfrastructureError
from electra.common.globs import files_of
from electra.common.lines import recoded
from electra.common.parquet_pages import bounded_batches
from electra.common.parsing import is_text, parquet_errors
from electra.common.printing import listed
from electra.common.urls import check_url, without_secrets
from electra.config import FilesCorpus, HubCorpus
from electra.text.corpus.document import Part
from electra.text.corpus.file_formats import (
    DAMAGED,
    SUFFIXES,
    WRONG_ENCODING,
    Exploding,
    HashingReader,
    decompressed,
    jsonl_documents,
    read_checksums,
    text_documents,
)

FORMATS = (".txt", ".jsonl", ".parquet")
PARQUET_BATCH_ROWS = 64


@dataclass(frozen=True)
class InputFile:
    """One file to read.

    Attributes:
        name: the path or URL as the user wrote it, with globs expanded.
        filesystem, path: the location for fsspec.
        format: one of ``FORMATS``.
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
        except Exploding as error:
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
        return {"path": self._file.shown, **((self._read if complete else {}) or _ask(self._file))}

    def _documents(self) -> Iterator[str]:
        settings, file = self._settings, self._file
        with file.filesystem.open(file.path, "rb") as opened:
            if file.format == ".parquet" and not file.compression:
                if self._expected:  # parquet is not read from beginning to end
                    self._compare(hashlib.file_digest(opened, "sha256").hexdigest())
                    opened.seek(0)
                yield from _parquet_documents(opened, file.shown, settings.text_field, file.is_local)
                return
            raw = HashingReader(opened)
            content = decompressed(raw, file.compression)
            if codecs.lookup(settings.encoding).name != "utf-8" and file.format != ".parquet":
                content = recoded(content, file.name, settings.encoding, WRONG_ENCODING)
            if file.format == ".txt":
                yield from text_documents(content, file.shown, settings.documents)
            elif file.format == ".jsonl":
                yield from jsonl_documents(content, file.shown, settings.text_field)
            else:
                with tempfile.TemporaryFile() as seekable:
                    shutil.copyfileobj(content, seekable)
                    yield from _parquet_documents(seekable, file.shown, settings.text_field)
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
    suffixes = PurePosixPath(urlsplit(name).path if is_http else name).suffixes
    compression = suffixes.pop() if suffixes and suffixes[-1] in SUFFIXES else ""
    format = suffixes[-1] if suffixes else ""
    if format not in FORMATS:
        raise DataError(
            "of no known format: the name must end in "
            + f"{', '.join(FORMATS)}, and may have {', '.join(SUFFIXES)} after it",
            where=without_secrets(name),
            next_step="rename the file, or narrow the glob in corpus.sources paths",
        )
    return InputFile(name, filesystem, path, format, compression)


def _parquet_documents(file: BinaryIO, name: str, text_field: str, is_local: bool = True) -> Iterator[str]:
    """Yield the values of the column ``text_field``, a small batch in memory at a time; null counts as empty.

    Args:
        is_local: False if seeking is slow; see :func:`bounded_batches`.
    """
    with parquet_errors(name):
        parquet = pq.ParquetFile(file)
        columns = parquet.schema_arrow
        if columns.names.count(text_field) != 1:
            what = "several columns" if text_field in columns.names else "no column"
            raise DataError(
                f"{what} {text_field!r}; the columns are: {listed(columns.names)}",
                where=name,
                next_step="set text_field of the source",
            )
        if not _is_text(columns.field(text_field).type):
            raise DataError(
                f"column {text_field!r} holds {columns.field(text_field).type}, not text",
                where=name,
                next_step="set text_field of the source",
            )
        for batch in bounded_batches(file, parquet, [text_field], name, PARQUET_BATCH_ROWS, is_local):
            for text in batch.column(0).to_pylist():
                yield text or ""


def _is_text(type: pa.DataType) -> bool:
    if pa.types.is_dictionary(type):
        type = type.value_type
    return pa.types.is_string(type) or pa.types.is_large_string(type) or pa.types.is_string_view(type)


def _ask(file: InputFile) -> dict[str, Any]:
    """Return size and sha256 or etag of a file that was not read from beginning to end."""
    if file.is_local:
        path = Path(file.path)
        return {"bytes": path.stat().st_size, "sha256": sha256(path)}
    info = file.filesystem.info(file.path)
    etag = info.get("ETag") or info.get("etag")
    return {"bytes": info.get("size")} | ({"etag": etag} if etag else {})


class HubSource:
    """Source of the documents of a dataset on the Hugging Face hub.

    Streaming keeps nothing on disk. With ``data_files`` the repository's parquet files are read directly, for
    repositories whose main branch holds a loading script, which ``datasets`` no longer runs. The dataset is one part,
    so a single worker cleans it.
    """

    def __init__(self, settings: HubCorpus):
        self.name, self.settings = settings.name, settings
        self._is_local = Path(settings.dataset).is_dir()

    def parts(self) -> list[Part]:
        return [self]

    def texts(self) -> Iterator[str]:
        """Yield the texts of the split, in the dataset's order.

        Raises:
            DataError: no such dataset, revision, configuration, split, file or column.
            InfrastructureError: the hub cannot be reached.
        """
        import datasets

        settings = self.settings
        with _loading(settings):
            if settings.data_files:
                # the parquet builder names its only split "train"
                dataset = datasets.load_dataset(
                    "parquet", data_files=self._data_files(settings.data_files), split="train", streaming=True
                )
            else:
                dataset = datasets.load_dataset(
                    settings.dataset,
                    settings.config_name,
                    split=settings.split,
                    revision=None if self._is_local else settings.revision,
                    streaming=True,
                )
            for row, item in enumerate(dataset):
                if settings.text_field not in item:
                    raise DataError(
                        f"no column {settings.text_field!r}; the columns are: {listed(item)}",
                        where=f"{settings.dataset}, split {settings.split}",
                        next_step=f"set text_field of the source {settings.name!r}",
                    )
                text = item[settings.text_field]
                if not isinstance(text, str | None):
                    raise DataError(
                        f"column {settings.text_field!r} holds {type(text).__name__}, not text",
                        where=f"{settings.dataset}, split {settings.split}, row {row}",
                        next_step=f"set text_field of the source {settings.name!r}",
                    )
                yield text or ""

    def describe(self, read: list[dict[str, Any]]) -> dict[str, Any]:
        return self.facts(complete=bool(read))

    def facts(self, *, complete: bool) -> dict[str, Any]:
        """Return dataset, configuration, split and revision; for a local folder also its files with their sha256."""
        settings = self.settings
        facts: dict[str, Any] = {"dataset": settings.dataset, "config_name": settings.config_name}
        facts |= {"data_files": settings.data_files, "split": settings.split}
        if not self._is_local:
            return facts | {"revision": settings.revision}
        folder = Path(settings.dataset)
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        return facts | {
            "files": [
                {"path": path.relative_to(folder).as_posix(), "bytes": path.stat().st_size, "sha256": sha256(path)}
                for path in files
            ]
        }

    def _data_files(self, pattern: str) -> str:
        if self._is_local:
            return str(Path(self.settings.dataset) / pattern)
        return f"hf://datasets/{self.settings.dataset}@{self.settings.revision}/{pattern}"


@contextmanager
def _loading(settings: HubCorpus) -> Iterator[None]:
    """Convert errors of finding, fetching or reading a dataset into the project's errors."""
    from datasets.exceptions import DatasetGenerationError
    from huggingface_hub.utils import HfHubHTTPError, httpx

    try:
        yield
    except (ConnectionError, TimeoutError, httpx.RequestError) as error:
        raise _unreachable(settings, error) from error
    except HfHubHTTPError as error:
        status = error.response.status_code
        if status == 429 or status >= 500:
            raise _unreachable(settings, error) from error
        raise _unusable(settings, error) from error
    # RuntimeError: datasets refuses to run a loading script
    except (FileNotFoundError, ValueError, RuntimeError, DatasetGenerationError) as error:
        raise _unusable(settings, error) from error


def _unreachable(settings: HubCorpus, error: Exception) -> InfrastructureError:
    return InfrastructureError(
        f"{settings.dataset} cannot be fetched: {error}",
        where=f"corpus source {settings.name!r}",
        next_step="check the network and run again",
    )


def _unusable(settings: HubCorpus, error: Exception) -> DataError:
    return DataError(
        f"{settings.dataset} cannot be loaded: {error}",
        where=f"corpus source {settings.name!r}",
        next_step="check dataset, revision, config_name, split, data_files and your access rights",
    )
