"""Hooks of mkdocs: reference pages, made from the code at every build, and pages of the repository's other folders."""

import posixpath
import re
from pathlib import Path
from typing import Any, get_args

ROOT = Path(__file__).resolve().parents[1]
# Pages of the repository that lie outside of docs/, and their names on the site
OUTSIDE = {
    "README.md": "overview.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "benchmarks/README.md": "benchmarks.md",
}
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s:#]+)(#[^)\s]*)?\)")


def commands_page() -> str:
    """Every command with its arguments and options, in the groups of ``electra -h``."""
    import typer
    from typer.cli import get_docs_for_click
    from typer.main import get_command

    from electra.__main__ import app
    from electra.cli import GROUPS

    group = get_command(app)
    context = typer.Context(group)
    parts = ["# Commands\n\nMade from the command line's own help: `electra -h`, `electra COMMAND -h`.\n"]
    for title in GROUPS:
        parts.append(f"## {title}\n")
        names = [str(command.name or command.callback.__name__) for command in app.registered_commands
                 if command.rich_help_panel == title and command.callback]  # fmt: skip
        for name in (name.replace("_", "-") for name in names):
            command = group.commands[name]  # type: ignore[attr-defined]
            text = get_docs_for_click(obj=command, ctx=context, name=name, call_prefix="electra")
            parts.append(re.sub(r"^(#+) ", r"##\1 ", text, flags=re.MULTILINE).replace("## `", "## `", 1))
    return "\n".join(parts)


def settings_page() -> str:
    """Every setting with its default and its meaning, a table for each section."""
    from electra.config import Settings

    return "\n".join(
        [
            "# Settings",
            "",
            "Made from the schema, as `electra config --help-fields` is. `params.yaml` names the profile;",
            "`params/<profile>.yaml` has all that a result depends on. A key that is not listed here is refused.",
            *_section(Settings, ""),
            "",
        ]
    )


def _section(section: Any, name: str) -> list[str]:
    from electra.config.loading import _sections_in

    rows, below = [], []
    for key, field in section.model_fields.items():
        default = "required" if field.is_required() else f"`{field.get_default(call_default_factory=True)}`"
        inside = _sections_in(field.annotation)
        if not inside or field.description:
            shown = "see below" if inside else default.replace("|", "\\|")
            rows.append(f"| `{key}` | {shown} | {(field.description or '').replace('|', chr(92) + '|')} |")
        for part in inside:
            kind = part.model_fields.get("kind")
            label = f"{key} ({get_args(kind.annotation)[0]})" if kind else key
            below += _section(part, f"{name}.{label}" if name else label)
    title = f"## {name}" if name else "## At the top"
    return ["", title, "", "| key | default | meaning |", "|---|---|---|", *rows, *below]


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that are made and those from outside of docs/."""
    from mkdocs.structure.files import File

    made = {"reference/commands.md": commands_page(), "reference/settings.md": settings_page()}
    made |= {name: (ROOT / path).read_text(encoding="utf-8") for path, name in OUTSIDE.items()}
    for name, content in made.items():
        files.append(File.generated(config, name, content=content))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Turn links between files of the repository into links between pages of the site."""
    return site_links(markdown, page.file.src_uri)


def site_links(markdown: str, page: str) -> str:
    """Links as the site needs them; of what is not on the site (LICENSE, results) the text alone."""
    of_site = {name: path for path, name in OUTSIDE.items()}
    folder = posixpath.dirname(of_site.get(page) or f"docs/{page}")

    def rewritten(found: re.Match[str]) -> str:
        mark, text, target, anchor = found[1], found[2], found[3], found[4] or ""
        path = posixpath.normpath(posixpath.join(folder, target))
        if path in OUTSIDE:
            name = OUTSIDE[path]
        elif path.startswith("docs/") and not (ROOT / path).is_dir():
            name = path.removeprefix("docs/")
        elif page.startswith("reference/"):
            return found[0]
        else:
            return text
        return f"{mark}[{text}]({posixpath.relpath(name, posixpath.dirname(page) or '.')}{anchor})"

    return LINK.sub(rewritten, markdown)
