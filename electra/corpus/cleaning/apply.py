"""The steps of ``corpus.cleaning`` on one document, and the removal of lines that stood in an earlier one."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from electra.config.text import (
    Boilerplate,
    CleaningStep,
    FineWeb,
    Gopher,
    Language,
    Markup,
    PersonalData,
    RepeatedLines,
    Repetition,
    Unwrap,
)
from electra.corpus.cleaning.lines import (
    fineweb,
    gopher,
    line_digest,
    mask_personal_data,
    other_language,
    remove_boilerplate,
    remove_markup,
    remove_repeated,
    repetition,
    unwrap,
)
from electra.corpus.cleaning.notes import Notes
from electra.corpus.near_duplicates import SeenIds


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


def before_cleaning(raw: str, steps: list[CleaningStep], notes: Notes) -> str:
    """Apply the steps that need the text with its blank lines."""
    return unwrap(raw, steps[0], notes) if steps and isinstance(steps[0], Unwrap) else raw


def apply_steps(text: str, steps: list[CleaningStep], notes: Notes) -> str | None:
    """A document's text after all steps; None if a rule drops it."""
    lines = text.split("\n") if text else []
    for step in steps:
        if not lines:
            break
        broken: str | None = None
        match step:
            case Boilerplate():
                lines = remove_boilerplate(lines, notes)
            case Markup():
                lines = remove_markup(lines, notes)
            case RepeatedLines():
                lines = remove_repeated(lines, step, notes)
            case PersonalData():
                lines = mask_personal_data(lines, step, notes)
            case Gopher():
                broken = gopher(lines, step)
            case Repetition():
                broken = repetition(lines, step)
            case FineWeb():
                broken = fineweb(lines, step)
            case Language():
                broken = other_language(lines, step)
        if broken:
            notes.document(f"{step.kind}.{broken}", lines)
            return None
    return "\n".join(lines)
