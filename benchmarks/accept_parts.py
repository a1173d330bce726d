"""The measuring half of the acceptance run: every part starts the project's own commands and returns figures.

benchmarks/accept_gpu.py judges them. This process never uses a device: whatever does has a process of its own, whose
output goes to a file, and which is killed when its part's time is over. On a CPU these processes are forked from this
one, which saves them the imports; CUDA forbids that.
"""

import argparse
import json
import math
import multiprocessing
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import count
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import torch

from benchmarks import measure, pretrain_step
from benchmarks.memory import resident
from benchmarks.workspace import write_workspace
from electra.common.artifacts import write_json
from electra.common.paths import Paths
from electra.system.processes import free_port

Figures = dict[str, Any]
Curve = dict[int, dict[str, float]]
TASKS = ("CoLA", "SQuAD1.1")
REFERENCE = "CPU"


class NotPossible(Exception):
    """A part that this machine has not got what it takes for."""


class OutOfTime(Exception):
    """A part's minutes are over."""


class Broken(Exception):
    """A command ended otherwise than it should."""


@dataclass(frozen=True)
class Size:
    """How much is run.

    Attributes:
        sections: changes to the profile ``smoke``, from which the workspace is made.
        resumed: ZeRO stages that are interrupted and go on.
        steps: profile, tokens per example, examples per step and layers (None: all) of each step that is timed.
        calls, per_call: repeats of each timing, and steps in each.
        bytes: of the tensors that are reduced.
        silence_seconds: ``cluster.silence_seconds`` of the run that loses a process.
    """

    name: str
    sections: dict[str, dict[str, Any]]
    resumed: tuple[int, ...]
    steps: tuple[tuple[str, int, int, int | None], ...]
    calls: int
    per_call: int
    bytes: tuple[int, ...]
    silence_seconds: float


_NO_DROPOUT = {"dropout": 0.0, "attention_dropout": 0.0}  # it draws other elements on CUDA than on a CPU
FULL = Size(
    "full",
    {
        "corpus": {"sources": [{"kind": "embedded", "num_documents": 6000}]},
        "shards": {"max_length": 128},
        "model": _NO_DROPOUT,
        "pretrain": {"num_steps": 200, "warmup_steps": 20, "eval_every": 50, "eval_examples": 256},
        "tasks": {"source": {"kind": "embedded", "train_examples": 400, "dev_examples": 200}},
    },
    resumed=(0, 1, 2, 3),
    # the order of their importance: the last ones are left out where time is short
    steps=(
        ("small", 128, 128, None),
        ("base", 128, 128, None),
        ("large", 128, 64, None),
        ("large", 512, 16, None),
        ("small", 512, 32, None),
        ("base", 512, 32, None),
    ),
    calls=5,
    per_call=20,
    bytes=(2**20, 2**25, 2**28, 2**30),
    silence_seconds=15.0,
)
TINY = Size(
    "tiny",
    {
        "corpus": {"sources": [{"kind": "embedded", "num_documents": 150}], "held_out_fraction": 0.1},
        "tokenizer": {"vocab_size": 400},
        "model": {**_NO_DROPOUT, "hidden_size": 32, "num_heads": 2, "intermediate_size": 64, "embedding_size": 16},
        "pretrain": {"num_steps": 12, "warmup_steps": 2, "eval_every": 6, "eval_examples": 16, "batch_size": 8},
        "tasks": {"source": {"kind": "embedded", "train_examples": 10, "dev_examples": 10}},
        "finetune": {"epochs": 1, "task_epochs": {}},
    },
    resumed=(0,),
    steps=(("small", 16, 1, 1),),
    calls=2,
    per_call=1,
    bytes=(2**12, 2**16),
    silence_seconds=1.0,
)


@dataclass
class Child:
    """A process, the file with its output, and when it ended."""

    process: Any
    log: Path
    ended_at: float = math.nan

    @property
    def code(self) -> int:
        return self.process.exitcode

    @property
    def output(self) -> str:
        return self.log.read_text(errors="replace")

    def why(self) -> str:
        """How it ended, in a line."""
        lines = [line.strip() for line in self.output.splitlines() if line.strip()]
        told = next((line for line in lines if line.startswith("error:")), lines[-1] if lines else "it said nothing")
        how = signal.Signals(-self.code).name if self.code < 0 else f"exit code {self.code}"
        return f"{how}: {told[:300]}"


