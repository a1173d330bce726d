"""dvc.yaml says what each stage depends on, all of it, and nothing that does not matter."""

import ast
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
STAGES = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]
# The schema, the paths, the way files are written and checked and who does the work are the same for every stage: their
# meaning is held by tests, and hours of training must not depend on the wording of a help text.
SHARED_ROOMS = "artifacts checksums cli config dask_cluster errors executors hardware memory paths processes"
SHARED = {"electra"} | {f"electra.{room}" for room in SHARED_ROOMS.split()}
# Where training runs, never what is learned; and the sections of the schema.
BESIDE = ("electra.launchers", "electra.config.")


def source_of(module: str) -> Path | None:
    path = ROOT / module.replace(".", "/")
    return next((p for p in (path.with_suffix(".py"), path / "__init__.py") if p.is_file()), None)


def imported_by(tree: ast.AST) -> set[str]:
    """The project's modules that a piece of code imports, at its top or inside its functions."""
    modules: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            modules.add(node.module)
            modules.update(f"{node.module}.{alias.name}" for alias in node.names)
    return {module for module in modules if module.startswith("electra.") and source_of(module)}


def modules_of(stage: dict) -> set[str]:
    """Every module that the stage's command imports, directly or through others."""
    command = stage["cmd"].split()[1].replace("-", "_")
    cli = ast.parse((ROOT / "electra/cli.py").read_text())
    function = next(n for n in ast.walk(cli) if isinstance(n, ast.FunctionDef) and n.name == command)
    waiting, found = imported_by(function), set()
    assert waiting, f"the command {command} imports nothing"
    while waiting:
        module = waiting.pop()
        found.add(module)
        source = source_of(module)
        assert source
        waiting |= imported_by(ast.parse(source.read_text())) - found
    return {module for module in found - SHARED if not module.startswith(BESIDE)}


def has_code(source: Path) -> bool:
    """Whether there is more than a docstring."""
    return any(not isinstance(node, ast.Expr) for node in ast.parse(source.read_text()).body)


@pytest.mark.parametrize("name", STAGES)
def test_a_stage_depends_on_all_code_it_imports(name):
    deps = [ROOT / dep for dep in STAGES[name]["deps"] if dep.startswith("electra")]
    missing = {
        str(source.relative_to(ROOT))
        for source in map(source_of, modules_of(STAGES[name]))
        if has_code(source) and not any(source == dep or dep in source.parents for dep in deps)
    }
    assert not missing, f"dvc.yaml: stage {name} imports {sorted(missing)} and does not depend on it"


@pytest.mark.parametrize("name", STAGES)
def test_a_stage_is_described_and_depends_on_code_that_exists(name):
    assert STAGES[name]["desc"]
    code = [dep for dep in STAGES[name]["deps"] if dep.startswith("electra")]
    assert code
    for dep in code:
        assert (ROOT / dep).exists(), dep


def test_no_stage_depends_on_the_machine():
    for name, stage in STAGES.items():
        keys = [key for params in stage["params"] for keys in params.values() for key in keys or []]
        assert not [key for key in keys if key.startswith("cluster")], name
        whole_files = [file for params in stage["params"] for file, keys in params.items() if keys is None]
        assert "params.yaml" not in whole_files, name


def test_what_comes_after_a_validation_depends_on_its_report():
    for report, after in {
        "results/validation/corpus.json": ["tokenizer", "shards"],
        "results/validation/shards.json": ["pretrain"],
        "results/validation/tasks.json": ["finetune", "finetune_scratch"],
    }.items():
        for name in after:
            assert report in STAGES[name]["deps"], name


def test_the_baseline_does_not_depend_on_the_pretrained_model():
    assert "models/pretrained" in STAGES["finetune"]["deps"]
    assert "models/pretrained" not in STAGES["finetune_scratch"]["deps"]


def test_results_are_in_git_and_artefacts_are_not():
    for stage in STAGES.values():
        for out in stage["outs"]:
            path, options = next(iter(out.items())) if isinstance(out, dict) else (out, {})
            assert (options.get("cache") is False) == path.startswith("results/"), path
