"""Measurements of the acceptance run: every part starts the project's commands and returns figures.

benchmarks/accept_gpu.py turns figures into verdicts. This process never uses a device: all work runs in child processes
whose output goes to files, and which are killed when the part's time is over. On a CPU they are forked from this
process to save the imports; CUDA does not allow that.
"""

import argparse
import json
import math
import re
import shutil
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import accept_step, measure, pretrain_step, scaling
from benchmarks.workspace import (
    ROOT,
    Blow,
    Broken,
    Child,
    Curve,
    OutOfTime,
    Processes,
    bundled_text,
    electra,
    first_failure,
    places,
    pretrain,
    read_curve,
    write_workspace,
)
from electra.cluster.hardware import num_cores
from electra.common.paths import Paths

Figures = dict[str, Any]
TASKS = ("answers", "SQuAD1.1")
_LABELLED = {
    "source": {"kind": "files", "squad": str(ROOT / "data/labelled/squad")},
    "own": [str(ROOT / "data/labelled/answers.yaml")],
}
REFERENCE = "CPU"
DEFAULT = "ZeRO 0, bf16, compiled"
SAMPLED = ", electra"  # end of the names of ELECTRA's curves, whose generator samples tokens; the others are MLM's
NOT_RUN = "not run, the time was over"


class NotPossible(Exception):
    """Raised by a part that this machine cannot run."""


@dataclass(frozen=True)
class Size:
    """Amount of work in all parts.

    Attributes:
        sections: changes to the profile ``books``, from which the workspace is made.
        resumed: ZeRO stages whose runs are interrupted and resumed.
        steps: profile, tokens per example, examples per step and layers (None: all) of each step that is timed.
        calls, per_call: repeats of each timing, and steps in each.
        bytes: sizes of the tensors in the all-reduce.
        silence_seconds: ``cluster.silence_seconds`` of the run that loses a process; five times as much on CUDA, where
            processes take long to start.
    """

    name: str
    sections: dict[str, dict[str, Any]]
    resumed: tuple[int, ...]
    steps: tuple[tuple[str, int, int, int | None], ...]
    calls: int
    per_call: int
    bytes: tuple[int, ...]
    silence_seconds: float


_NO_DROPOUT = {"dropout": 0.0, "attention_dropout": 0.0}  # CUDA and CPU draw other dropout masks
FULL = Size(
    "full",
    {
        "corpus": bundled_text(6000),
        "shards": {"max_length": 128},
        "model": _NO_DROPOUT,
        # at a rate of 2.5e-3, the profile's, rounding errors would grow (LIMITS in accept_gpu.py)
        "pretrain": {
            "num_steps": 200,
            "warmup_steps": 20,
            "learning_rate": 5e-4,
            "eval_every": 50,
            "eval_examples": 256,
        },
        "tasks": _LABELLED,
        "finetune": {
            "max_train_examples": 400,
            "task_epochs": {},
            "task_learning_rate": {},
            "task_max_train_examples": {},
        },
    },
    resumed=(0, 1, 2, 3),
    # in order of importance: the last ones are left out if time is short
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
    silence_seconds=4.0,
)
TINY = Size(
    "tiny",
    {
        "corpus": {**bundled_text(150), "held_out_fraction": 0.1},
        "tokenizer": {"vocab_size": 400},
        "model": {**_NO_DROPOUT, "hidden_size": 32, "num_heads": 2, "intermediate_size": 64, "embedding_size": 16},
        "pretrain": {"num_steps": 12, "warmup_steps": 2, "eval_every": 6, "eval_examples": 16, "batch_size": 8},
        "tasks": _LABELLED,
        "finetune": {
            "epochs": 1,
            "task_epochs": {},
            "task_learning_rate": {},
            "max_train_examples": 10,
            "task_max_train_examples": {},
        },
    },
    resumed=(0,),
    steps=(("small", 16, 1, 1),),
    calls=2,
    per_call=1,
    bytes=(2**12, 2**16),
    silence_seconds=2.0,
)


