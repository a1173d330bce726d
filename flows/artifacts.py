"""Artifacts of a run in Prefect's interface: the plan before it, the data, the scores and what has changed after it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from prefect.artifacts import create_link_artifact, create_markdown_artifact, create_table_artifact

from flows.plan import PlannedStage, dvc

SCORE_CARD = Path("results/report.md")
PAGE = Path("results/report.html")
SCORES = Path("results/scores.json")
TASK_SCORES = [Path(f"results/{family}.json") for family in ("glue", "squad", "tagging", "other")]
VALIDATION = Path("results/validation")
MAX_BYTES = 200_000  # of one artifact: it is a row of the server's database


def show_plan(plan: list[PlannedStage]) -> None:
    """Which stages may have to run, and why."""
    rows = [f"| {stage.name} | {'run' if stage.out_of_date else 'skip'} | {_cell(stage.why)} |" for stage in plan]
    num_due = sum(stage.out_of_date for stage in plan)
    head = [f"{num_due} of {len(plan)} stages may have to run", "", "| stage | plan | why |", "|---|---|---|"]
    _markdown([*head, *rows], "plan", "What would run, and why")


def show_results(root: Path, warn: Callable[[str], object]) -> None:
    """Show what a run has found. Its stages have ended well: what cannot be shown is a warning, no failure."""
    try:
        _show_results(root)
    except Exception as error:
        warn(f"the run has ended well, but not all of it can be shown: {error!r}")


def _show_results(root: Path) -> None:
    """Score card, scores, data report, metrics against the last commit, and where the page lies."""
    if (root / SCORE_CARD).is_file():
        _markdown([(root / SCORE_CARD).read_text(encoding="utf-8")], "score-card", "Score card")
    if rows := score_rows(root):
        create_table_artifact(rows, key="scores", description="Scores by task and start")
    if lines := data_report(root):
        _markdown(lines, "data-report", "What was found in the data")
    if (root / ".git").exists() and (difference := dvc(root, "metrics", "diff", "--md").strip()):
        _markdown([difference], "metrics-diff", "Metrics against the last commit")
    if (root / PAGE).is_file():
        page = (root / PAGE).resolve()
        create_link_artifact(page.as_uri(), link_text=str(PAGE), key="report", description="The whole report")


def score_rows(root: Path) -> list[dict[str, Any]]:
    """One row per task, from the score card's files."""
    columns = ["metric", "pretrained", "scratch", "gain"]
    return [
        {"task": name, **{column: found.get(column) for column in columns}}
        for path in (root / file for file in TASK_SCORES)
        if path.is_file()
        for name, found in json.loads(path.read_text(encoding="utf-8")).items()
    ]


def data_report(root: Path) -> list[str]:
    """The judgements of ``results/validation/*.json`` as markdown tables: one row per check."""
    lines: list[str] = []
    for path in sorted((root / VALIDATION).glob("*.json")):
        report = json.loads(path.read_text(encoding="utf-8"))
        lines += ["", f"## {path.stem}", "", "| check | severity | outcome | observed |", "|---|---|---|---|"]
        for check in report["checks"]:
            outcome = "passed" if check["success"] else "FAILED"
            observed = check["observed"]
            if isinstance(observed, dict):
                observed = ", ".join(f"{key} {value}" for key, value in observed.items())
            lines.append(f"| {_cell(check['check'])} | {check['severity']} | {outcome} | {_cell(str(observed))} |")
    return lines


def _cell(text: str) -> str:
    text = text.replace("|", "\\|")
    return text if len(text) < 200 else text[:200] + " ..."


def _markdown(lines: list[str], key: str, description: str) -> None:
    text = "\n".join(lines)
    if len(text.encode()) > MAX_BYTES:
        text = text.encode()[:MAX_BYTES].decode(errors="ignore") + "\n\n(cut)"
    create_markdown_artifact(text, key=key, description=description)
