"""Render a comparison as text, Markdown or HTML, and check it against thresholds."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from electra.results.report.tables import Section, as_text, cut, markdown_rows, page_template
from electra.results.review.compare import OTHER_DATA, Changes, Comparison, Row
from electra.results.review.examples import Flips
from electra.results.review.statistics import Difference

WIDTH, MOST_LINES = 100, 25
_NOISE = {
    "seeds": "seeds (Student's t)",
    "record": "A/A record (results/noise)",
    "fine-tuning": "seeds of fine-tuning (Student's t); pre-training noise unknown: two encoders, no A/A record",
    "bootstrap": "paired bootstrap over development examples; training noise unknown",
    "none": "unknown",
}
_PRETRAIN = {"disc_auc": "AUC", "disc_loss": "discriminator loss", "mlm_loss": "MLM loss"}


def render_text(found: Comparison) -> str:
    """Return the comparison as text: at most 25 lines of 100 columns."""
    facts = [*_changed(found.changes), ("verdict", found.verdict), ("cost", cost_text(found))]
    lines = [f"{found.before} -> {found.after}, profile {' -> '.join(dict.fromkeys(found.profiles))}"]
    lines += [f"{name:<11} {text}" for name, text in [*facts, ("flipped", flips_text(found))]]
    footer = list(_footer(found))
    if found.mean:
        shown = _chosen(found.rows, max(3, MOST_LINES - len(lines) - len(footer) - 2))
        lines += as_text(_scores([*shown, found.mean]), WIDTH)
        if left := len(found.rows) - len(shown):
            lines.append(f"and {left} more tasks: --json")
    return "\n".join(cut(line, WIDTH) for line in [*lines, *footer][:MOST_LINES]) + "\n"


def render_markdown(found: Comparison) -> str:
    """Return the comparison as Markdown for a pull request: ``gh pr comment --body-file -``."""
    lines = [_harmless(f"### {found.before} → {found.after}"), "", f"**{found.verdict}**", ""]
    lines += [f"- {name}: {_harmless(text)}" for name, text in _changed(found.changes)]
    if found.mean:
        lines += ["", *markdown_rows(_scores([*found.rows, found.mean]))]
    lines += ["", *(f"{_harmless(line)}  " for line in _footer(found)), "", f"- cost: {_harmless(cost_text(found))}"]
    lines += [f"- flipped examples: {flips_text(found)}"]
    flipped = [[flips.task, *map(_harmless_data, row)] for flips in found.flips for row in _flips(flips).rows]
    lines += _folded(_curves(found))
    lines += _folded(Section("Examples that flipped", "", ["task", *FLIP_COLUMNS], flipped))
    return "\n".join(lines).replace("\n\n\n", "\n\n") + "\n"


def _folded(section: Section) -> list[str]:
    """Return a table in a block that GitHub and GitLab collapse; nothing for a table without rows."""
    if not section.rows:
        return []
    summary = f"<details><summary>{section.title}</summary>"
    return ["", summary, "", *markdown_rows(section), "", "</details>"]


def _scores(rows: list[Row]) -> Section:
    """Return the tasks' scores on both sides."""
    columns = ["task", "metric", "before", "after", "difference", "95% interval", "verdict"]
    cells = []
    for row in rows:
        f = row.figures
        numbers = [f"{f.before:.1f}", f"{f.after:.1f}", f"{f.difference:+.1f}"]
        cells.append([row.name, row.metric, *numbers, _interval(f) or row.why, row.verdict])
    marks = {"better": "good", "worse": "bad"}
    classes = {(n, 6): marks[row.verdict] for n, row in enumerate(rows) if row.verdict in marks}
    return Section("Tasks", "", columns, cells, classes)


FLIP_COLUMNS = ["id", "text", "label", "before", "after"]


