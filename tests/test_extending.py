"""CONTRIBUTING.md lists every step of adding a task, method, launcher, corpus format or stage."""

import ast
import re
from pathlib import Path
from typing import get_args

import pytest
import yaml

from electra.cluster.launchers.pretraining import LAUNCHERS
from electra.common.paths import SCORE_FAMILIES, Paths
from electra.config import Cells, Cluster, FilesTasks, Settings
from electra.config.loading import load_settings
from electra.config.methods import METHODS
from electra.finetune.kinds import FINETUNING
from electra.kinds import KINDS
from electra.kinds.scores import score
from electra.tasks.catalogue import TASKS, TaskSpec
from electra.text.corpus.compression import SUFFIXES
from electra.text.corpus.files import FORMATS
from tests.corpus.test_corpus_files import COMPRESS, CONTENT
from tests.launchers.test_rendering import CLUSTERS, GOLDEN
from tests.objectives.test_objectives import EXPECTED

ROOT = Path(__file__).resolve().parents[1]
STAGES = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]


@pytest.fixture(scope="module")
def settings() -> Settings:
    return load_settings(ROOT)


PREDICTED = {"span": "text", "tagging": "tags", "regression": "score"}  # field of a prediction, else label


def perfect_answers(spec: TaskSpec) -> tuple[list[dict], list[dict]]:
    """Two rows of a task, and the predictions that are right."""
    field = PREDICTED.get(spec.kind, "label")
    if spec.kind == "span":
        rows = [{"id": i, "answers": [{"text": "cat", "start": 2}], "impossible": False} for i in "ab"]
        return rows, [{"id": i, "text": "cat", "null_score": -9.0} for i in "ab"]
    if spec.kind == "tagging":
        tags = [tag for tag in spec.row_tags if not tag.startswith("I-")][-2:]
        rows = [{"id": i, "tags": tags} for i in "ab"]
    else:
        labels = spec.score_range if spec.kind == "regression" else spec.labels[:2]
        rows = [{"id": i, "label": label} for i, label in zip("ab", labels, strict=True)]
    return rows, [{"id": row["id"], field: row.get(field, row.get("label"))} for row in rows]


@pytest.mark.parametrize("name", TASKS)
def test_a_task_of_the_catalogue_can_be_chosen_and_scored(settings, name):
    spec = TASKS[name]
    cells = settings.cells.model_dump() | {"tasks": [name]}
    assert Settings.model_validate(settings.model_dump() | {"cells": cells}).cells == Cells.model_validate(cells)
    assert set(spec.official_rows) <= set(spec.files)
    assert spec.source in ("glue", "squad") or name in (ROOT / "docs/own-corpus.md").read_text()
    rows, predictions = perfect_answers(spec)
    found = score(spec, rows, predictions)
    assert {metric: found[metric] for metric in spec.metrics} == {metric: pytest.approx(1.0) for metric in spec.metrics}


def test_no_code_but_the_catalogue_lists_tasks():
    """All else follows from a task's entry."""
    files = {file.relative_to(ROOT).as_posix(): file for file in (ROOT / "electra").rglob("*.py")}
    named = {
        name: sorted({node.value for node in ast.walk(ast.parse(file.read_text())) if is_task(node)})
        for name, file in files.items()
        if name != "electra/tasks/catalogue.py"
    }
    assert {name: tasks for name, tasks in named.items() if tasks} == {}


