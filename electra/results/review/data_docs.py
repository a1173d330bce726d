"""Data docs: the results of the Great Expectations suites on corpus, shards and tasks, as one offline page.

Built from ``results/validation`` and the same files in the last commit; without timestamps, so the same files give the
same bytes.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2

from electra.checks.judge import committed_statistics, drift, leaves
from electra.common.artifacts import read_json
from electra.common.errors import DataError
from electra.common.paths import Paths
from electra.results.report.build import page_style

SUITES = ("corpus", "shards", "tasks")
TEMPLATE = Path(__file__).with_name("data_docs.html.j2")


@dataclass(frozen=True)
class SuiteDocs:
    """A suite's section of the page.

    Attributes:
        name: corpus, shards or tasks, as in its stage ``validate_<name>``.
        report: content of its file in ``results/validation``.
        failed: number of failed checks, by severity.
        statistics: (name, value at the last commit, value now, True if it drifted) of each figure.
    """

    name: str
    report: dict[str, Any]
    failed: dict[str, int]
    statistics: list[tuple[str, str, str, bool]]

    @property
    def verdict(self) -> str:
        if self.failed["critical"]:
            return "failed"
        return "passed, with warnings" if self.failed["warning"] else "passed"

    @property
    def moved(self) -> int:
        return sum(moved for *_, moved in self.statistics)


def reports(paths: Paths) -> dict[str, Path]:
    """Return the paths of the existing reports, by suite."""
    files = {name: paths.results / "validation" / f"{name}.json" for name in SUITES}
    return {name: file for name, file in files.items() if file.is_file()}


def render_data_docs(paths: Paths) -> str:
    """Return the page's HTML.

    Raises:
        DataError: no suite has been run yet, or a report is broken.
    """
    files = reports(paths)
    if not files:
        raise DataError(
            "no data has been validated yet",
            where=str(paths.results / "validation"),
            next_step="run: dvc repro validate_corpus validate_shards validate_tasks",
        )
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.from_string(TEMPLATE.read_text(encoding="utf-8")).render(
        suites=[_suite(file) for file in files.values()],
        style=page_style(),
        observed=_observed,
        missing=[name for name in SUITES if name not in files],
    )


def _suite(file: Path) -> SuiteDocs:
    report = read_json(file)
    try:
        failed = {kind: int(report[f"failed_{kind}"]) for kind in ("critical", "warning")}
        before, now = committed_statistics(file), report["statistics"]
        old, moved = leaves(before), {line.split(" was ")[0] for line in drift(now, before)}
        statistics = [
            (name, f"{old[name]:,.6g}" if name in old else "", f"{value:,.6g}", name in moved)
            for name, value in leaves(now).items()
        ]
        return SuiteDocs(report["suite"], report, failed, statistics)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(
            f"not a report of a validation: {error!r}",
            where=str(file),
            next_step=f"make it again: dvc repro -f validate_{file.stem}",
        ) from None


def _observed(value: Any) -> str:
    if isinstance(value, dict):
        return f"{value['unexpected']:,} of {value['rows']:,} rows break it"
    return f"{value:,.6g}" if isinstance(value, int | float) and not isinstance(value, bool) else str(value)
