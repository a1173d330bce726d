"""The steps of ``corpus.cleaning``, in the order of the settings."""

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
from electra.text.corpus.cleaning.language import other_language
from electra.text.corpus.cleaning.lines import (
    mask_personal_data,
    remove_boilerplate,
    remove_markup,
    remove_repeated,
    unwrap,
)
from electra.text.corpus.cleaning.notes import Notes
from electra.text.corpus.cleaning.quality import fineweb, gopher, repetition

DROPS_DOCUMENTS = (Gopher, Repetition, FineWeb, Language)  # steps that drop whole documents and change no line


def before_cleaning(raw: str, steps: list[CleaningStep], notes: Notes) -> str:
    """Apply the steps that need the text with its blank lines: unwrapping."""
    return unwrap(raw, steps[0], notes) if steps and isinstance(steps[0], Unwrap) else raw


def apply_steps(text: str, steps: list[CleaningStep], notes: Notes) -> str | None:
    """Return a document's text after all steps; None if a rule drops it."""
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
