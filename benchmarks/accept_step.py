"""Timed step of the acceptance run on GPUs: batch that fits, rate beside the fairest peer, memory, idle share."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import torch

from benchmarks import measure
from benchmarks.memory import resident
from benchmarks.pretrain_step import (
    COMPILED,
    KEPT,
    MASKED,
    OURS,
    VOCAB_SIZE,
    Shape,
    flops_of,
    our_steps,
    peak,
    peer_steps,
)
from electra.common.artifacts import write_json


def plan_step(file: Path, shape: Shape) -> None:
    """Write the examples per step with which two sides fit into the device, and the memory predicted for one side."""
    from electra.cluster.estimate.memory import free_memory, predict_step_memory

    free = free_memory(shape.machine)
    while True:
        settings, machine = shape.settings, replace(shape.machine, micro_batch_size=shape.batch_size)
        recipe = settings.pretrain.model_copy(update={"batch_size": shape.batch_size})
        predicted = predict_step_memory(settings.model, recipe, machine, shape.length, VOCAB_SIZE)
        if predicted.peak <= 0.4 * free or shape.batch_size == 1:
            break
        shape = replace(shape, batch_size=shape.batch_size // 2)
    write_json(file, {"batch_size": shape.batch_size, "predicted_bytes": predicted.peak})


def watched_steps(shape: Shape, file: Path, calls: int, peak_seconds: float) -> measure.Side:
    """Return our step as a side; the call after ``calls`` others also measures memory, idle time and matrix peak."""
    on_cuda, before = shape.machine.device == "cuda", resident("VmRSS")
    steps, number = our_steps(shape), count(1)

    def side() -> float | None:
        call = next(number)
        if call <= calls:
            steps()
            if on_cuda and call == 1:  # leave out the compiler's autotuning
                torch.cuda.synchronize()
                torch.cuda.reset_peak_memory_stats()
            return None
        steps()
        found: dict[str, Any] = {
            "measured_bytes": torch.cuda.max_memory_allocated() if on_cuda else resident("VmHWM") - before,
            "idle_share": measure.idle_share(measure.device_spans(steps)) if on_cuda else None,
            "matrix_peak_flops": peak(shape, peak_seconds),
        }
        write_json(file, found)
        return None

    return side


def time_both(
    shape: Shape, file: Path, calls: int, left: Callable[[], float], *, with_peer: bool, tiny: bool = False
) -> dict[str, Any]:
    """Return the figures of our step and, with ``with_peer``, the peer's rates; each side has a separate process.

    The peer is the fairest one: masked positions only, our allocator, and compiled on CUDA. It is left out if its
    process dies, most likely because memory ran out.

    Args:
        file: file for the measurements of our process.
        left: returns the remaining seconds; raises if there are none.
        tiny: for trying the command: less time for the matrix peak.

    Raises:
        EOFError: the process of our step has died.
        TimeoutError: the time is over.
    """
    device = shape.machine.device
    how: Any = "fork" if device == "cpu" else None
    ours = measure.Apart(
        device, watched_steps, shape, file, calls + 1 if with_peer else 1, 0.1 if tiny else 0.5, start=how
    )
    sides, found = {OURS: ours}, {"batch_size": shape.batch_size, "layers": shape.settings.model.num_layers}
    try:
        if with_peer:
            kind = COMPILED if device == "cuda" else KEPT
            sides[MASKED + kind] = measure.Apart(device, peer_steps, shape, True, kind, start=how)
        with ThreadPoolExecutor(len(sides)) as together:  # each side's first call mostly compiles
            first = {name: together.submit(side, left()) for name, side in sides.items()}
        for name, call in first.items():
            if isinstance(call.exception(), EOFError) and name != OURS:
                found["peer"] = "its process has died: see above"
                sides.pop(name).end()
            else:
                call.result()
        if with_peer:
            timed: dict[str, measure.Side] = {name: partial(_within, side, left) for name, side in sides.items()}
            seconds = measure.interleave(timed, calls, warmups=0)
            tokens = shape.steps * shape.tokens
            found["tokens_per_second"] = {name: measure.rates(tokens, values) for name, values in seconds.items()}
            found["seconds_over_ours"] = measure.ratios(seconds, OURS)
        ours(left())
    finally:
        for side in sides.values():
            side.end()
    return found | json.loads(file.read_text()) | {"flops_per_token": flops_of(shape)}


def _within(side: measure.Apart, left: Callable[[], float]) -> float:
    return side(left())
