"""kill -9 of one process or of all, at moments that a fixed seed draws: the run's end is the same to the last bit.

Also when every start has another number of processes, as long as the micro-batches stay as large as they were.

What is said of every kill, and the figures at the end: ``-s``. Recorded in docs/reliability-pretrain.md.
"""

import random
import signal
import subprocess
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from safetensors.numpy import load_file

from tests.pretrain.test_resume import EVERY_STEP, assert_curves_close, weights
from tests.workspace import Workspace

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]
NUM_KILLS = 20
LONG = {"num_steps": 2400, "eval_every": 800}
# Half of a batch: one process takes two, two processes take one each. Their sum has the same bits in either order.
HALVES = {"micro_batch_size": 4}
DROPOUT = {"dropout": 0.1, "attention_dropout": 0.1}
TOLERANCE = 1e-5


@pytest.fixture(scope="module")
def references(prepared: Workspace) -> dict[int, Workspace]:
    """Return the uninterrupted run for each number of processes."""
    made = {}
    for processes in (1, 2):
        made[processes] = prepared.copy(f"reference-{processes}")
        made[processes].write({"cluster": {"num_processes": processes}}, pretrain=LONG).pretrain()
    return made


def descendants(process: subprocess.Popen[str]) -> dict[str, list[psutil.Process]]:
    """Whom to kill: the command, rank 0, rank 1 of two, or all."""
    top = psutil.Process(process.pid)
    found = {"command": [top], "all": [*top.children(recursive=True), top]}
    for child in top.children(recursive=True):
        try:
            found[f"rank {child.environ()['RANK']}"] = [child]
        except (psutil.Error, KeyError):
            continue
    return found


def newest_step(workspace: Workspace) -> int:
    found = list(workspace.root.glob("checkpoints/*/latest"))
    return int(found[0].read_text().strip().removeprefix("step_")) if found else 0


def wait_for_end(everyone: list[psutil.Process]) -> float:
    """Return the seconds until all processes of the run have ended."""
    start = time.monotonic()
    _, alive = psutil.wait_procs(everyone, timeout=30)
    assert not alive, f"still there after 30 s: {alive}"
    return time.monotonic() - start


def run_through_kills(
    workspace: Workspace, processes: list[int], seed: int, cluster: dict[str, Any] | None = None, **sections: Any
) -> Counter[str]:
    """Start, kill, start again ... and let the last one end. ``processes``: of the first start, the second, ..."""
    draw, told = random.Random(seed), Counter[str]()
    for number in range(NUM_KILLS):
        now = {"num_processes": processes[number % len(processes)], "checkpoint_minutes": EVERY_STEP, **(cluster or {})}
        workspace.write({"cluster": now}, pretrain=LONG, **sections)
        before = newest_step(workspace)
        process = workspace.start()
        # half of them from the start on, which is loading and compiling; half once it trains
        if number % 2:
            while newest_step(workspace) == before and process.poll() is None:
                time.sleep(0.01)
        time.sleep(draw.uniform(0, 3 if number % 2 else 8))
        if process.poll() is not None:
            told["over before the kill"] += 1
            break
        whom = descendants(process)
        name = draw.choice(sorted(whom))
        everyone = whom["all"]
        for victim in whom[name]:
            with suppress(psutil.NoSuchProcess):  # a compiler that a process had asked for its version
                victim.send_signal(signal.SIGKILL)
        seconds = wait_for_end(everyone)
        process.communicate()
        told[name] += 1
        print(f"kill {number + 1}: {name}, step {before} -> {newest_step(workspace)}, all gone after {seconds:.1f} s")
    workspace.pretrain()
    print(f"seed {seed}, processes {processes}: {dict(told)}")
    return told


@pytest.mark.parametrize("processes", [1, 2])
def test_killed_at_20_moments_ends_the_same_to_the_last_bit(
    workspace: Workspace, references: dict[int, Workspace], processes: int
) -> None:
    told = run_through_kills(workspace, [processes], seed=processes)
    assert "over before the kill" not in told, "make the run longer"
    assert weights(workspace) == weights(references[processes])
    assert workspace.curve() == references[processes].curve()
    assert not list(Path(workspace.root).glob("checkpoints/*/step_*"))


def test_killed_at_20_moments_on_other_numbers_of_processes_ends_the_same(
    prepared: Workspace, workspace: Workspace
) -> None:
    uninterrupted = {}
    for processes in (1, 2):
        uninterrupted[processes] = prepared.copy(f"halves-{processes}")
        cluster = {"num_processes": processes, **HALVES}
        uninterrupted[processes].write({"cluster": cluster}, pretrain=LONG, model=DROPOUT).pretrain()
    told = run_through_kills(workspace, [2, 2, 1, 1], seed=3, cluster=HALVES, model=DROPOUT)
    assert "over before the kill" not in told, "make the run longer"
    for processes, reference in uninterrupted.items():
        far = largest_difference(workspace, reference)
        print(f"weights against {processes} uninterrupted: at most {far:.1e} apart")
        assert far <= TOLERANCE
        assert_curves_close(workspace, reference, TOLERANCE)


def largest_difference(one: Workspace, other: Workspace) -> float:
    """Return the largest difference of any weight."""
    mine, theirs = (load_file(w.paths.pretrained / "model.safetensors") for w in (one, other))
    assert mine.keys() == theirs.keys()
    return max(float(np.abs(tensor - theirs[name]).max()) for name, tensor in mine.items())
