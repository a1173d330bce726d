"""`electra plan`: show which stages are cached, to run or blocked, with reasons, minutes and disk; nothing is run.

Minutes are from each stage's last run in this folder (``logs/stages``), bytes from its outputs in ``dvc.lock``.
"""

import json
import re
import shutil
import statistics
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

from electra.common.parsing import flat, value_at
from flows.plan import PlannedStage, kind_of, make_plan
from flows.stages import StageFailure

MADE = ("data/", "models/", "results/")  # written by stages: a file missing here does not block a stage
WIDTH = 100
GPUS = Path("/proc/driver/nvidia/gpus")  # one folder per GPU; importing torch would take seconds


@dataclass(frozen=True)
class Forecast:
    """Forecast of one stage of the plan.

    Attributes:
        state: ``cached``, ``to run`` or ``blocked``.
        why: reasons, each naming a parameter or a file.
        seconds: expected duration; None if no stage of its kind has run here.
        num_bytes: size of its outputs; None if they are not in ``dvc.lock``.
        gpus: GPUs it uses on a machine that has some: a number or ``all``.
    """

    stage: str
    state: str
    why: list[str]
    seconds: float | None
    num_bytes: int | None
    gpus: int | str


def forecast(root: Path, plan: Sequence[PlannedStage]) -> list[Forecast]:
    """Return for each stage of a plan what it takes and why it runs."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # dvc.lock has thousands of lines
    file = root / "dvc.lock"
    lock = (yaml.load(file.read_text(encoding="utf-8"), Loader=loader) if file.is_file() else None) or {}
    stages = lock.get("stages", {})
    parameters, files = changed_parameters(root, stages), changed_files(root)
    seconds, blocked = stage_seconds(root), blocked_stages(plan)
    found = []
    for stage in plan:
        why: list[str] = []
        state = "blocked" if stage.name in blocked else "to run" if stage.out_of_date else "cached"
        if state == "blocked":
            why = [blocked[stage.name]]
        elif state == "to run" and stage.name not in stages:  # DVC names its inputs, which nothing is compared with
            why = ["has not run yet"]
        elif state == "to run":
            why = [*parameters.get(stage.name, []), *_without_parameters(stage.why, files)]
        same = [value for name, value in seconds.items() if kind_of(name) == kind_of(stage.name)]
        own = seconds.get(stage.name) or (statistics.median(same) if same else None)
        outs = stages.get(stage.name, {}).get("outs")
        size = sum(out.get("size", 0) for out in outs) if outs else None
        found.append(Forecast(stage.name, state, why, own, size, stage.limits.gpus))
    return found


def stage_seconds(root: Path) -> dict[str, float]:
    """Return the seconds of each stage's last run in this folder (electra/cluster/run_facts.py); skip damaged files."""
    found: dict[str, float] = {}
    for file in sorted((root / "logs/stages").glob("*.json")):
        with suppress(OSError, ValueError, KeyError, TypeError):
            found[file.name.removesuffix(".json")] = float(json.loads(file.read_text(encoding="utf-8"))["seconds"])
    return found


