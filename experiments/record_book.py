"""Rows of the record book: requirements of a track, tests for a record, and the tables of docs/records.md.

A row is the result of :func:`experiments.speedrun.measure_record`, with ``wall`` from ``compare_wall`` if it was timed.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scipy import special

from benchmarks import measure
from electra.common.errors import ConfigError, DataError

Row = dict[str, Any]
AUC = "AUC"  # AUC of the discriminator on held-out text; every other target is a task
BASELINE = "paper"  # first record of each track: its settings unchanged
SIGNIFICANCE = 0.01


@dataclass(frozen=True)
class Track:
    """A track of the record book: fixed data, and targets to reach.

    Attributes:
        targets: figure to the value that its mean over pre-training seeds must reach; tasks in percent.
        data: first twelve digits of the hash of the shards' manifest, on which every record is trained and evaluated.
        stages: stages that build the data.
    """

    targets: Mapping[str, float]
    data: str
    stages: tuple[str, ...]

    @property
    def tasks(self) -> list[str]:
        return [name for name in self.targets if name != AUC]


TRACKS = {
    "books": Track(
        targets={AUC: 0.846, "CoNLL-2000": 86.5},
        data="6bccae14f59d",
        stages=("tasks", "evaluation-texts", "corpus", "tokenizer", "shards"),
    ),
}
DIGITS = {AUC: 4}  # decimal places of stored figures; 2 for tasks


def figure_of(run: Row, target: str) -> float:
    """Return a run's figure; the mean if there are several fine-tuning runs."""
    found = run[target]
    return statistics.fmean(found) if isinstance(found, list) else found


def p_values(track: str, runs: Sequence[Row]) -> dict[str, float | None]:
    """Return :func:`p_value` of every target."""
    return {
        name: p_value([figure_of(run, name) for run in runs], target, DIGITS.get(name, 2))
        for name, target in TRACKS[track].targets.items()
    }


def p_value(values: Sequence[float], target: float, digits: int) -> float | None:
    """Return the p-value of Student's one-sided, one-sample t-test: probability of such a mean if the target is true.

    Args:
        digits: decimal places of the values; their scatter is taken as at least one unit of the last place.

    Returns:
        None for a single value, whose scatter is unknown.
    """
    if len(values) < 2:
        return None
    deviation = max(statistics.stdev(values), 10.0**-digits)
    t = (statistics.fmean(values) - target) / (deviation / math.sqrt(len(values)))
    return float(special.stdtr(len(values) - 1, -t))


def seeds_needed(values: Sequence[float], target: float, digits: int, most: int = 100) -> int | None:
    """Return how many seeds with this mean and scatter would be significant; None if more than ``most``."""
    if len(values) < 2:
        return None
    mean, deviation = statistics.fmean(values), max(statistics.stdev(values), 10.0**-digits)
    for number in range(2, most + 1):
        if special.stdtr(number - 1, (target - mean) / (deviation / math.sqrt(number))) < SIGNIFICANCE:
            return number
    return None


def verdicts(rows: Sequence[Row]) -> list[str]:
    """Return a verdict for each row of one track, in order: each row is compared with the last record before it."""
    found: list[str] = []
    best: Row | None = None
    for row in rows:
        found.append(verdict(row, best))
        if best is None or found[-1] == "record":
            best = row
    return found


def verdict(row: Row, before: Row | None) -> str:
    """Return ``baseline``, ``record``, or the reason why the row is not a record.

    Args:
        before: the last record, or the baseline; None for the first row of a track.
    """
    if before is None:
        return "baseline"
    missed = [name for name, p in row["p"].items() if p is not None and p >= SIGNIFICANCE]
    reasons = {
        "one seed": len(row["runs"]) < 2,
        "seeds are not 1 to n": [run["seed"] for run in row["runs"]] != list(range(1, len(row["runs"]) + 1)),
        f"{' and '.join(missed)} not significant": bool(missed),
        f"no fewer FLOPs than `{before['record']}`": row["flops"] >= before["flops"],
        "code is not committed": "dirty" in row["revision"] or "unknown" in row["revision"],
    }
    why = [reason for reason, holds in reasons.items() if holds]
    return f"no record: {'; '.join(why)}" if why else "record"


def with_row(rows: Sequence[Row], new: Row) -> list[Row]:
    """Replace the row of the same name, or append the new one; keep its wall time if that is still valid."""
    old = next((row for row in rows if _is(row, new["track"], new["record"])), None)
    if old is None:
        return [*rows, new]
    if "wall" in old and (old["changes"], old["steps"]) == (new["changes"], new["steps"]):
        new = {**new, "wall": old["wall"]}
    return [new if row is old else row for row in rows]


