"""What would run: the stages of ``dvc.yaml`` in an order that respects the graph, and which of them are up to date."""

import heapq
import json
import re
import subprocess
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from flows.stages import LOCKED, InfrastructureFailure, StageFailure, stage_environment

EDGE = re.compile(r'^"(?P<before>[^"]+)" -> "(?P<after>[^"]+)";$', re.MULTILINE)


@dataclass(frozen=True)
class PlannedStage:
    """One stage: its name, the stages it reads from, and whether DVC may have to run it."""

    name: str
    upstream: tuple[str, ...]
    out_of_date: bool

    @property
    def is_cell(self) -> bool:
        """Whether it is one of a matrix of small alike stages, such as ``finetune@CoLA-1``."""
        return "@" in self.name


def make_plan(root: Path = Path(".")) -> list[PlannedStage]:
    """The stages of a workspace in the order to run them; nothing is run.

    Raises:
        StageFailure: DVC cannot read ``dvc.yaml`` or ``params.yaml``.
        InfrastructureFailure: another DVC process holds a lock.
    """
    names = _dvc(root, "stage", "list", "--name-only").split()
    edges = EDGE.findall(_dvc(root, "dag", "--dot"))
    changed = set(json.loads(_dvc(root, "status", "--json") or "{}"))
    return order(names, edges, changed)


def order(names: list[str], edges: list[tuple[str, str]], changed: set[str]) -> list[PlannedStage]:
    """Sort stages so that each comes after those it reads from, and mark what may have to run.

    A stage is out of date if DVC says so or if one before it is: running that one may change what this one reads.
    Among stages that are free to run, single ones come before the cells of a matrix, then the order of ``dvc.yaml``:
    cells that are next to each other can run side by side.

    Args:
        names: all stages, in the order of ``dvc.yaml``.
        edges: (before, after) pairs.
        changed: stages that DVC reports as changed by themselves.
    """
    upstream: dict[str, list[str]] = defaultdict(list)
    downstream: dict[str, list[str]] = defaultdict(list)
    for before, after in edges:
        upstream[after].append(before)
        downstream[before].append(after)
    rank = {name: ("@" in name, position) for position, name in enumerate(names)}
    waits_for = {name: len(upstream[name]) for name in names}
    free = [(rank[name], name) for name in names if waits_for[name] == 0]
    heapq.heapify(free)
    out_of_date: set[str] = set()
    plan = []
    while free:
        _, name = heapq.heappop(free)
        if name in changed or out_of_date.intersection(upstream[name]):
            out_of_date.add(name)
        plan.append(PlannedStage(name, tuple(upstream[name]), name in out_of_date))
        for after in downstream[name]:
            waits_for[after] -= 1
            if waits_for[after] == 0:
                heapq.heappush(free, (rank[after], after))
    return plan


def batches(plan: list[PlannedStage]) -> list[list[PlannedStage]]:
    """Cut a plan into groups that run one after the other: single stages alone, independent cells together."""
    groups: list[list[PlannedStage]] = []
    for stage in plan:
        group = groups[-1] if groups else []
        beside = {other.name for other in group}
        if group and stage.is_cell and group[-1].is_cell and not beside.intersection(stage.upstream):
            group.append(stage)
        else:
            groups.append([stage])
    return groups


def _dvc(root: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "dvc", "--wait-for-lock", *arguments],
        cwd=root,
        env=stage_environment(None),
        capture_output=True,
        text=True,
    )
    if done.returncode:
        tail = (done.stdout + done.stderr).splitlines()[-15:]
        name = "dvc " + " ".join(arguments)
        raise InfrastructureFailure(name, tail) if LOCKED.search(done.stderr) else StageFailure(name, 2, tail)
    return done.stdout
