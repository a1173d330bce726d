"""The report stage: the card as Markdown and as one self-contained HTML page (inline CSS and SVG, no scripts)."""

from pathlib import Path

import jinja2

from electra.common.artifacts import write_text
from electra.common.errors import DataError
from electra.common.paths import Paths
from electra.config import Settings
from electra.report.content import METRIC_NAMES, data_in_words, score_card, sections
from electra.report.curves import draw_curves
from electra.report.facts import Facts, gather
from electra.report.markdown import numeric_columns, render_markdown
from electra.report.remarks import plateaus, score_remarks

TEMPLATE = Path(__file__).with_name("page.html.j2")


def render_page(facts: Facts) -> str:
    """The page's HTML; the same facts give the same bytes."""
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.from_string(TEMPLATE.read_text(encoding="utf-8")).render(
        profile=facts.settings.profile,
        data=data_in_words(facts),
        scores=facts.scores,
        metric_names=METRIC_NAMES,
        card=score_card(facts),
        pretrain=facts.pretrain or {},
        remarks=score_remarks(facts),
        plateaus=plateaus(facts),
        curves=draw_curves(facts.curves, facts.pretrain or {}) if facts.curves else [],
        sections=sections(facts),
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
    """The score card as a table, as wide as the terminal allows."""
    from rich.console import Console
    from rich.table import Table

    card = score_card(facts)
    right = numeric_columns(card)
    table = Table(title=f"Score card, profile {facts.settings.profile}", title_style="bold", caption=card.note)
    for index, name in enumerate(card.columns):
        table.add_column(name, justify="right" if index in right else "left", no_wrap=True)
    *tasks, mean = card.rows
    for row in tasks:
        table.add_row(*row)
    table.add_section()
    table.add_row(*mean, style="bold")
    console = Console(highlight=False)
    console.print(table)
    for line in [data_in_words(facts), *score_remarks(facts), *plateaus(facts)]:
        console.print(line, markup=False)
