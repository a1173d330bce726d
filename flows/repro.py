"""`make run`: ``dvc repro`` with independent stages side by side and a header for each stage that runs.

Each stage is run by ``dvc repro --single-item`` in a pool of processes, so that DVC starts only once per process.
Stages write to this terminal directly, which keeps their progress bars. Of DVC's log, messages about the lock file and
about unchanged stages are dropped (the last line counts these stages); warnings and errors are shown.
"""

import logging
import multiprocessing
import os
import re
import sys
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path

from electra.cluster.processes import end_with_parent
from flows.forecast import GPUS, Forecast, forecast
from flows.plan import PlannedStage, cells_per_machine, kind_of, make_plan
from flows.side_by_side import Rules, run_side_by_side, shares_cores
from flows.stages import DVC_CHATTER, StageFailure

SKIPPED = re.compile(r"(?:Stage )?'(.+)' (?:didn't change, skipping|is cached - skipping run)")
INTERRUPTED = 130  # exit code, as shells have it for Ctrl-C


class Headers:
    """Header line above each stage's output: its number, its name and the time left.

    Args:
        plan: all stages, with their seconds if they have run here before.
        slots: number of stages side by side.
    """

    def __init__(self, plan: Sequence[Forecast], slots: int = 1):
        self.left = {stage.stage: stage.seconds for stage in plan if stage.state == "to run"}
        self.alone = {stage.stage for stage in plan if stage.gpus == "all"}
        self.total, self.slots = len(plan), slots
        self.seen = self.total - len(self.left)

    def header(self, stage: str) -> str:
        """Return the header of a stage that starts; the time left is from the stages' last runs in this folder."""
        self.seen += 1
        place = f"[{self.seen}/{self.total}] {stage}"
        seconds = self.left.get(stage)
        if seconds is None:
            return place
        known = {name: value for name, value in self.left.items() if value is not None}
        more = "more than " if len(known) < len(self.left) else ""
        in_all = sum(value if name in self.alone else value / self.slots for name, value in known.items())
        return f"{place}, {in_words(seconds)} left, {more}{in_words(max(seconds, in_all))} in all"

    def ended(self, stage: str) -> None:
        """Remove an ended stage from the time left."""
        self.left.pop(stage, None)


def in_words(seconds: float) -> str:
    """Format a duration as ``2 min 10 s``, or hours and minutes without seconds."""
    hours, rest = divmod(round(seconds), 3600)
    minutes, rest = divmod(rest, 60)
    if hours:
        return f"{hours} h {minutes} min"
    if not minutes:
        return f"{rest} s"
    return f"{minutes} min {rest} s" if rest and minutes < 5 else f"{minutes} min"


class WithoutNotes(logging.Filter):
    """Filter that drops DVC's log messages about its own files and about unchanged stages."""

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage().strip()
        return bool(text) and not text.startswith(DVC_CHATTER) and not SKIPPED.match(text)


def start_worker() -> None:
    """Prepare a pool process: it ends with its parent, and drops DVC's messages about unchanged stages.

    DVC 3.67 rewrites ``dvc.lock`` after each stage, and reads it with a parser written in Python that keeps comments.
    The file has none; its other parser, in C, takes a sixth of the time and leads to the same bytes. ``reproduce``
    writes no other YAML file.
    """
    import dvc.cli  # noqa: F401  (sets up the handlers of DVC's log)
    from dvc.utils.serialize import _yaml

    _yaml.parse_yaml_for_update = _yaml.parse_yaml
    end_with_parent()
    for handler in logging.getLogger("dvc").handlers:
        if handler.level == logging.INFO:
            handler.addFilter(WithoutNotes())


def reproduce(stage: str, environment: dict[str, str]) -> tuple[int, bool]:
    """Run one stage if it is out of date; return DVC's exit code, and whether there was nothing to run."""
    from dvc.exceptions import DvcException
    from dvc.repo import Repo

    before = dict(os.environ)
    os.environ.update(environment)
    try:
        with Repo(_wait_for_lock=True) as repo:
            return 0, not repo.reproduce([stage], single_item=True)
    except DvcException as error:
        causes = [str(part) for part in (error, error.__cause__) if part]
        print(f"ERROR: {', '.join(causes)}", file=sys.stderr, flush=True)
        return 255, False
    finally:
        os.environ.clear()
        os.environ.update(before)


def rules_of(root: Path) -> Rules:
    """Return the rules for the settings in ``cluster``.

    On a machine with GPUs stages run one at a time; `make flow` runs as many side by side as fit on a GPU.
    """
    return Rules(1, False) if GPUS.is_dir() else Rules(cells_per_machine(root), shares_cores(root))


def environment_of(stage: PlannedStage, rules: Rules) -> dict[str, str]:
    """Return environment variables with the share of the threads of a stage that may run beside others.

    Third-party encoders keep all threads: their results depend on the number (docs/architecture.md).
    """
    if rules.is_alone(stage):
        return {}
    if kind_of(stage.name) == "finetune_encoder":
        return {"OMP_WAIT_POLICY": "passive"}  # waiting threads leave the cores to the other stage
    return {"OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // rules.slots))}


def run_plan(plan: Sequence[PlannedStage], headers: Headers, rules: Rules) -> tuple[int, int]:
    """Run the stages that are out of date.

    Returns:
        DVC's exit code of the first stage that failed, 0 if none did; and how many stages DVC did not run.
    """
    failed = skipped = 0
    with ProcessPoolExecutor(rules.slots, multiprocessing.get_context("fork"), start_worker) as pool:

        def start(stage: PlannedStage) -> Future[tuple[int, bool]]:
            print(f"\n{headers.header(stage.name)}", flush=True)
            return pool.submit(reproduce, stage.name, environment_of(stage, rules))

        for stage, (code, was_skipped) in run_side_by_side(plan, rules, start, lambda result: result[0] != 0):
            headers.ended(stage.name)
            failed, skipped = failed or code, skipped + was_skipped
    return failed, skipped


def main(arguments: Sequence[str]) -> int:
    """Run ``python -m flows.repro [STAGE...]``; return the exit code of the first ``dvc repro`` that failed."""
    root = Path(".")
    try:
        plan = make_plan(root, arguments)
    except StageFailure as failure:
        print(f"error: {failure}", file=sys.stderr)
        return failure.exit_code
    rules = rules_of(root)
    headers = Headers(forecast(root, plan), rules.slots)
    num_skipped = headers.seen
    code = 0
    if headers.left:
        try:
            code, skipped = run_plan(plan, headers, rules)
        except KeyboardInterrupt:
            print("interrupted: run the same command again to go on", file=sys.stderr)
            return INTERRUPTED
        num_skipped += skipped
    if num_skipped:
        print(f"{num_skipped} of {len(plan)} stages were up to date")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
