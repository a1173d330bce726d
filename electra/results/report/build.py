"""The report stage: the card as Markdown and as one self-contained HTML page (inline CSS and SVG, no scripts).

The colours of the curves follow the page's light or dark theme.
"""

import sys
from pathlib import Path

import jinja2

from electra.common.artifacts import write_text
from electra.common.errors import DataError
from electra.common.paths import Paths
from electra.common.printing import printable, raw_stream
from electra.config import Settings
from electra.results.report.content import METRIC_NAMES, data_in_words, score_card, sections
from electra.results.report.curves import draw_curves
from electra.results.report.facts import (
    LEARNED,
    Facts,
    Section,
    gather,
    has_scores,
    plateaus,
    shown_sentences,
    which_sentences,
)
from electra.results.report.remarks import score_remarks


def render_markdown(facts: Facts) -> str:
    """Return the report as Markdown: the score card first, then all tables."""
    lines = [f"# ELECTRA score card: profile {facts.settings.profile}", "", data_in_words(facts)]
    if facts.scores and facts.scores["tasks"]:
        lines += ["", table(score_card(facts))]
    else:
        lines.append("")
    lines += [f"- {line}" for line in [*score_remarks(facts), *plateaus(facts)]]
    for section in sections(facts):
        lines += ["", table(section)]
    return "\n".join(lines).rstrip() + "\n"


def table(section: Section) -> str:
    """Return a titled table as Markdown; columns of numbers are right-aligned."""
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
    """Return the indices of the columns in which every non-empty cell starts like a number."""
    right = set()
    for index in range(len(section.columns)):
        cells = [row[index] for row in section.rows if row[index]]
        if cells and all(cell == "-" or cell.lstrip("+-")[:1].isdigit() for cell in cells):
            right.add(index)
    return right


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


TEMPLATE = Path(__file__).with_name("page.html.j2")


def page_style() -> str:
    """Return the CSS of the report's page for use in other pages: light and dark, from 400 px."""
    return TEMPLATE.read_text(encoding="utf-8").partition("<style>\n")[2].partition("</style>")[0]


def render_page(facts: Facts) -> str:
    """Return the page's HTML; the same facts give the same bytes."""
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.from_string(TEMPLATE.read_text(encoding="utf-8")).render(
        profile=facts.settings.profile,
        data=data_in_words(facts),
        scores=facts.scores if facts.scores and facts.scores["tasks"] else None,
        metric_names=METRIC_NAMES,
        card=score_card(facts),
        pretrain=facts.pretrain or {},
        remarks=score_remarks(facts),
        plateaus=plateaus(facts),
        curves=draw_curves(facts.curves, facts.pretrain or {}) if facts.curves else [],
        sections=sections(facts),
        learned=LEARNED,
        sentences=shown_sentences(facts),
        which_sentences=which_sentences(facts),
        has_scores=has_scores(facts),
        numeric_columns=numeric_columns,
    )


def build_report(settings: Settings, paths: Paths) -> None:
    """Write the report of the run in ``paths`` and print its score card. The same results give the same bytes.

    Raises:
        DataError: there are no scores yet, or a result is broken.
    """
    facts = gather(settings, paths)
    if facts.scores is None:
        raise DataError(
            "there are no scores to report",
            where=str(paths.results / "scores.json"),
            next_step="run the stages before it: dvc repro report",
        )
    write_text(paths.results / "report.md", render_markdown(facts))
    write_text(paths.results / "report.html", render_page(facts))
    print_score_card(facts)
    print(f"report: {paths.results / 'report.md'}, {paths.results / 'report.html'}")


def print_score_card(facts: Facts) -> None:
    """Print the score card as a table, as wide as the terminal allows."""
    from rich.console import Console
    from rich.table import Table

    card = score_card(facts)
    right = numeric_columns(card)
    console = Console(highlight=False, file=raw_stream(sys.stdout))
    shown = len(card.columns) if console.width >= 100 else card.columns.index("train")  # else no row counts
    table = Table(title=f"Score card, profile {facts.settings.profile}", title_style="bold", caption=card.note)
    for index, name in enumerate(card.columns[:shown]):
        table.add_column(name, justify="right" if index in right else "left", no_wrap=True)
    if card.rows:
        *tasks, mean = card.rows
        for row in tasks:
            table.add_row(*map(printable, row[:shown]))
        table.add_section()
        table.add_row(*mean[:shown], style="bold")
        console.print(table)
    for line in [data_in_words(facts), *score_remarks(facts), *plateaus(facts)]:
        console.print(printable(line), markup=False)
