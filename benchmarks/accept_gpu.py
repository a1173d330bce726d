"""Acceptance run on GPUs: check on real devices what the tests check on a CPU or a pretended device.

    make accept-gpu                                                        # one to eight devices, half an hour
    python -m benchmarks.accept_gpu --device cpu --shapes tiny --only zero resume

Runs real commands in separate processes (benchmarks/accept_parts.py), in parts with a time limit each. The verdict of a
part is passed, failed, or not possible here, with the reasons. A JSON file and a Markdown page with all figures are
written to ``benchmarks/results/accept-<device>``, to be committed; for single parts, a CPU or tiny shapes, to
``logs/benchmarks/``. Exit codes: 0 nothing has failed, 2 there is no such device, 4 a part has failed.
"""

import argparse
import json
import math
import re
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import accept_parts as parts
from benchmarks import measure
from benchmarks.accept_parts import FULL, REFERENCE, SAMPLED, TINY, Bench, Figures, NotPossible
from benchmarks.pretrain_step import OURS
from benchmarks.workspace import Broken, Curve, OutOfTime, apart, build_op
from electra.common.artifacts import write_json, write_text
from electra.common.errors import TrainingError

OUTPUT = Path("logs/benchmarks/accept-output")
PASSED, FAILED, IMPOSSIBLE = "passed", "failed", "not possible here"

CURVES_APART_RESUMED = {"cpu": 0.0, "cuda": 1e-2}  # nats; on a CPU a resumed run has the same bits
MEMORY_OFF, MEMORY_OFF_BYTES = 0.10, 50e6  # of the prediction; smaller errors do not change the micro-batch
CELL_LOSS_OFF = 0.25  # of the CPU's loss: CUDA draws other dropout masks
MEMORY_FREE = 0.90  # of a device's memory: otherwise another process uses it
NOTICED_AFTER = 20.0  # seconds in addition to cluster.silence_seconds: two checks, and notifying the others
LARGE_SHARE = 0.40  # of the measured matrix peak, Large at 512 tokens
FLASH = 8.0  # lowest compute capability with a flash kernel in bf16
# Tokens per second on one device, by part of the device's name and name of the step. Others get no verdict.
EXPECTED = {
    "H100": {"small, T=128": 1.2e6, "base, T=128": 480e3, "large, T=128": 185e3},
    "A100": {"small, T=128": 0.54e6, "base, T=128": 216e3, "large, T=128": 83e3},
}
# Lowest accepted bytes per second of each link in an all-reduce; NVLink reaches several times this.
BUS_NVLINK, BUS_PCIE = 100e9, 4e9
NVLINK = re.compile(r"SXM|HBM3|H200|B200", re.IGNORECASE)


@dataclass(frozen=True)
class Limits:
    """Largest differences, in nats, of the losses of two runs of the same steps.

    Measured on a CPU. With MLM and the learning rate of these runs, 5e-4, rounding errors do not grow in 200 steps: a
    rate 1e-5 larger changes the loss of a batch by 2e-5 at most, bf16 by 2e-3. (At 2.5e-3, the profile's, a rate 1e-6
    larger changes it by 2e-3 at step 184, and bf16 by 0.6 at step 59.) With ELECTRA, runs drift apart by up to 0.05
    once the generator samples a different token, from about step 20 on. So its batches are compared in the first 20
    steps, and held-out losses at all steps.

    Attributes:
        batches: limit for the loss of a batch.
        held_out: limit for held-out losses.
        steps: the first steps, in which batches are compared.
    """

    batches: float
    held_out: float
    steps: float = math.inf


LIMITS, LIMITS_BF16 = Limits(1e-3, 1e-3), Limits(1e-2, 1e-2)
LIMITS_SAMPLED, LIMITS_SAMPLED_BF16 = Limits(1e-2, 2e-2, steps=20), Limits(5e-2, 5e-2, steps=20)


def limits_of(name: str) -> Limits:
    """Return the limits for a curve, by its name."""
    if SAMPLED in name:
        return LIMITS_SAMPLED_BF16 if "bf16" in name else LIMITS_SAMPLED
    return LIMITS_BF16 if "bf16" in name else LIMITS


@dataclass(frozen=True)
class Verdict:
    """Result of one part, with the reasons for a failure."""

    status: str
    reasons: tuple[str, ...] = ()


