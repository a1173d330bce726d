"""Every way a run can be ended from outside: no process survives 30 s, and the next run resumes from a checkpoint.

``python -m tests.cluster.kills``. One real pre-training of a tiny model under DVC, flow, worker and server; each way of
ending it is tried in turn, and the run after it must go on from a later step. Prints the table of docs/cluster.md.
"""

import re
import shutil
import signal
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import psutil

from tests.cluster.acceptance import shrink
from tests.cluster.prefect_site import FINAL, Site, alive, clone, site, wait_until, worker

SECONDS_TO_DIE = 30
NUM_STEPS = 200_000  # longer than anybody waits here


def processes(workspace: Path) -> dict[str, psutil.Process]:
    """The processes of a run in a workspace by what they are."""
    found: dict[str, psutil.Process] = {}
    for process in alive(lambda line: bool(line)):
        try:
            line, cwd = " ".join(process.cmdline()), process.cwd()
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
        if cwd != str(workspace):
            continue
        for name, pattern in (
            ("command", r"flows\.cluster worker"),
            ("worker", r"prefect worker start"),
            ("guard", r"flows\.guard"),
            ("dvc", r"-m dvc "),
            ("stage", r"electra pretrain"),
            ("flow", r"prefect"),
        ):
            if re.search(pattern, line):
                found.setdefault(name, process)
                break
        else:
            found[f"other {line[:60]}"] = process
    return found


def newest_checkpoint(workspace: Path) -> int:
    steps = [int(path.parent.name.removeprefix("step_")) for path in workspace.glob("checkpoints/*/step_*/state.json")]
    return max(steps, default=0)


def wait_for_training(workspace: Path) -> int:
    """Wait until a run trains and has written a new checkpoint; return the step at which it began."""
    log = workspace / "logs/pretrain.log"
    before = newest_checkpoint(workspace)
    wait_until(lambda: log.exists() and newest_checkpoint(workspace) > before, 180, "training to begin")
    resumed = re.search(r"resuming \w+ at step (\d+)", log.read_text())
    return int(resumed[1]) if resumed else 0


def start(place: Site, workspace: Path) -> tuple[str, int]:
    """Start a run and wait until it trains; returns its id and the step it began at."""
    (workspace / "logs/pretrain.log").unlink(missing_ok=True)
    run_id = place.start_run("pretrain/process")
    return run_id, wait_for_training(workspace)


def end(place: Site, workspace: Path, run_id: str, how: str) -> float:
    """End a run in one way; returns the seconds until the last process that should go had gone."""
    victim, _, number = how.partition(" ")
    running = processes(workspace)
    going = {name: process for name, process in running.items() if name not in ("command", "worker")}
    if victim in INSIDE:  # the flow lives on and tries the stage again
        going.pop("flow")
    if victim == "cancel":
        place.run("prefect", "flow-run", "cancel", run_id)
    else:
        running[victim].send_signal(signal.Signals[number])
    if how == "worker SIGTERM":  # Prefect's worker waits for its runs, for days if need be; asked again, it goes
        time.sleep(5)
        assert not any(map(has_ended, going.values())), "a worker that was asked once waits for its run"
        running[victim].send_signal(signal.SIGTERM)
    (workspace / "logs/pretrain.log").unlink()
    return wait_until(lambda: all(map(has_ended, going.values())), SECONDS_TO_DIE, f"{how}: {sorted(going)} to end")


def has_ended(process: psutil.Process) -> bool:
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


INSIDE = ("guard", "dvc", "stage")
WAYS = [
    "cancel",
    *(
        f"{name} {number}"
        for name in ("flow", "guard", "dvc", "stage", "worker", "command")
        for number in ("SIGTERM", "SIGKILL")
    ),
]


def try_way(place: Site, workspace: Path, how: str) -> str:
    """End a run in one way; returns a row of the table."""
    victim, _, number = how.partition(" ")
    with worker(place, workspace):
        run_id, began = start(place, workspace)
        time.sleep(4)  # at least one periodic checkpoint lies there
        seconds = end(place, workspace, run_id, how)
        saved = newest_checkpoint(workspace)
        assert saved > began, f"no checkpoint after step {began}"
        if victim in INSIDE:
            resumed, state = wait_for_training(workspace), "tried again by itself"
            place.run("prefect", "flow-run", "cancel", run_id)
            place.wait_for_run(run_id)
        else:
            with suppress(AssertionError):
                wait_until(lambda: place.state(run_id) in FINAL, SECONDS_TO_DIE, "the server to know")
            state = place.state(run_id)
            if state not in FINAL:  # the automation would do it nine minutes later
                state = "told to nobody"
                place.post(f"/flow_runs/{run_id}/set_state", {"state": {"type": "CRASHED"}, "force": True})
    if victim not in INSIDE:
        with worker(place, workspace):
            again, resumed = start(place, workspace)
            place.run("prefect", "flow-run", "cancel", again)
            assert place.wait_for_run(again) == "CANCELLED"
    assert resumed == saved, f"resumed at {resumed}, saved at {saved}"
    return f"| {victim} | {number} | {seconds:.1f} s | {state} | step {saved} | step {resumed} |"


def try_ways(place: Site, workspace: Path, ways: list[str]) -> list[str]:
    """End a run in each way and print what came of it; returns what went wrong."""
    wrong = []
    print("| ended | by | processes gone after | flow run | checkpoint | resumed at |\n|---|---|---|---|---|---|")
    for how in ways:
        try:
            print(try_way(place, workspace, how), flush=True)
            wait_until(lambda: not processes(workspace), SECONDS_TO_DIE, "nothing to be left")
        except AssertionError as failure:
            left = processes(workspace)
            wrong.append(f"{how}: {failure}; left: {left}")
            print(f"| {how} | FAILED: {failure} |", flush=True)
            for process in left.values():  # the next way begins with nothing
                with suppress(psutil.NoSuchProcess):
                    process.kill()
    return wrong


def main() -> int:
    ways = sys.argv[1:] or WAYS
    folder = Path(tempfile.mkdtemp(prefix="electra-kills-"))
    workspace = clone(folder / "workspace")
    shrink(workspace)
    profile = workspace / "params/books.yaml"
    text = re.sub(r"num_steps: \d+", f"num_steps: {NUM_STEPS}", profile.read_text())
    profile.write_text(re.sub(r"eval_every: \d+", f"eval_every: {NUM_STEPS}", text))
    common = workspace / "params.yaml"
    common.write_text(common.read_text().replace("checkpoint_minutes: 5", "checkpoint_minutes: 0.05"))
    with site(folder / "site") as place:
        place.run("dvc", "repro", "--quiet", "validate_shards", cwd=workspace)
        place.run("electra", "cluster", "init", cwd=workspace)
        place.run("prefect", "--no-prompt", "deploy", "--all", cwd=workspace)
        wrong = try_ways(place, workspace, ways)
    if wrong:
        print(*wrong, f"kept for a look: {folder}", sep="\n")
        return 1
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