def changed_parameters(root: Path, stages: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return for each stage of ``dvc.lock`` the parameters that differ from the settings, as ``key old -> new``."""
    files: dict[str, Any] = {}
    found: dict[str, list[str]] = {}
    for name, stage in stages.items():
        for file, keys in stage.get("params", {}).items():
            if file not in files:
                path = root / file
                files[file] = yaml.safe_load(path.read_text(encoding="utf-8")) if path.is_file() else {}
            for key, value in (keys or {}).items():
                old, new = dict(flat(value, key)), dict(flat(value_at(files[file], key), key))
                found.setdefault(name, []).extend(
                    f"{one} {old.get(one, '-')} -> {new.get(one, '-')}"
                    for one in dict.fromkeys([*old, *new])
                    if old.get(one) != new.get(one)
                )
    return {name: told for name, told in found.items() if told}


def changed_files(root: Path) -> list[str]:
    """Return the files that git reports as changed since the last commit of ``dvc.lock``; [] without such a commit."""

    def git(*arguments: str) -> list[str]:
        done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, errors="replace")
        return [] if done.returncode else done.stdout.splitlines()

    commit = git("log", "-1", "--format=%H", "--", "dvc.lock")
    if not commit:
        return []
    return [
        *git("diff", "--name-only", "--relative", commit[0]),
        *git("ls-files", "--others", "--exclude-standard"),
    ]


def blocked_stages(plan: Sequence[PlannedStage]) -> dict[str, str]:
    """Return the stages that cannot run and why: they, or stages before them, need a file that no stage writes."""
    found: dict[str, str] = {}
    for stage in plan:
        missing = [path for path in re.findall(r"(\S+) is deleted", stage.why) if not path.startswith(MADE)]
        if missing:
            found[stage.name] = f"{', '.join(missing)} is not there"
        elif before := [name for name in stage.upstream if name in found]:
            found[stage.name] = f"waits for {kind_of(before[0])}"
    return found


def _without_parameters(why: str, files: Sequence[str]) -> list[str]:
    """Return DVC's reasons except changed parameters, which :func:`changed_parameters` reports with their values."""
    found: dict[str, None] = {}  # ordered, without duplicates: cells with the same reason share one line
    for part in why.split("; "):
        if re.search(r" in (?:params\.yaml|params/\S+) is modified", part):
            continue
        path, _, state = part.partition(" is ")
        if path.startswith(MADE) and state in ("deleted", "not in cache"):
            part = "its inputs are not made yet" if state == "deleted" else "its outputs are not here"
        elif path.startswith(MADE) and state == "modified":
            part = f"changed: {path.rpartition('/')[0] if path.startswith('data/tasks/') else path}"
        elif state == "modified":
            inside = [name for name in files if name == path or name.startswith(f"{path}/")]
            more = f" and {len(inside) - 1} more" if len(inside) > 1 else ""
            part = f"changed: {inside[0] if inside else path}{more}"
        found[part] = None
    return list(found)


def render_plan(found: Sequence[Forecast], free_bytes: int, num_gpus: int) -> str:
    """Return the plan as text of at most 100 columns: a line per kind of stage to run, and one for all cached stages.

    Args:
        free_bytes: free bytes of the disk.
        num_gpus: number of GPUs of this machine.
    """
    num = {state: sum(stage.state == state for stage in found) for state in ("cached", "to run", "blocked")}
    counts = ", ".join(f"{number} {state}" for state, number in num.items())
    lines = [f"{len(found)} stages: {counts}; nothing was run"]
    due = [stage for stage in found if stage.state == "to run"]
    if due:
        lines += [_minutes_of_all(due), f"{_disk(due, free_bytes)}; {_gpus(due, num_gpus)}", ""]
        lines.append(f"{'':<8} {'stage':<20} {'min':>5}  why")
    groups: dict[tuple[str, str], list[Forecast]] = {}
    for stage in found:
        groups.setdefault((stage.state, kind_of(stage.stage)), []).append(stage)
    for (state, kind), cells in groups.items():
        if state == "cached":
            continue
        name = kind + (f" x{len(cells)}" if len(cells) > 1 else "")
        head = f"{state:<8} {name:<20} {_minutes(cell.seconds for cell in cells):>5}  "
        lines.append(head + _fitted(_reasons(cells), WIDTH - len(head)))
    if num["cached"]:
        names = [
            kind + (f" x{len(cells)}" if len(cells) > 1 else "")
            for (state, kind), cells in groups.items()
            if state == "cached"
        ]
        lines.append(f"{'cached':<8} {_fitted(names, WIDTH - 9, ', ')}")
    return "\n".join(lines) + "\n"


def _reasons(cells: Sequence[Forecast]) -> list[str]:
    """Return the distinct reasons of stages of one kind, each with its number of stages unless all share it."""
    count: dict[str, int] = {}
    for cell in cells:
        for reason in cell.why:
            count[reason] = count.get(reason, 0) + 1
    return [
        reason if number == len(cells) else f"{reason} ({number} of {len(cells)})" for reason, number in count.items()
    ]


def _fitted(parts: Sequence[str], room: int, between: str = "; ") -> str:
    """Join as many parts as fit into ``room`` characters, and append the number of parts left out."""
    for number in range(len(parts), 0, -1):
        rest = f" (+{len(parts) - number} more)" if number < len(parts) else ""
        if len(text := between.join(parts[:number]) + rest) <= room:
            return text
    rest = f" (+{len(parts) - 1} more)" if len(parts) > 1 else ""
    return parts[0][: room - len(rest) - 3] + "..." + rest if parts else ""


def _minutes(seconds: Iterable[float | None]) -> str:
    known = [value for value in seconds if value is not None]
    return f"{sum(known) / 60:.1f}" if known else "-"


def _minutes_of_all(due: Sequence[Forecast]) -> str:
    unknown = [stage.stage for stage in due if stage.seconds is None]
    if len(unknown) == len(due):
        return "minutes unknown: no run here yet"
    told = f"about {_minutes(stage.seconds for stage in due)} min by the last runs here"
    return told + (f" (without {_fitted(unknown, 30, ', ')})" if unknown else "")


def _disk(due: Sequence[Forecast], free_bytes: int) -> str:
    """Return the disk needed for outputs and their copies in DVC's cache, and the free disk, as text."""
    known = [stage.num_bytes for stage in due if stage.num_bytes is not None]
    needed = f"disk {2 * sum(known) / 1e9:.1f} GB with the cache" if known else "disk unknown"
    return f"{needed} ({free_bytes / 1e9:.0f} GB free)"


def _gpus(due: Sequence[Forecast], num_gpus: int) -> str:
    if not num_gpus:
        return "no GPU here"
    asked = [num_gpus if stage.gpus == "all" else min(int(stage.gpus), num_gpus) for stage in due]
    return f"GPUs {max(asked)} of {num_gpus}"


def main(arguments: Sequence[str]) -> int:
    """Run ``electra plan [--json] [STAGE...]`` and return the exit code."""
    root = Path(".")
    try:
        found = forecast(root, make_plan(root, [name for name in arguments if name != "--json"]))
    except StageFailure as failure:
        print(f"error: {failure}", file=sys.stderr)
        return failure.exit_code
    if "--json" in arguments:
        print(json.dumps([asdict(stage) for stage in found], indent=2))
    else:
        num_gpus = len(list(GPUS.iterdir())) if GPUS.is_dir() else 0
        print(render_plan(found, shutil.disk_usage(root).free, num_gpus), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
