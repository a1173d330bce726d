"""Lines that stood in an earlier document: ``repeated_lines`` with ``scope: corpus``."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from electra.config.cleaning import CleaningStep, RepeatedLines
from electra.corpus.cleaning.lines import line_digest
from electra.corpus.cleaning.notes import Notes
from electra.corpus.seen import SeenIds


class RepeatedAcross:
    """Removes lines that an earlier document had; needs all documents in their order.

    Args:
        seen: hashes of the lines of all documents so far, on disk: about 20 bytes a line.
        min_chars: shorter lines may repeat.
        notes: gets what was removed.
    """

    def __init__(self, seen: SeenIds, min_chars: int, notes: Notes):
        self._seen, self._min_chars, self._notes = seen, min_chars, notes

    def remove(self, text: str) -> str:
        """The text without such lines."""
        lines = text.split("\n")
        kept = []
        for line in lines:
            if len(line) >= self._min_chars and not self._seen.add(line_digest(line)):
                self._notes.line("repeated_lines.corpus", line)
            else:
                kept.append(line)
        return text if len(kept) == len(lines) else "\n".join(kept)


@contextmanager
def repeated_across(steps: list[CleaningStep], path: Path, notes: Notes) -> Iterator[RepeatedAcross | None]:
    """The filter if the steps ask for one; its table lies at ``path`` while the block lasts."""
    asked = [step for step in steps if isinstance(step, RepeatedLines) and step.scope == "corpus"]
    if not asked:
        yield None
        return
    with SeenIds(path) as seen:
        yield RepeatedAcross(seen, asked[0].min_chars, notes)
