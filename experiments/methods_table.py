"""Rows of ``experiments.methods``: the choices made from them, intervals, paired tests, and the tables.

A row is a finished run: ``run`` (budget, method, rate, seed), ``split`` (the scored rows), ``tasks`` (task to scores by
fine-tuning seed, percent) and, unless the weights are random, what pre-training cost and its held-out figures.
"""

import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from scipy import special

from benchmarks import measure

Row = dict[str, Any]
RANDOM, CHOICE, DEV = "random", "choice", "dev"
BASELINE = "bert"  # the method that others are compared with
RECORD_BUDGET = "24M"  # the record book's baseline is BASELINE with the FLOPs of this budget
SIGNIFICANCE = 0.01
NOTABLE = 0.05  # comparisons with a larger p are not listed again
OTHER_COMPARISONS = 1  # that of the record book: less than the FLOPs of its baseline
TUNED = ("bert", "electra")  # methods whose tuning runs decide which tasks count
LEVEL = 0.95
CHANGED_TOKENS = "changed tokens"  # in the names of scores of the tokens in which the two sentences of a pair differ
SHAPE, TEXT = "2x128", "12MB"  # those of which rows say nothing; further ones have tables of their own
BEGIN, END = "<!-- written by experiments.methods -->", "<!-- end of what experiments.methods writes -->"


# ---- choices, on part A


def counted_tasks(rows: Sequence[Row]) -> list[str]:
    """Return the tasks of the mean: on part A pre-training is above random weights by more than twice the spread.

    The gain is the median over the tuning runs of :data:`TUNED` at the smallest budget that has any; the spread is the
    standard deviation over fine-tuning seeds, of both sides. All count if none does. Runs of another shape or text than
    :data:`SHAPE` and :data:`TEXT` are fine-tuned only on tasks that count for these, so there all count.
    """
    if group_of(rows[0]) != group_name(SHAPE, TEXT):
        return list(rows[0]["tasks"])
    start = next(row["tasks"] for row in rows if row["run"]["method"] == RANDOM and row["split"] == CHOICE)
    tuned = [row for row in rows if row["split"] == CHOICE and row["run"]["method"] in TUNED]
    fewest = min(row["flops"] for row in tuned)
    runs = [row["tasks"] for row in tuned if row["flops"] == fewest]
    found = []
    for task, values in start.items():
        gain = statistics.median(statistics.fmean(run[task]) for run in runs) - statistics.fmean(values)
        spread = math.hypot(statistics.stdev(values), statistics.fmean(statistics.stdev(run[task]) for run in runs))
        if gain > 2 * spread:
            found.append(task)
    return found or list(start)


def tuning_scores(rows: Sequence[Row], budget: str, method: str) -> dict[float, float]:
    """Return the mean of the counted tasks on part A by learning rate, ascending."""
    counted = counted_tasks(rows)
    own = [row for row in rows if row["split"] == CHOICE and of(row) == (budget, method)]
    return {row["run"]["rate"]: mean_of(row, counted) for row in sorted(own, key=lambda row: row["run"]["rate"])}


def rates_beyond(scores: dict[float, float], most: int) -> list[float]:
    """Return the next rate to try where the best is at an end of those that were tried, at most ``most`` in all."""
    rates = sorted(scores)
    best = max(rates, key=lambda rate: scores[rate])
    if len(rates) >= most:
        return []
    return [2 * best] if best == rates[-1] else [best / 2] if best == rates[0] else []


# ---- figures


def group_name(shape: str, text: str) -> str:
    """Return the name of what is compared: the runs of a shape with a text."""
    return shape if text == TEXT else f"{shape}-{text}"


def group_of(row: Row) -> str:
    return group_name(row["run"].get("shape", SHAPE), row["run"].get("text", TEXT))


def of_group(rows: Sequence[Row], group: str) -> list[Row]:
    """Return the rows of a group."""
    return [row for row in rows if group_of(row) == group]


def groups_of(rows: Sequence[Row]) -> list[str]:
    """Return the groups of the rows, in their order."""
    return list(dict.fromkeys(map(group_of, rows)))


def title_of(group: str, budget: str = "") -> str:
    """Return what a group and a budget are called in a table, such as "2x128, 24M (200 MB of text)"."""
    shape, _, text = group.partition("-")
    title = f"{shape}, {budget}" if budget else shape
    return f"{title} ({text.replace('MB', ' MB')} of text)" if text else title


def of(row: Row) -> tuple[str, str]:
    return row["run"]["budget"], row["run"]["method"]


