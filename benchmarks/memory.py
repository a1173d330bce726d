"""Peak memory of a pre-training step: predicted by ``electra estimate``, and measured in a separate process.

    python -m benchmarks.memory [--only small] [--json results.json]
    python -m benchmarks.memory --runs [--micro-batches 2 32] [--stages 0 3] [--processes 1 2] [--json results.json]

On a CPU the measurement is the highest resident set (VmHWM) of a new process over three steps of the real engine, less
its resident set after all imports and a step of a tiny model; on CUDA ``torch.cuda.max_memory_allocated``.

With ``--runs``: the highest resident set of a process of `electra pretrain` itself, from its start to the saved model,
over two steps of two micro-batches on a CPU. Cases that are in the file of ``--json`` are not run again; with
``--again`` nothing is run, and only the predictions of its rows are computed again.
"""

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from dataclasses import asdict, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch

from benchmarks.measure import machine as describe_machine
from benchmarks.workspace import ROOT, files_source, run_stage, write_workspace
from electra.cluster.hardware import Machine, num_cores
from electra.config import Model, Pretrain

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
    """Return model, recipe, machine and vocabulary size of a case."""
    shape, vocab_size = SHAPES[case["shape"]]
    recipe = Pretrain(
        num_steps=10, batch_size=case["batch"], learning_rate=1e-4, warmup_steps=1, eval_every=10, eval_examples=1
    )
    device = "cuda" if torch.cuda.is_available() else "cpu"
    machine = Machine(device, 1, case["precision"], case.get("zero_stage", 0), case["batch"], num_cores())
    return Model(**{**PAPER, **shape}), recipe, machine, vocab_size


def predicted(case: dict[str, Any]) -> int:
    from electra.cluster.estimate.memory import predict_step_memory

    model, recipe, machine, vocab_size = setting(case)
    recompute = case.get("recompute", False)
    return predict_step_memory(model, recipe, machine, case["length"], vocab_size, recompute=recompute).resident


