"""Outputs of a corpus build, and small inputs."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from electra.common.artifacts import read_manifest
from electra.common.paths import Paths
from electra.config import Corpus
from electra.text.corpus.cleaned import clean_documents, read_cleaned, write_cleaned
from electra.text.corpus.document import CleanedDocument

Build = Callable[..., "Built"]


class Built:
    """Outputs of a corpus build."""

    def __init__(self, root: Path):
        self.folder = Paths(root).corpus

    @property
    def manifest(self) -> dict[str, Any]:
        return read_manifest(self.folder)

    def rows(self, split: str = "*") -> list[dict[str, str]]:
        return [
            row for path in sorted(self.folder.glob(f"{split}-*.parquet")) for row in pq.read_table(path).to_pylist()
        ]

    def texts(self, split: str = "*") -> list[str]:
        return [row["text"] for row in self.rows(split)]

    def bytes(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in sorted(self.folder.iterdir())}


def write_documents(name: str, texts: list[str]) -> None:
    """Write a text file in which blank lines separate documents."""
    Path(name).write_text("\n\n".join(texts))


def cleaned_by_a_worker_too(
    texts: list[str], corpus: Corpus, evaluation_texts: Path, file: Path
) -> list[CleanedDocument]:
    """Clean texts here and as a worker does, into ``file``; the documents must be the same."""

    class Part:
        def texts(self) -> Iterator[str]:
            return iter(texts)

        def facts(self, *, complete: bool) -> dict[str, Any]:
            return {}

    here = list(clean_documents(iter(texts), corpus, evaluation_texts))
    written, _ = write_cleaned(Part(), corpus, evaluation_texts.absolute(), file)
    assert list(read_cleaned(written)) == here
    return here


def sentences(num: int, start: int = 0) -> list[str]:
    """Different one-line documents."""
    return [f"Sentence {i} is about the number {i * i}." for i in range(start, start + num)]


def jsonl(texts: list[str], field: str = "text") -> str:
    return "".join(json.dumps({field: text}) + "\n" for text in texts)