def mean_of(row: Row, tasks: Sequence[str]) -> float:
    """Return the mean over tasks of the mean over fine-tuning seeds."""
    return statistics.fmean(statistics.fmean(row["tasks"][task]) for task in tasks)


def half_interval(values: Sequence[float]) -> float:
    """Return half the width of the 95% interval of the mean, by Student's t; infinite for a single value."""
    if len(values) < 2:
        return math.inf
    return float(special.stdtrit(len(values) - 1, (1 + LEVEL) / 2)) * statistics.stdev(values) / math.sqrt(len(values))


def paired(ours: dict[int, float], baseline: dict[int, float]) -> tuple[list[float], float]:
    """Return the differences by seed, and the p-value of Student's two-sided paired t-test (1 for a single seed)."""
    differences = [ours[seed] - baseline[seed] for seed in sorted(ours.keys() & baseline.keys())]
    if len(differences) < 2:
        return differences, 1.0
    error = statistics.stdev(differences) / math.sqrt(len(differences))
    mean = statistics.fmean(differences)
    if error == 0:
        return differences, float(mean == 0)
    return differences, 2 * float(special.stdtr(len(differences) - 1, -abs(mean / error)))


def by_seed(rows: Sequence[Row], budget: str, method: str, tasks: Sequence[str]) -> dict[int, float]:
    """Return the mean of tasks on the development sets by pre-training seed, of runs that have these tasks."""
    own = [row for row in rows if row["split"] == DEV and of(row) == (budget, method)]
    return {row["run"]["seed"]: mean_of(row, tasks) for row in own if row["tasks"].keys() >= set(tasks)}


def compared(rows: Sequence[Row]) -> list[tuple[str, str]]:
    """Return budget and method of all that is reported: by FLOPs, the baseline first, then in the order of the rows.

    A method with a single seed is not reported.
    """
    scored = [row for row in rows if row["split"] == DEV and row["run"]["method"] != RANDOM]
    seeds = Counter(of(row) for row in scored)
    flops = {of(row): row["flops"] for row in scored}
    reported = [pair for pair in seeds if seeds[pair] > 1]
    return sorted(reported, key=lambda pair: (flops[pair], pair[1] != BASELINE))


# ---- tables


def scores_table(rows: Sequence[Row]) -> str:
    """Return the table of scores: a line per budget and method."""
    counted, tasks = counted_tasks(rows), list(_random(rows)["tasks"])
    heading = ["tokens", "method", "seeds", "steps", "rate", *tasks, f"mean of {len(counted)}"]
    lines = [
        ["0", "random weights", "", "", "", *_scores(lambda names: [mean_of(_random(rows), names)], tasks, counted)]
    ]
    for budget, method in compared(rows):
        own = [row for row in rows if row["split"] == DEV and of(row) == (budget, method)]

        def values(names: Sequence[str], own: list[Row] = own) -> list[float]:
            return [mean_of(row, names) for row in own if row["tasks"].keys() >= set(names)]

        about = [f"{own[0]['tokens'] / 1e6:.1f}M", f"`{method}`", str(len(own)), f"{own[0]['steps']:,}"]
        lines.append([*about, f"{own[0]['run']['rate']:.2g}", *_scores(values, tasks, counted)])
    return measure.table(heading, lines) + "\n"


def summary_table(rows: Sequence[Row]) -> str:
    """Return the scores of random weights and of each method that was run with several shapes or texts.

    Only the tasks that count in all of them are shown, and of minimal pairs the half that had no part in the choice of
    the score.
    """
    groups = [group for group in groups_of(rows) if compared(of_group(rows, group))]
    methods = in_several_groups(rows)
    counted = [counted_tasks(of_group(rows, group)) for group in groups]
    tasks = [task for task in counted[0] if all(task in others for others in counted)]
    heading = ["encoder", "FLOPs of", "method", "seeds", *tasks, f"mean of {len(tasks)}", "minimal pairs"]
    lines = []
    for group in groups:
        own = of_group(rows, group)
        pairs = {(line.budget, line.method): with_interval(list(line.other.values())) for line in chosen_ways(own)}
        for budget, method in [("", RANDOM), *compared(own)]:
            if method != RANDOM and method not in methods:
                continue
            name = "random weights" if method == RANDOM else f"`{method}`"
            columns = [*([task] for task in tasks), tasks]
            found = [list(by_seed(own, budget, method, names).values()) for names in columns]
            seeds = "" if method == RANDOM else str(len(found[-1]))
            lines.append(
                [title_of(group), budget, name, seeds, *map(with_interval, found), pairs.get((budget, method), "")]
            )
    return measure.table(heading, lines) + "\n"


