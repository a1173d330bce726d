"""The steps of ``corpus.cleaning`` on one document."""

from electra.config.cleaning import (
    Boilerplate,
    CleaningStep,
    FineWeb,
    Gopher,
    Markup,
    PersonalData,
    RepeatedLines,
    Repetition,
    Unwrap,
)
from electra.corpus.cleaning import quality
from electra.corpus.cleaning.lines import mask_personal_data, remove_boilerplate, remove_markup, remove_repeated
from electra.corpus.cleaning.notes import Notes
from electra.corpus.cleaning.unwrap import unwrap


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
                broken = quality.gopher(lines, step)
            case Repetition():
                broken = quality.repetition(lines, step)
            case FineWeb():
                broken = quality.fineweb(lines, step)
        if broken:
            notes.document(f"{step.kind}.{broken}", lines)
            return None
    return "\n".join(lines)
