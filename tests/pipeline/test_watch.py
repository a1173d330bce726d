"""Detection of hung stages, and the limits read from dvc.yaml."""

import json
import os
import subprocess
import sys
import threading
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import yaml

from flows.plan import cells_per_gpu, needed
from flows.stages import InfrastructureFailure, StageFailure, StageRunner
from flows.watch import Devices, Limits, Watch

ROOT = Path(__file__).resolve().parents[2]


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock():
    return Clock()


def write(path, step: int) -> None:
    """As the trainer does: a new file each time, never older than the one before."""
    version = path.stat().st_mtime_ns + 1 if path.exists() else 1
    path.write_text(json.dumps({"step": step}))
    os.utime(path, ns=(version, version))


def test_a_stage_that_reports_is_not_hung_and_one_that_stops_is(tmp_path, clock):
    path = tmp_path / "progress.json"
    write(path, 7)
    watch = Watch(path, Limits(stale_minutes=10), clock)
    assert watch.progress() is None, "an earlier run's report is not news"
    clock.now = 500
    write(path, 8)
    assert watch.progress() == {"step": 8}
    clock.now = 1000
    assert watch.complaint() is None
    clock.now = 1101
    assert "no progress for 10 minutes" in watch.complaint()


def test_a_stage_that_never_reports_is_hung_too_but_only_if_it_should_report(tmp_path, clock):
    silent = Watch(tmp_path / "progress.json", Limits(stale_minutes=10), clock)
    unwatched = Watch(tmp_path / "progress.json", Limits(timeout_hours=1), clock)
    clock.now = 601
    assert silent.complaint()
    assert unwatched.complaint() is None
    clock.now = 3601
    assert "not finished after 1 hours" in unwatched.complaint()


def test_a_hung_stage_is_ended_and_counts_as_infrastructure(tmp_path):
    command = [sys.executable, "-c", "import time; print('here', flush=True); time.sleep(600)"]
    runner = StageRunner(tmp_path, lambda stage: command)
    with pytest.raises(InfrastructureFailure, match="it hangs"):
        runner.run("x", print, limits=Limits(stale_minutes=0.02))


def test_everything_under_a_stage_knows_how_long_it_has_to_end(tmp_path):
    code = "from electra.cluster.processes import seconds_to_end; print(seconds_to_end())"
    said: list[str] = []
    runner = StageRunner(tmp_path, lambda stage: [sys.executable, "-c", code])
    runner.run("x", said.append, limits=Limits(grace_seconds=77))
    runner.run("x", said.append)
    assert said == ["77.0", "25.0"]


@pytest.mark.timeout(15)  # less than the 25 seconds of others
def test_a_hung_stage_has_its_grace_and_no_more(tmp_path):
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
    runner = StageRunner(tmp_path, lambda stage: [sys.executable, "-c", code])
    with pytest.raises(InfrastructureFailure, match="it hangs"):
        runner.run("x", print, limits=Limits(stale_minutes=0.02, grace_seconds=0.5))


def test_progress_is_shown_while_the_stage_runs(tmp_path):
    code = (
        "from pathlib import Path\n"
        "Path('logs/x').mkdir(parents=True)\n"
        "Path('logs/x/progress.json').write_text('{\"step\": 3}')"
    )
    shown: list[dict] = []
    StageRunner(tmp_path, lambda stage: [sys.executable, "-c", code]).run("x", print, shown.append)
    assert shown == [{"step": 3}]


def test_what_dvc_spares_is_returned_with_its_reason(tmp_path):
    said = "Stage 'x' didn't change, skipping"
    runner = StageRunner(tmp_path, lambda stage: [sys.executable, "-c", f'print("{said}")'])
    assert runner.run("x", print) == said


def test_gpus_of_a_stage_are_never_more_than_the_run_has():
    assert Limits(gpus="all").gpus_of(8) == 8
    assert Limits(gpus=1).gpus_of(8) == 1
    assert Limits(gpus=1).gpus_of(0) == 0
    assert Limits.of({"gpus": 2, "owner": "somebody"}) == Limits(gpus=2)


@pytest.fixture
def slots(monkeypatch) -> list[int]:
    """Slots of the server's limit that are held now, by holder."""
    held: list[int] = []

    @contextmanager
    def concurrency(name, occupy, **_):
        held.append(occupy)
        yield
        held.remove(occupy)

    monkeypatch.setattr("prefect.concurrency.sync.concurrency", concurrency)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return held