@dataclass
class Bench:
    """What all parts share: the device, the workspace, the time that is left, and runs that several parts need."""

    device: measure.Device
    size: Size
    root: Path
    facts: Figures = field(default_factory=dict)
    deadline: float = math.inf
    _curves: dict[str, Curve] = field(default_factory=dict)
    _steps: dict[str, Figures] = field(default_factory=dict)
    _number: Any = field(default_factory=count)

    def left(self) -> float:
        """Seconds until the part's time is over.

        Raises:
            OutOfTime: there are none.
        """
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise OutOfTime
        return left

    @property
    def num_devices(self) -> int:
        """Processes that can have a device each; on a CPU two."""
        return len(self.facts["devices"]) if self.device == "cuda" else 2

    @property
    def ranks(self) -> int:
        """Processes of a training run: as many as divide its batch, 8 at most."""
        return 1 << (min(8, self.num_devices).bit_length() - 1)

    # ---- processes

    def start(self, target: Callable[..., None], *arguments: Any, folder: Path | None = None, **env: str) -> Child:
        """Begin a function of this file in a process of its own."""
        name = f"{next(self._number)}-{target.__name__}.log"
        log = self.root / "output" / name
        log.parent.mkdir(parents=True, exist_ok=True)
        log.touch()
        context = multiprocessing.get_context("fork" if self.device == "cpu" else "spawn")
        process = context.Process(target=_enter, args=(log, folder or self.root, env, target, arguments), daemon=True)
        process.start()
        return Child(process, log)

    def wait(self, children: Sequence[Child]) -> list[Child]:
        """Wait until all have ended; kill them when the time is over."""
        running = list(children)
        try:
            while running:
                ready = wait([child.process.sentinel for child in running], self.left())
                for child in [child for child in running if child.process.sentinel in ready]:
                    child.ended_at = time.time()
                    child.process.join()
                    running.remove(child)
        finally:
            for child in running:
                child.process.kill()
        return list(children)

    def call(self, target: Callable[..., None], *arguments: Any, ranks: int = 1) -> Figures:
        """What a function of this file, called with a file to write it to, has found.

        Raises:
            Broken: it failed.
        """
        file = self.root / f"found-{next(self._number)}.json"
        children = self.wait([self.start(target, file, *arguments, **place) for place in places(ranks)])
        if failed := next((child for child in children if child.code), None):
            raise Broken(failed.why())
        return json.loads(file.read_text())

    # ---- training runs

    def workspace(self, name: str, **cluster: Any) -> Paths:
        """A copy of the prepared data with settings of its own."""
        prepared = self.root / "prepared"
        if not prepared.is_dir():
            self._write(prepared)
            (child,) = self.wait([self.start(prepare, folder=prepared)])
            if child.code:
                raise Broken(f"the data could not be made, {child.why()}")
        folder = self.root / name
        if not folder.is_dir():
            shutil.copytree(prepared, folder)
        self._write(folder, **cluster)
        return Paths(folder)

    def _write(self, folder: Path, **cluster: Any) -> None:
        workers = {"num_workers": 1, "checkpoint_minutes": 1e-6, "grace_seconds": 20, "compile": "off"}
        if (cluster.get("device") or self.device) == "cpu":
            workers |= {"precision": "fp32"} | ({"num_threads": 1} if self.size is TINY else {})
        write_workspace(
            folder, "smoke", {"device": self.device, **workers, **cluster}, cells=TASKS, **self.size.sections
        )

    def train(self, paths: Paths, ranks: int, blow: "Blow | None" = None) -> list[Child]:
        """Run ``electra pretrain`` in so many processes, as a launcher starts them, to whatever end."""
        return self.wait([self.start(pretrain, blow, folder=paths.root, **place) for place in places(ranks)])

    def curve(self, name: str, ranks: int, **cluster: Any) -> Curve:
        """Losses of an uninterrupted run, by step; the run is made once.

        Raises:
            Broken: it failed.
        """
        if name not in self._curves:
            paths = self.workspace(name, num_processes=ranks, **cluster)
            children = self.train(paths, ranks)
            if failed := next((child for child in children if child.code), None):
                raise Broken(failed.why())
            self._curves[name] = read_curve(paths)
        return self._curves[name]

    def reference(self) -> Curve:
        """One process on the CPU, fp32, ZeRO 0."""
        return self.curve(REFERENCE, 1, device="cpu", precision="fp32", zero_stage=0)

    def at_stage(self, stage: int) -> Curve:
        """All devices, fp32."""
        return self.curve(f"ZeRO {stage}", self.ranks, precision="fp32", zero_stage=stage)


