"""The plan of the code: the order of its rooms, no import circles, and documents that name files that exist."""

import ast
import re
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PRODUCT = ("electra", "flows")
# A room imports rooms of the rows above its own, and none of its own row. docs/architecture.md shows the same table.
ORDER = (
    ("common",),
    ("tasks",),
    ("config",),
    ("system",),
    ("microworld", "model", "optim", "tokenizer"),
    ("corpus", "evaluation", "loader", "monitoring", "objectives", "readers"),
    ("checks", "estimate", "inputs", "provenance", "report", "shards"),
    ("finetune", "importing", "pretrain", "probe", "publish", "review"),
    ("init", "launchers", "predict", "preflight"),
    ("cli",),
    ("__main__",),
)
FOR_FLOWS = {"common", "system"}  # flows run commands: they import nothing of the stages
BY_NAME = {"electra.model.objective"}  # imports the file of electra/objectives that a setting names

DOCUMENTS = [
    "CONTRIBUTING.md",
    "docs/architecture.md",
    *(f"docs/decisions/{path.name}" for path in sorted((ROOT / "docs/decisions").glob("*.md"))),
]
# In documents: `folder/`, `folder/file.py` and `file.py::test_name`; names with <placeholders> or * are no paths.
TOP = "electra|flows|tests|benchmarks|docs|params|results"
NAMED_PATH = re.compile(rf"`((?:{TOP})/[\w./-]*\w/?|\w+\.(?:ya?ml|toml|lock|md|txt))(?:::(\w+))?`")
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")


def module_name(file: Path) -> str:
    parts = file.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = sorted(file for folder in PRODUCT for file in (ROOT / folder).rglob("*.py"))
TREES = {module_name(file): ast.parse(file.read_text(encoding="utf-8")) for file in FILES}


def imports_of(module: str) -> set[str]:
    """The product's modules that a module imports, at its top, inside functions and for type checks."""
    found: set[str] = set()
    for node in ast.walk(TREES[module]):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.module and not node.level, f"{module}: a relative import"
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= names if names <= TREES.keys() else names | {node.module}
    return (found & TREES.keys()) - {module}


IMPORTS = {module: imports_of(module) for module in TREES}


def room_of(module: str) -> str:
    """``model`` of ``electra.model.kernels.functions``; all of flows is one room."""
    top, *rest = module.split(".")
    return rest[0] if top == "electra" and rest else top


def test_no_modules_import_each_other():
    try:
        TopologicalSorter(IMPORTS).prepare()
    except CycleError as error:
        pytest.fail(f"an import circle: {' <- '.join(error.args[1])}")


def test_every_room_has_its_place_in_the_order():
    rooms = {room_of(module) for module in TREES} - {"electra", "flows"}
    placed = [room for row in ORDER for room in row]
    assert sorted(placed) == sorted(rooms)


def test_no_import_goes_against_the_order():
    row = {room: number for number, rooms in enumerate(ORDER) for room in rooms}
    against = [
        f"{module} imports {imported}"
        for module, all_imported in IMPORTS.items()
        for imported in sorted(all_imported)
        if room_of(module) != room_of(imported) and not may_import(room_of(module), room_of(imported), row)
    ]
    assert not against, against


def may_import(room: str, imported: str, row: dict[str, int]) -> bool:
    """Whether the order has an arrow from one room to another."""
    if room == "flows":
        return imported in FOR_FLOWS
    return imported != "flows" and row[imported] < row[room]


def test_nothing_is_imported_by_name_but_the_methods():
    calls = {
        module
        for module, tree in TREES.items()
        for node in ast.walk(tree)
        if (isinstance(node, ast.Attribute) and node.attr == "import_module")
        or (isinstance(node, ast.ImportFrom) and any(alias.name == "import_module" for alias in node.names))
        or (isinstance(node, ast.Name) and node.id == "__import__")
    }
    assert calls == BY_NAME


def test_a_module_that_is_run_defines_everything_before_it_starts():
    """``python -m`` runs a file from its top: a name below the call of the ``__main__`` block does not exist yet."""
    too_early = []
    for file in sorted(
        file for folder in (*PRODUCT, "benchmarks", "tests", "docs") for file in (ROOT / folder).rglob("*.py")
    ):
        body = ast.parse(file.read_text(encoding="utf-8")).body
        starts = [number for number, node in enumerate(body) if is_start(node)]
        if starts and starts != [len(body) - 1]:
            too_early.append(f"{file.relative_to(ROOT)}:{body[starts[0]].lineno}")
    assert not too_early, f"definitions follow the block that starts the module: {too_early}"


def is_start(node: ast.stmt) -> bool:
    """Whether a statement is ``if __name__ == "__main__":``."""
    return isinstance(node, ast.If) and any(
        isinstance(part, ast.Name) and part.id == "__name__" for part in ast.walk(node.test)
    )


@pytest.mark.parametrize("folder", sorted({file.parent for file in FILES}), ids=lambda f: str(f.relative_to(ROOT)))
def test_a_folder_is_a_package_that_says_what_it_holds(folder):
    assert (folder / "__init__.py").is_file(), f"{folder} has no __init__.py"
    docstring = ast.get_docstring(TREES[module_name(folder / "__init__.py")])
    assert docstring, f"{folder}/__init__.py does not say what the folder holds"
    first = docstring.splitlines()[0]
    assert len(first) > 20 and first.endswith("."), f"{folder}/__init__.py: the first line is no sentence: {first!r}"


def test_the_architecture_page_has_the_order_of_the_rooms():
    page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    table = [
        tuple(sorted(re.findall(r"`(\w+)(?:\.py|/)`", line.split("|")[2])))
        for line in page.partition("## The rooms and their order")[2].partition("## ")[0].splitlines()
        if re.match(r"\| \d+ \|", line)
    ]
    assert table == [tuple(sorted(row)) for row in ORDER]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_documents_for_contributors_name_files_and_tests_that_exist(document):
    text = (ROOT / document).read_text(encoding="utf-8")
    missing = []
    for path, test in NAMED_PATH.findall(text):
        if not (ROOT / path).exists():
            missing.append(path)
        elif test and f"def {test}(" not in (ROOT / path).read_text(encoding="utf-8"):
            missing.append(f"{path}::{test}")
    missing += [link for link in LINK.findall(text) if not (ROOT / document).parent.joinpath(link).exists()]
    assert not missing, f"{document} names what does not exist: {missing}"
