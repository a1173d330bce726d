"""The report as Markdown."""

from electra.report.content import data_in_words, score_card, sections
from electra.report.facts import Facts, Section
from electra.report.remarks import plateaus, score_remarks


def render_markdown(facts: Facts) -> str:
    """Score card first, then every table."""
    lines = [f"# ELECTRA score card: profile {facts.settings.profile}", "", data_in_words(facts)]
    if facts.scores:
        lines += ["", table(score_card(facts))]
    lines += [f"- {line}" for line in [*score_remarks(facts), *plateaus(facts)]]
    for section in sections(facts):
        lines += ["", table(section)]
    return "\n".join(lines).rstrip() + "\n"


def table(section: Section) -> str:
    """A titled table; columns of numbers are right-aligned."""
    if not section.columns:
        return f"## {section.title}\n\n{section.note}\n"
    right = numeric_columns(section)
    lines = [f"## {section.title}", ""]
    if section.note:
        lines += [section.note, ""]
    lines.append("| " + " | ".join(map(_cell, section.columns)) + " |")
    lines.append("|" + "|".join("---:" if i in right else "---" for i in range(len(section.columns))) + "|")
    lines += ["| " + " | ".join(map(_cell, row)) + " |" for row in section.rows]
    return "\n".join(lines) + "\n"


def numeric_columns(section: Section) -> set[int]:
    """Columns in which every filled cell starts like a number."""
    right = set()
    for index in range(len(section.columns)):
        cells = [row[index] for row in section.rows if row[index]]
        if cells and all(cell == "-" or cell.lstrip("+-")[:1].isdigit() for cell in cells):
            right.add(index)
    return right


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
