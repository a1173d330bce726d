"""README and the pages name commands, options, targets and pages that exist."""

import re
import shlex
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path

import click
import pytest
import yaml
from dvc.cli.parser import get_main_parser
from typer.main import get_command

from electra.__main__ import app

ROOT = Path(__file__).resolve().parents[1]
PAGES = ["README.md", *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md")))]
PROGRAMS = ("electra", "make", "dvc", "python -m")
LINK = re.compile(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)")


def commands_of(page: str) -> list[str]:
    """Command lines of blocks of code and of `code` in sentences, without comments and variables before them."""
    text = (ROOT / page).read_text(encoding="utf-8")
    text = "\n".join(line for line in text.splitlines() if "is not written" not in line)  # what a page says is missing
    lines = [line.strip().removeprefix("$ ") for line in text.splitlines() if line.startswith(("    ", "\t"))]
    blocks = re.findall(r"^```(?:bash|sh|text)?\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    lines += [line.strip().removeprefix("$ ") for block in blocks for line in block.splitlines()]
    lines += re.findall(r"`((?:electra|make|dvc) [^`\n]+)`", text)
    parts = [part.strip() for line in lines for part in re.split(r"\s#\s|\s{2,}#|&&|\|\s| > |;", line)]
    return [part for part in parts if part.startswith(tuple(f"{program} " for program in PROGRAMS))]


def complaint(command: str) -> str:
    """Why a command line cannot be run; empty where it can be parsed."""
    program, *arguments = shlex.split(command.rstrip("\\"))  # the first line of several
    if any(mark in command for mark in ("...", "<", "COMMAND", "[", "…")):  # a pattern: its command must exist
        arguments = arguments[:1]
        known = {"electra": get_command(app).commands, "make": targets(), "dvc": dvc_commands()}.get(program)  # type: ignore[attr-defined]
        return "" if known is None or arguments[0] in known or arguments[0][0] in "<-C" else "no such command"
    if program == "make":
        missing = [name for name in arguments if "=" not in name and not name.startswith("-") and name not in targets()]
        return f"no target {missing}" if missing else ""
    if program == "python":
        return "" if find_spec(arguments[1]) else f"no module {arguments[1]}"
    if program == "dvc":
        command_name = next(name for name in arguments if not name.startswith("-"))
        return "" if command_name in dvc_commands() else "no such command of DVC"
    group = get_command(app)
    if arguments[0].startswith("-"):
        return "" if arguments[0] in ("-h", "--help", "--version", "--install-completion") else "no such option"
    found = group.commands.get(arguments[0])  # type: ignore[attr-defined]
    if found is None:
        return "no such command"
    if len(arguments) == 1 or arguments[0] == "cluster":  # named in a sentence; or handed on
        return ""
    try:
        found.make_context(arguments[0], arguments[1:], resilient_parsing=False)
    except click.exceptions.Exit:
        return ""
    except Exception as error:  # typer's own copies of click's errors
        shown = str(getattr(error, "message", error))
        named_only = "requires an argument" in shown  # `electra corpus --show` in a sentence
        return "" if named_only or "Missing" in type(error).__name__ or "Missing" in shown else shown
    return ""


def targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE))


def dvc_commands() -> set[str]:
    (actions,) = [action for action in get_main_parser()._actions if action.dest == "cmd"]
    return set(actions.choices or ())


@pytest.mark.parametrize("page", PAGES)
def test_every_command_of_a_page_exists_with_its_options(page: str) -> None:
    wrong = {command: why for command in commands_of(page) if (why := complaint(command))}
    assert not wrong, f"{page}: {wrong}"


def test_the_readmes_commands_are_found() -> None:
    """The test above would pass on none."""
    found = commands_of("README.md")
    for wanted in (
        "make run",
        "electra init corpus/ --table labels.csv --text review --label verdict",
        "electra compare",
    ):
        assert wanted in found
    assert complaint("electra compare --mad x") and complaint("make fun") and complaint("electra comprae")


@pytest.mark.parametrize("page", PAGES)
def test_links_of_a_page_lead_to_files(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    assert not [link for link in LINK.findall(text) if not (ROOT / page).parent.joinpath(link).exists()]


def test_the_index_names_every_page_and_the_readme_is_two_screens() -> None:
    index = (ROOT / "docs/index.md").read_text(encoding="utf-8")
    assert not [page for page in PAGES if page.startswith("docs/") and page != "docs/index.md"
                and f"({page.removeprefix('docs/')})" not in index]  # fmt: skip
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 110


def test_ratios_of_the_readme_stand_in_the_benchmarks() -> None:
    measured = (ROOT / "benchmarks/README.md").read_text(encoding="utf-8")
    ratios = re.findall(r"\d+\.\d+x", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert len(ratios) >= 3 and all(ratio in measured for ratio in ratios)


WORKFLOW = ROOT / "docs/examples/compare-on-github.yaml"


def test_the_workflow_for_pull_requests_is_yaml_whose_commands_exist() -> None:
    workflow = yaml.load(WORKFLOW.read_text(encoding="utf-8"), Loader=yaml.BaseLoader)  # `on` is a key, no truth value
    assert workflow["on"]["pull_request"]["paths"] and workflow["permissions"]["pull-requests"] == "write"
    steps = workflow["jobs"]["compare"]["steps"]
    assert all(("uses" in step) != ("run" in step) for step in steps)
    lines = [line.strip() for step in steps for line in step.get("run", "").splitlines()]
    commands = [line.partition(" > ")[0] for line in lines if line.startswith("electra ")]
    assert len(commands) == 2 and any("--md" in command for command in commands)
    assert not [why for command in commands if (why := complaint(command))]
    assert any("gh pr comment" in line and "--body-file compare.md" in line for line in lines)
    given = [line for line in lines if "${{" in line]
    assert not given, "values of a pull request come as variables: in a command they would be code"


def test_the_workflow_installs_what_the_comparison_imports() -> None:
    (line,) = re.findall(r"pip install --quiet -c constraints.txt (.*)", WORKFLOW.read_text(encoding="utf-8"))
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    others = {re.split(r"[^\w.-]", name)[0] for name in needed} - set(line.split())
    modules = {{"ruamel.yaml": "ruamel", "pyyaml": "yaml"}.get(name, name.replace("-", "_")) for name in others}
    code = (
        "import sys; import electra.cli.review, electra.review.noise, electra.review.render, electra.report.build\n"
        f"print(sorted({modules!r} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert len(modules) > 10 and done.stdout == "[]\n", done.stdout