def verdict_of(reasons: Sequence[str]) -> Verdict:
    """Return a failed verdict if there are reasons, else a passed one."""
    return Verdict(FAILED if reasons else PASSED, tuple(reasons))


# ---- for each part a function from its figures to its verdict


def judge_preflight(found: Figures, bench: Bench) -> Verdict:
    reasons = [found["compiler"]] if found["compiler"] and bench.device == "cuda" else []
    for number, device in enumerate(found["devices"]):
        if float(device["capability"]) < FLASH:
            reasons.append(f"device {number}: capability {device['capability']} is below {FLASH}: no flash attention")
        if device["free_bytes"] < MEMORY_FREE * device["total_bytes"]:
            used = (device["total_bytes"] - device["free_bytes"]) / 1e9
            reasons.append(f"device {number}: {used:.1f} GB of its memory are in use: figures would be another's, too")
    if len({device["name"] for device in found["devices"]}) > 1:
        reasons.append("the devices are not of one kind")
    return verdict_of(reasons)


def judge_bandwidth(found: Figures, bench: Bench) -> Verdict:
    reasons = [] if found["sum_is_right"] else ["the sum of an all-reduce is wrong"]
    best = max(row["bus_bytes_per_second"] for row in found["rows"])
    if bench.device == "cuda" and bench.size is FULL:
        least = BUS_NVLINK if NVLINK.search(bench.facts["devices"][0]["name"]) else BUS_PCIE
        if best < least:
            reasons.append(
                f"{best / 1e9:.1f} GB/s at most, {least / 1e9:.0f} are expected: see `nvidia-smi topo -m`, NCCL_DEBUG"
            )
    return verdict_of(reasons)


def judge_zero(found: Figures, bench: Bench) -> Verdict:
    reasons = [f"{name}: {error}" for name, error in found["errors"].items()]
    curves = found["curves"]
    found["apart"] = {}
    for one, other in _pairs(curves):
        limits = limits_of(one)
        batches = apart(*(of_batches(curves[name], limits.steps) for name in (one, other)))
        held_out = apart(*(of_held_out(curves[name]) for name in (one, other)))
        found["apart"][f"{one} and {other}"] = {
            "batches": batches[0],
            "held_out": held_out[0],
            "steps": min(limits.steps, max(curves[one])),
        }
        for (difference, where), limit in ((batches, limits.batches), (held_out, limits.held_out)):
            if difference > limit:
                reasons.append(f"{one} and {other} differ by {difference:.3g} in {where}, {limit:g} is allowed")
    return verdict_of(reasons)


def of_batches(curve: Curve, steps: float) -> Curve:
    """Return the losses of single batches in the first steps."""
    return {
        step: {name: loss for name, loss in losses.items() if name.startswith("train_")}
        for step, losses in curve.items()
        if step <= steps
    }


def of_held_out(curve: Curve) -> Curve:
    """Return the held-out losses."""
    return {
        step: {name: loss for name, loss in losses.items() if not name.startswith("train_")}
        for step, losses in curve.items()
    }


def _pairs(curves: Figures) -> list[tuple[str, str]]:
    """Return the names of the curves to compare: each with the CPU's of its method, and ZeRO 1 to 3 with ZeRO 0."""
    pairs = []
    for name in curves:
        reference = REFERENCE + (SAMPLED if SAMPLED in name else "")
        if name != reference and reference in curves:
            pairs.append((name, reference))
    stages = [name for name in curves if name.startswith("ZeRO") and SAMPLED not in name and "bf16" not in name]
    return pairs + [(name, stages[0]) for name in stages[1:]]


def judge_resume(found: Figures, bench: Bench) -> Verdict:
    reasons = []
    for stage, run in found["stages"].items():
        if "error" in run:
            reasons.append(f"{stage}: {run['error']}")
            continue
        killed, told, last = run["codes"]
        if any(code != -9 for code in killed):
            reasons.append(f"{stage}: the run to be killed ended by itself ({killed})")
        if any(code != 5 for code in told):
            reasons.append(f"{stage}: exit codes {told} after SIGTERM, 5 is right")
        if not run["resumed_at"][1] or not run["resumed_at"][2]:
            reasons.append(f"{stage}: went on from steps {run['resumed_at'][1:]}, 0 means that it began anew")
        if any(last):
            reasons.append(f"{stage}: the resumed run failed, {run['last_words']}")
        else:
            run["apart"], where = apart(*run["curves"])
            limit = CURVES_APART_RESUMED[bench.device]
            if run["apart"] > limit:
                reasons.append(f"{stage}: differs from the uninterrupted run by {run['apart']:.3g} in {where}")
    return verdict_of(reasons)


