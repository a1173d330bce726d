"""``electra corpus --show``: what cleaning kept and dropped, side by side."""

from collections.abc import Iterator
from itertools import islice
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from electra.common.artifacts import listed_files, read_json
from electra.common.corpus_file import read_documents
from electra.common.errors import DataError
from electra.common.paths import Paths
from electra.corpus.cleaning.notes import CLEANING, EXAMPLE_CHARACTERS


def show_corpus(paths: Paths, number: int, console: Console | None = None) -> None:
    """Print the counts of every rule, then up to ``number`` examples of each, what stood there before beside what is
    left, then the beginnings of ``number`` kept documents.

    Raises:
        DataError: there is no corpus, or it was made without steps in ``corpus.cleaning``.
    """
    console = console or Console()
    listed = listed_files(paths.corpus)
    if not any(file.path.name == CLEANING for file in listed):
        raise DataError(
            "the corpus was made without cleaning steps: nothing was noted",
            where=str(paths.corpus),
            next_step="list steps in corpus.cleaning (docs/cleaning.md) and run: dvc repro corpus",
        )
    rules: dict[str, dict[str, Any]] = read_json(paths.corpus / CLEANING)
    counts = Table("rule", "documents", "lines", "characters", box=box.SIMPLE, title="removed, by rule")
    for rule, facts in rules.items():
        counts.add_row(rule, *(f"{facts[what]:,}" for what in ("documents", "lines", "characters")))
    console.print(counts)
    for rule, facts in rules.items():
        examples = Table("before", "after", box=box.SQUARE, show_lines=True, title=rule, expand=True)
        for column in examples.columns:
            column.ratio = 1
        for example in facts["examples"][:number]:
            # Text: what stands in square brackets is no markup of rich's
            examples.add_row(
                Text(_printable(example["before"])), Text(_printable(example["after"]) or "(dropped)", "dim")
            )
        console.print(examples)
    kept = Table("kept", box=box.SQUARE, show_lines=True, title="documents kept, their beginnings", expand=True)
    for text in islice(_kept(paths), number):
        kept.add_row(Text(_printable(text[:EXAMPLE_CHARACTERS])))
    console.print(kept)


def _kept(paths: Paths) -> Iterator[str]:
    for file in listed_files(paths.corpus, "train-*.parquet"):
        for _, texts in read_documents(file.path):
            yield from texts


def _printable(text: str) -> str:
    """Without characters that would control the terminal."""
    return "".join(character if character.isprintable() or character == "\n" else "\ufffd" for character in text)