@dataclass
class Bench(Processes):
    """State shared by all parts: the device, its facts, workspaces, and runs that several parts need."""

    device: measure.Device = "cuda"
    size: Size = FULL
    facts: Figures = field(default_factory=dict)
    curves: dict[str, Curve] = field(default_factory=dict)
    steps: dict[str, Figures] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.how = "fork" if self.device == "cpu" else "spawn"

    @property
    def num_devices(self) -> int:
        """Number of processes with a separate device; 2 on a CPU."""
        return len(self.facts["devices"]) if self.device == "cuda" else 2

    @property
    def ranks(self) -> int:
        """Number of processes of a training run: a divisor of its batch, at most 8; one for tiny shapes on a CPU."""
        if self.device == "cpu" and self.size is TINY:
            return 1
        return 1 << (min(8, self.num_devices).bit_length() - 1)

    def workspace(self, name: str, objective: str = "bert", **cluster: Any) -> Paths:
        """Create a workspace with a copy of the prepared data, the method and the given cluster settings."""
        prepared = self.root / "prepared"
        if not prepared.is_dir():
            self._write(prepared)
            (child,) = self.wait([self.start(prepare, folder=prepared)])
            if child.code:
                raise Broken(f"the data could not be made, {child.why()}")
        folder = self.root / name
        if not folder.is_dir():
            shutil.copytree(prepared, folder)
        self._write(folder, objective, **cluster)
        return Paths(folder)

    def _write(self, folder: Path, objective: str = "bert", **cluster: Any) -> None:
        workers = {"num_workers": 1, "checkpoint_minutes": 1e-6, "grace_seconds": 20, "compile": "off"}
        if (cluster.get("device") or self.device) == "cpu":
            # on 16 cores that others used too, the 200 steps took over a minute; one thread takes 37 s for them
            workers |= {"precision": "fp32", "num_threads": 1 if self.size is TINY else min(4, num_cores())}
        sections = {**self.size.sections, "pretrain": {**self.size.sections["pretrain"], "objective": objective}}
        write_workspace(folder, "books", {"device": self.device, **workers, **cluster}, cells=TASKS, **sections)

    def train(self, paths: Paths, ranks: int, blow: Blow | None = None) -> list[Child]:
        """Run ``electra pretrain`` in ``ranks`` processes, as a launcher starts them, until they succeed or fail."""
        return self.wait([self.start(pretrain, blow, folder=paths.root, **place) for place in places(ranks)])

    def curve(self, name: str, ranks: int, **settings: Any) -> Curve:
        """Return the losses of an uninterrupted run by step; the same run is made only once.

        Raises:
            Broken: the run failed.
        """
        if name not in self.curves:
            paths = self.workspace(name, num_processes=ranks, **settings)
            children = self.train(paths, ranks)
            if any(child.code for child in children):
                raise Broken(first_failure(children).why())
            self.curves[name] = read_curve(paths)
        return self.curves[name]

    def reference(self, objective: str = "bert") -> Curve:
        """Return the losses of one process on the CPU, fp32, ZeRO 0."""
        name = REFERENCE + suffix_of(objective)
        return self.curve(name, 1, objective=objective, device="cpu", precision="fp32", zero_stage=0)

    def at_stage(self, stage: int, objective: str = "bert") -> Curve:
        """Return the losses on all devices in fp32 at a ZeRO stage."""
        name = f"ZeRO {stage}{suffix_of(objective)}"
        return self.curve(name, self.ranks, objective=objective, precision="fp32", zero_stage=stage)

    def by_default(self, objective: str = "bert") -> Curve:
        """Return the losses with CUDA's default settings on all devices."""
        name = DEFAULT + suffix_of(objective)
        return self.curve(name, self.ranks, objective=objective, precision="bf16", zero_stage=0, compile="auto")


