"""Record of what cleaning removed: counts and a few examples by rule.

The examples are those whose text has the smallest hashes, so that they are spread over the corpus and do not depend on
the order of the documents or on who cleaned them.
"""

import hashlib
import json
from dataclasses import dataclass, field
from typing import Any

CLEANING = "cleaning.json"  # in the folder of the corpus
NUM_EXAMPLES = 10
EXAMPLE_CHARACTERS = 300


@dataclass
class RuleNotes:
    """Of one rule.

    Attributes:
        documents, lines, characters: removed; lines that were only changed are counted too, by what they lost.
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
    """By rule, in the order in which the rules first applied."""

    def __init__(self) -> None:
        self.rules: dict[str, RuleNotes] = {}

    def line(self, rule: str, before: str, after: str = "") -> None:
        """A line that was removed, or changed where ``after`` is given."""
        notes = self.rules.setdefault(rule, RuleNotes())
        notes.lines += 1
        notes.characters += len(before) - len(after)
        notes.add_example(before, after)

    def document(self, rule: str, lines: list[str]) -> None:
        """A document that was dropped."""
        notes = self.rules.setdefault(rule, RuleNotes())
        notes.documents += 1
        notes.characters += sum(map(len, lines)) + max(0, len(lines) - 1)
        notes.add_example("\n".join(lines[:20]), "")

    def pair(self, rule: str, text: str, other: str) -> None:
        """A document that was dropped because of another one, which is shown as what is left."""
        notes = self.rules.setdefault(rule, RuleNotes())
        notes.documents += 1
        notes.characters += len(text)
        notes.add_example(text, other)

    def dump(self) -> str:
        """As JSON, empty where nothing was removed."""
        if not self.rules:
            return ""
        return json.dumps({rule: [n.documents, n.lines, n.characters, n.examples] for rule, n in self.rules.items()})

    def add(self, dumped: str) -> None:
        """Add what :meth:`dump` gave for a document."""
        if dumped:
            for rule, (documents, lines, characters, examples) in json.loads(dumped).items():
                self.rules.setdefault(rule, RuleNotes()).merge(documents, lines, characters, examples)

    def report(self) -> dict[str, Any]:
        """For ``cleaning.json``: rules sorted by name."""
        return {
            rule: {
                "documents": notes.documents,
                "lines": notes.lines,
                "characters": notes.characters,
                "examples": [{"before": before, "after": after} for _, before, after in notes.examples],
            }
            for rule, notes in sorted(self.rules.items())
        }