def is_task(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in TASKS


def test_the_settings_have_a_folder_for_every_source_of_the_catalogue():
    assert {spec.source for spec in TASKS.values()} == FilesTasks.model_fields.keys() - {"kind"}


def test_every_task_has_its_file_of_scores():
    assert {spec.family for spec in TASKS.values()} == set(SCORE_FAMILIES)


@pytest.mark.parametrize("name", METHODS)
def test_a_method_has_its_file_its_row_in_the_docs_and_its_gradients_tested(name):
    assert (ROOT / "electra/objectives" / f"{name}.py").is_file()
    assert f"| `{name}` |" in (ROOT / "docs/methods.md").read_text()
    # a method of two phases has the gradients of two other methods in turn, and a test of its own
    assert name in EXPECTED or METHODS[name].two_phases, "its losses have no row in EXPECTED"


def test_every_file_of_a_method_can_be_chosen():
    files = {path.stem for path in (ROOT / "electra/objectives").glob("*.py")} - {"__init__"}
    assert files == set(METHODS) | {"base", "flops", "saved"}


def test_no_code_compares_a_methods_name():
    """What other code must know of a method is an attribute of its class or of its entry in METHODS."""
    found = [
        f"{file.relative_to(ROOT).as_posix()}: {ast.unparse(node)}"
        for file in (ROOT / "electra").rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if compares_a_method(node)
    ]
    assert found == []


def test_a_kind_of_task_has_a_file_for_its_rows_and_scores_and_one_for_its_fine_tuning():
    assert KINDS.keys() == FINETUNING.keys() == {spec.kind for spec in TASKS.values()}
    for name in KINDS:
        assert (ROOT / f"electra/kinds/{name}.py").is_file() and (ROOT / f"electra/finetune/{name}.py").is_file()


def test_no_code_compares_the_name_of_a_kind_of_task():
    """What other code must know of a kind is an attribute of its class. Readers know the kind of a layout."""
    found = [
        f"{name}: {ast.unparse(node)}"
        for file in (ROOT / "electra").rglob("*.py")
        if not (name := file.relative_to(ROOT).as_posix()).startswith(("electra/readers/", "electra/tasks/"))
        for node in ast.walk(ast.parse(file.read_text()))
        if compares_a_kind(node)
    ]
    assert found == []


def compares_a_kind(node: ast.AST) -> bool:
    """Whether a comparison or a look-up in a dictionary, ``.get(spec.kind)`` or ``[spec.kind]``, has kinds by name."""
    if not isinstance(node, (ast.Compare, ast.Call, ast.Subscript, ast.match_case)):
        return False
    parts = list(ast.walk(node))
    if not isinstance(node, ast.match_case) and not any(getattr(part, "attr", "") == "kind" for part in parts):
        return False
    return bool({part.value for part in parts if isinstance(part, ast.Constant)} & KINDS.keys())


def compares_a_method(node: ast.AST) -> bool:
    is_prefix = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "startswith"
    if not (is_prefix or isinstance(node, (ast.Compare, ast.match_case))):
        return False
    parts = list(ast.walk(node.pattern if isinstance(node, ast.match_case) else node))
    words = {part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)}
    of_objective = any(getattr(part, "attr", getattr(part, "id", "")) == "objective" for part in parts)
    # "electra" alone is the name of an architecture, too
    return bool(words & (set(METHODS) - {"electra"})) or (of_objective and bool(words))


def test_a_launcher_of_the_settings_has_its_class_and_its_golden_file():
    names = set(get_args(Cluster.model_fields["launcher"].annotation))
    assert names == set(LAUNCHERS) == set(CLUSTERS) == {path.stem for path in GOLDEN.glob("*.txt")}
    page = (ROOT / "docs/launchers.md").read_text()
    assert not {name for name in names if f"`{name}`" not in page}


def test_every_format_and_compression_of_a_corpus_file_is_read_in_a_test():
    assert set(CONTENT) == set(FORMATS)
    assert set(COMPRESS) - {""} == set(SUFFIXES)


@pytest.mark.parametrize("name", STAGES)
def test_a_stage_writes_to_folders_that_the_paths_name(name):

    paths = Paths(Path("."))
    folders = {str(getattr(paths, key)) for key, value in vars(Paths).items() if isinstance(value, property)}
    folders |= {str(paths.finetuned("")), str(paths.intermediate("")), str(paths.embedding(""))}
    for out in STAGES[name]["outs"]:
        path = next(iter(out)) if isinstance(out, dict) else out
        path = re.sub(r"/\$\{.*", "", path)
        assert any(path == folder or path.startswith(f"{folder}/") for folder in folders), path
