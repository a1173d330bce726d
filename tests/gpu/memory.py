"""Allocated and predicted memory of steps on the pretended device: ``python -m tests.gpu.memory REPORT.json RANKS``.

Reads cases from standard input as JSON: lists of [profile, micro-batch, length, ZeRO stage, activation checkpointing,
micro-batches a step], then what is offloaded, or "compiled". The engine is the one of a run; batches are placeholders,
and other ranks are not there.
"""

import gc
import json
import os
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import yaml

from electra.cluster.estimate.memory import placeholder_batch, predict_step_memory, recompute_layers
from electra.cluster.hardware import Machine
from electra.config import Model, Pretrain
from electra.objectives.base import build_objective, objective_class
from electra.pretrain.engine import build_engine, set_step, start_distributed
from tests.gpu.probe import ignore_read_values, join_fake_group
from tests.workspace import ROOT

VOCABULARY = 30_522


def measure(case: list[Any], ranks: int) -> dict[str, float]:
    """Peak of two steps in bytes, as allocated and as predicted."""
    profile, micro_batch, length, stage, recompute, accumulation, *more = case
    is_compiled, offload = "compiled" in more, [what for what in more if what != "compiled"]
    written = yaml.safe_load((ROOT / "params" / f"{profile}.yaml").read_text())
    shape = Model(**written["model"])
    batch_size = micro_batch * accumulation * ranks
    recipe = Pretrain(**{**written["pretrain"], "batch_size": batch_size, "length_curriculum": None})
    machine = Machine(
        "cuda", ranks, "bf16", stage, micro_batch, 1,
        compile="model" if is_compiled else "off", offload=offload[0] if offload else "none",
    )  # fmt: skip
    predicted = predict_step_memory(shape, recipe, machine, length, VOCABULARY, recompute=recompute).peak

    torch._C._cuda_clearCublasWorkspaces()  # every case is to take its own
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    model = build_objective(shape, VOCABULARY, 0, recipe)
    if recompute:
        recompute_layers(model)
    if is_compiled:
        model.forward = torch.compile(model.forward, dynamic=False, fullgraph=True)  # type: ignore[method-assign]
    engine, _ = build_engine(model, recipe, machine)
    batch = placeholder_batch(recipe, micro_batch, length)
    for name in ("random_BK", "candidate_BT"):  # as the loader does
        if name not in objective_class(recipe.objective).batch_fields:
            setattr(batch, name, None)
    batch.ends_N = torch.arange(0, (micro_batch + 1) * length, length, dtype=torch.int32)
    for step in range(2):
        set_step(engine, step, 1e-4)
        for _ in range(accumulation):
            outputs = engine(batch.to(engine.device))
            engine.backward(sum(weight * outputs.loss_sums[term] for term, weight in model.loss_weights.items()))
            del outputs
            engine.step()
    peak = torch.cuda.max_memory_allocated() - before
    engine.destroy()
    return {"allocated": peak, "predicted": predicted}


def main() -> None:
    report, ranks = Path(sys.argv[1]), int(sys.argv[2])
    machine = Machine("cuda", ranks, "bf16", 0, 1, 1)
    if ranks > 1:
        join_fake_group(ranks)
    else:
        start_distributed(machine, timedelta(minutes=5))
    ignore_read_values()
    found = []
    for case in json.load(sys.stdin):
        found.append({"case": case, **measure(case, ranks)})
        gc.collect()
        torch.cuda.empty_cache()
        print(json.dumps(found[-1]), flush=True)
    report.write_text(json.dumps(found))
    os._exit(0)  # NCCL's shutdown waits for ranks that are not there


if __name__ == "__main__":
    main()
