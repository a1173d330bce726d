"""The loop over steps with nothing to learn: step and rate of the optimizer, saving and restoring a checkpoint."""

import signal
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from electra.cluster.processes import EndRequest
from electra.common.errors import InfrastructureError
from electra.objectives.base import Outputs
from electra.optim import rate_of
from electra.pretrain import run
from electra.pretrain.alarms import NonFinite
from electra.pretrain.checkpoint import Background, Checkpoints
from electra.pretrain.run import INTERRUPTIONS, Pretraining
from tests.fixtures import LABELLED
from tests.pretrain.test_alarms import HEALTHY, recipe
from tests.small_tasks import make_settings

STAGES = [range(12), range(12, 20)]
ON_PLATEAU = {**HEALTHY, "disc_auc": 0.5}
Saved = tuple[dict[str, Any], dict[str, torch.Tensor], dict[str, torch.Tensor]]


class Request:
    """A signal to end, as the loop sees it."""

    requested = False

    def __bool__(self) -> bool:
        return self.requested


class Loop(Pretraining):
    """A run of 20 steps in two stages, validated at steps 4, 8, ...

    Args:
        skipped: steps whose gradients are not finite.
        stop_at: the step at which the signal to end comes.
    """

    def __init__(self, checkpoints: Checkpoints, skipped: tuple[int, ...] = (), stop_at: int | None = None):
        settings = make_settings(LABELLED, ["CoLA"])
        cluster = settings.cluster.model_copy(update={"checkpoint_minutes": 60})
        self.settings = settings.model_copy(update={"cluster": cluster})
        self.recipe, self.num_steps = recipe(num_steps=20, eval_every=4, alarm_after=0), 20
        self.machine, self.paths, self.host_group = SimpleNamespace(num_processes=1, device="cpu"), None, None
        self.checkpoints, self.writing, self.gathered = checkpoints, Background(), None
        self.rank, self.is_first, self.cores, self.telemetry = 0, True, None, None
        self.vocab_size, self.special_ids, self.token_counts = 30, [4], None
        self.train_drawer = self.data_parallel = self.short_drawer = None
        self.num_short_steps, self.taken = 0, 0
        self.milestones = SimpleNamespace(has_any_at=lambda step: False)
        self.non_finite, self.skipped = NonFinite(), skipped
        self.interruption = Request()
        self.peers = SimpleNamespace(begin_step=lambda step: setattr(self.interruption, "requested", step == stop_at))
        self._start_or_resume()

    def train(self) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(run, "started_run", lambda settings, paths: nullcontext(self))
            run.pretrain(self.settings, self.paths)

    def noted_signals(self) -> Any:
        return nullcontext()

    def write_result(self) -> None:
        pass

    def _build_engine(self, model: Any, phase: int) -> None:
        self.model, self.phase, self.optimizer = model, phase, None
        self.engine = Engine(self)

    def _enter_phase(self, phase: int) -> None:
        self._build_engine(self.model, phase)

    def _heldout_results(self, done: int) -> dict[str, float]:
        self.curve.add_validation(done, ON_PLATEAU)
        return dict(ON_PLATEAU)


class Engine:
    """The engine of a run, without a model."""

    device = torch.device("cpu")

    def __init__(self, loop: Loop):
        self.loop = loop

    def __call__(self, batch: Any) -> Outputs:
        self.loop.taken += 1
        return Outputs({"mlm": torch.tensor(float(self.loop.taken))})

    def step(self) -> None:
        pass

    def destroy(self) -> None:
        pass

    def take_skipped(self) -> int:
        return int(self.loop.first_step + self.loop.taken in self.loop.skipped)


MODEL = SimpleNamespace(
    loss_weights={"mlm": 1.0},
    phases=lambda num_steps: STAGES,
    initialize=lambda std, seed: None,
    counts=lambda batch: {"mlm": torch.tensor(1.0)},
    part_of=None,
)


@pytest.fixture
def set_steps(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, float]]:
    """Step and rate that are set before each optimizer step."""
    set_steps: list[tuple[int, float]] = []
    batch = SimpleNamespace(to=lambda device: None)
    replaced: dict[str, Callable[..., Any]] = {
        "training_steps": lambda drawer, share, first, num_steps, **_: ([batch] for _ in range(first, num_steps)),
        "set_step": lambda engine, step, rate: set_steps.append((step, rate)),
        "gradient_norms": lambda engine, part_of: {},
        "backward": lambda engine, loss: None,
        "take_skipped": lambda engine, optimizer: engine.take_skipped(),
        "build_model": lambda *_: MODEL,
        "communication_device": lambda machine: torch.device("cpu"),
        "broadcast_saved": lambda saved, device: saved,
        "gather_state": lambda engine, **_: ({"w": torch.ones(3)}, {"exp_avg.w": torch.zeros(3)}),
        "scatter_state": lambda *_: None,
        "load_weights": lambda *_: None,
        "load_initial_weights": lambda *_: None,
    }
    for name, function in replaced.items():
        monkeypatch.setattr(run, name, function)
    monkeypatch.setattr(torch.distributed, "barrier", lambda: None)
    return set_steps


