"""README and the pages name commands, options, targets and pages that exist."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import click
import pytest
import yaml
from dvc.cli import DvcParserError
from dvc.cli.parser import get_main_parser
from typer.main import get_command

from electra.__main__ import app
from electra.config.loading import describe_fields
from tests.typed import link_environment

ROOT = Path(__file__).resolve().parents[1]
PAGES = ["README.md", *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md")))]
MORE_PAGES = ["CONTRIBUTING.md", "benchmarks/README.md", "electra/init/workspace/README.md"]
MORE_PAGES += [f"docs/decisions/{path.name}" for path in sorted((ROOT / "docs/decisions").glob("*.md"))]
PROGRAMS = ("electra", "make", "dvc", "python -m")
LINK = re.compile(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)")


def commands_of(page: str) -> list[str]:
    """Command lines of blocks of code and of `code` in sentences, without comments; continued lines are one."""
    text = re.sub(r" *\\\n\s*", " ", (ROOT / page).read_text(encoding="utf-8"))
    text = "\n".join(line for line in text.splitlines() if "is not written" not in line)  # what a page says is missing
    lines = [line.strip().removeprefix("$ ") for line in text.splitlines() if line.startswith(("    ", "\t"))]
    blocks = re.findall(r"^```(?:bash|sh|text)?\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    lines += [line.strip().removeprefix("$ ") for block in blocks for line in block.splitlines()]
    lines += re.findall(r"`((?:electra|make|dvc|python -m) [^`\n]+)`", text)
    parts = [part.strip() for line in lines for part in re.split(r"\s#\s|\s{2,}#|&&|\|\s| > |;", line)]
    return [part for part in parts if part.startswith(tuple(f"{program} " for program in PROGRAMS))]


def complaint(command: str) -> str:
    """Why a command line cannot be run; empty where it can be parsed."""
    program, *arguments = shlex.split(command)
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
        return complaint_of_dvc(arguments)
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
        # `electra corpus --show` in a sentence; a file that the reader would have
        named_only = "requires an argument" in shown or shown.endswith("does not exist.")
        return "" if named_only or "Missing" in type(error).__name__ or "Missing" in shown else shown
    return ""


def complaint_of_dvc(arguments: list[str]) -> str:
    """By DVC's own parser; `-S FILE:KEY=VALUE` must name a key that is there."""
    names = [name for name in arguments if not name.startswith("-")]
    if names[0] not in dvc_commands():
        return "no such command of DVC"
    for change in [arguments[number + 1] for number, option in enumerate(arguments) if option == "-S"]:
        file, _, key = change.partition("=")[0].rpartition(":")
        values = yaml.safe_load((ROOT / (file or "params.yaml")).read_text(encoding="utf-8"))
        for part in key.split("."):
            if not isinstance(values, dict) or part not in values:
                return f"no parameter {change}"
            values = values[part]
    if len(arguments) == 1 or "wait-for-lock" in arguments[0]:  # named in a sentence
        return ""
    try:
        get_main_parser().parse_args(arguments)
    except DvcParserError:
        return "DVC cannot parse it"
    return ""


def targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE))


def dvc_commands() -> set[str]:
    (actions,) = [action for action in get_main_parser()._actions if action.dest == "cmd"]
    return set(actions.choices or ())


@pytest.mark.parametrize("page", [*PAGES, *MORE_PAGES])
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
    assert complaint("dvc repo") and complaint("dvc repro --farce") and not complaint("dvc repro --force pretrain")
    assert complaint("dvc exp run -S params/books.yaml:pretrain.rate=1")