def judge_speed(found: Figures, bench: Bench) -> Verdict:
    """Return the verdict on the steps' rates; with tiny shapes only missing figures count."""
    reasons = [f"{name}: not measured, the time was over" for name in found["missing"]]
    for name, step in found["steps"].items():
        if "error" in step:
            reasons.append(f"{name}: {step['error']}")
            continue
        rate = step["tokens_per_second"][OURS]["median"]
        step["peak_share"] = rate * step["flops_per_token"] / step["matrix_peak_flops"]
        step["expected"] = expected_rate(name, bench)
        if bench.size is not FULL:
            continue
        if step["expected"] and rate < step["expected"]:
            reasons.append(f"{name}: {rate:,.0f} tokens/s, {step['expected']:,.0f} are expected")
        for peer, ratio in step["seconds_over_ours"].items():
            if ratio["median"] < 1:
                reasons.append(f"{name}: {peer} takes {ratio['median']:.2f} times our seconds")
        if name == "large, T=512" and bench.device == "cuda" and step["peak_share"] < LARGE_SHARE:
            reasons.append(f"{name}: {step['peak_share']:.1%} of the matrix peak, {LARGE_SHARE:.0%} are expected")
    return verdict_of(reasons)


def expected_rate(name: str, bench: Bench) -> float | None:
    """Return the tokens per second that this device should reach; None if there is no expectation."""
    device = bench.facts["devices"][0]["name"] if bench.device == "cuda" else ""
    return next((rates.get(name) for part, rates in EXPECTED.items() if part in device), None)


def judge_memory(found: Figures, bench: Bench) -> Verdict:
    reasons = [f"{name}: not measured, the time was over" for name in found["missing"]]
    for name, step in found["steps"].items():
        if "error" in step:
            reasons.append(f"{name}: {step['error']}")
            continue
        step["memory_ratio"] = step["measured_bytes"] / step["predicted_bytes"]
        off = abs(step["measured_bytes"] - step["predicted_bytes"])
        if off > max(MEMORY_OFF * step["predicted_bytes"], MEMORY_OFF_BYTES):
            reasons.append(
                f"{name}: {step['measured_bytes'] / 1e9:.2f} GB, {step['predicted_bytes'] / 1e9:.2f} were predicted"
            )
    if bench.device == "cpu" and not found["missing"]:
        return Verdict(IMPOSSIBLE, ("the heap of a CPU's process has holes: python -m benchmarks.memory",))
    return verdict_of(reasons)


def judge_cells(found: Figures, bench: Bench) -> Verdict:
    reasons = []
    for name, cell in found.items():
        if "error" in cell:
            reasons.append(f"{name}: {cell['error']}")
            continue
        if cell["predictions"] != cell["rows"]:
            reasons.append(f"{name}: {cell['predictions']} predictions for {cell['rows']} rows")
        its = found.get(f"{name.partition(',')[0]}, cpu", {}).get("loss", cell["loss"])
        if not abs(cell["loss"] - its) <= CELL_LOSS_OFF * its:
            reasons.append(f"{name}: a loss of {cell['loss']:.3f}, {its:.3f} on the CPU")
    return verdict_of(reasons)


def judge_silence(found: Figures, bench: Bench) -> Verdict:
    reasons, limit = [], found["silence_seconds"] + NOTICED_AFTER
    for how in ("killed", "stopped"):
        run = found[how]
        if not run["seconds"] <= limit:
            reasons.append(f"one {how}: the others ended after {run['seconds']:.0f} s, {limit:.0f} are allowed")
        if any(code != 5 for code in run["codes"]):
            reasons.append(f"one {how}: the others ended with {run['codes']}, 5 is right: {run['last_words']}")
        if not run["are_told_whom"]:
            reasons.append(f"one {how}: nobody names process {run['rank']}: {run['last_words']}")
    return verdict_of(reasons)


# ---- tables for the page


def _differences(found: Figures) -> str:
    rows = [
        [name, f"{by['batches']:.2g} (steps 1 to {by['steps']})", f"{by['held_out']:.2g}"]
        for name, by in found.get("apart", {}).items()
    ]
    return measure.table(["losses of", "batches differ by at most, nats", "held-out losses"], rows)