def interrupted(folder: Path, **how: Any) -> Checkpoints:
    checkpoints = Checkpoints(folder, keep=2)
    loop = Loop(checkpoints, stop_at=9, **how)
    with pytest.raises(InfrastructureError, match="interrupted after step 10; a checkpoint is saved"):
        loop.train()
    return checkpoints


def test_every_stage_counts_its_steps_and_warms_up_anew(set_steps: list[tuple[int, float]], tmp_path: Path) -> None:
    loop = Loop(Checkpoints(tmp_path, keep=2))
    loop.train()
    assert [step for step, _ in set_steps] == [*range(12), *range(8)]
    assert [rate for _, rate in set_steps] == [rate_of(s, loop.recipe, STAGES[s >= 12]) for s in range(20)]
    assert set_steps[12][1] == 0 < set_steps[11][1]


@pytest.mark.parametrize("skipped", [(), (10,)])
@pytest.mark.usefixtures("set_steps")
def test_a_run_that_is_to_end_saves_first(tmp_path: Path, skipped: tuple[int, ...]) -> None:
    """Whenever the last checkpoint was, and even after a step that was skipped."""
    checkpoints = interrupted(tmp_path, skipped=skipped)
    assert [path.name for path in checkpoints.folder.glob("step_*")] == ["step_000000010"]


def test_a_resumed_run_knows_its_alarms_skips_and_curve(set_steps: list[tuple[int, float]], tmp_path: Path) -> None:
    checkpoints = interrupted(tmp_path, skipped=(3,))
    resumed = Loop(checkpoints)
    assert resumed.first_step == 10
    assert resumed.alarms.since == {"majority_class_plateau": 4}, "patience is not given anew"
    assert resumed.non_finite.num_skipped == 1
    assert set(resumed.curve.rows) == set(range(1, 11)) and resumed.curve.rows[8]["disc_auc"] == 0.5
    set_steps.clear()
    resumed.train()
    assert [step for step, _ in set_steps] == [10, 11, *range(8)]


@pytest.mark.parametrize(
    ("device", "skipped", "saved_at"),
    [
        ("cpu", (), [5, 10, 15]),
        ("cuda", (), [6, 12, 18]),  # granted a step later
        ("cpu", (5,), [6, 11, 16]),
        ("cuda", (6,), [8, 14]),
        ("cuda", (5, 6), [6, 12, 18]),  # at step 6 back to step 0
    ],
)
@pytest.mark.usefixtures("set_steps")
def test_one_checkpoint_is_saved_for_each_period(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: str, skipped: tuple[int, ...], saved_at: list[int]
) -> None:
    """Steps of 1000 s, and 3600 s between checkpoints. A save refused after a skipped step is requested anew."""
    loop, saved = Loop(Checkpoints(tmp_path, keep=2), skipped=skipped), []
    loop.machine.device = device
    loop.writing = SimpleNamespace(is_busy=False, wait=lambda: None, check=lambda: None, start=lambda work: work())
    monkeypatch.setattr(run, "time", SimpleNamespace(monotonic=lambda: 1000.0 * loop.taken))
    monkeypatch.setattr(loop.checkpoints, "save", lambda step, *_: saved.append(step))
    loop.train()
    assert saved == saved_at


@pytest.mark.usefixtures("set_steps")
def test_a_run_on_taken_cores_says_so_at_its_step(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    loop, warnings = Loop(Checkpoints(tmp_path, keep=2)), iter([None, "WARNING other processes use the cores"])
    loop.cores = SimpleNamespace(warning=lambda: next(warnings, None))
    loop.train()
    assert capsys.readouterr().out == "step 2  WARNING other processes use the cores\n"


def test_every_signal_that_announces_an_end_is_a_request_to_stop() -> None:
    """Slurm and others send USR1 or USR2, a user Ctrl-C, the system TERM."""
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2)
    before = [signal.getsignal(number) for number in numbers]
    for number in numbers:
        with EndRequest(INTERRUPTIONS) as interruption:
            handler = signal.getsignal(number)
            assert callable(handler) and not interruption
            handler(number, None)
            assert interruption, number
    assert [signal.getsignal(number) for number in numbers] == before
