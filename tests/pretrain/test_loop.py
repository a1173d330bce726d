"""The loop over steps with nothing to learn: what it tells the optimizer, what a checkpoint holds and gives back."""

import signal
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from electra.common.errors import InfrastructureError
from electra.optim import rate_of
from electra.pretrain import run
from electra.pretrain.alarms import NonFinite
from electra.pretrain.checkpoint import Background, Checkpoints
from electra.pretrain.run import INTERRUPTIONS, Pretraining
from electra.system.processes import EndRequest
from tests.fixtures import LABELLED
from tests.pretrain.test_alarms import HEALTHY, recipe
from tests.small_tasks import make_settings

STAGES = [range(12), range(12, 20)]
ON_PLATEAU = {**HEALTHY, "disc_auc": 0.5}
Saved = tuple[dict[str, Any], dict[str, torch.Tensor], dict[str, torch.Tensor]]


class Wish:
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
        self.recipe = recipe(num_steps=20, eval_every=4, alarm_after=0)
        self.machine, self.paths, self.host_group = SimpleNamespace(num_processes=1, device="cpu"), None, None
        self.checkpoints, self.writing, self.gathered = checkpoints, Background(), None
        self.rank, self.is_first, self.cores = 0, True, None
        self.train_drawer = self.data_parallel = self.short_drawer = None
        self.num_short_steps, self.taken = 0, 0
        self.milestones = SimpleNamespace(is_due=lambda step: False)
        self.non_finite, self.skipped = NonFinite(), skipped
        self.interruption = Wish()
        self.peers = SimpleNamespace(arrive=lambda step: setattr(self.interruption, "requested", step == stop_at))
        self._start_or_resume()

    def train(self) -> dict[str, float]:
        return self._train(self.interruption, None)

    def _new_model(self) -> Any:
        return SimpleNamespace(
            loss_weights={"mlm": 1.0},
            phases=lambda num_steps: STAGES,
            initialize=lambda std, seed: None,
            counts=lambda batch: {"mlm": torch.tensor(1.0)},
            part_of=None,
        )

    def _build_engine(self, model: Any, phase: int) -> None:
        self.model, self.phase = model, phase
        self.engine = SimpleNamespace(device=torch.device("cpu"), step=lambda: None)

    def _enter_phase(self, phase: int) -> None:
        self._build_engine(self.model, phase)

    def _backward(self, batch: Any, counts: torch.Tensor) -> torch.Tensor:
        self.taken += 1
        return torch.tensor([float(self.taken)])

    def _take_skipped(self) -> int:
        return int(self.first_step + self.taken in self.skipped)

    def _validate(self, step: int) -> dict[str, float]:
        self.curve.add_validation(step, ON_PLATEAU)
        return dict(ON_PLATEAU)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, float]]:
    """What the optimizer is told: its step and its rate."""
    told: list[tuple[int, float]] = []
    batch = SimpleNamespace(to=lambda device: None)
    replaced: dict[str, Callable[..., Any]] = {
        "training_steps": lambda drawer, share, first, num_steps, **_: ([batch] for _ in range(first, num_steps)),
        "set_step": lambda engine, step, rate: told.append((step, rate)),
        "gradient_norms": lambda engine, part_of: {},
        "exchange_device": lambda machine: torch.device("cpu"),
        "share_state": lambda saved, device: saved,
        "gather_state": lambda engine, **_: ({"w": torch.ones(3)}, {"exp_avg.w": torch.zeros(3)}),
        "scatter_state": lambda *_: None,
        "load_weights": lambda *_: None,
        "start_from": lambda *_: None,
    }
    for name, function in replaced.items():
        monkeypatch.setattr(run, name, function)
    monkeypatch.setattr(torch.distributed, "barrier", lambda: None)
    return told


def interrupted(folder: Path, **how: Any) -> Checkpoints:
    checkpoints = Checkpoints(folder, keep=2)
    loop = Loop(checkpoints, stop_at=9, **how)
    with pytest.raises(InfrastructureError, match="interrupted after step 10; a checkpoint is saved"):
        loop.train()
    return checkpoints


def test_every_stage_counts_its_steps_and_warms_up_anew(told: list[tuple[int, float]], tmp_path: Path) -> None:
    loop = Loop(Checkpoints(tmp_path, keep=2))
    loop.train()
    assert [step for step, _ in told] == [*range(12), *range(8)]
    assert [rate for _, rate in told] == [rate_of(s, loop.recipe, STAGES[s >= 12]) for s in range(20)]
    assert told[12][1] == 0 < told[11][1]


@pytest.mark.parametrize("skipped", [(), (10,)])
@pytest.mark.usefixtures("told")
def test_a_run_that_is_told_to_end_saves_first(tmp_path: Path, skipped: tuple[int, ...]) -> None:
    """Whenever the last checkpoint was, and even after a step that was skipped."""
    checkpoints = interrupted(tmp_path, skipped=skipped)
    assert [path.name for path in checkpoints.folder.glob("step_*")] == ["step_000000010"]


def test_a_resumed_run_knows_its_alarms_skips_and_curve(told: list[tuple[int, float]], tmp_path: Path) -> None:
    checkpoints = interrupted(tmp_path, skipped=(3,))
    resumed = Loop(checkpoints)
    assert resumed.first_step == 10
    assert resumed.alarms.since == {"majority_class_plateau": 4}, "patience is not given anew"
    assert resumed.non_finite.num_skipped == 1
    assert set(resumed.curve.rows) == set(range(1, 11)) and resumed.curve.rows[8]["disc_auc"] == 0.5
    told.clear()
    resumed.train()
    assert [step for step, _ in told] == [10, 11, *range(8)]


@pytest.mark.usefixtures("told")
def test_a_run_on_taken_cores_says_so_at_its_step(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    loop, warnings = Loop(Checkpoints(tmp_path, keep=2)), iter([None, "WARNING other processes use the cores"])
    loop.cores = SimpleNamespace(warning=lambda: next(warnings, None))
    loop.train()
    assert capsys.readouterr().out == "step 2  WARNING other processes use the cores\n"


def test_every_signal_that_announces_an_end_is_a_wish_to_stop() -> None:
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