def _resumed(found: Figures) -> str:
    rows = [
        [stage, str(run["resumed_at"][1]), str(run["resumed_at"][2]), f"{run.get('apart', math.nan):.2g}"]
        for stage, run in found["stages"].items()
        if "error" not in run
    ]
    heading = ["stage", "after kill -9 from step", "after SIGTERM from step", "differs by at most, nats"]
    return measure.table(heading, rows)


def _rates(found: Figures) -> str:
    rows = []
    for name, step in found["steps"].items():
        if "tokens_per_second" not in step:
            continue
        about = f"{name}, {step['batch_size']} examples, {step['layers']} layers"
        expected = f"{step['expected']:,.0f}" if step.get("expected") else ""
        idle = f"{step['idle_share']:.1%}" if step["idle_share"] is not None else "not seen"
        for side, rate in step["tokens_per_second"].items():
            own = ["1", expected, f"{step['peak_share']:.1%}", idle]
            if ratio := step["seconds_over_ours"].get(side):
                own = [measure.spread(ratio, ".2f", "x"), "", "", ""]
            rows.append([about, side, measure.spread(rate), *own])
        if "peer" in step:
            rows.append([about, step["peer"], *[""] * 5])
    heading = ["step", "side", "tokens/s, median (min - max)", "its seconds over ours", "expected"]
    return measure.table([*heading, "of the matrix peak", "device idle"], rows)


def _cells(found: Figures) -> str:
    rows = [
        [name, f"{cell['loss']:.3f}", ", ".join(f"{k} {v:.3f}" for k, v in cell["scores"].items()), cell["seconds"]]
        for name, cell in found.items()
        if "error" not in cell
    ]
    return measure.table(["cell", "loss of the last epoch", "scores on dev", "seconds"], rows)


def _devices(found: Figures) -> str:
    sizes = ("total_bytes", "free_bytes")
    rows = [
        [str(n), one["name"], one["capability"], *(f"{one[size] / 1e9:.1f}" for size in sizes)]
        for n, one in enumerate(found["devices"])
    ]
    table = measure.table(["device", "name", "capability", "memory, GB", "free, GB"], rows)
    return f"{table}\n\n{found.get('software', '')}"


@dataclass(frozen=True)
class Part:
    """One part of the run: its question, its minutes of thirty, and functions for figures, verdict and table."""

    question: str
    minutes: float
    measure: Callable[[Bench], Figures]
    judge: Callable[[Figures, Bench], Verdict]
    table: Callable[[Figures], str]


PARTS = {
    "preflight": Part("Is everything there that a run needs?", 1, parts.preflight, judge_preflight, _devices),
    "bandwidth": Part("How fast is an all-reduce?", 1.5, parts.bandwidth, judge_bandwidth, parts.links_table),
    "zero": Part("Do ZeRO 0 to 3 and a CPU learn the same?", 5.5, parts.zero, judge_zero, _differences),
    "resume": Part("Do kill -9 and SIGTERM change what is learned?", 4.5, parts.resume, judge_resume, _resumed),
    "silence": Part("Is a lost process noticed?", 2, parts.silence, judge_silence, parts.silence_table),
    "cells": Part("Does fine-tuning work?", 2.5, parts.cells, judge_cells, _cells),
    "speed": Part("How fast is a step?", 12, parts.speed, judge_speed, _rates),
    "memory": Part("Is the prediction of memory right?", 1, parts.memory, judge_memory, parts.memory_table),
}


# ---- the run


def run_part(part: Part, bench: Bench) -> Figures:
    """Measure one part and return its result; an error becomes a verdict.

    Returns:
        ``verdict``, ``reasons``, ``seconds`` and ``found``.
    """
    begin, found = time.monotonic(), {}
    try:
        found = part.measure(bench)
        verdict = part.judge(found, bench)
    except NotPossible as reason:
        verdict = Verdict(IMPOSSIBLE, (str(reason),))
    except OutOfTime:
        verdict = Verdict(FAILED, (f"not done when its time of {(bench.deadline - begin) / 60:.1f} minutes was over",))
    except Broken as error:
        verdict = Verdict(FAILED, (str(error),))
    except Exception as error:  # go on with the other parts; this error is reported
        traceback.print_exc()
        verdict = Verdict(FAILED, (f"a defect of this command: {type(error).__name__}: {error}",))
    seconds = round(time.monotonic() - begin, 1)
    return {"verdict": verdict.status, "reasons": list(verdict.reasons), "seconds": seconds, "found": found}