def places(ranks: int) -> list[dict[str, str]]:
    """Each process' place among several, in torchrun's variables; nothing for a lone one."""
    if ranks == 1:
        return [{}]
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    size = {"WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks)}
    return [{"RANK": str(rank), "LOCAL_RANK": str(rank), **size, **meeting} for rank in range(ranks)]


def read_curve(paths: Paths) -> Curve:
    """The losses of ``results/pretrain.tsv``, nats, by step."""
    header, *lines = (line.split("\t") for line in (paths.results / "pretrain.tsv").read_text().splitlines())
    rows = [dict(zip(header, line, strict=True)) for line in lines]
    return {
        int(row["step"]): {name: float(value) for name, value in row.items() if name.endswith("_loss") and value}
        for row in rows
    }


# ---- what runs in processes of its own


def _enter(log: Path, folder: Path, env: dict[str, str], target: Callable[..., None], arguments: Sequence[Any]) -> None:
    with open(log, "ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    os.environ.update(env)
    os.chdir(folder)
    target(*arguments)


def prepare() -> None:
    """The text stages and the tasks."""
    from electra.config.loading import load_settings
    from electra.corpus.build import build_corpus
    from electra.readers.build import prepare_tasks
    from electra.shards.build import build_shards
    from electra.tokenizer.build import build_tokenizer

    for stage in (build_corpus, build_tokenizer, build_shards, prepare_tasks):
        stage(load_settings(), Paths())


def electra(*arguments: str) -> None:
    """A command of the project, as its own entry point runs it."""
    from electra.__main__ import main

    sys.argv = ["electra", *arguments]
    main()


@dataclass(frozen=True)
class Blow:
    """A signal that a process sends itself before a step, once a checkpoint is written.

    Attributes:
        rank: which process does; None: all.
        note: a file that gets the time of it.
    """

    step: int
    number: int
    rank: int | None = None
    note: Path | None = None


def pretrain(blow: Blow | None = None) -> None:
    """``electra pretrain``, or one of its processes."""
    from electra.pretrain import run

    set_step = run.set_step

    def then(engine: Any, step: int, rate: float) -> None:
        if blow and step == blow.step and blow.rank in (None, int(os.environ.get("RANK", "0"))):
            deadline = time.monotonic() + 60
            while not list(Path("checkpoints").glob("*/latest")) and time.monotonic() < deadline:
                time.sleep(0.01)
            if blow.note:
                blow.note.write_text(str(time.time()))
            os.kill(os.getpid(), blow.number)
        set_step(engine, step, rate)

    run.set_step = then
    electra("pretrain")


def find_facts(file: Path, device: measure.Device) -> None:
    """Machine, versions and, of each device, name, capability and memory."""
    from electra.system.hardware import compiler_trouble, describe_cuda

    facts: Figures = {"machine": measure.machine(device), "devices": [], "compiler": compiler_trouble()}
    if device == "cuda":
        for number in range(torch.cuda.device_count()):
            properties = torch.cuda.get_device_properties(number)
            free, total = torch.cuda.mem_get_info(number)
            capability = f"{properties.major}.{properties.minor}"
            facts["devices"].append(
                {"name": properties.name, "capability": capability, "free_bytes": free, "total_bytes": total}
            )
        facts["software"] = describe_cuda().removeprefix("; ")
    write_json(file, facts)


def all_reduce(file: Path, device: measure.Device, sizes: Sequence[int], repeats: int) -> None:
    """Seconds of an all-reduce by size, of one of several processes, and whether the sum is right."""
    from torch import distributed

    rank = int(os.environ["RANK"])
    if device == "cuda":
        torch.cuda.set_device(rank)
    distributed.init_process_group("nccl" if device == "cuda" else "gloo", timeout=timedelta(seconds=120))
    ranks, rows = distributed.get_world_size(), []
    is_right = True
    for size in sizes:
        values = torch.full((size // 4,), float(rank + 1), device=device)
        distributed.all_reduce(values)
        is_right = is_right and bool((values == ranks * (ranks + 1) / 2).all())
        begin = measure.clock(device)
        for _ in range(repeats):
            distributed.all_reduce(values)
        seconds = (measure.clock(device) - begin) / repeats
        rows.append({"bytes": size, "seconds": seconds, "bus_bytes_per_second": bus_rate(size, ranks, seconds)})
    if rank == 0:
        write_json(file, {"ranks": ranks, "sum_is_right": is_right, "rows": rows})
    distributed.barrier()
    distributed.destroy_process_group()


def bus_rate(size: int, ranks: int, seconds: float) -> float:
    """Bytes a second that each link carries: nccl-tests' "bus bandwidth" of an all-reduce."""
    return size * 2 * (ranks - 1) / ranks / seconds


def plan_step(file: Path, shape: pretrain_step.Shape) -> None:
    """Examples per step of which two sides fit into the device, and the memory predicted for one."""
    from electra.estimate.memory import free_memory, predict_step_memory

    free = free_memory(shape.machine)
    while True:
        settings, machine = shape.settings, replace(shape.machine, micro_batch_size=shape.batch_size)
        recipe = settings.pretrain.model_copy(update={"batch_size": shape.batch_size})
        predicted = predict_step_memory(settings.model, recipe, machine, shape.length, pretrain_step.VOCAB_SIZE)
        if predicted.peak <= 0.4 * free or shape.batch_size == 1:
            break
        shape = replace(shape, batch_size=shape.batch_size // 2)
    write_json(file, {"batch_size": shape.batch_size, "predicted_bytes": predicted.peak})


def watched_steps(shape: pretrain_step.Shape, file: Path, calls: int, peak_seconds: float) -> measure.Side:
    """Our steps; the call after so many also looks at memory, the device's idle time and the matrix peak."""
    before = resident("VmRSS")
    steps, number = pretrain_step.our_steps(shape), count(1)

    def side() -> float | None:
        if next(number) <= calls:
            return steps()
        on_cuda = shape.machine.device == "cuda"
        found: Figures = {
            "measured_bytes": torch.cuda.max_memory_allocated() if on_cuda else resident("VmHWM") - before,
            "idle_share": idle_share(device_spans(steps)) if on_cuda else None,
            "matrix_peak_flops": pretrain_step.peak(shape, peak_seconds),
        }
        write_json(file, found)
        return None

    return side


def device_spans(steps: Callable[[], Any]) -> list[tuple[float, float]]:
    """Begin and end of everything that the device did meanwhile, by PyTorch's profiler."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as found:
        steps()
        torch.cuda.synchronize()
    on_device = (event for event in found.events() if event.device_type == torch.autograd.DeviceType.CUDA)
    return [(event.time_range.start, event.time_range.end) for event in on_device]


def idle_share(spans: Iterable[tuple[float, float]]) -> float | None:
    """Share of the time, from the first to the last, in which nothing ran; None where nothing is known."""
    begin = reached = None
    busy = 0.0
    for start, end in sorted(spans):
        begin, reached = (start, start) if begin is None or reached is None else (begin, reached)
        busy += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return None if begin is None or reached is None or reached <= begin else 1 - busy / (reached - begin)


# ---- the parts


def preflight(bench: Bench) -> Figures:
    bench.facts = bench.call(find_facts, bench.device)
    return bench.facts


def bandwidth(bench: Bench) -> Figures:
    if bench.num_devices < 2:
        raise NotPossible("there is one device")
    return bench.call(all_reduce, bench.device, bench.size.bytes, 10, ranks=bench.num_devices)


def zero(bench: Bench) -> Figures:
    """Curves of the same steps: on the CPU, at every ZeRO stage, and on CUDA in bf16, too."""
    runs: dict[str, Callable[[], Curve]] = {REFERENCE: bench.reference}
    runs |= {f"ZeRO {stage}": lambda stage=stage: bench.at_stage(stage) for stage in range(4)}  # type: ignore[misc]
    if bench.device == "cuda":
        runs["ZeRO 0, bf16"] = lambda: bench.curve("ZeRO 0, bf16", bench.ranks, precision="bf16", zero_stage=0)
    curves: dict[str, Curve] = {}
    errors: dict[str, str] = {}
    for name, run in runs.items():
        try:
            curves[name] = run()
        except Broken as error:
            errors[name] = str(error)
    return {"ranks": bench.ranks, "curves": curves, "errors": errors}


def resume(bench: Bench) -> Figures:
    """A run that is killed, goes on, is told to end, and goes on to its end."""
    found: Figures = {}
    third = bench.size.sections["pretrain"]["num_steps"] // 3
    for stage in bench.size.resumed:
        try:
            expected = bench.at_stage(stage)
        except Broken as error:
            found[f"ZeRO {stage}"] = {"error": f"the uninterrupted run failed, {error}"}
            continue
        paths = bench.workspace(
            f"interrupted at ZeRO {stage}", num_processes=bench.ranks, zero_stage=stage, precision="fp32"
        )
        runs = [
            bench.train(paths, bench.ranks, blow)
            for blow in (Blow(third, signal.SIGKILL), Blow(2 * third, signal.SIGTERM), None)
        ]
        done = not any(child.code for child in runs[-1])
        found[f"ZeRO {stage}"] = {
            "codes": [[child.code for child in run] for run in runs],
            "resumed_at": [_resumed_at(run) for run in runs],
            "last_words": "" if done else runs[-1][0].why(),
            "curves": [expected, read_curve(paths)] if done else [],
        }
    return {"ranks": bench.ranks, "stages": found}


def _resumed_at(run: Sequence[Child]) -> int:
    """The step that a run went on from; 0: it began."""
    words = run[0].output.partition(" at step ")
    return int(words[2].split(":")[0]) if "resuming" in words[0] else 0


def speed(bench: Bench) -> Figures:
    return _timed(bench, with_peer=True)


def memory(bench: Bench) -> Figures:
    return _timed(bench, with_peer=False)


def _timed(bench: Bench, with_peer: bool) -> Figures:
    """Each step's figures; those that no time is left for are missing, and named.

    Raises:
        OutOfTime: before the first is there.
    """
    for profile, length, batch_size, layers in bench.size.steps:
        name = f"{profile}, T={length}"
        if name in bench._steps:
            continue
        try:
            bench._steps[name] = _time_step(bench, profile, length, batch_size, layers, with_peer)
        except Broken as error:
            bench._steps[name] = {"error": str(error)}
        except OutOfTime:
            if not bench._steps:
                raise
            break
    wanted = [f"{profile}, T={length}" for profile, length, *_ in bench.size.steps]
    return {"steps": bench._steps, "missing": [name for name in wanted if name not in bench._steps]}


def _time_step(
    bench: Bench, profile: str, length: int, batch_size: int, layers: int | None, with_peer: bool
) -> Figures:
    options = argparse.Namespace(
        shape=profile, length=length, batch_size=batch_size, layers=layers, device=bench.device, precision="auto"
    )
    plan = bench.call(plan_step, pretrain_step.make_shape(options))
    options.batch_size = plan["batch_size"]
    shape = replace(pretrain_step.make_shape(options), steps=bench.size.per_call)
    file, calls = bench.root / f"steps-{next(bench._number)}.json", bench.size.calls
    start: Any = "fork" if bench.device == "cpu" else "spawn"
    peak_seconds = 0.1 if bench.size is TINY else 0.5
    ours = measure.Apart(
        bench.device, watched_steps, shape, file, calls + 1 if with_peer else 1, peak_seconds, start=start
    )
    sides = {pretrain_step.OURS: ours}
    found: Figures = {"batch_size": shape.batch_size, "layers": shape.settings.model.num_layers, **plan}
    try:
        if with_peer:
            kind = pretrain_step.COMPILED if bench.device == "cuda" else pretrain_step.KEPT
            peer = measure.Apart(bench.device, pretrain_step.peer_steps, shape, True, kind, start=start)
            sides[pretrain_step.MASKED + kind] = peer
        _warm_up(bench, sides, found)
        if with_peer:
            timed = {name: lambda side=side: side(bench.left()) for name, side in sides.items()}
            seconds = measure.interleave(timed, calls, warmups=0)
            tokens = shape.steps * shape.tokens
            found["tokens_per_second"] = {name: measure.rates(tokens, values) for name, values in seconds.items()}
            found["seconds_over_ours"] = measure.ratios(seconds, pretrain_step.OURS)
        ours(bench.left())
    except EOFError as error:
        raise Broken("the process of our step has died; its traceback is above") from error
    except TimeoutError as error:
        raise OutOfTime from error
    finally:
        for side in sides.values():
            side.end()
    return found | json.loads(file.read_text()) | {"flops_per_token": pretrain_step.flops_of(shape)}


def _warm_up(bench: Bench, sides: dict[str, measure.Apart], found: Figures) -> None:
    """The first call of each side, all at once, since most of it is compiling; a peer that dies is left out.

    Raises:
        EOFError: our own side has died.
        TimeoutError: the time is over.
    """
    with ThreadPoolExecutor(len(sides)) as together:
        calls = {name: together.submit(side, bench.left()) for name, side in sides.items()}
    for name, call in calls.items():
        if isinstance(call.exception(), EOFError) and name != pretrain_step.OURS:
            found["peer"] = "the peer's process has died (its traceback is above), most likely of memory"
            sides.pop(name).end()
        else:
            call.result()


def cells(bench: Bench) -> Figures:
    """A classification and a span task, fine-tuned on the device and on the CPU."""
    from electra.evaluation.metrics import score
    from electra.tasks.catalogue import find_spec
    from electra.tasks.cells import read_lines, read_rows

    bench.reference()
    found: Figures = {}
    for where in dict.fromkeys([bench.device, "cpu"]):
        paths = bench.workspace(REFERENCE, device=where)
        for task in TASKS:
            (child,) = bench.wait([bench.start(electra, "finetune", "--task", task, "--seed", "1", folder=paths.root)])
            if child.code:
                found[f"{task}, {where}"] = {"error": child.why()}
                continue
            folder, spec = paths.finetuned(f"{task}-1"), find_spec(paths.tasks, task)
            lines = read_lines(folder / "predictions.jsonl", "")
            rows = read_rows(paths, task, "dev")
            predictions = [{k: v for k, v in line.items() if k != "split"} for line in lines if line["split"] == "dev"]
            scores = score(spec, rows, predictions) if len(predictions) == len(rows) else {}
            found[f"{task}, {where}"] = {
                "loss": json.loads((folder / "run.json").read_text())["loss"],
                "rows": len(rows),
                "predictions": len(predictions),
                "scores": scores,
                "seconds": child.output.strip().splitlines()[-1].partition(": ")[2],
            }
    return found


def silence(bench: Bench) -> Figures:
    """Seconds until the other processes end when one is killed, or stopped as one whose machine hangs."""
    if bench.num_devices < 2:
        raise NotPossible("it takes two devices: a process that is alone waits for nobody")
    found: Figures = {"silence_seconds": bench.size.silence_seconds, "ranks": bench.ranks}
    for how, number in (("killed", signal.SIGKILL), ("stopped", signal.SIGSTOP)):
        paths = bench.workspace(f"one {how}", num_processes=bench.ranks, silence_seconds=bench.size.silence_seconds)
        note, last = bench.root / f"{how} at", bench.ranks - 1
        blow = Blow(3, number, rank=last, note=note)
        children = [bench.start(pretrain, blow, folder=paths.root, **place) for place in places(bench.ranks)]
        try:
            others = bench.wait(children[:-1])
        finally:
            children[-1].process.kill()
        began = float(note.read_text()) if note.exists() else math.nan
        found[how] = {
            "rank": last,
            "seconds": round(max(child.ended_at for child in others) - began, 2),
            "codes": [child.code for child in others],
            "are_told_whom": any(f"process {last}" in child.output for child in others),
            "last_words": others[0].why(),
        }
    return found