def _flips(flips: Flips) -> Section:
    """Return a few examples of a task that became right or wrong."""
    title = f"{flips.task}, seed {flips.seed}: {flips.fixed} became right, {flips.broken} wrong"
    rows = [[one.id, one.text, one.gold, one.before, one.after] for one in flips.shown]
    pairs = [("bad", "good") if one.fixed else ("good", "bad") for one in flips.shown]
    classes = {(n, column): pair[column - 3] for n, pair in enumerate(pairs) for column in (3, 4)}
    return Section(title, "", FLIP_COLUMNS, rows, classes)


def _curves(found: Comparison) -> Section:
    """Return held-out figures of both runs at up to eight steps."""
    measured = {
        name for curves in found.curves for name, values in curves.items() if any(v is not None for v in values)
    }
    names = [name for name in _PRETRAIN if name in measured]  # the method decides which figures a run has
    sides = []
    for curves in found.curves:
        values = [curves.get(name, [None] * len(curves.get("step", []))) for name in names]
        sides.append(dict(zip(curves.get("step", []), zip(*values, strict=True), strict=True)) if names else {})
    steps = sorted({step for side in sides for step in side if step is not None})
    chosen = [steps[round(n * (len(steps) - 1) / 7)] for n in range(8)] if len(steps) > 8 else steps
    rows = []
    for step in chosen:
        pairs = zip(*(side.get(step, [None] * len(names)) for side in sides), strict=True)
        rows.append([f"{step:,.0f}", *("" if value is None else f"{value:.4g}" for pair in pairs for value in pair)])
    columns = ["step", *(text for name in names for text in (f"{_PRETRAIN[name]}, before", "after"))]
    return Section("Held-out curves", "", columns, rows)


def cost_text(found: Comparison) -> str:
    """Return minutes, tokens, FLOPs and processor of pre-training; before and after if they differ."""
    known = [
        _pair([f"{cost.minutes:g} min" for cost in found.cost if cost.minutes is not None]),
        _pair([f"{cost.tokens / 1e6:,.1f}M tokens" for cost in found.cost if cost.tokens is not None]),
        _pair([f"{cost.flops:.3g} FLOPs" for cost in found.cost if cost.flops is not None]),
    ]
    unknown = [name for name, cost in (("before", found.cost[0]), ("after", found.cost[1])) if cost.minutes is None]
    parts = [part for part in known if part]
    if unknown:
        parts.append(f"minutes of {' and '.join(unknown)} unknown (no results/machine.json)")
    if len(processors := {cost.processor for cost in found.cost if cost.processor}) == 1:  # else in a line below
        parts += processors
    return "pre-training " + ", ".join(part for part in parts if part)


def _pair(sides: list[str]) -> str:
    return " -> ".join(dict.fromkeys(sides))


def flips_text(found: Comparison) -> str:
    """Return how many examples became right or wrong, or why this is unknown."""
    known = [flips for flips in found.flips if not flips.why_not]
    if not known:
        reasons = dict.fromkeys(flips.why_not for flips in found.flips)
        elsewhere = any("machine" in why for why in reasons)
        fetch = "; dvc fetch -A finetune finetune_scratch data/tasks" if elsewhere else ""
        return f"not known: {'; '.join(reasons) or 'no task'}{fetch}"
    fixed, broken, of = (sum(getattr(flips, name) for flips in known) for name in ("fixed", "broken", "num_examples"))
    most = sorted(known, key=lambda flips: -(flips.fixed + flips.broken))[:3]
    named = ", ".join(f"{flips.task} +{flips.fixed} -{flips.broken}" for flips in most if flips.fixed + flips.broken)
    text = f"of {of:,} dev rows {fixed:,} became right and {broken:,} wrong" + (f"; most in {named}" if named else "")
    missing = [flips.task for flips in found.flips if flips.why_not]
    return text + (f"; not known of {', '.join(missing)}" if missing else "")


def _harmless_data(text: str, most: int = 160) -> str:
    """Escape text of a data set for a table cell: no markup, line breaks or user mentions."""
    return _harmless(re.sub(r"([\\`*_{}\[\]#!~])", r"\\\1", cut(" ".join(text.split()), most)))


