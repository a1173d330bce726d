"""Pre-train a workspace on the pretended device and report each step's kernel launches, copies and waits.

    python -m tests.gpu.probe WORKSPACE REPORT.json [--ranks 8] [--vocabulary 30522] [--steps 6]

With several ranks the others are pretended, too: PyTorch's "fake" process group answers at once for all of them.
"""

import argparse
import ctypes
import json
import os
import signal
import time
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
import yaml

LISTENER = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_long)
OWN = "/electra/"


class Enough(Exception):
    """Raised when the requested number of steps is done."""


class Device:
    """The preloaded library: what was launched, and who waited, since :meth:`take` was last called."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL(None)
        self.library.pretended_report.restype = ctypes.c_char_p
        self.told: Counter[str] = Counter()
        self._listener = LISTENER(self._hear)  # held: the library keeps its address alone
        self.library.pretended_listen(self._listener)

    def _hear(self, what: bytes, _: int) -> None:
        kind = what.decode()
        if kind.startswith(("wait", "pageable")):
            frames = [frame for frame in traceback.extract_stack() if OWN in frame.filename]
            self.told[f"{kind}, {frames[-1].filename.split(OWN)[-1]} {frames[-1].name}" if frames else kind] += 1

    def take(self) -> dict[str, Any]:
        """Return launches by kind, copies and waits by kind and place; reset the counts."""
        lines = self.library.pretended_report().decode().splitlines()
        launches = {name: int(count) for count, name in (line.split("\t") for line in lines)}
        told, self.told = dict(self.told), Counter()
        self.library.pretended_reset()
        return {
            "launches": sum(launches.values()),
            "by_name": launches,
            "waits": sum(count for name, count in told.items() if name.startswith("wait")),
            "pageable": sum(count for name, count in told.items() if name.startswith("pageable")),
            "told": told,
        }


def join_fake_group(ranks: int) -> None:
    """Be the first of ``ranks`` processes of which no other is there."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    import electra.pretrain.run as run
    from electra.cluster.peers import Peers

    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="1", RANK="0", WORLD_SIZE=str(ranks), LOCAL_RANK="0")
    torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=ranks)
    Peers.__enter__ = lambda self: self  # type: ignore[method-assign]  # nobody is there to be watched
    Peers.__exit__ = lambda *_: None  # type: ignore[method-assign]
    run.host_group = lambda *_: None


def change_cluster(workspace: Path, changes: dict[str, Any]) -> None:
    """Go on with other settings of the machine, as a user would after an interruption."""
    path = workspace / "params.yaml"
    settings = yaml.safe_load(path.read_text())
    settings["cluster"].update(changes)
    path.write_text(yaml.safe_dump(settings))


def count_reductions(found: Counter[str]) -> None:
    """Note in which type large tensors are summed over processes."""
    for name in ("all_reduce", "reduce", "reduce_scatter_tensor"):
        original = getattr(torch.distributed, name)

        def counted(tensor: torch.Tensor, *arguments: Any, original: Any = original, **more: Any) -> Any:
            if tensor.numel() > 100:
                found[str(tensor.dtype)] += 1
            return original(tensor, *arguments, **more)

        setattr(torch.distributed, name, counted)


def always_valid(judge: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """Run DeepSpeed's check of a norm, with its waits, and always return "valid"."""

    def judged(norm: Any) -> bool:
        judge(norm)
        return False

    return judged


def ignore_read_values() -> None:
    """Make DeepSpeed go on whatever values it reads from the device, where nothing is computed.

    The norm of the gradients counts as valid. ZeRO 3 formats its arguments, all parameters among them: the text of a
    tensor is made from a selection whose size is read from the device, and whatever lies there would be allocated.
    """
    from deepspeed.runtime.zero import stage3, stage_1_and_2

    for zero in (stage_1_and_2, stage3):
        zero.is_invalid_grad_norm = always_valid(zero.is_invalid_grad_norm)
    torch.Tensor.__repr__ = object.__repr__  # type: ignore[method-assign, assignment]


def with_vocabulary(shards: Any, size: int) -> Any:
    shards.vocab_size = size
    return shards


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workspace", type=Path)
    parser.add_argument("report", type=Path)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--vocabulary", type=int, help="entries of the word table, whatever the tokenizer has")
    parser.add_argument("--steps", type=int, help="end after so many, with nothing validated, drawn or written")
    parser.add_argument("--interrupt", type=int, help="SIGTERM before this step of the run, which then goes on")
    parser.add_argument("--then", type=json.loads, default={}, help="changes to cluster: before it goes on; null: not")
    options = parser.parse_args()
    device, reduced = Device(), Counter[str]()
    count_reductions(reduced)
    if options.ranks > 1:
        join_fake_group(options.ranks)
    os.chdir(options.workspace)

    import electra.pretrain.run as run
    from electra.common.errors import InfrastructureError
    from electra.common.paths import Paths
    from electra.config.loading import load_settings
    from electra.objectives.base import Objective
    from electra.pretrain import telemetry

    steps: list[dict[str, Any]] = []
    started: list[int] = []
    began = [0.0]

    def end_step() -> None:
        steps.append({"host_ms": 1000 * (time.thread_time() - began[0]), **device.take()})

    set_step = run.set_step

    def begin_step(engine: Any, step: int, rate: float) -> None:
        if began[0]:
            end_step()
        else:
            device.take()  # what the start took
        if len(steps) == options.steps:
            raise Enough
        started.append(step)
        if step == options.interrupt and started.count(step) == 1:
            os.kill(os.getpid(), signal.SIGTERM)
        set_step(engine, step, rate)
        began[0] = time.thread_time()

    run.set_step = begin_step
    telemetry.matrix_peak = lambda machine: 1e12
    # what a device that computes nothing says is finite, is what lay there before
    run.NonFinite.must_roll_back = lambda *_: False  # type: ignore[method-assign]
    ignore_read_values()
    if options.vocabulary:
        shards = run.Shards
        run.Shards = lambda *arguments: with_vocabulary(shards(*arguments), options.vocabulary)
    if options.steps:
        Objective.initialize = lambda self, *_: self  # type: ignore[method-assign]  # takes longer than the steps
    with suppress(Enough):
        try:
            run.pretrain(load_settings(options.workspace), Paths(options.workspace))
        except InfrastructureError as error:
            print(error)
            began[0] = 0.0
            if options.then is not None:
                change_cluster(options.workspace, options.then)
                run.pretrain(load_settings(options.workspace), Paths(options.workspace))
    from torch._dynamo.utils import counters

    report = {
        "steps": steps,
        "started": started,
        "memory": torch.cuda.max_memory_allocated(),
        "reduced": reduced,
        "graphs": counters["stats"]["unique_graphs"],
    }
    options.report.write_text(json.dumps(report))
    os._exit(0)  # NCCL's shutdown waits for ranks that are not there


if __name__ == "__main__":
    main()