def suffix_of(objective: str) -> str:
    """Return the end of the names of a method's curves."""
    return SAMPLED if objective == "electra" else ""


def prepare() -> None:
    """Run the text stages and prepare the tasks."""
    from electra.config.loading import load_settings
    from electra.readers.build import prepare_tasks
    from electra.text.corpus.build import build_corpus
    from electra.text.shards.build import build_shards
    from electra.text.tokenizer.build import build_tokenizer

    for stage in (build_corpus, build_tokenizer, build_shards, prepare_tasks):
        stage(load_settings(), Paths())


# ---- the parts


def preflight(bench: Bench) -> Figures:
    bench.facts = bench.call(measure.find_facts, bench.device)
    return bench.facts


def bandwidth(bench: Bench) -> Figures:
    if bench.num_devices < 2:
        raise NotPossible("there is one device")
    return bench.call(scaling.all_reduce, bench.device, bench.size.bytes, 10, ranks=bench.num_devices)


def links_table(found: Figures) -> str:
    rows = [
        [f"{row['bytes'] / 2**20:g}", f"{1e3 * row['seconds']:.3g}", f"{row['bus_bytes_per_second'] / 1e9:.3g}"]
        for row in found["rows"]
    ]
    return measure.table(["MiB", "ms", f"GB/s of each link, {found['ranks']} processes"], rows)


def zero(bench: Bench) -> Figures:
    """Return loss curves of the same steps on the CPU, at every ZeRO stage, and with CUDA's default settings.

    The method is MLM, which samples nothing; ELECTRA is trained on the CPU, at ZeRO 0 and with the defaults.
    """
    runs: dict[str, Callable[[], Curve]] = {REFERENCE: bench.reference}
    runs |= {f"ZeRO {stage}": partial(bench.at_stage, stage) for stage in range(4)}
    runs |= {
        REFERENCE + SAMPLED: partial(bench.reference, "electra"),
        f"ZeRO 0{SAMPLED}": partial(bench.at_stage, 0, "electra"),
    }
    if bench.device == "cuda":
        runs |= {DEFAULT + suffix_of(method): partial(bench.by_default, method) for method in ("bert", "electra")}
    curves: dict[str, Curve] = {}
    errors: dict[str, str] = {}
    for name, run in runs.items():
        try:
            curves[name] = run()
        except Broken as error:
            errors[name] = str(error)
        except OutOfTime:
            errors[name] = NOT_RUN
    return {"ranks": bench.ranks, "curves": curves, "errors": errors}


def resume(bench: Bench) -> Figures:
    """Kill a run, resume it, end it by SIGTERM, and resume it to its end."""
    found: Figures = {}
    for stage in bench.size.resumed:
        try:
            found[f"ZeRO {stage}"] = _interrupted(bench, stage)
        except Broken as error:
            found[f"ZeRO {stage}"] = {"error": f"the uninterrupted run failed, {error}"}
        except OutOfTime:
            found[f"ZeRO {stage}"] = {"error": NOT_RUN}
    return {"ranks": bench.ranks, "stages": found}


def _interrupted(bench: Bench, stage: int) -> Figures:
    third, expected = bench.size.sections["pretrain"]["num_steps"] // 3, bench.at_stage(stage)
    paths = bench.workspace(
        f"interrupted at ZeRO {stage}", num_processes=bench.ranks, zero_stage=stage, precision="fp32"
    )
    blows = (Blow(third, signal.SIGKILL), Blow(2 * third, signal.SIGTERM), None)
    runs = [bench.train(paths, bench.ranks, blow) for blow in blows]
    done = not any(child.code for child in runs[-1])
    return {
        "codes": [[child.code for child in run] for run in runs],
        "resumed_at": [_resumed_at(run) for run in runs],
        "last_words": "" if done else first_failure(runs[-1]).why(),
        "curves": [expected, read_curve(paths)] if done else [],
    }