def answer_table(rows: Sequence[Row]) -> str:
    """Return the mean of the counted tasks minus the baseline's, paired by seed: a line per shape, text and budget.

    The columns are the methods that were run with several shapes or texts, the best of the first line first.
    """
    lines: dict[str, dict[str, tuple[list[float], float]]] = {}
    for title, method, differences, p in comparisons(rows):
        lines.setdefault(title, {})[method] = (differences, p)
    columns = [method for method in in_several_groups(rows) if method != BASELINE]

    def means(method: str) -> list[float]:
        return [statistics.fmean(found[method][0]) if method in found else -math.inf for found in lines.values()]

    def cell(differences: list[float], p: float) -> str:
        return f"{with_interval(differences, '+.1f')} (p = {p:.2g})" if differences else ""

    columns.sort(key=means, reverse=True)
    cells = [[title, *(cell(*found.get(method, ([], 1.0))) for method in columns)] for title, found in lines.items()]
    return measure.table(["encoder and FLOPs", *(f"`{method}`" for method in columns)], cells) + "\n"


def in_several_groups(rows: Sequence[Row]) -> list[str]:
    """Return the methods that were run with several shapes or texts."""
    groups = [{method for _, method in compared(of_group(rows, group))} for group in groups_of(rows)]
    number = Counter(method for methods in groups for method in methods)
    return sorted(method for method in number if number[method] > 1)


def comparisons(rows: Sequence[Row]) -> list[tuple[str, str, list[float], float]]:
    """Return title (shape, FLOPs, text), method, differences to the baseline and p of all that is compared with it."""
    compared_ones = []
    for group in groups_of(rows):
        own = of_group(rows, group)
        counted = counted_tasks(own)
        for budget, method in compared(own):
            found, p = paired(by_seed(own, budget, method, counted), by_seed(own, budget, BASELINE, counted))
            if method != BASELINE and len(found) > 1:
                compared_ones.append((title_of(group, budget), method, found, p))
    return compared_ones


def corrected_table(rows: Sequence[Row]) -> str:
    """Return the comparisons with p < 0.05, and p corrected for the number of all (Bonferroni)."""
    found = comparisons(rows)
    number = len(found) + OTHER_COMPARISONS
    lines = [
        [title, f"`{method}`", with_interval(values, "+.1f"), f"{p:.2g}", f"{min(1.0, number * p):.1g}"]
        for title, method, values, p in sorted(found, key=lambda comparison: comparison[-1])
        if p < NOTABLE
    ]
    heading = ["encoder and FLOPs", "method", "minus `bert`", "p", f"corrected for {number} comparisons"]
    return measure.table(heading, lines) + "\n"


def costs_table(rows: Sequence[Row]) -> str:
    """Return what the reported runs cost: a line per shape, text, budget and kind of machine."""
    runs: dict[tuple[str, str, str], dict[str, list[Row]]] = {}
    for row in rows:
        budget, method = of(row)
        if row["split"] == DEV and (budget, method) in compared(of_group(rows, group_of(row))):
            title = title_of(group_of(row), budget)
            machine = (title, processor_of(row["machine"]), row["precision"])
            runs.setdefault(machine, {}).setdefault(method, []).append(row)
    lines = []
    for (title, processor, precision), methods in runs.items():
        own = [row for by_method in methods.values() for row in by_method]
        minutes = [row["processor_seconds"] / 60 for row in own if row.get("processor_seconds")]
        seeds = [f"`{method}` {ranges(row['run']['seed'] for row in found)}" for method, found in methods.items()]
        cost = f"{own[0]['flops'] / 1e12:.0f}"
        spent = dict.fromkeys(f"{value:.0f}" for value in (min(minutes), max(minutes))) if minutes else {}
        lines.append([title, cost, f"{processor}, {precision}", "; ".join(seeds), " - ".join(spent)])
    return (
        measure.table(["encoder and FLOPs", "TFLOP", "processor", "methods and their seeds", "minutes"], lines) + "\n"
    )


def processor_of(machine: dict[str, Any]) -> str:
    """Return a processor's name and its widest units for matrix products."""
    units = " ".join(machine.get("matrix_units", []))
    widest = "AMX" if "amx" in units else "AVX-512" if "avx512" in units else "no AVX-512"
    return f"{machine['device'].replace('(R)', '').removesuffix(' Processor')}, {widest}"