def test_cells_share_a_device_and_hold_its_slot_until_the_last_of_them_is_done(slots):
    devices, cells = Devices(2, cells_per_gpu=2), [ExitStack() for _ in range(4)]
    taken = [cell.enter_context(devices.take(1, shared=True)) for cell in cells]
    assert taken == [["0"], ["1"], ["0"], ["1"]], "devices without anybody come first"
    assert slots == [1, 1]
    cells[0].close()
    cells[1].close()
    assert slots == [1, 1]
    cells[2].close()
    assert slots == [1]
    cells[3].close()
    assert slots == []


def test_a_stage_that_needs_no_gpu_sees_none_where_the_run_has_some(slots):
    with Devices(2).take(0) as seen:
        assert seen == [], "CUDA_VISIBLE_DEVICES is empty for it"
    with Devices(0).take(1) as seen:
        assert seen is None, "a run on CPUs says nothing of devices"
    assert slots == []


def test_no_more_cells_share_a_device_than_the_settings_say_and_other_stages_have_theirs_alone(slots):
    devices, first, second, begun = Devices(1, cells_per_gpu=2), ExitStack(), ExitStack(), []
    first.enter_context(devices.take(1, shared=True))
    second.enter_context(devices.take(1, shared=True))

    def run(shared: bool) -> None:
        with devices.take(1, shared):
            begun.append(shared)

    waiting = [threading.Thread(target=run, args=(shared,)) for shared in (True, False)]
    for thread in waiting:
        thread.start()
    waiting[0].join(0.1)
    assert begun == [] and slots == [1]
    first.close()
    waiting[0].join(10)
    assert begun == [True]
    waiting[1].join(0.1)
    assert begun == [True], "a cell is still there"
    second.close()
    waiting[1].join(10)
    assert begun == [True, False] and slots == []


def test_how_many_cells_share_a_gpu_is_set_or_predicted_and_each_has_a_core(tmp_path, monkeypatch):
    (tmp_path / "dvc.yaml").write_text("stages: {a: {cmd: electra corpus}}")
    (tmp_path / "params.yaml").write_text("cluster: {cells_per_gpu: 3}")
    assert cells_per_gpu(tmp_path, gpus=8) == 3
    assert cells_per_gpu(tmp_path, gpus=0) == 1
    (tmp_path / "params.yaml").write_text("profile: small")
    done = subprocess.CompletedProcess([], 0, stdout="a line of a library\n4\n", stderr="")
    monkeypatch.setattr("subprocess.run", lambda command, **_: done)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(20)))
    assert [cells_per_gpu(tmp_path, gpus) for gpus in (1, 8, 40)] == [4, 2, 1]
    monkeypatch.setattr("subprocess.run", lambda command, **_: subprocess.CompletedProcess(command, 2, "", "no GPU"))
    with pytest.raises(StageFailure, match="no GPU") as failed:
        cells_per_gpu(tmp_path, gpus=1)
    assert failed.value.exit_code == 2


def test_a_target_brings_what_it_needs_and_no_more():
    names = ["corpus", "tune@a", "tune@b", "report"]
    edges = [("corpus", "tune@a"), ("corpus", "tune@b"), ("tune@a", "report"), ("tune@b", "report")]
    assert needed(names, edges, ["tune"]) == {"corpus", "tune@a", "tune@b"}
    assert needed(names, edges, ["tune@a"]) == {"corpus", "tune@a"}
    assert needed(names, edges, []) == set(names)
    with pytest.raises(StageFailure, match="no stage nothing") as failed:
        needed(names, edges, ["nothing"])
    assert "logs/" not in failed.value.headline, "no stage has run, so there is no output of one"


def test_dvc_yaml_says_what_its_long_stages_need():
    stages = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]
    pretrain = Limits.of(stages["pretrain"]["meta"])
    assert pretrain.gpus == "all" and pretrain.stale_minutes and pretrain.timeout_hours > 24
    assert {Limits.of(stages[name]["meta"]).gpus for name in stages if name.startswith("finetune")} == {1}
    assert all(Limits.of(stages[name]["meta"]).shares_gpu for name in stages if name.startswith("finetune"))
    assert not pretrain.shares_gpu