def _harmless(text: str) -> str:
    """Escape HTML and user mentions in names of branches and folders and in text of data."""
    return text.replace("<", "&lt;").replace("@", "@\u200b")


TEMPLATE = Path(__file__).with_name("page.html.j2")


def render_page(found: Comparison) -> str:
    """Return one offline page without requests and scripts; curves are drawn as in the report."""
    from electra.results.report.curves import draw_both

    return page_template(TEMPLATE).render(
        found=found,
        changed=list(_changed(found.changes, most=50)),
        cost=cost_text(found),
        flips=flips_text(found),
        footer=list(_footer(found)),
        scores=_scores([*found.rows, found.mean]) if found.mean else None,
        flipped=[_flips(flips) for flips in found.flips if flips.shown],
        curves=draw_both(*found.curves),
        classes={"better": "good", "worse": "bad"},
    )


def _changed(changes: Changes, most: int = 3) -> Iterator[tuple[str, str]]:
    if not changes.kinds:
        same = " that is known: parameters" if changes.unknown else ": parameters, data, code and processor"
        yield "changed", f"nothing{same} are the same"
    for name in ("parameters", "seeds", "machine"):
        if values := getattr(changes, name):
            yield name, _some([f"{key} {_short(old)} -> {_short(new)}" for key, (old, new) in values.items()], most)
    if changes.data:
        yield "data", _some(changes.data, most)
    if changes.code:
        yield "code", _some([f"{path} ({', '.join(stages)})" for path, stages in changes.code.items()], most)
    if changes.processor:
        pairs = dict.fromkeys(changes.processor.values())
        yield "processor", "; ".join(f"{old} -> {new}" for old, new in pairs)
    if changes.unknown:
        yield "unknown", "; ".join(changes.unknown)


def _some(changes: list[str], most: int = 3) -> str:
    return "; ".join(changes[:most]) + (f"; and {len(changes) - most} more" if len(changes) > most else "")


def _short(value: Any) -> str:
    return cut("not set" if value is None else str(value), 40)


def _chosen(rows: list[Row], most_rows: int) -> list[Row]:
    """Return all rows, or the most relevant ones in their order, with one line left to count the others."""
    if len(rows) <= most_rows:
        return rows
    rank = ["worse", "better", "unknown noise", "underpowered", "noise", "same"]
    kept = sorted(rows, key=lambda row: (rank.index(row.verdict), -abs(row.figures.difference)))[: most_rows - 1]
    return [row for row in rows if row in kept]


def _interval(figures: Difference) -> str:
    if figures.low is None or figures.high is None:
        return ""
    return f"{figures.low:+.1f} to {figures.high:+.1f}"


def _footer(found: Comparison) -> Iterator[str]:
    figures = [
        f"{_PRETRAIN[key]} {'-' if old is None else f'{old:.3f}'} -> {'-' if new is None else f'{new:.3f}'}"
        for key, (old, new) in found.pretrain.items()
        if old != new
    ]
    if figures:
        yield "pre-training: " + ", ".join(figures)
    for side, tasks in found.only.items():
        yield f"only {side} has {', '.join(tasks)}"
    rows = [row for row in [*found.rows, *([found.mean] if found.mean else [])] if row.verdict != "same"]
    if kinds := dict.fromkeys(row.figures.noise for row in rows):
        detectable = [row.figures.detectable for row in found.rows if row.figures.detectable]
        power = (
            f"; detectable with 80% power: {min(detectable):.1f} to {max(detectable):.1f} points" if detectable else ""
        )
        yield "noise: " + "; ".join(_NOISE[kind] for kind in kinds) + power
    if "fine-tuning" in kinds:
        yield "  next: measure pre-training noise once: electra noise"
    elif any(row.figures.noise in ("none", "bootstrap") and row.why != OTHER_DATA for row in rows):
        yield "  next: cells.seeds: [1, 2, 3] on both sides, and the noise of pre-training: electra noise"
    yield from found.notes
