"""Command line: `electra <command>`. Commands import what they need when they run, so that `electra --help` is fast."""

import os
import sys
import time
from typing import TYPE_CHECKING, NoReturn

from electra.cli import GROUPS, app, review, stages, tools

if TYPE_CHECKING:
    from electra.common.errors import ElectraError

__all__ = ["main", "review", "stages", "tools"]  # importing the modules adds their commands

app.registered_commands.sort(key=lambda command: GROUPS.index(str(command.rich_help_panel)))  # as --help shows them


def main() -> None:
    """Run the command line. A user's mistake ends with a message and its exit code, without a traceback."""
    from electra.cluster.memory import out_of_memory
    from electra.cluster.processes import exit_on_sigterm
    from electra.common.errors import ElectraError
    from electra.common.printing import guard_streams

    guard_streams()
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    stage = os.environ.get("DVC_STAGE") if "RANK" not in os.environ else None  # processes of a launcher end with that
    if stage:
        from electra.cluster.processes import end_with_parent

        end_with_parent()
    started = time.monotonic()
    try:
        with exit_on_sigterm():
            app()
    except SystemExit as done:  # how typer ends
        if stage and not done.code:
            from electra.cluster.run_facts import note_stage_seconds
            from electra.common.paths import Paths

            note_stage_seconds(Paths(), stage, time.monotonic() - started)
        raise
    except ElectraError as error:
        _fail(error)
    except Exception as error:
        if explained := out_of_memory(error, sys.argv[1] if len(sys.argv) > 1 else ""):
            _fail(explained)
        raise


def _fail(error: "ElectraError") -> NoReturn:
    print(f"error: {error}", file=sys.stderr)
    if _is_one_of_several():
        # an ordinary exit runs destructors that wait for the other processes, or abort if those have ended (gloo): the
        # exit code would be a signal's instead of the error's
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(error.exit_code)
    sys.exit(error.exit_code)


def _is_one_of_several() -> bool:
    """Return whether this process has joined others to train together."""
    distributed = sys.modules.get("torch.distributed")  # imported by every process that joins
    return bool(distributed and distributed.is_initialized() and distributed.get_world_size() > 1)


if __name__ == "__main__":
    main()