def run_parts(names: Sequence[str], bench: Bench, minutes: float) -> dict[str, Figures]:
    """Run the parts in order and return their results; time that a part does not need goes to the following ones."""
    whole = sum(PARTS[name].minutes for name in names)
    end, later = time.monotonic() + 60 * minutes, 60 * minutes
    done: dict[str, Figures] = {}
    for name in names:
        later -= 60 * minutes * PARTS[name].minutes / whole
        bench.deadline = end - later
        print(f"{name}: {PARTS[name].question}", flush=True)
        done[name] = run_part(PARTS[name], bench)
        if name == "preflight" and not bench.facts:
            break  # without a device nothing else can run
        print("\n  ".join([f"  {done[name]['verdict']}, {done[name]['seconds']:.0f} s", *done[name]["reasons"]]))
    return done


def page(result: Figures) -> str:
    """Return the result as a Markdown page."""
    machine = result["machine"]
    about = [f"{key}: {value}" for key, value in machine.items() if value not in (None, [], "")]
    rows = [
        [f"`{name}`", PARTS[name].question, part["verdict"], f"{part['seconds']:.0f}", "; ".join(part["reasons"])]
        for name, part in result["parts"].items()
    ]
    lines = [
        f"# Acceptance on {result['devices']} x {machine['device']}: {result['verdict']}",
        f"`{result['command']}`, {result['seconds'] / 60:.1f} minutes. {', '.join(about)}.",
        measure.table(["part", "question", "verdict", "seconds", "why"], rows),
    ]
    for name, part in result["parts"].items():
        if part["found"]:
            lines += [f"## {PARTS[name].question}", PARTS[name].table(part["found"])]
    return "\n\n".join(line.strip() for line in lines) + "\n"


def file_of(result: Figures, options: argparse.Namespace) -> Path:
    """Return the results' path without suffix; single parts, tiny shapes and a CPU do not count as acceptance."""
    name = re.sub(r"[^a-z0-9]+", "-", result["machine"]["device"].lower()).strip("-") or "device"
    whole = result["parts"].keys() == PARTS.keys() and options.shapes == "full" and options.device == "cuda"
    folder = options.write or Path("benchmarks/results" if whole else "logs/benchmarks")
    return folder / f"accept-{name}{'' if result['devices'] == 1 else '-x' + str(result['devices'])}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=[*PARTS], default=[], help="these parts; default: all")
    parser.add_argument("--minutes", type=float, default=30.0, help="for all parts together")
    parser.add_argument("--shapes", choices=("full", "tiny"), default="full", help="tiny: to try this command itself")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--write", type=Path, help="the folder for the JSON file and the page")
    options = parser.parse_args()
    device = measure.device_of(options)
    with tempfile.TemporaryDirectory(prefix="accept-") as folder:
        bench = Bench(Path(folder), device=device, size=FULL if options.shapes == "full" else TINY)
        bench.import_once()
        bench.wait([bench.start(build_op, DS_ACCELERATOR="cpu")])  # before the clock starts
        begin = time.monotonic()
        names = [name for name in PARTS if name in {"preflight", *(options.only or PARTS)}]
        done = run_parts(names, bench, options.minutes)
        verdict = FAILED if any(part["verdict"] == FAILED for part in done.values()) else PASSED
        if verdict == FAILED:  # keep the processes' output to find the cause
            shutil.copytree(bench.root / "output", OUTPUT, dirs_exist_ok=True)
    machine = bench.facts.get("machine") or measure.machine("cpu")
    result = {
        "verdict": verdict,
        "machine": machine,
        "devices": len(bench.facts.get("devices", [])) or 1,
        "command": " ".join(["python -m benchmarks.accept_gpu", *sys.argv[1:]]),
        "seconds": round(time.monotonic() - begin, 1),
        "parts": done,
    }
    file = file_of(result, options)
    write_json(file.with_suffix(".json"), json.loads(json.dumps(result, default=str)))
    write_text(file.with_suffix(".md"), page(result))
    print(f"{verdict}; written: {file}.json and {file.name}.md")
    if verdict == FAILED:
        failed = ", ".join(name for name, part in done.items() if part["verdict"] == FAILED)
        raise TrainingError(
            f"not accepted: {failed}",
            where=f"{file}.md",
            next_step=f"it gives the reasons, {OUTPUT} has the output of the processes; --only runs a single part",
        )


if __name__ == "__main__":
    measure.run(main)