def ranges(numbers: Iterable[int]) -> str:
    """Return whole numbers as ranges, such as "1-3, 5"."""
    found: list[list[int]] = []
    for number in sorted(numbers):
        if found and number == found[-1][-1] + 1:
            found[-1].append(number)
        else:
            found.append([number])
    return ", ".join(f"{part[0]}-{part[-1]}" if len(part) > 1 else f"{part[0]}" for part in found)


def differences_table(rows: Sequence[Row]) -> str:
    """Return the table of differences to the baseline, paired by seed: a line per budget and other method."""
    counted, tasks = counted_tasks(rows), list(_random(rows)["tasks"])
    heading = ["FLOPs of", "method", "seeds", *tasks, f"mean of {len(counted)}", "p"]
    lines = []
    for budget, method in compared(rows):
        if method == BASELINE:
            continue
        cells = []
        for names in (*([task] for task in tasks), counted):
            found, p = paired(by_seed(rows, budget, method, names), by_seed(rows, budget, BASELINE, names))
            cells.append(with_interval(found, "+.1f") if found else "")
        if len(found) > 1:  # the last are those of the mean
            lines.append([budget, f"`{method}`", str(len(found)), *cells, f"{p:.2g}"])
    return measure.table(heading, lines) + "\n"


def rates_table(rows: Sequence[Row]) -> str:
    """Return the table of the learning rates that were tried, by their mean on part A."""
    pairs = sorted({of(row): row["flops"] for row in rows if row["split"] == CHOICE and row["run"]["budget"]}.items())
    tried = [(pair, tuning_scores(rows, *pair)) for pair, _ in sorted(pairs, key=lambda item: (item[1], item[0]))]
    rates = sorted({rate for _, scores in tried for rate in scores})
    lines = []
    for (budget, method), scores in tried:
        best = max(scores, key=lambda rate: scores[rate])
        cells = [f"{scores[rate]:.1f}" if rate in scores else "" for rate in rates]
        lines.append(
            [
                budget,
                f"`{method}`",
                *(f"**{cell}**" if rate == best else cell for rate, cell in zip(rates, cells, strict=True)),
            ]
        )
    return measure.table(["FLOPs of", "method", *(f"{rate:.2g}" for rate in rates)], lines) + "\n"


@dataclass(frozen=True)
class Way:
    """One way of scoring minimal pairs with the encoders of a method: by pre-training seed, the accuracy in percent."""

    budget: str
    method: str
    name: str
    choice: dict[int, float]  # on the half of the paradigms on which the way is chosen
    other: dict[int, float]  # on the other half

    def cells(self) -> list[str]:
        halves = [with_interval(list(half.values())) for half in (self.choice, self.other)]
        return [self.budget, f"`{self.method}`", str(len(self.choice)), self.name, *halves]


def ways_of(rows: Sequence[Row], budget: str, method: str) -> list[Way]:
    """Return all ways of scoring that a method has; none where no run has minimal pairs."""
    own = [row for row in rows if row["split"] == DEV and of(row) == (budget, method) and "pairs" in row]
    halves = [
        (name, *({row["run"]["seed"]: row["pairs"][name][half] for row in own} for half in (0, 1)))
        for name in (own[0]["pairs"] if own else ())
    ]
    return [Way(budget, method, *values) for values in halves]


def best_way(ways: Sequence[Way]) -> Way:
    """Return the way that is best on one half of the paradigms; the other half has no part in the choice."""
    return max(ways, key=lambda way: statistics.fmean(way.choice.values()))


def chosen_ways(rows: Sequence[Row]) -> list[Way]:
    """Return the best way of every budget and method that has minimal pairs."""
    return [best_way(ways) for pair in compared(rows) if (ways := ways_of(rows, *pair))]


def pairs_table(rows: Sequence[Row]) -> str:
    """Return the table of minimal pairs: a line per budget and method, by the way of scoring that is chosen.

    The last columns, where they are not empty, have the difference to the baseline on the half that had no part in the
    choice, paired by seed, where both are scored on the tokens that differ.
    """
    chosen = chosen_ways(rows)
    baselines = {way.budget: way for way in chosen if way.method == BASELINE and CHANGED_TOKENS in way.name}
    further = []
    for way in chosen:
        comparable = way.method != BASELINE and way.budget in baselines and CHANGED_TOKENS in way.name
        found, p = paired(way.other, baselines[way.budget].other) if comparable else ([], 1.0)
        further.append([with_interval(found, "+.1f"), f"{p:.2g}"] if len(found) > 1 else ["", ""])
    lines = [way.cells() for way in chosen]
    if not any(difference for difference, _ in further):
        return _table_of_pairs(lines)
    lines = [line + cells for line, cells in zip(lines, further, strict=True)]
    return _table_of_pairs(lines, f"minus `{BASELINE}`", "p")


