"""The report stage: the card as Markdown and as one self-contained HTML page (inline CSS and SVG, no scripts).

The colours of the curves follow the page's light or dark theme.
"""

import io
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
import matplotlib
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from electra.common.artifacts import write_text
from electra.common.errors import DataError
from electra.common.paths import Paths
from electra.common.printing import printable, raw_stream
from electra.config import Settings
from electra.results.report.content import METRIC_NAMES, data_in_words, score_card, sections
from electra.results.report.facts import (
    LEARNED,
    Curves,
    Facts,
    Section,
    gather,
    has_scores,
    plateaus,
    score_remarks,
    shown_sentences,
    which_sentences,
)

Points = list[tuple[float, float]]  # (step, value)

# Placeholder colours of the plots, and the page's CSS variables that replace them
INK, MUTED, GRID = "#010101", "#020202", "#030303"
HELD_OUT, TRAIN, REFERENCE = "#040404", "#050505", "#060606"
VARIABLES = {
    INK: "--ink",
    MUTED: "--muted",
    GRID: "--line",
    HELD_OUT: "--accent",
    TRAIN: "--accent-soft",
    REFERENCE: "--warn",
}


@dataclass(frozen=True)
class Panel:
    """One plot: the held-out column ``metric``, the column ``train_<metric>``, and a reference line to beat."""

    title: str
    metric: str
    reference: str | float | None = None  # a column, a key of results/pretrain.json, or the value
    reference_name: str = ""


PANELS = [
    Panel("Loss on masked tokens", "mlm_loss", "unigram_entropy", "guessing by word frequency"),
    Panel("Masked tokens predicted", "mlm_accuracy"),
    Panel("Generator: cloze loss", "cloze_loss", "unigram_entropy", "guessing by word frequency"),
    Panel("Encoder: loss on replaced tokens", "replace_mlm_loss", "unigram_entropy", "guessing by word frequency"),
    Panel("Encoder: loss on all tokens", "all_tokens_mlm_loss"),
    Panel("Discriminator: loss", "disc_loss", "fake_rate_entropy", "guessing by share of replaced"),
    Panel("Discriminator: AUC", "disc_auc", 0.5, "guessing"),
]


def draw_curves(curves: Curves, metrics: dict[str, Any]) -> list[tuple[str, str]]:
    """Return (title, SVG) of every panel that has a curve.

    Args:
        metrics: content of results/pretrain.json, for reference lines.
    """
    steps = next(iter(curves.values()))
    drawn = []
    for panel in PANELS:
        columns = {"training": f"train_{panel.metric}", "held-out": panel.metric}
        lines = {name: _points(steps, curves[column]) for name, column in columns.items() if column in curves}
        lines = {name: points for name, points in lines.items() if points}
        if not lines:
            continue
        if isinstance(panel.reference, str):
            level = metrics.get(panel.reference)
            reference = _points(steps, curves.get(panel.reference, [None] * len(steps)))
        else:
            level, reference = panel.reference, []
        if not reference and level is not None:
            ends = [x for points in lines.values() for x, _ in points]
            reference = [(min(ends), level), (max(ends), level)]
        drawn.append((panel.title, _draw(panel, lines, reference, light="training")))
    return drawn


def draw_both(before: Curves, after: Curves) -> list[tuple[str, str]]:
    """Return (title, SVG) of every panel with a held-out curve in either run; ``before`` is the lighter line."""
    drawn = []
    for panel in PANELS:
        sides = {"before": before, "after": after}
        lines = {name: _points(c[next(iter(c))], c[panel.metric]) for name, c in sides.items() if panel.metric in c}
        if lines := {name: points for name, points in lines.items() if points}:
            level = panel.reference
            ends = [x for points in lines.values() for x, _ in points]
            reference = [(min(ends), level), (max(ends), level)] if isinstance(level, float) else []
            drawn.append((panel.title, _draw(panel, lines, reference, light="before")))
    return drawn


def _points(steps: list[float | None], values: list[float | None]) -> Points:
    return [(x, y) for x, y in zip(steps, values, strict=True) if x is not None and y is not None]


def _draw(panel: Panel, lines: dict[str, Points], reference: Points, light: str) -> str:
    with matplotlib.rc_context(
        {
            "svg.hashsalt": "electra",
            "svg.fonttype": "none",
            "font.size": 10,
            "text.color": INK,
            "axes.edgecolor": GRID,
            "xtick.color": MUTED,
            "ytick.color": MUTED,
            "axes.labelcolor": MUTED,
            "grid.color": GRID,
            "axes.spines.top": False,
            "axes.spines.right": False,
        }
    ):
        figure = Figure(figsize=(5.2, 2.9), layout="constrained")
        figure.patch.set_alpha(0)
        axes = figure.add_subplot()
        axes.patch.set_alpha(0)
        axes.grid(axis="y", linewidth=0.6)
        axes.set_xlabel("step")
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        for name, points in lines.items():
            alone = len(points) < 40
            axes.plot(
                *zip(*points, strict=True),
                color=TRAIN if name == light and len(lines) > 1 else HELD_OUT,
                linewidth=1.2 if name == "training" else 2,
                marker="o" if alone else "",
                markersize=3.5,
                label=name,
            )
        if reference:
            dashes = (0, (5, 3))
            axes.plot(*zip(*reference, strict=True), color=REFERENCE, ls=dashes, lw=1.4, label=panel.reference_name)
        axes.legend(frameon=False, fontsize=9)
        file = io.StringIO()
        FigureCanvasSVG(figure).print_svg(file, metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    return _inline(file.getvalue(), prefix=panel.metric.replace("_", "-"), title=panel.title)


def _inline(svg: str, prefix: str, title: str) -> str:
    """Return the bare <svg> element, with ids unique in the page, no fixed size, and colours as CSS variables."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'<svg([^>]*?) width="[^"]*"', rf'<svg role="img" aria-label="{title}"\1', svg, count=1)
    svg = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'id="', f'id="{prefix}-', svg)
    svg = re.sub(r'(href="#|url\(#)', rf"\1{prefix}-", svg)
    svg = re.sub(r"font: [^;\"]*", "font: 10px var(--font)", svg)
    for colour, variable in VARIABLES.items():
        svg = svg.replace(colour, f"var({variable})")
    return "\n".join(line.rstrip() for line in svg.strip().splitlines())


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