def measured(case: dict[str, Any]) -> int:
    """Measure a case in a new process and return the bytes."""
    command = [sys.executable, "-m", "benchmarks.memory", "--measure", json.dumps(case)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    return int(done.stdout.split()[-1])


def measure_here(case: dict[str, Any]) -> int:
    """Return the peak bytes of three steps of the real engine, above the process' memory before."""
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
    """Run steps of the engine on placeholder examples."""
    from electra.cluster.estimate.memory import placeholder_batch, recompute_layers
    from electra.cluster.memory import keep_freed_memory
    from electra.objectives.base import build_objective
    from electra.pretrain.engine import build_engine, set_step, start_distributed

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
    """Return the resident bytes: now (``VmRSS``) or at most so far (``VmHWM``)."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(next(line.split()[1] for line in status.splitlines() if line.startswith(f"{kind}:")))


LENGTH, STEPS, ACCUMULATION = 128, 2, 2  # of the runs
CASE_KEYS = ("shape", "micro_batch", "zero_stage", "processes", "precision")


def write_runs_workspace(folder: Path, vocab_size: int) -> None:
    """Write long documents of invented words, and a vocabulary of this size in which each word is one wordpiece."""
    drawn = random.Random(1)
    letters = [*"abcdefghijklmnopqrstuvwxyz.,"]
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{letter}" for letter in letters)]
    words: dict[str, None] = {}
    while len(words) < vocab_size - len(pieces):
        words["".join(drawn.choice("bcdfglmnprstv") + drawn.choice("aeiou") for _ in range(drawn.randint(2, 5)))] = None
    (folder / "vocab.txt").write_text("\n".join([*pieces, *words]) + "\n")
    known = list(words)
    documents = ("".join(" ".join(drawn.choices(known, k=70)) + ".\n" for _ in range(12)) for _ in range(60))
    (folder / "text.txt").write_text("\n".join(documents))


def change_run(folder: Path, case: dict[str, Any]) -> tuple[Any, int]:
    """Write the settings of a case, and return them and the size of the vocabulary."""
    shape, vocab_size = SHAPES[case["shape"]]
    cluster = {
        "device": "cpu",
        "precision": case["precision"],
        "num_processes": case["processes"],
        "zero_stage": case["zero_stage"],
        "micro_batch_size": case["micro_batch"],
        "num_threads": 1,
    }
    settings, _ = write_workspace(
        folder,
        "books",
        cluster,
        corpus={"sources": [files_source(folder / "text.txt")], "held_out_fraction": 0.1},
        tokenizer={"vocab_file": str(folder / "vocab.txt"), "vocab_size": vocab_size},
        shards={"max_length": LENGTH},
        model=Model(**{**PAPER, **shape}).model_dump(),
        pretrain={
            "num_steps": STEPS,
            "batch_size": case["micro_batch"] * case["processes"] * ACCUMULATION,
            "warmup_steps": 1,
            "eval_every": 10**6,
            "eval_examples": 8,
        },
    )
    return settings, vocab_size


def predicted_run(folder: Path, case: dict[str, Any]) -> int:
    """Return the bytes that ``electra estimate`` predicts for a process of this run."""
    from electra.cluster.estimate.memory import predict_step_memory
    from electra.cluster.hardware import resolve_machine

    settings, vocab_size = change_run(folder, case)
    machine = resolve_machine(settings.cluster, settings.pretrain.batch_size)
    return predict_step_memory(settings.model, settings.pretrain, machine, LENGTH, vocab_size).process


def measured_run(folder: Path, case: dict[str, Any]) -> int:
    """Return the highest resident set of a process of ``electra pretrain``, the largest of several processes."""
    change_run(folder, case)
    shutil.rmtree(folder / "checkpoints", ignore_errors=True)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
    with open(folder / "pretrain.log", "w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "electra", "pretrain"], cwd=folder, env=environment, stdout=log, stderr=log
        )
        _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit((folder / "pretrain.log").read_text()[-2000:])
    return usage.ru_maxrss * 1024


def measure_runs(cases: list[dict[str, Any]], file: Path, again: bool) -> None:
    """Run the cases that are not in the file yet, predict all of its rows, and write it after each run."""
    old = json.loads(file.read_text()) if file.exists() else {}
    rows: list[dict[str, Any]] = old.get("rows", [])
    known = [{key: row[key] for key in CASE_KEYS} for row in rows]
    missing = [] if again else [case for case in cases if case not in known]
    print(f"{'run':<64}{'predicted MB':>14}{'measured MB':>13}{'ratio':>7}")
    for shape in dict.fromkeys(case["shape"] for case in [*known, *missing]):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            write_runs_workspace(folder, SHAPES[shape][1])
            for row in (row for row in rows if row["shape"] == shape):
                row["predicted"] = predicted_run(folder, row)
                _print_row({key: row[key] for key in CASE_KEYS}, row)
            todo = [case for case in missing if case["shape"] == shape]
            for command in ("corpus", "tokenizer", "shards") if todo else ():
                change_run(folder, todo[0])
                run_stage(folder, command)
            for case in todo:
                measured_bytes = measured_run(folder, case)
                rows.append({**case, "predicted": predicted_run(folder, case), "measured": measured_bytes})
                _print_row(case, rows[-1])
                about = {"length": LENGTH, "steps": STEPS, "micro_batches_per_step": ACCUMULATION, "threads": 1}
                found = {"machine": old.get("machine") or describe_machine(), "runs": about, "rows": rows}
                file.write_text(json.dumps(found, indent=2) + "\n")
    if again:
        file.write_text(json.dumps({**old, "rows": rows}, indent=2) + "\n")


def _print_row(case: dict[str, Any], row: dict[str, Any]) -> None:
    name, ratio = ", ".join(f"{key} {value}" for key, value in case.items()), row["predicted"] / row["measured"]
    print(f"{name:<64}{row['predicted'] / 1e6:>14,.1f}{row['measured'] / 1e6:>13,.1f}{ratio:>7.2f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="only cases whose shape begins with this")
    parser.add_argument("--json", type=Path, help="also write the results here")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    parser.add_argument("--runs", action="store_true", help="whole runs of electra pretrain on a CPU")
    parser.add_argument("--shapes", nargs="+", default=["small", "smoke"], choices=list(SHAPES), help="of the runs")
    parser.add_argument("--micro-batches", type=int, nargs="+", default=[2, 4, 8, 16, 32])
    parser.add_argument("--stages", type=int, nargs="+", default=[0, 1, 2, 3])
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--again", action="store_true", help="only compute the predictions in --json again")
    arguments = parser.parse_args()
    if arguments.runs or arguments.again:
        cases = [
            {"shape": shape, "micro_batch": size, "zero_stage": stage, "processes": count, "precision": "fp32"}
            for shape in arguments.shapes
            for count in arguments.processes
            for stage in arguments.stages
            for size in arguments.micro_batches
        ]
        measure_runs(cases, arguments.json or Path("logs/benchmarks/memory-runs.json"), arguments.again)
        return
    if arguments.measure:
        print(measure_here(json.loads(arguments.measure)))
        return
    rows = []
    print(f"{'case':<64}{'predicted MB':>14}{'measured MB':>13}{'ratio':>7}")
    for case in (case for case in CASES if case["shape"].startswith(arguments.only)):
        row = {**case, "predicted": predicted(case), "measured": measured(case)}
        rows.append(row)
        _print_row(case, row)
    if arguments.json:
        machine = asdict(setting(CASES[0])[2])
        arguments.json.write_text(json.dumps({"torch": torch.__version__, "machine": machine, "rows": rows}, indent=2))


if __name__ == "__main__":
    main()
