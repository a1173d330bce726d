"""Peak memory of a pre-training step: as ``electra estimate`` predicts it, and as a process of its own really takes it.

    python -m benchmarks.memory [--only small] [--json results.json]

Measured on a CPU is the highest resident set (VmHWM) of a fresh process over three steps of the real engine, less its
resident set after all imports and a step of a toy; on CUDA ``torch.cuda.max_memory_allocated``.
"""

import argparse
import json
import subprocess
import sys
from dataclasses import asdict, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch

from electra.config import Model, Pretrain
from electra.system.hardware import Machine, num_cores

PAPER: dict[str, Any] = {"max_positions": 512, "dropout": 0.1, "attention_dropout": 0.1}
SHAPES: dict[str, tuple[dict[str, Any], int]] = {  # the model, and its vocabulary
    "smoke": (
        {
            "num_layers": 2,
            "hidden_size": 128,
            "num_heads": 4,
            "intermediate_size": 512,
            "embedding_size": 128,
            "generator_depth": 0.5,
            "dropout": 0.0,
            "attention_dropout": 0.0,
        },
        4000,
    ),
    "small": (
        {"num_layers": 12, "hidden_size": 256, "num_heads": 4, "intermediate_size": 1024, "embedding_size": 128},
        30522,
    ),
    "large, 3 layers": (
        {"num_layers": 3, "hidden_size": 1024, "num_heads": 16, "intermediate_size": 4096, "embedding_size": 1024},
        30522,
    ),
}
CASES: list[dict[str, Any]] = [
    {"shape": "smoke", "batch": 32, "length": 32, "precision": "fp32"},
    {"shape": "smoke", "batch": 64, "length": 128, "precision": "fp32"},
    {"shape": "small", "batch": 8, "length": 128, "precision": "fp32"},
    {"shape": "small", "batch": 16, "length": 128, "precision": "fp32"},
    {"shape": "small", "batch": 32, "length": 128, "precision": "fp32"},
    {"shape": "small", "batch": 32, "length": 128, "precision": "fp32", "recompute": True},
    {"shape": "small", "batch": 32, "length": 128, "precision": "bf16"},
    {"shape": "small", "batch": 32, "length": 128, "precision": "bf16", "recompute": True},
    {"shape": "large, 3 layers", "batch": 4, "length": 512, "precision": "fp32"},
    {"shape": "large, 3 layers", "batch": 4, "length": 512, "precision": "fp32", "recompute": True},
    {"shape": "large, 3 layers", "batch": 4, "length": 512, "precision": "bf16"},
    {"shape": "large, 3 layers", "batch": 4, "length": 512, "precision": "bf16", "recompute": True},
    {"shape": "small", "batch": 2, "length": 128, "precision": "fp32", "zero_stage": 1},
    {"shape": "small", "batch": 2, "length": 128, "precision": "fp32", "zero_stage": 2},
    {"shape": "small", "batch": 2, "length": 128, "precision": "fp32", "zero_stage": 3},
]


def setting(case: dict[str, Any]) -> tuple[Model, Pretrain, Machine, int]:
    """Model, recipe, machine and vocabulary of a case."""
    shape, vocab_size = SHAPES[case["shape"]]
    recipe = Pretrain(
        num_steps=10, batch_size=case["batch"], learning_rate=1e-4, warmup_steps=1, eval_every=10, eval_examples=1
    )
    device = "cuda" if torch.cuda.is_available() else "cpu"
    machine = Machine(device, 1, case["precision"], case.get("zero_stage", 0), case["batch"], num_cores())
    return Model(**{**PAPER, **shape}), recipe, machine, vocab_size


def predicted(case: dict[str, Any]) -> int:
    from electra.estimate.memory import predict_step_memory

    model, recipe, machine, vocab_size = setting(case)
    recompute = case.get("recompute", False)
    return predict_step_memory(model, recipe, machine, case["length"], vocab_size, recompute=recompute).resident


def measured(case: dict[str, Any]) -> int:
    """In a process of its own."""
    command = [sys.executable, "-m", "benchmarks.memory", "--measure", json.dumps(case)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    return int(done.stdout.split()[-1])


def measure_here(case: dict[str, Any]) -> int:
    """Bytes that three steps of the real engine take at most, above what the process took before."""
    toy = {"shape": "smoke", "batch": 2, "length": 8, "precision": case["precision"]}
    model, recipe, machine, vocab_size = setting(toy)
    machine = replace(machine, zero_stage=case.get("zero_stage", 0))
    train(model, recipe, machine, 8, 100, recompute=False)
    if machine.device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
    else:
        before = resident("VmRSS")
    model, recipe, machine, vocab_size = setting(case)
    train(model, recipe, machine, case["length"], vocab_size, recompute=case.get("recompute", False))
    return (torch.cuda.max_memory_allocated() if machine.device == "cuda" else resident("VmHWM")) - before


def train(
    shape: Model, recipe: Pretrain, machine: Machine, length: int, vocab_size: int, *, recompute: bool, steps: int = 3
) -> None:
    """Steps of the engine on examples of nothing."""
    from electra.estimate.memory import placeholder_batch, recompute_layers
    from electra.model.objective import build_objective
    from electra.pretrain.engine import build_engine, set_step, start_distributed
    from electra.system.memory import keep_freed_memory

    torch.set_num_threads(machine.num_threads)
    keep_freed_memory()  # as `electra pretrain` does
    start_distributed(machine, timedelta(minutes=5))
    model = build_objective(shape, vocab_size, 0, recipe).initialize(0.02, seed=1)
    if recompute:
        recompute_layers(model)
    engine, _ = build_engine(model, recipe, machine)
    batch = placeholder_batch(recipe, machine.micro_batch_size, length).to(engine.device)
    for step in range(steps):
        set_step(engine, step, 1e-4)
        losses = engine(batch).loss_sums
        engine.backward(torch.stack([weight * losses[term] for term, weight in model.loss_weights.items()]).sum())
        engine.step()
    engine.destroy()


def resident(kind: str) -> int:
    """VmRSS: resident bytes now; VmHWM: at most so far."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(next(line.split()[1] for line in status.splitlines() if line.startswith(f"{kind}:")))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="cases whose shape begins so")
    parser.add_argument("--json", type=Path, help="also write the results here")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        print(measure_here(json.loads(arguments.measure)))
        return
    rows = []
    print(f"{'case':<64}{'predicted MB':>14}{'measured MB':>13}{'ratio':>7}")
    for case in (case for case in CASES if case["shape"].startswith(arguments.only)):
        row = {**case, "predicted": predicted(case), "measured": measured(case)}
        rows.append(row)
        name = ", ".join(f"{key} {value}" for key, value in case.items())
        ratio = row["predicted"] / row["measured"]
        print(f"{name:<64}{row['predicted'] / 1e6:>14,.1f}{row['measured'] / 1e6:>13,.1f}{ratio:>7.2f}", flush=True)
    if arguments.json:
        machine = asdict(setting(CASES[0])[2])
        arguments.json.write_text(json.dumps({"torch": torch.__version__, "machine": machine, "rows": rows}, indent=2))


if __name__ == "__main__":
    main()