def ways_table(rows: Sequence[Row]) -> str:
    """Return the same by every way of scoring, the chosen one in bold."""
    lines = []
    for pair in compared(rows):
        ways = ways_of(rows, *pair)
        best = best_way(ways) if ways else None
        for way in ways:
            cells = way.cells()
            lines.append([*cells[:3], *(f"**{cell}**" for cell in cells[3:])] if way is best else cells)
    return _table_of_pairs(lines)


def _table_of_pairs(lines: list[list[str]], *further: str) -> str:
    heading = ["FLOPs of", "method", "seeds", "score", "17 paradigms, on which it is chosen", "the other 17", *further]
    return measure.table(heading, lines) + "\n"


def records_table(rows: Sequence[Row]) -> str:
    """Return the record book's table: the baseline, then what reaches its mean of the counted tasks with fewer FLOPs.

    A line is a record if it costs less than the record before it and is above the baseline with p < 0.01, by Student's
    one-sided t-test paired by seed. The table is empty before the baseline is finished.
    """
    rows = of_group(rows, group_name(SHAPE, TEXT))
    counted = counted_tasks(rows)
    heading = ["method", "FLOPs", "of the baseline's", "seeds", f"mean of {len(counted)}", "minus baseline", "p", ""]
    baseline = by_seed(rows, RECORD_BUDGET, BASELINE, counted)
    if not baseline:
        return measure.table(heading, []) + "\n"
    flops = {of(row): row["flops"] for row in rows if row["run"]["method"] != RANDOM}
    most = flops[RECORD_BUDGET, BASELINE]
    cheapest, lines = 1.0, [_record_line((RECORD_BUDGET, BASELINE), most, list(baseline.values()), 1.0)]
    lines[0] += ["", "", "baseline"]
    pairs = [pair for pair in compared(rows) if pair != (RECORD_BUDGET, BASELINE) and flops[pair] < 1.01 * most]
    for pair in sorted(pairs, key=lambda pair: (-flops[pair], pair)):
        share, ours = flops[pair] / most, by_seed(rows, *pair, counted)
        found, both = paired(ours, baseline)
        if len(found) < 2:
            continue
        p = both / 2 if statistics.fmean(found) > 0 else 1 - both / 2
        verdict = "not above the baseline"
        if p < SIGNIFICANCE and share < 0.99 * cheapest:
            verdict, cheapest = "record", share
        elif p < SIGNIFICANCE:
            verdict = "above it at equal FLOPs" if share > 0.99 else "above it, no cheaper than the record"
        line = _record_line(pair, flops[pair], list(ours.values()), share)
        lines.append([*line, with_interval(found, "+.1f"), f"{p:.2g}", verdict])
    return measure.table(heading, lines) + "\n"


def _record_line(pair: tuple[str, str], flops: float, means: list[float], share: float) -> list[str]:
    return [f"`{pair[1]}`", f"{flops:.3g}", f"{share:.0%}", str(len(means)), with_interval(means)]


def page_with(name: str, table: str, page: str, program: str = "experiments.methods") -> str:
    """Return the page with a table in the place that carries its name.

    Raises:
        ValueError: the page has no such place.
    """
    begin, end = f"<!-- {name}: written by {program} -->\n", f"<!-- end of {name} -->"
    before, found, rest = page.partition(begin)
    _, closed, after = rest.partition(end)
    if not (found and closed):
        raise ValueError(f"the page has no place for the table {name}")
    return f"{before}{begin}\n{table}\n{end}{after}"


def with_interval(values: Sequence[float], form: str = ".1f") -> str:
    """Return the mean of several values ± half its 95% interval, or a single value."""
    mean = format(statistics.fmean(values), form)
    return f"{mean} ± {half_interval(values):.1f}" if len(values) > 1 else mean


def _random(rows: Sequence[Row]) -> Row:
    """Return the row of random weights, which is finished before every other row of the development sets."""
    return next(row for row in rows if row["run"]["method"] == RANDOM and row["split"] == DEV)


def _scores(values: Callable[[Sequence[str]], list[float]], tasks: Sequence[str], counted: Sequence[str]) -> list[str]:
    found = [values(names) for names in (*([task] for task in tasks), counted)]
    return [with_interval(scores) if scores else "" for scores in found]
