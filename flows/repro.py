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
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path

import yaml

from electra.cluster.processes import end_with_parent
from flows.forecast import GPUS, Forecast, forecast
from flows.plan import PlannedStage, cells_per_machine, kind_of, make_plan
from flows.stages import DVC_CHATTER, StageFailure

SPARED = re.compile(r"(?:Stage )?'(.+)' (?:didn't change, skipping|is cached - skipping run)")
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
        return bool(text) and not text.startswith(DVC_CHATTER) and not SPARED.match(text)


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


@dataclass(frozen=True)
class Cores:
    """Rules by which stages share the cores.

    Attributes:
        slots: number of stages side by side.
        with_pretraining: pre-training may run beside other stages; otherwise it runs alone on all cores.
    """

    slots: int
    with_pretraining: bool

    @classmethod
    def of(cls, root: Path) -> "Cores":
        """Return the rules for the settings in ``cluster``.

        On a machine with GPUs stages run one at a time; `make flow` runs as many side by side as fit on a GPU.
        """
        if GPUS.is_dir():
            return cls(1, False)
        settings = yaml.safe_load((root / "params.yaml").read_text(encoding="utf-8")) or {}
        return cls(cells_per_machine(root), bool(settings.get("cluster", {}).get("share_cores", False)))

    def needs_all(self, stage: PlannedStage) -> bool:
        """Return whether a stage runs alone: pre-training, whose ``meta`` in ``dvc.yaml`` requests all GPUs."""
        return stage.limits.gpus == "all" and not self.with_pretraining

    def environment(self, stage: PlannedStage) -> dict[str, str]:
        """Return environment variables with the share of the threads of a stage that may run beside others.

        Third-party encoders keep all threads: their results depend on the number (docs/architecture.md).
        """
        if self.slots == 1 or self.needs_all(stage):
            return {}
        if kind_of(stage.name) == "finetune_encoder":
            return {"OMP_WAIT_POLICY": "passive"}  # waiting threads leave the cores to the other stage
        return {"OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // self.slots))}

    def startable(self, waiting: Sequence[PlannedStage], running: Sequence[PlannedStage]) -> list[PlannedStage]:
        """Return the stages that may start now: all stages they depend on have ended, and a slot is free.

        Pre-training goes before the others. If it needs all cores, it waits until nothing runs.
        """
        unfinished = {stage.name for stage in (*waiting, *running)}
        ready = [stage for stage in waiting if unfinished.isdisjoint(stage.upstream)]
        ready.sort(key=lambda stage: stage.limits.gpus != "all")
        if any(map(self.needs_all, running)):
            return []
        if ready and self.needs_all(ready[0]):
            return [] if running else ready[:1]
        return ready[: self.slots - len(running)]


def run_plan(plan: Sequence[PlannedStage], headers: Headers, cores: Cores) -> tuple[int, int]:
    """Run the stages that are out of date, each as soon as the stages it depends on have ended.

    After a failure, running stages go on to their end, and no other stage starts.

    Returns:
        DVC's exit code of the first stage that failed, 0 if none did; and how many stages DVC did not run.
    """
    waiting = [stage for stage in plan if stage.out_of_date]
    running: dict[Future[tuple[int, bool]], PlannedStage] = {}
    failed = spared = 0
    with ProcessPoolExecutor(cores.slots, multiprocessing.get_context("fork"), start_worker) as pool:
        while running or (waiting and not failed):
            for stage in [] if failed else cores.startable(waiting, list(running.values())):
                waiting.remove(stage)
                print(f"\n{headers.header(stage.name)}", flush=True)
                running[pool.submit(reproduce, stage.name, cores.environment(stage))] = stage
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                headers.ended(running.pop(future).name)
                code, was_spared = future.result()
                failed, spared = failed or code, spared + was_spared
    return failed, spared


def main(arguments: Sequence[str]) -> int:
    """Run ``python -m flows.repro [STAGE...]``; return the exit code of the first ``dvc repro`` that failed."""
    root = Path(".")
    try:
        plan = make_plan(root, arguments)
    except StageFailure as failure:
        print(f"error: {failure}", file=sys.stderr)
        return failure.exit_code
    cores = Cores.of(root)
    headers = Headers(forecast(root, plan), cores.slots)
    num_spared = headers.seen
    code = 0
    if headers.left:
        try:
            code, spared = run_plan(plan, headers, cores)
        except KeyboardInterrupt:
            print("interrupted: run the same command again to go on", file=sys.stderr)
            return INTERRUPTED
        num_spared += spared
    if num_spared:
        print(f"{num_spared} of {len(plan)} stages were up to date")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
