"""The report as one self-contained HTML page: inline CSS and SVG, no scripts, nothing loaded from elsewhere."""

from pathlib import Path

import jinja2

from electra.report.content import METRIC_NAMES, data_in_words, plateaus, score_card, sections
from electra.report.curves import draw_curves
from electra.report.facts import Facts
from electra.report.markdown import numeric_columns

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
        plateaus=plateaus(facts),
        curves=draw_curves(facts.curves, facts.pretrain or {}) if facts.curves else [],
        sections=sections(facts),
        numeric_columns=numeric_columns,
    )
