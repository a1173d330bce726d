"""The application that commands are added to, and how they load the settings."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer.core import TyperGroup

if TYPE_CHECKING:
    from electra.common.paths import Paths
    from electra.config import Cluster, Settings

START, REVIEW, USE, WEIGHTS = "Start", "Review", "Use a model", "Weights of other makes"  # groups of commands in help
STAGES = "Stages: `make run` runs what is out of date, in this order"
GROUPS = (START, REVIEW, USE, WEIGHTS, STAGES)


class _Commands(TyperGroup):
    """Commands whose help is shown before any value is checked: typer checks with pydantic, a third of the time."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        command = self.commands.get(args[0]) if len(args) == 2 and args[1] in ctx.help_option_names else None
        if command and command.add_help_option:  # else it hands its -h on
            shown = ctx.__class__(command, parent=ctx, info_name=args[0], **command.context_settings)
            print(command.get_help(shown))
            ctx.exit()
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=_Commands,
    help="Train your own ELECTRA encoder: text in, an encoder and its score card out.",
    epilog="Examples: electra init corpus/ | make run | electra compare | electra COMMAND -h",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(asked: bool) -> None:
    if asked:
        from importlib import metadata

        print(f"electra-pipeline {metadata.version('electra-pipeline')}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="show the version and exit")
    ] = False,
) -> None:
    """Train your own ELECTRA encoder: text in, an encoder and its score card out."""


def load() -> tuple["Settings", "Paths"]:
    """Return the settings and the paths of the workspace that is the current folder."""
    from electra.common.paths import Paths
    from electra.config.loading import load_settings

    return load_settings(), Paths()


def cluster_settings() -> "Cluster":
    """Return ``cluster`` of the settings, or the defaults in a folder without settings."""
    from electra.config import Cluster

    return load()[0].cluster if Path("params.yaml").exists() else Cluster()


@contextmanager
def reader_may_leave() -> Iterator[None]:
    """End quietly where the reader of the output ends first, as in `electra predict ... | head`."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
