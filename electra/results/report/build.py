"""The report stage: the card as Markdown and as one self-contained HTML page (inline CSS and SVG, no scripts).

The colours of the curves follow the page's light or dark theme.
"""

import sys
from pathlib import Path

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
    gather,
    has_scores,
    plateaus,
    shown_sentences,
    which_sentences,
)
from electra.results.report.remarks import exceeds_spread, score_remarks
from electra.results.report.tables import as_markdown, page_template


def render_markdown(facts: Facts) -> str:
    """Return the report as Markdown: the score card first, then all tables."""
    lines = [f"# ELECTRA score card: profile {facts.settings.profile}", "", data_in_words(facts)]
    if facts.scores and facts.scores["tasks"]:
        lines += ["", as_markdown(score_card(facts))]
    else:
        lines.append("")
    lines += [f"- {line}" for line in [*score_remarks(facts), *plateaus(facts)]]
    for section in sections(facts):
        lines += ["", as_markdown(section)]
    return "\n".join(lines).rstrip() + "\n"


TEMPLATE = Path(__file__).with_name("page.html.j2")


def render_page(facts: Facts) -> str:
    """Return the page's HTML; the same facts give the same bytes."""
    return page_template(TEMPLATE).render(
        profile=facts.settings.profile,
        data=data_in_words(facts),
        scores=facts.scores if facts.scores and facts.scores["tasks"] else None,
        metric_names=METRIC_NAMES,
        card=score_card(facts),
        pretrain=facts.pretrain or {},
        remarks=score_remarks(facts),
        exceeds_spread=exceeds_spread,
        plateaus=plateaus(facts),
        curves=draw_curves(facts.curves, facts.pretrain or {}) if facts.curves else [],
        sections=sections(facts),
        learned=LEARNED,
        sentences=shown_sentences(facts),
        which_sentences=which_sentences(facts),
        has_scores=has_scores(facts),
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
    console = Console(highlight=False, file=raw_stream(sys.stdout))
    shown = len(card.columns) if console.width >= 100 else card.columns.index("train")  # else no row counts
    table = Table(title=f"Score card, profile {facts.settings.profile}", title_style="bold", caption=card.note)
    for index, name in enumerate(card.columns[:shown]):
        table.add_column(name, justify="right" if index in card.numeric else "left", no_wrap=True)
    if card.rows:
        *tasks, mean = card.rows
        for row in tasks:
            table.add_row(*map(printable, row[:shown]))
        table.add_section()
        table.add_row(*mean[:shown], style="bold")
        console.print(table)
    for line in [data_in_words(facts), *score_remarks(facts), *plateaus(facts)]:
        console.print(printable(line), markup=False)
