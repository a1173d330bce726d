"""Render a comparison as text, Markdown or HTML, and check it against thresholds."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from electra.results.review.compare import Changes, Comparison, Row
from electra.results.review.statistics import Difference

WIDTH, MOST_LINES = 100, 25
_NOISE = {
    "seeds": "seeds (Student's t)",
    "record": "A/A record (results/noise)",
    "fine-tuning": "seeds of fine-tuning (Student's t); pre-training noise unknown: two encoders, no A/A record",
    "bootstrap": "paired bootstrap over development examples; training noise unknown",
    "none": "unknown",
}
_PRETRAIN = {"disc_auc": "AUC", "disc_loss": "discriminator loss", "mlm_loss": "generator loss"}


def render_text(found: Comparison) -> str:
    """Return the comparison as text: at most 25 lines of 100 columns."""
    head = f"{found.before} -> {found.after}, profile {' -> '.join(dict.fromkeys(found.profiles))}"
    lines = [_cut(head), *(_cut(f"{name:<11} {text}") for name, text in _changed(found.changes))]
    lines.append(_cut(f"{'verdict':<11} {found.verdict}"))
    lines += [_cut(f"{name:<11} {text}") for name, text in (("cost", cost_text(found)), ("flipped", flips_text(found)))]
    footer = list(_footer(found))
    if found.mean:
        shown = _chosen(found.rows, max(3, MOST_LINES - len(lines) - len(footer) - 2))
        width = max(len(row.name) for row in [*shown, found.mean])
        lines.append(
            f"{'task':<{width}}  {'metric':<9} {'before':>7} {'after':>7} {'diff':>7}  {'95% interval':<16}  verdict"
        )
        lines += [_line(row, width) for row in [*shown, found.mean]]
        if left := len(found.rows) - len(shown):
            lines.append(f"and {left} more tasks: --json")
    lines += [_cut(line) for line in footer]
    return "\n".join(lines[:MOST_LINES]) + "\n"


def render_markdown(found: Comparison) -> str:
    """Return the comparison as Markdown for a pull request: ``gh pr comment --body-file -``."""
    lines = [_harmless(f"### {found.before} → {found.after}"), "", f"**{found.verdict}**", ""]
    lines += [f"- {name}: {_harmless(text)}" for name, text in _changed(found.changes)]
    if found.mean:
        lines += [
            "",
            "| task | metric | before | after | difference | 95% interval | verdict |",
            "|---|---|--:|--:|--:|---|---|",
        ]
        for row in [*found.rows, found.mean]:
            f = row.figures
            lines.append(
                f"| {row.name} | {row.metric} | {f.before:.1f} | {f.after:.1f} | {f.difference:+.1f} | "
                f"{_interval(f) or row.why} | {row.verdict} |"
            )
    lines += ["", *(f"{_harmless(line)}  " for line in _footer(found)), "", f"- cost: {_harmless(cost_text(found))}"]
    lines += [f"- flipped examples: {flips_text(found)}", *_curves_folded(found), *_flips_folded(found)]
    return "\n".join(lines).replace("\n\n\n", "\n\n") + "\n"


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


def _curves_folded(found: Comparison) -> Iterator[str]:
    """Yield held-out figures of both runs at up to eight steps, in a block that GitHub and GitLab collapse."""
    names = [name for name in _PRETRAIN if any(name in curves for curves in found.curves)]
    sides = []
    for curves in found.curves:
        columns = [curves.get(name, [None] * len(curves.get("step", []))) for name in names]
        sides.append(dict(zip(curves.get("step", []), zip(*columns, strict=True), strict=True)) if names else {})
    if not any(sides):
        return
    steps = sorted({step for side in sides for step in side if step is not None})
    chosen = [steps[round(n * (len(steps) - 1) / 7)] for n in range(8)] if len(steps) > 8 else steps
    yield from ("", "<details><summary>Held-out curves</summary>", "")
    yield "| step | " + " | ".join(f"{_PRETRAIN[name]}, before | after" for name in names) + " |"
    yield "|--:" * (1 + 2 * len(names)) + "|"
    for step in chosen:
        pairs = zip(*(side.get(step, [None] * len(names)) for side in sides), strict=True)
        yield f"| {step:,.0f} | " + " | ".join("" if v is None else f"{v:.4g}" for pair in pairs for v in pair) + " |"
    yield from ("", "</details>")


def _flips_folded(found: Comparison) -> Iterator[str]:
    """Yield a few flipped examples of each task, in a collapsed block."""
    if not any(flips.shown for flips in found.flips):
        return
    yield from ("", "<details><summary>Examples that flipped</summary>", "")
    yield from ("| task | id | text | label | before | after |", "|---|---|---|---|---|---|")
    for flips in found.flips:
        for one in flips.shown:
            yield "| " + " | ".join(map(_cell, (flips.task, one.id, one.text, one.gold, one.before, one.after))) + " |"
    yield from ("", "</details>")


def _cell(text: str, most: int = 160) -> str:
    """Escape text of a data set for a table cell: no markup, line breaks or user mentions."""
    text = " ".join(text.split())
    text = text if len(text) <= most else text[: most - 3] + "..."
    return _harmless(re.sub(r"([\\`*_{}\[\]#|!~])", r"\\\1", text))


def _harmless(text: str) -> str:
    """Escape HTML and user mentions in names of branches and folders and in text of data."""
    return text.replace("<", "&lt;").replace("@", "@\u200b")


TEMPLATE = Path(__file__).with_name("page.html.j2")


def render_page(found: Comparison) -> str:
    """Return one offline page without requests and scripts; curves are drawn as in the report."""
    import jinja2

    from electra.results.report.build import page_style
    from electra.results.report.curves import draw_both

    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.from_string(TEMPLATE.read_text(encoding="utf-8")).render(
        found=found,
        style=page_style(),
        changed=list(_changed(found.changes, most=50)),
        cost=cost_text(found),
        flips=flips_text(found),
        footer=list(_footer(found)),
        interval=_interval,
        curves=draw_both(*found.curves),
        classes={"better": "good", "worse": "bad"},
    )


def _changed(changes: Changes, most: int = 3) -> Iterator[tuple[str, str]]:
    if not changes.kinds:
        yield "changed", "nothing: parameters, data, code and processor are the same"
        return
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


def _some(changes: list[str], most: int = 3) -> str:
    return "; ".join(changes[:most]) + (f"; and {len(changes) - most} more" if len(changes) > most else "")


def _short(value: Any) -> str:
    text = "not set" if value is None else str(value)
    return text if len(text) <= 40 else text[:37] + "..."


def _chosen(rows: list[Row], most_rows: int) -> list[Row]:
    """Return all rows, or the most relevant ones in their order, with one line left to count the others."""
    if len(rows) <= most_rows:
        return rows
    rank = ["worse", "better", "unknown noise", "underpowered", "noise", "same"]
    kept = sorted(rows, key=lambda row: (rank.index(row.verdict), -abs(row.figures.difference)))[: most_rows - 1]
    return [row for row in rows if row in kept]


def _line(row: Row, width: int) -> str:
    f = row.figures
    interval = _interval(f) or row.why
    return (
        f"{row.name:<{width}}  {row.metric:<9} {f.before:>7.1f} {f.after:>7.1f} {f.difference:>+7.1f}  "
        f"{interval:<16}  {row.verdict}"
    )[:WIDTH]


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
    kinds = dict.fromkeys(row.figures.noise for row in [*found.rows, *([found.mean] if found.mean else [])]
                          if row.verdict != "same")  # fmt: skip
    if kinds:
        detectable = [row.figures.detectable for row in found.rows if row.figures.detectable]
        power = (
            f"; detectable with 80% power: {min(detectable):.1f} to {max(detectable):.1f} points" if detectable else ""
        )
        yield "noise: " + "; ".join(_NOISE[kind] for kind in kinds) + power
    if "fine-tuning" in kinds:
        yield "  next: measure pre-training noise once: electra noise"
    elif "none" in kinds or "bootstrap" in kinds:
        yield "  next: cells.seeds: [1, 2, 3] on both sides, and the noise of pre-training: electra noise"
    yield from found.notes


def _cut(line: str) -> str:
    return line if len(line) <= WIDTH else line[: WIDTH - 3] + "..."
