"""Held-out curves of pre-training as SVG, for the report and for comparisons."""

import io
import re
from dataclasses import dataclass
from typing import Any

import matplotlib
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from electra.results.report.facts import (
    Curves,
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