@pytest.mark.parametrize("page", PAGES)
def test_links_of_a_page_lead_to_files(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    assert not [link for link in LINK.findall(text) if not (ROOT / page).parent.joinpath(link).exists()]


def slugs(page: Path) -> set[str]:
    """Anchors of a page's headings, as GitHub and the site write them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES)
def test_links_to_a_section_lead_to_its_heading(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    found = re.findall(r"\]\(([\w./-]*\.md)?#([\w-]+)\)", text)
    assert not [f"{file}#{anchor}" for file, anchor in found
                if anchor not in slugs((ROOT / page).parent / file if file else ROOT / page)]  # fmt: skip


def test_tests_that_the_page_on_gpus_names_exist() -> None:
    found = re.findall(r"`([\w/]+\.py)::(\w+)`", (ROOT / "docs/gpu-tests.md").read_text(encoding="utf-8"))
    assert len(found) > 20
    missing = [
        name for file, name in found if f"def {name}(" not in (ROOT / "tests" / file).read_text(encoding="utf-8")
    ]
    assert not missing


def test_the_index_names_every_page_and_the_readme_is_two_screens() -> None:
    index = (ROOT / "docs/index.md").read_text(encoding="utf-8")
    assert not [page for page in PAGES if page.startswith("docs/") and page != "docs/index.md"
                and f"({page.removeprefix('docs/')})" not in index]  # fmt: skip
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 110


def test_ratios_of_the_readme_stand_in_the_benchmarks() -> None:
    measured = (ROOT / "benchmarks/README.md").read_text(encoding="utf-8")
    ratios = re.findall(r"\d+\.\d+x", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert len(ratios) >= 3 and all(ratio in measured for ratio in ratios)


def hooks() -> ModuleType:
    """docs/hooks.py, which mkdocs loads by its path."""
    spec = spec_from_file_location("hooks", ROOT / "docs/hooks.py")
    assert spec and spec.loader
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_reference_pages_have_every_command_option_and_setting() -> None:
    commands, settings = hooks().commands_page(), hooks().settings_page()
    for name, command in get_command(app).commands.items():  # type: ignore[attr-defined]
        assert commands.count(f"### `electra {name}`") == 1
        own = commands.partition(f"### `electra {name}`")[2].partition("\n### ")[0]
        assert not [option for part in command.params for option in part.opts if option.startswith("--")
                    and option != "--help" and option not in own]  # fmt: skip
    told = [re.sub(r"^\S+(?: \[.*\])?: ", "", line) for line in describe_fields().splitlines()]
    assert len(told) > 150 and not [line for line in told if line.replace("|", "\\|") not in settings]
    assert "| `learning_rate` | " in settings.partition("## pretrain")[2]


def test_links_between_files_become_links_between_pages() -> None:
    links = hooks().site_links
    assert links("[a](../README.md) [b](cluster.md#kubernetes)", "index.md") == (
        "[a](overview.md) [b](cluster.md#kubernetes)"
    )
    assert links("[a](docs/gpu.md) [the licence](LICENSE)", "overview.md") == "[a](gpu.md) the licence"
    assert links("[a](../architecture.md)", "decisions/0001-dvc-depends-on-folders.md") == "[a](../architecture.md)"


def test_the_site_has_every_page_once_in_the_four_kinds_of_documentation() -> None:
    site = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    kinds = {kind: pages for part in site["nav"] for kind, pages in part.items()}
    assert list(kinds)[1:] == ["Tutorials", "How-to", "Reference", "Explanation"] and site["strict"]
    listed = [page for pages in kinds.values() for page in pages]
    there = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}
    made = {"reference/commands.md", "reference/settings.md", *hooks().OUTSIDE.values()}
    assert sorted(listed) == sorted(there | made)


def test_the_site_builds_in_strict_mode_without_a_word(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs", reason="an optional extra: make docs installs it")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    shown = (tmp_path / "site/reference/settings.html").read_text(encoding="utf-8")
    assert "pretrain" in shown and not re.search(r'(src|link [^>]*href)="https?:', shown), "nothing is fetched"


@pytest.mark.cluster  # ten minutes
@pytest.mark.timeout(3600)
def test_the_tutorial_can_be_followed_as_it_is_written(tmp_path: Path) -> None:
    """Every block of commands and Python, in order, in one clone; its .venv is this environment."""
    beside, tmp_path = tmp_path, tmp_path / "clone"
    names = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
    for name in filter(None, names):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    binaries = Path(sys.executable).parent
    link_environment(tmp_path)
    environment = os.environ | {
        "PATH": f"{binaries}:{os.environ['PATH']}",
        "PYTHONPATH": str(tmp_path),
        **{f"GIT_{who}_{what}": "t@localhost" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
    }
    text = (ROOT / "docs/tutorial.md").read_text(encoding="utf-8")
    text = text.replace("source .venv/bin/activate\n", "")
    output = ""
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    blocks = re.findall(r"^```(bash|python)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert len(blocks) == 10
    for language, block in blocks:
        command = ["bash", "-euc", block] if language == "bash" else [sys.executable, "-c", block]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, f"{block}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        output += done.stdout
        if block.endswith("\ndvc status\n"):
            assert done.stdout.endswith("Data and pipelines are up to date.\n"), done.stdout
    for said in ("found    ", "pretrain.num_steps 200 -> 300", "torch.Size([1, ", '"label"', "up to date."):
        assert said in output
    assert (beside / "my-encoder/discriminator/config.json").is_file()
