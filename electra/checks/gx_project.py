"""The Great Expectations project in ``data/gx``, for GX's own API and Data Docs.

``great_expectations.get_context(mode="file", project_root_dir="data")`` opens it. Each of the three stages
``validate_<name>`` writes the data source and the checkpoint ``<name>`` and, for each of its tables, a Parquet file, a
suite and a validation definition ``<name>.<table>``. GX gives them random ids and dates its results, so the folder is
neither in git nor in DVC's cache; the figures are in ``results/validation``.
"""

import html
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import great_expectations as gx
from great_expectations.checkpoint import UpdateDataDocsAction
from great_expectations.data_context import FileDataContext
from great_expectations.data_context.types.base import ProgressBarsConfig
from great_expectations.exceptions import GreatExpectationsError
from great_expectations.render.view import DefaultJinjaPageView
from jinja2 import pass_context
from ruamel.yaml import YAMLError

from electra.checks.expectations import Suite
from electra.checks.tables import Table
from electra.common.errors import DataError
from electra.common.locks import exclusive
from electra.common.output import disk_errors
from electra.common.paths import Paths

STAGES = ("corpus", "shards", "tasks")
VALIDATE = "electra validate-{}"
MAX_EXAMPLES = 5  # rows that break an expectation, in its result
SUMMARY = {"result_format": "SUMMARY", "partial_unexpected_count": MAX_EXAMPLES}
VIEW = {"module_name": __name__, "class_name": "EscapedPageView"}
PAGES = {"expectations": {"view": VIEW}, "validations": {"view": VIEW}}


class EscapedPageView(DefaultJinjaPageView):
    """GX's view of a page, with values and descriptions as text: GX 1.24 writes values into the page as markup."""

    @pass_context
    def render_content_block(self, jinja_context: Any, content_block: Any, *args: Any, **options: Any) -> Any:
        if isinstance(content_block, str):
            return html.escape(content_block)
        return super().render_content_block(jinja_context, content_block, *args, **options)

    def render_string_template(self, template: Any) -> Any:
        if isinstance(template, dict) and set(template) == {"template"}:  # a description
            template = {"template": html.escape(template["template"])}
        return super().render_string_template(template)


@contextmanager
def gx_project(paths: Paths) -> Iterator[FileDataContext]:
    """Open the project to change it, one process at a time; make it first if it is missing or was left half-changed.

    Raises:
        DataError: GX cannot read it.
        InfrastructureError: the disk is full.
    """
    folder = paths.gx
    changing = folder / "uncommitted/changing"  # exists during a change, and after one that was killed
    with exclusive(folder, wait=True), disk_errors(folder):
        if changing.exists():
            shutil.rmtree(folder)
        changing.parent.mkdir(parents=True, exist_ok=True)
        changing.touch()
        try:
            context = gx.get_context(mode="file", project_root_dir=folder.parent)
        except (GreatExpectationsError, YAMLError, ValueError) as error:
            changing.unlink()
            raise DataError(
                f"Great Expectations cannot read its project: {error}",
                where=str(folder),
                next_step=f"remove the folder, then run: {', '.join(map(VALIDATE.format, STAGES))}",
            ) from error
        context.variables.analytics_enabled = False
        context.variables.progress_bars = ProgressBarsConfig(globally=False)
        sites = context.variables.data_docs_sites or {}
        sites["local_site"] |= {"show_how_to_buttons": False, "site_section_builders": PAGES}
        context.variables.data_docs_sites = sites
        context.variables.save()
        yield context
        changing.unlink()


def add_checkpoint(
    context: FileDataContext, name: str, tables: dict[str, Table], suite: Suite
) -> dict[str, gx.ValidationDefinition]:
    """Replace all that the project has of one stage.

    Returns:
        The validation definition of each table that the suite is about.
    """
    _remove_other_tables(context, name, {entry_name(name, table) for table in suite})
    tables_folder = Path(context.root_directory, "tables", name)
    for earlier in (tables_folder, Path(context.root_directory, "uncommitted/validations", name)):
        shutil.rmtree(earlier, ignore_errors=True)
    tables_folder.mkdir(parents=True)
    source = context.data_sources.add_or_update_pandas_filesystem(name, base_directory=tables_folder)
    definitions = {}
    for table, expectations in suite.items():
        entry = entry_name(name, table)
        asset = entry.removeprefix(f"{name}.")
        file = f"{asset}.parquet"
        tables[table].frame.to_parquet(tables_folder / file)
        batch = source.add_parquet_asset(asset).add_batch_definition_path("file", file)
        stored = context.suites.add_or_update(gx.ExpectationSuite(name=entry, expectations=expectations))
        definitions[table] = context.validation_definitions.add_or_update(
            gx.ValidationDefinition(name=stored.name, data=batch, suite=stored)
        )
    checkpoint = gx.Checkpoint(
        name=name,
        validation_definitions=list(definitions.values()),
        actions=[UpdateDataDocsAction(name="update Data Docs")],
        result_format=SUMMARY,
    )
    context.checkpoints.add_or_update(checkpoint)
    return definitions


def entry_name(name: str, table: str) -> str:
    """Return the name of a table's suite and validation definition: GX makes files of them, so it has no slash."""
    return f"{name}.{table.replace('/', '-')}"


def _remove_other_tables(context: FileDataContext, name: str, kept: set[str]) -> None:
    """Remove what the project has of a stage's tables that it no longer makes, such as those of dropped tasks."""
    stale = [entry.name for entry in context.validation_definitions.all() if entry.name.startswith(f"{name}.")]
    for entry in sorted(set(stale) - kept):
        if name in {checkpoint.name for checkpoint in context.checkpoints.all()}:
            context.checkpoints.delete(name)
        context.validation_definitions.delete(entry)
        context.suites.delete(entry)


def build_data_docs(paths: Paths) -> tuple[Path, list[str]]:
    """Build GX's Data Docs of the results in the project anew.

    Returns:
        The index page, and the commands that validate what has no results.

    Raises:
        DataError: there are no results at all.
    """
    results = paths.gx / "uncommitted/validations"
    missing = [VALIDATE.format(name) for name in STAGES if not (results / name).is_dir()]
    if len(missing) == len(STAGES):
        raise DataError("no data has been validated yet", where=str(results), next_step=f"run: {', '.join(missing)}")
    with gx_project(paths) as context:
        context.clean_data_docs()
        context.build_data_docs()
    return paths.gx / "uncommitted/data_docs/local_site/index.html", missing
