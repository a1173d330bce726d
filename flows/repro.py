"""`make run`: ``dvc repro`` with a header for each stage that runs; DVC's own lines about its files are left out.

DVC runs in this process and stages write to this terminal, so that their bars stay bars. Only what DVC logs is changed:
a header with the stage's place and the time left takes the place of "Running stage", and notes about the lock file and
about stages that have not changed are dropped (the last line counts those). Warnings and errors pass.
"""

import logging
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from flows.forecast import Forecast, forecast
from flows.plan import make_plan
from flows.stages import DVC_CHATTER, StageFailure

RUNNING = re.compile(r"Running stage '(.+)':")
SPARED = re.compile(r"(?:Stage )?'(.+)' (?:didn't change, skipping|is cached - skipping run)")


class Headers(logging.Filter):
    """What takes the place of DVC's notes.

    Args:
        plan: all stages, with their seconds where they have run here before.
    """

    def __init__(self, plan: Sequence[Forecast]):
        super().__init__()
        self.left = {stage.stage: stage.seconds for stage in plan if stage.state == "to run"}
        self.total, self.seen, self.num_spared = len(plan), 0, 0
        self._running: str | None = None

    def filter(self, record: logging.LogRecord) -> bool:
        """Print a header where a stage starts; return whether DVC's line is shown."""
        text = record.getMessage().strip()
        if started := RUNNING.fullmatch(text):
            self._next()
            self._running = started[1]
            print(f"\n{self.header(started[1])}", flush=True)
            return False
        if spared := SPARED.match(text):
            self._next()
            self.left.pop(spared[1], None)
            self.num_spared += 1
            return False
        return bool(text) and not text.startswith(DVC_CHATTER)

    def header(self, stage: str) -> str:
        """Place, name and the time left, by the stages' last runs in this folder."""
        place = f"[{self.seen}/{self.total}] {stage}"
        seconds = self.left.get(stage)
        if seconds is None:
            return place
        known = [value for value in self.left.values() if value is not None]
        more = "more than " if len(known) < len(self.left) else ""
        return f"{place}, {in_words(seconds)} left, {more}{in_words(sum(known))} in all"

    def _next(self) -> None:
        self.seen = min(self.seen + 1, self.total)
        if self._running is not None:
            self.left.pop(self._running, None)
            self._running = None


def in_words(seconds: float) -> str:
    """``2 min 10 s``; hours without seconds."""
    hours, rest = divmod(round(seconds), 3600)
    minutes, rest = divmod(rest, 60)
    if hours:
        return f"{hours} h {minutes} min"
    if not minutes:
        return f"{rest} s"
    return f"{minutes} min {rest} s" if rest and minutes < 5 else f"{minutes} min"


def main(arguments: Sequence[str]) -> int:
    """``python -m flows.repro [arguments of dvc repro]``; the exit code of ``dvc repro``."""
    try:
        headers = Headers(forecast(Path("."), make_plan(Path("."))))
    except StageFailure as failure:
        print(f"error: {failure}", file=sys.stderr)
        return failure.exit_code
    from dvc.cli import main as dvc

    for handler in logging.getLogger("dvc").handlers:
        if handler.level == logging.INFO:
            handler.addFilter(headers)
    code = dvc(["repro", *arguments])
    if headers.num_spared:
        print(f"{headers.num_spared} of {headers.total} stages were up to date")
    return int(code)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
