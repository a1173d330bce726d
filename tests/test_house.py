"""Structure of the code: layers of the packages, no import cycles, and documents that name existing files."""

import ast
import re
import tokenize
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from electra.config import Settings

ROOT = Path(__file__).resolve().parents[1]
PRODUCT = ("electra", "flows")
# A package imports those of the rows above its own, and none of its own row. docs/architecture.md has the same table.
ORDER = (
    ("common",),
    ("tasks",),
    ("config", "kinds"),
    ("cluster",),
    ("model", "optim", "text"),
    ("objectives",),
    ("pretrain.data", "readers"),
    ("checks", "cluster.estimate", "inputs"),
    ("results",),
    ("finetune", "hub.export", "pretrain"),
    ("cluster.launchers", "embed", "hub.importing", "init", "preflight", "provenance", "texts_seen"),
    ("predict",),
    ("hub",),
    ("cli",),
    ("__main__",),
)
SECTIONS = set(Settings.model_fields)  # ``corpus.sources`` is a setting, no name of a module
FOR_FLOWS = {"common", "cluster"}  # flows run commands: they import nothing of the stages
BY_NAME = {"electra.objectives.base"}  # imports the file of electra/objectives that a setting names

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
BESIDE = sorted(file for folder in ("benchmarks", "docs", "tests") for file in (ROOT / folder).rglob("*.py"))


# Parsed at the first use: every worker imports this file, and one of them runs its tests.
@cache
def trees() -> dict[str, ast.Module]:
    """Return the product's modules, parsed, by name."""
    return {module_name(file): ast.parse(file.read_text(encoding="utf-8")) for file in FILES}


@cache
def all_trees() -> dict[str, ast.Module]:
    """Return also those of benchmarks, documentation and tests."""
    return trees() | {module_name(file): ast.parse(file.read_text(encoding="utf-8")) for file in BESIDE}


def imports_of(module: str) -> set[str]:
    """The product's modules that a module imports, at its top, inside functions and for type checks."""
    found: set[str] = set()
    for node in ast.walk(trees()[module]):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.module and not node.level, f"{module}: a relative import"
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= names if names <= trees().keys() else names | {node.module}
    return found & trees().keys()


@cache
def imports() -> dict[str, set[str]]:
    """Return for every module of the product those that it imports."""
    return {module: imports_of(module) - {module} for module in trees()}


def package_of(module: str) -> str:
    """Return the row's entry for a module: ``model`` for ``electra.model.kernels.functions``; flows is one package."""
    top, *rest = module.split(".")
    if top != "electra" or not rest:
        return top
    inner = ".".join(rest[:2])
    return inner if any(inner in packages for packages in ORDER) else rest[0]


def test_no_modules_import_each_other():
    try:
        TopologicalSorter(imports()).prepare()
    except CycleError as error:
        pytest.fail(f"an import circle: {' <- '.join(error.args[1])}")


def test_every_package_has_its_place_in_the_order():
    packages = {package_of(module) for module in trees()} - {"electra", "flows"}
    placed = [package for row in ORDER for package in row]
    assert sorted(placed) == sorted(packages)


def test_no_import_goes_against_the_order():
    row = {package: number for number, packages in enumerate(ORDER) for package in packages}
    against = [
        f"{module} imports {imported}"
        for module, all_imported in imports().items()
        for imported in sorted(all_imported)
        if package_of(module) != package_of(imported) and not may_import(package_of(module), package_of(imported), row)
    ]
    assert not against, against


def may_import(package: str, imported: str, row: dict[str, int]) -> bool:
    """Return whether the order allows imports of one package from another."""
    if package == "flows":
        return imported in FOR_FLOWS
    return imported != "flows" and row[imported] < row[package]


def test_nothing_is_imported_by_name_but_the_methods():
    calls = {
        module
        for module, tree in trees().items()
        for node in ast.walk(tree)
        if (isinstance(node, ast.Attribute) and node.attr == "import_module")
        or (isinstance(node, ast.ImportFrom) and any(alias.name == "import_module" for alias in node.names))
        or (isinstance(node, ast.Name) and node.id == "__import__")
    }
    assert calls == BY_NAME


def test_a_module_that_is_run_defines_everything_before_it_starts():
    """``python -m`` runs a file from its top: a name below the call of the ``__main__`` block does not exist yet."""
    too_early = []
    for module, tree in all_trees().items():
        starts = [number for number, node in enumerate(tree.body) if is_start(node)]
        if starts and starts != [len(tree.body) - 1]:
            too_early.append(f"{module}:{tree.body[starts[0]].lineno}")
    assert not too_early, f"definitions follow the block that starts the module: {too_early}"


def is_start(node: ast.stmt) -> bool:
    """Whether a statement is ``if __name__ == "__main__":``."""
    return isinstance(node, ast.If) and any(
        isinstance(part, ast.Name) and part.id == "__name__" for part in ast.walk(node.test)
    )


def test_no_module_imports_itself():
    """What is left when two files become one: the import of the other is one of the file's own names."""
    own = [
        f"{module}:{node.lineno}"
        for module, tree in all_trees().items()
        for node in ast.walk(tree)
        if (isinstance(node, ast.ImportFrom) and node.module == module and not is_package(module))
        or (isinstance(node, ast.Import) and any(alias.name == module for alias in node.names))
    ]
    assert not own, own


def is_package(module: str) -> bool:
    return (ROOT / Path(*module.split("."))).is_dir()


DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
# In docstrings and comments: files, :func:`name`, and ``module.name``.
FILE_IN_TEXT = re.compile(
    r"(?<![\w/.-])((?:electra|flows|tests|benchmarks|docs|params)/[\w./-]*(?:\.\w+|\w/))(?![\w*<{])"
)
ROLE = re.compile(r":(?:mod|class|func|meth|data|attr|exc|const):`~?([\w.]+)`")
MEMBER = re.compile(r"``([a-z]\w*)\.(\w+)``")


def names_of(tree: ast.AST) -> set[str]:
    """Every name that a module defines, imports or assigns, in its classes and functions too."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, DOCUMENTED) and not isinstance(node, ast.Module):
            found.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            found.update((alias.asname or alias.name).split(".")[0] for alias in node.names)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            found.add(node.attr)
    return found


@cache
def names() -> dict[str, set[str]]:
    """Return the names of every module."""
    return {module: names_of(tree) for module, tree in all_trees().items()}


@cache
def anywhere() -> set[str]:
    """Return the names of all modules."""
    return set().union(*names().values())


def homes() -> dict[str, set[str]]:
    """Functions and classes of the product by name, each with the parts of the modules' names that define them."""
    found: dict[str, set[str]] = {}
    for module, tree in trees().items():
        for node in tree.body:
            if isinstance(node, DOCUMENTED) and not isinstance(node, ast.Module):
                found.setdefault(node.name, set()).update(module.split("."))
    return found


def is_there(target: str, module: str) -> bool:
    """Whether the target of a role exists: a module, a name of one, or a name of the module that refers to it."""
    parts = target.split(".")
    for length in range(len(parts), 0, -1):
        if (home := ".".join(parts[:length])) in all_trees():
            first, *others = parts[length:] or [""]
            return not first or (first in names()[home] and anywhere().issuperset(others))
    return parts[0] in names()[module] and anywhere().issuperset(parts[1:])


def test_docstrings_and_comments_name_files_modules_and_functions_that_exist():
    defined_in, missing = homes(), []
    packages = {*PRODUCT, "benchmarks", "tests"}
    for file in (*FILES, *BESIDE):
        module = module_name(file)
        texts = [
            ast.get_docstring(node) or "" for node in ast.walk(all_trees()[module]) if isinstance(node, DOCUMENTED)
        ]
        with file.open("rb") as stream:
            texts += [part.string for part in tokenize.tokenize(stream.readline) if part.type == tokenize.COMMENT]
        text = "\n".join(texts)
        gone = [path for path in FILE_IN_TEXT.findall(text) if not (ROOT / path).exists()]
        gone += [target for target in ROLE.findall(text) if not is_there(target, module)]
        gone += [
            f"{home}.{name}"
            for home, name in MEMBER.findall(text)
            if name in defined_in and home not in defined_in[name] | names()[module] | SECTIONS | packages
        ]
        missing += [f"{module}: {name}" for name in gone]
    assert not missing, missing


@pytest.mark.parametrize("folder", sorted({file.parent for file in FILES}), ids=lambda f: str(f.relative_to(ROOT)))
def test_a_folder_is_a_package_that_says_what_it_holds(folder):
    assert (folder / "__init__.py").is_file(), f"{folder} has no __init__.py"
    docstring = ast.get_docstring(trees()[module_name(folder / "__init__.py")])
    assert docstring, f"{folder}/__init__.py does not say what the folder holds"
    first = docstring.splitlines()[0]
    assert len(first) > 20 and first.endswith("."), f"{folder}/__init__.py: the first line is no sentence: {first!r}"


def test_the_architecture_page_has_the_order_of_the_packages():
    page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    table = [
        tuple(sorted(found.replace("/", ".") for found in re.findall(r"`([\w/]+?)(?:\.py|/)`", line.split("|")[2])))
        for line in page.partition("## The packages and their order")[2].partition("## ")[0].splitlines()
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


# `name` (`file.py`), `name` in `file.py`, and (`file.py`): `name`, `name`
BEFORE_FILE = re.compile(rf"`(\w+)` (?:in |\()`((?:{TOP})/[\w/]+\.py)`")
AFTER_FILE = re.compile(rf"`((?:{TOP})/[\w/]+\.py)`\): ((?:`\w+`(?:, )?)+)")


def test_contributing_names_classes_and_functions_of_the_files_beside_them():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = [(file, name) for name, file in BEFORE_FILE.findall(text)]
    named += [(file, name) for file, names in AFTER_FILE.findall(text) for name in re.findall(r"\w+", names)]
    assert len(named) > 5
    missing = [f"{name} in {file}" for file, name in named if name not in definitions(ROOT / file)]
    assert not missing, f"CONTRIBUTING.md names what does not exist: {missing}"


def definitions(file: Path) -> set[str]:
    """Classes, functions, methods and constants of a file; no variables of functions."""
    tree = all_trees()[module_name(file)]
    found = {node.name for node in ast.walk(tree) if isinstance(node, DOCUMENTED) and not isinstance(node, ast.Module)}
    return found | {
        part.id
        for node in tree.body
        for part in ast.walk(node)
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and isinstance(part, ast.Name)
    }


def test_what_tests_import_once_for_their_processes_exists() -> None:
    """The server that they are forked from passes over a module that is missing: each process would import it anew."""
    from tests.workspace import MODULES

    assert [name for name in MODULES if name not in trees()] == []