def _resumed_at(run: Sequence[Child]) -> int:
    """Return the step from which a run was resumed; 0 if it started from the beginning."""
    told = re.search(r"^resuming \w+ at step (\d+)", run[0].output, re.MULTILINE)
    return int(told.group(1)) if told else 0


def speed(bench: Bench) -> Figures:
    return _timed(bench, with_peer=True)


def memory(bench: Bench) -> Figures:
    return _timed(bench, with_peer=False)


def memory_table(found: Figures) -> str:
    rows = [
        [name, f"{step['predicted_bytes'] / 1e9:.3g}", f"{step['measured_bytes'] / 1e9:.3g}"]
        for name, step in found["steps"].items()
        if "measured_bytes" in step
    ]
    return measure.table(["step", "predicted, GB", "measured, GB"], rows)


def _timed(bench: Bench, with_peer: bool) -> Figures:
    """Return each step's figures, and the names of steps for which no time was left.

    Raises:
        OutOfTime: no time was left for the first step.
    """
    for profile, length, batch_size, layers in bench.size.steps:
        name = f"{profile}, T={length}"
        if name in bench.steps:
            continue
        try:
            bench.steps[name] = _time_step(bench, profile, length, batch_size, layers, with_peer)
        except Broken as error:
            bench.steps[name] = {"error": str(error)}
        except OutOfTime:
            if not bench.steps:
                raise
            break
    wanted = [f"{profile}, T={length}" for profile, length, *_ in bench.size.steps]
    return {"steps": dict(bench.steps), "missing": [name for name in wanted if name not in bench.steps]}


def _time_step(
    bench: Bench, profile: str, length: int, batch_size: int, layers: int | None, with_peer: bool
) -> Figures:
    options = argparse.Namespace(
        shape=profile, length=length, batch_size=batch_size, layers=layers, device=bench.device, precision="auto"
    )
    plan = bench.call(accept_step.plan_step, pretrain_step.make_shape(options))
    options.batch_size = plan["batch_size"]
    shape = replace(pretrain_step.make_shape(options), steps=bench.size.per_call)
    file = bench.root / f"steps-{next(bench.number)}.json"
    try:
        found = accept_step.time_both(
            shape, file, bench.size.calls, bench.left, with_peer=with_peer, tiny=bench.size is TINY
        )
    except EOFError as error:
        raise Broken("the process of our step has died; its traceback is above") from error
    except TimeoutError as error:
        raise OutOfTime from error
    return plan | found


def cells(bench: Bench) -> Figures:
    """Fine-tune a classification and a span task on the device and on the CPU."""
    from electra.kinds.scores import score
    from electra.tasks.catalogue import find_spec
    from electra.tasks.matrix import read_lines, read_rows

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
    """Measure the seconds until the other processes end after one is killed, or stopped as on a machine that hangs."""
    if bench.num_devices < 2:
        raise NotPossible("it takes two devices: a process that is alone waits for nobody")
    ranks, seconds = max(2, bench.ranks), bench.size.silence_seconds * (1 if bench.device == "cpu" else 5)
    found: Figures = {"silence_seconds": seconds, "ranks": ranks}
    for how, number in (("killed", signal.SIGKILL), ("stopped", signal.SIGSTOP)):
        paths = bench.workspace(f"one {how}", num_processes=ranks, silence_seconds=seconds)
        note, last = bench.root / f"{how} at", ranks - 1
        blow = Blow(2, number, rank=last, note=note)
        children = [bench.start(pretrain, blow, folder=paths.root, **place) for place in places(ranks)]
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


def silence_table(found: Figures) -> str:
    rows = [[how, f"{found[how]['seconds']:.1f}", found[how]["last_words"]] for how in ("killed", "stopped")]
    return measure.table([f"one of {found['ranks']} is", "seconds until the others end", "they say"], rows)
