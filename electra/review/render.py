"""A comparison as text for a terminal, as Markdown for a pull request, and against thresholds."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from electra.common.errors import ConfigError
from electra.common.parsing import read_yaml
from electra.config import Section
from electra.review.compare import Changes, Comparison, Row
from electra.review.statistics import Difference

WIDTH, MAX_ROWS = 100, 14
_NOISE = {
    "seeds": "seeds (Student's t)",
    "record": "A/A record (results/noise)",
    "bootstrap": "paired bootstrap over development examples; training noise unknown",
    "none": "unknown",
}
_PRETRAIN = {"disc_auc": "AUC", "disc_loss": "discriminator loss", "mlm_loss": "generator loss"}


def render_text(found: Comparison) -> str:
    """25 lines of 100 columns at most."""
    head = f"{found.before} -> {found.after}, profile {' -> '.join(dict.fromkeys(found.profiles))}"
    lines = [_cut(head), *(_cut(f"{name:<11} {told}") for name, told in _changed(found.changes))]
    lines.append(_cut(f"{'verdict':<11} {found.verdict}"))
    shown = _chosen(found.rows)
    if found.mean:
        width = max(len(row.name) for row in [*shown, found.mean])
        lines.append(
            f"{'task':<{width}}  {'metric':<9} {'before':>7} {'after':>7} {'diff':>7}  {'95% interval':<16}  verdict"
        )
        lines += [_line(row, width) for row in [*shown, found.mean]]
        if left := len(found.rows) - len(shown):
            lines.append(f"and {left} tasks more: --json")
    lines += [_cut(line) for line in _footer(found)]
    return "\n".join(lines[:25]) + "\n"


def render_markdown(found: Comparison) -> str:
    """For a pull request: ``gh pr comment --body-file -``."""
    lines = [f"### {found.before} → {found.after}", "", f"**{found.verdict}**", ""]
    lines += [f"- {name}: {told}" for name, told in _changed(found.changes)]
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
    return "\n".join([*lines, "", *(f"{line}  " for line in _footer(found))]).replace("\n\n\n", "\n\n") + "\n"


def _changed(changes: Changes) -> Iterator[tuple[str, str]]:
    if not changes.kinds:
        yield "changed", "nothing: parameters, data, code and processor are the same"
        return
    for name in ("parameters", "seeds", "machine"):
        if values := getattr(changes, name):
            yield name, _some([f"{key} {_short(old)} -> {_short(new)}" for key, (old, new) in values.items()])
    if changes.data:
        yield "data", _some(changes.data)
    if changes.code:
        yield "code", _some([f"{path} ({', '.join(stages)})" for path, stages in changes.code.items()])
    if changes.processor:
        pairs = dict.fromkeys(changes.processor.values())
        yield "processor", "; ".join(f"{old} -> {new}" for old, new in pairs)


def _some(told: list[str], most: int = 3) -> str:
    return "; ".join(told[:most]) + (f"; and {len(told) - most} more" if len(told) > most else "")


def _short(value: Any) -> str:
    text = "-" if value is None else str(value)
    return text if len(text) <= 40 else text[:37] + "..."


def _chosen(rows: list[Row]) -> list[Row]:
    """All rows, or those that say most, in their order."""
    if len(rows) <= MAX_ROWS:
        return rows
    rank = ["worse", "better", "unknown noise", "underpowered", "noise", "same"]
    kept = sorted(rows, key=lambda row: (rank.index(row.verdict), -abs(row.figures.difference)))[:MAX_ROWS]
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
        told = (
            f"; detectable with 80% power: {min(detectable):.1f} to {max(detectable):.1f} points" if detectable else ""
        )
        yield "noise: " + "; ".join(_NOISE[kind] for kind in kinds) + told
    if "none" in kinds or "bootstrap" in kinds:
        yield "  next: cells.seeds: [1, 2, 3] on both sides, or electra compare --record-noise RUN RUN ..."
    yield from found.notes


def _cut(line: str) -> str:
    return line if len(line) <= WIDTH else line[: WIDTH - 3] + "..."


class Bounds(Section):
    """Thresholds of one figure."""

    at_least: float | None = Field(None, description="lowest value after")
    drop_at_most: float | None = Field(None, ge=0, description="largest drop from before to after")


class Thresholds(Section):
    """The file of ``electra compare --gate``."""

    mean: Bounds = Field(Bounds(), description="mean over tasks, points")
    tasks: dict[str, Bounds] = Field({}, description="single tasks, points")
    disc_auc: Bounds = Field(Bounds(), description="the discriminator's AUC on held-out text")
    worse: int | None = Field(0, ge=0, description="most tasks that may be worse; null: any number")
    mean_worse: bool = Field(False, description="let the mean be worse")


def read_thresholds(path: Path) -> Thresholds:
    """Read and check the file of ``--gate``.

    Raises:
        ConfigError: there is none, or it holds something else.
    """
    try:
        return Thresholds.model_validate(read_yaml(path) or {})
    except FileNotFoundError:
        raise ConfigError(f"{path} does not exist", where="--gate", next_step="docs/reviewing.md has one") from None
    except ValidationError as error:
        told = "\n".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
        raise ConfigError(told, where=str(path), next_step="docs/reviewing.md lists the keys") from None


def reasons_to_refuse(found: Comparison, thresholds: Thresholds) -> list[str]:
    """Why a comparison does not pass; empty where it does."""
    reasons: list[str] = []
    by_name = {row.name: row for row in found.rows}
    if found.mean:
        reasons += _outside("mean", found.mean.figures.before, found.mean.figures.after, thresholds.mean)
        if found.mean.verdict == "worse" and not thresholds.mean_worse:
            reasons.append(f"the mean is worse: {found.mean.figures.difference:+.1f}")
    for name, bounds in thresholds.tasks.items():
        if name in by_name:
            reasons += _outside(name, by_name[name].figures.before, by_name[name].figures.after, bounds)
        else:
            reasons.append(f"{name}: not scored on both sides")
    before, after = found.pretrain.get("disc_auc", (None, None))
    if thresholds.disc_auc != Bounds():
        if after is None:
            reasons.append("disc_auc: not there")
        else:
            reasons += _outside("disc_auc", after if before is None else before, after, thresholds.disc_auc)
    worse = [row.name for row in found.rows if row.verdict == "worse"]
    if thresholds.worse is not None and len(worse) > thresholds.worse:
        reasons.append(f"worse: {', '.join(worse)}; at most {thresholds.worse} may be")
    return reasons


def _outside(name: str, before: float, after: float, bounds: Bounds) -> Iterator[str]:
    if bounds.at_least is not None and after < bounds.at_least:
        yield f"{name}: {after:.4g} is below {bounds.at_least:g}"
    if bounds.drop_at_most is not None and before - after > bounds.drop_at_most:
        yield f"{name}: dropped by {before - after:.4g}, at most {bounds.drop_at_most:g} may be lost"
