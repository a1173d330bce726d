"""Record of what cleaning removed: counts and a few examples by rule; ``electra corpus --show`` prints them.

The examples are the texts with the smallest hashes: spread over the corpus, and independent of the order of the
documents and of the number of workers.
"""

import hashlib
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
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
from electra.common.printing import printable, raw_stream

CLEANING = "cleaning.json"  # in the folder of the corpus
NUM_EXAMPLES = 10
EXAMPLE_CHARACTERS = 300


@dataclass
class RuleNotes:
    """Counts and examples of one rule.

    Attributes:
        documents, lines, characters: numbers removed; changed lines count too, with the characters they lost.
        examples: (hash, before, after), the smallest hashes first.
    """

    documents: int = 0
    lines: int = 0
    characters: int = 0
    examples: list[tuple[str, str, str]] = field(default_factory=list)

    def add_example(self, before: str, after: str) -> None:
        before, after = before[:EXAMPLE_CHARACTERS], after[:EXAMPLE_CHARACTERS]
        digest = hashlib.blake2b(before.encode("utf-8"), digest_size=8).hexdigest()
        if len(self.examples) < NUM_EXAMPLES or digest < self.examples[-1][0]:
            self._keep([*self.examples, (digest, before, after)])

    def merge(self, documents: int, lines: int, characters: int, examples: list[list[str]]) -> None:
        self.documents += documents
        self.lines += lines
        self.characters += characters
        if examples:
            self._keep([*self.examples, *((digest, before, after) for digest, before, after in examples)])

    def _keep(self, examples: list[tuple[str, str, str]]) -> None:
        self.examples = sorted(set(examples))[:NUM_EXAMPLES]


class Notes:
    """Counts and examples by rule, in the order in which the rules first applied."""

    def __init__(self) -> None:
        self.rules: dict[str, RuleNotes] = {}

    def line(self, rule: str, before: str, after: str = "") -> None:
        """Record a line that was removed, or changed to ``after``."""
        notes = self.rules.setdefault(rule, RuleNotes())
        notes.lines += 1
        notes.characters += len(before) - len(after)
        notes.add_example(before, after)

    def document(self, rule: str, lines: list[str]) -> None:
        """Record a document that was dropped."""
        notes = self.rules.setdefault(rule, RuleNotes())
        notes.documents += 1
        notes.characters += sum(map(len, lines)) + max(0, len(lines) - 1)
        notes.add_example("\n".join(lines[:20]), "")

    def pair(self, rule: str, text: str, other: str) -> None:
        """Record a document that was dropped as a duplicate of ``other``, which the example shows as "after"."""
        notes = self.rules.setdefault(rule, RuleNotes())
        notes.documents += 1
        notes.characters += len(text)
        notes.add_example(text, other)

    def dump(self) -> str:
        """Return the notes as JSON; an empty string if nothing was removed."""
        if not self.rules:
            return ""
        return json.dumps({rule: [n.documents, n.lines, n.characters, n.examples] for rule, n in self.rules.items()})

    def add(self, dumped: str) -> None:
        """Add the notes of a document, as returned by :meth:`dump`."""
        if dumped:
            for rule, (documents, lines, characters, examples) in json.loads(dumped).items():
                self.rules.setdefault(rule, RuleNotes()).merge(documents, lines, characters, examples)

    def report(self) -> dict[str, Any]:
        """Return the content of ``cleaning.json``: rules sorted by name."""
        return {
            rule: {
                "documents": notes.documents,
                "lines": notes.lines,
                "characters": notes.characters,
                "examples": [{"before": before, "after": after} for _, before, after in notes.examples],
            }
            for rule, notes in sorted(self.rules.items())
        }


def show_corpus(paths: Paths, number: int, console: Console | None = None) -> None:
    """Print the counts of every rule, up to ``number`` examples of each, and the first lines of ``number`` documents.

    Examples show the text before and after the rule side by side.

    Raises:
        DataError: there is no corpus, or it was made without steps in ``corpus.cleaning``.
    """
    console = console or Console(file=raw_stream(sys.stdout))
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
            # Text, not str: rich would read square brackets as markup
            examples.add_row(
                Text(printable(example["before"])), Text(printable(example["after"]) or "(dropped)", "dim")
            )
        console.print(examples)
    kept = Table("kept", box=box.SQUARE, show_lines=True, title="documents kept, their beginnings", expand=True)
    for text in islice(_kept(paths), number):
        kept.add_row(Text(printable(text[:EXAMPLE_CHARACTERS])))
    console.print(kept)


def _kept(paths: Paths) -> Iterator[str]:
    for file in listed_files(paths.corpus, "train-*.parquet"):
        for _, texts in read_documents(file.path):
            yield from texts
