"""The application that commands are added to, and how they load the settings."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from electra.common.paths import Paths
    from electra.config import Cluster, Settings

app = typer.Typer(
    help="Train your own ELECTRA encoder: text in, an encoder and its score card out.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)


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