def with_wall(rows: Sequence[Row], track: str, name: str, wall: dict[str, Any], needed: bool) -> list[Row]:
    """Return the rows with a comparison of wall time added to its row.

    Raises:
        ConfigError: the row is needed and does not exist.
    """
    if needed and not any(_is(row, track, name) for row in rows):
        raise ConfigError(f"records.json has no row {name} of {track}", next_step="run its seeds with --write before")
    return [{**row, "wall": wall} if _is(row, track, name) else row for row in rows]


def _is(row: Row, track: str, name: str) -> bool:
    return (row["track"], row["record"]) == (track, name)


def summary(rows: Sequence[Row], row: Row) -> str:
    """Return the last lines of a call: the row's figures with p-values, its verdict, and missing seeds."""
    own = [other for other in rows if other["track"] == row["track"]]
    names = [other["record"] for other in own]
    lines = [f"{row['record']}: {row['flops']:.3e} FLOPs, {row['share_of_baseline']:.2%} of the baseline's"]
    for name, target in TRACKS[row["track"]].targets.items():
        values, digits = [figure_of(run, name) for run in row["runs"]], DIGITS.get(name, 2)
        p, needed = row["p"][name], seeds_needed(values, target, digits)
        line = f"{name}: {measure.mean_and_spread(values, digits)}, target {target}"
        if p is not None:
            line += f", p = {p:.2g}"
            if p >= SIGNIFICANCE and statistics.fmean(values) > target:
                line += f"; {needed or 'more than 100'} seeds with this mean and scatter would be enough"
        lines.append(line)
    return "\n".join([*lines, verdicts(own)[names.index(row["record"])]])


def wall_summary(name: str, wall: dict[str, Any]) -> str:
    return (
        f"{name} over {BASELINE}: wall time {measure.spread(wall['seconds_over_baseline'], '.3f')}, "
        f"processor time {measure.spread(wall['processor_seconds_over_baseline'], '.3f')}"
    )


def page_with(rows: Sequence[Row], page: str) -> str:
    """Return the page with every track's table between its markers.

    Raises:
        DataError: the markers of a track are missing.
    """
    for track in TRACKS:
        begin, end = f"<!-- {track}: written by experiments.speedrun -->\n", f"<!-- end of {track} -->"
        if begin not in page or end not in page:
            raise DataError(
                f"the page has no place for {track}", where="docs/records.md", next_step=f"add {begin}{end}"
            )
        text = section([row for row in rows if row["track"] == track])
        before, rest = page.split(begin, 1)
        page = f"{before}{begin}\n{text}\n{end}{rest.split(end, 1)[1]}"
    return page


def section(rows: Sequence[Row]) -> str:
    """Return a track's table, followed by each row's command, commit and machine."""
    if not rows:
        return ""
    targets = TRACKS[rows[0]["track"]].targets
    heading = ["record", "FLOPs", "of the baseline's", "wall time of the baseline's", "steps", "minutes", "seeds"]
    heading += [cell for name in targets for cell in (f"{name} ({targets[name]})", "p")] + ["MLM loss", "verdict"]
    lines, told = [], []
    for row, judged in zip(rows, verdicts(rows), strict=True):
        runs, machine = row["runs"], row["machine"]
        lines.append(
            [
                f"`{row['record']}`",
                f"{row['flops']:.3e}",
                f"{row['share_of_baseline']:.1%}",
                measure.spread(row["wall"]["seconds_over_baseline"], ".2f") if "wall" in row else "",
                f"{row['steps']:,}",
                measure.mean_and_spread([run["wall_seconds"] / 60 for run in runs if run["wall_seconds"]], 1),
                str(len(runs)),
            ]
        )
        for name in targets:
            digits, p = DIGITS.get(name, 2), row["p"][name]
            lines[-1] += [
                measure.mean_and_spread([figure_of(run, name) for run in runs], digits),
                "" if p is None else f"{p:.2g}",
            ]
        lines[-1] += [measure.mean_and_spread([run["mlm_loss"] for run in runs], 3), judged]
        where = f"{machine['date']}, {machine['device']}, {machine['cores']} cores"
        note = f"; {row['note']}" if "note" in row else ""
        told.append(f"- `{row['record']}`: `{row['command']}` at {row['revision']}; {where}{note}")
    return "\n".join([measure.table(heading, lines), "", *told, ""])
