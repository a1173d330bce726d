"""Commands for review: compare two runs, list all runs, plan a run."""

import json
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from electra.cli import REVIEW, app


@app.command(rich_help_panel=REVIEW)
def compare(
    sides: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[A] [B]", help="commit, branch, tag, experiment of DVC, or folder; HEAD and the work tree"
        ),
    ] = None,
    md: Annotated[bool, typer.Option("--md", help="as Markdown, for a pull request")] = False,
    html: Annotated[
        Path | None, typer.Option(help="write one offline page with curves and flipped examples to this file")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="everything, as JSON")] = False,
    gate: Annotated[
        Path | None, typer.Option(help="YAML with thresholds: exit with 1 and print the reasons if B misses one")
    ] = None,
    smallest: Annotated[
        float, typer.Option(min=0, help="smallest difference that matters, in points; of the mean half of it")
    ] = 2.0,
    record_noise: Annotated[
        bool,
        typer.Option("--record-noise", help="write results/noise/<profile>.json from runs that differ in seeds alone"),
    ] = False,
) -> None:
    """Compare two runs: changed settings and code, and the scores that differ by more than noise.

    Example: electra compare          (HEAD against the work tree)

    Example: electra compare main my-branch --md

    Example: electra compare main --html compare.html
    """
    from electra.common.artifacts import writing_named
    from electra.common.errors import ConfigError
    from electra.common.paths import Paths
    from electra.results.review.compare import compare as compare_sides
    from electra.results.review.gate import read_thresholds, reasons_to_refuse
    from electra.results.review.noise import record_noise as write_record
    from electra.results.review.render import render_markdown, render_page, render_text
    from electra.results.review.sides import open_side

    named = sides or ["HEAD"]
    if record_noise:
        print(f"written: {write_record([open_side(name) for name in named], Paths())}")
        return
    if len(named) > 2:
        raise ConfigError(f"two runs are compared, and {len(named)} are named", next_step="name A and B")
    thresholds = read_thresholds(gate) if gate else None
    before, after = open_side(named[0]), open_side(named[1] if len(named) > 1 else None)
    found = compare_sides(before, after, smallest)
    if html:
        page = render_page(found)
        with writing_named(html, [*([gate] if gate else []), *before.files, *after.files]) as out:
            out.write(page)
        typer.echo(f"written: {html}", err=True)
    if as_json:
        print(json.dumps(found.as_json(), indent=2, ensure_ascii=False))
    else:
        print((render_markdown if md else render_text)(found), end="")
    if thresholds and (reasons := reasons_to_refuse(found, thresholds)):
        for reason in reasons:
            typer.echo(f"gate: {reason}", err=True)
        raise typer.Exit(1)


@app.command(rich_help_panel=REVIEW)
def noise(
    num_runs: Annotated[int, typer.Option("--runs", min=2, help="number of pre-trainings, each with its own seed")] = 4,
    num_seeds: Annotated[int, typer.Option("--seeds", min=1, help="number of fine-tuning seeds of each")] = 2,
) -> None:
    """Measure how much scores vary with the seed, for `electra compare`, by running the profile several times.

    Writes results/noise/<profile>.json, to be committed. The work tree's settings and results do not change.

    Example: electra noise --runs 4 --seeds 2
    """
    from electra.common.paths import Paths
    from electra.results.review.noise import measure_noise

    print(f"written: {measure_noise(Paths(), num_runs, num_seeds)}; commit it")


@app.command(rich_help_panel=REVIEW)
def runs(
    most: Annotated[int, typer.Option("-n", "--most", min=1, help="number of runs, the newest first")] = 20,
    as_json: Annotated[bool, typer.Option("--json", help="as JSON, with all changed parameters")] = False,
) -> None:
    """List the work tree's run, those in git and DVC's experiments: changed settings, mean score, AUC, minutes.

    Example: electra runs -n 5
    """
    from electra.results.review.runs import find_runs, render_runs, runs_as_json

    print((runs_as_json if as_json else render_runs)(find_runs(most=most)), end="")


@app.command(rich_help_panel=REVIEW)
def data_docs(
    show: Annotated[bool, typer.Option("--open", help="open the page in the browser, too")] = False,
) -> None:
    """Build Great Expectations' Data Docs: the expectations on corpus, shards and tasks with their last results.

    Example: electra data-docs --open
    """
    import webbrowser

    from electra.checks.gx_project import build_data_docs
    from electra.common.paths import Paths

    page, missing = build_data_docs(Paths())
    for command in missing:
        typer.echo(f"not validated in this workspace; run: {command}", err=True)
    typer.echo(f"written: {page}", err=True)
    if show:
        webbrowser.open(page.absolute().as_uri())


@app.command(rich_help_panel=REVIEW)
def plan(
    stages: Annotated[list[str] | None, typer.Argument(help="only these stages and those they depend on")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="as JSON")] = False,
) -> None:
    """Show which stages would run and why, with minutes, disk and GPUs; nothing is run.

    Example: electra plan pretrain
    """
    from contextlib import redirect_stdout

    from electra.cli import load
    from electra.inputs import watch_inputs

    with redirect_stdout(sys.stderr):  # standard output is only for the plan, which may be JSON
        watch_inputs(*load())
    asked = [*(["--json"] if as_json else []), *(stages or [])]
    os.execv(sys.executable, [sys.executable, "-m", "flows.forecast", *asked])
