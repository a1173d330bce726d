"""The acceptance run: verdicts from figures, and a complete run without a GPU."""

import argparse
import json
import math
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from benchmarks import accept_gpu, measure
from benchmarks.accept_gpu import FAILED, IMPOSSIBLE, PARTS, PASSED, Part, file_of, page, run_part, run_parts
from benchmarks.accept_parts import DEFAULT, FULL, NOT_RUN, REFERENCE, SAMPLED, TINY, Bench, NotPossible
from benchmarks.pretrain_step import OURS
from benchmarks.workspace import Broken, OutOfTime, Processes, apart

ROOT = Path(__file__).resolve().parents[2]
H100 = {"name": "NVIDIA H100 80GB HBM3", "capability": "9.0", "free_bytes": 79e9, "total_bytes": 80e9}


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """As on one H100; nothing is started."""
    facts = {"machine": {"device": H100["name"]}, "devices": [dict(H100)], "compiler": "", "software": "CUDA 13.0"}
    return Bench(tmp_path, device="cuda", size=FULL, facts=facts)


def judged(name: str, found: dict[str, Any], bench: Bench) -> tuple[str, str]:
    verdict = PARTS[name].judge(found, bench)
    assert PARTS[name].table(found)
    return verdict.status, "; ".join(verdict.reasons)


# ---- the whole command


@pytest.mark.parametrize("only", [["preflight", "resume", "cells"], pytest.param([*PARTS], marks=pytest.mark.cluster)])
@pytest.mark.timeout(900)  # all parts: forty seconds of a core, on cores that others may use
def test_it_runs_to_its_end_on_a_cpu_with_tiny_shapes(tmp_path: Path, only: list[str]) -> None:
    pytest.importorskip("transformers", reason="the peer is of transformers (extra dev)")
    command = [sys.executable, "-m", "benchmarks.accept_gpu", "--device", "cpu", "--shapes", "tiny", "--only", *only]
    done = subprocess.run([*command, "--write", str(tmp_path)], cwd=ROOT, capture_output=True, text=True)

    assert done.returncode == 0, done.stdout + done.stderr
    (file,) = tmp_path.glob("accept-*.json")
    result = json.loads(file.read_text())
    parts = result["parts"]
    assert {name: part["verdict"] for name, part in parts.items() if name in only} == {
        name: IMPOSSIBLE if name == "memory" else PASSED  # on a CPU it is measured all the same
        for name in only
    }
    assert {"date", "device", "revision", "torch", "deepspeed", "transformers"} <= result["machine"].keys()
    interrupted = parts["resume"]["found"]["stages"]["ZeRO 0"]
    assert interrupted["codes"] == [[-9], [5], [0]] and 0 < interrupted["resumed_at"][1] < interrupted["resumed_at"][2]
    assert parts["cells"]["found"]["SQuAD1.1, cpu"]["predictions"] == 326
    written = file.with_suffix(".md").read_text()
    for name in only:
        assert f"| `{name}` |" in written and f"## {PARTS[name].question}" in written
    if len(only) == len(PARTS):
        learned = parts["zero"]["found"]["curves"]
        sampled = {REFERENCE + SAMPLED, "ZeRO 0" + SAMPLED}
        assert set(learned) == {REFERENCE, "ZeRO 0", "ZeRO 1", "ZeRO 2", "ZeRO 3"} | sampled
        assert all(curve["12"]["mlm_loss"] > 1 for curve in learned.values())
        assert all(("disc_loss" in curve["12"]) == (name in sampled) for name, curve in learned.items())
        assert parts["silence"]["found"]["stopped"]["seconds"] >= parts["silence"]["found"]["silence_seconds"]
        assert len(parts["speed"]["found"]["steps"]["small, T=16"]["tokens_per_second"]) == 2, "ours, and the peer's"
        assert parts["memory"]["found"]["steps"]["small, T=16"]["measured_bytes"] > 1e6


def test_cuda_is_refused_where_there_is_none(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr(sys, "argv", ["accept_gpu"])
    with pytest.raises(SystemExit) as ended:
        measure.run(accept_gpu.main)
    assert ended.value.code == 2 and "there is no CUDA device" in capsys.readouterr().err


def test_a_failed_part_ends_with_exit_code_4_and_the_page_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    def preflight(bench: Bench) -> dict[str, Any]:
        bench.facts = {"machine": measure.machine(), "devices": [], "compiler": ""}
        return bench.facts

    def silence(bench: Bench) -> dict[str, Any]:
        raise Broken("exit code 1: no store")

    for name, part in (("preflight", preflight), ("silence", silence)):
        old = PARTS[name]
        monkeypatch.setitem(PARTS, name, Part(old.question, old.minutes, part, old.judge, old.table))
    monkeypatch.setattr(Processes, "import_once", lambda self: None)
    monkeypatch.setattr(accept_gpu, "build_op", lambda: None)
    monkeypatch.setattr(accept_gpu, "OUTPUT", tmp_path / "output")
    monkeypatch.setattr(
        sys, "argv", ["accept_gpu", "--device", "cpu", "--only", "silence", "--write", str(tmp_path / "to")]
    )
    with pytest.raises(SystemExit) as ended:
        measure.run(accept_gpu.main)
    assert ended.value.code == 4 and "not accepted: silence" in capsys.readouterr().err
    (written,) = (tmp_path / "to").glob("accept-*.md")
    assert "| `silence` | Is a lost process noticed? | failed | 0 | exit code 1: no store |" in written.read_text()


# ---- time and trouble


def test_every_part_ends_with_a_verdict_whatever_happens(bench: Bench, capsys: Any) -> None:
    def part(error: Exception) -> Part:
        def measured(bench: Bench) -> dict[str, Any]:
            raise error

        return Part("?", 1, measured, PARTS["zero"].judge, str)

    verdicts = {
        type(error): run_part(part(error), bench)
        for error in (NotPossible("one device"), OutOfTime(), Broken("exit code 4: nan"), KeyError("oops"))
    }
    assert {kind: found["verdict"] for kind, found in verdicts.items()} == {
        NotPossible: IMPOSSIBLE,
        OutOfTime: FAILED,
        Broken: FAILED,
        KeyError: FAILED,
    }
    assert verdicts[NotPossible]["reasons"] == ["one device"]
    assert verdicts[Broken]["reasons"] == ["exit code 4: nan"]
    assert "defect of this command: KeyError" in verdicts[KeyError]["reasons"][0]


def test_time_that_a_part_does_not_need_goes_to_the_next_ones(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    given = {}

    def part(name: str) -> Part:
        def measured(bench: Bench) -> dict[str, Any]:
            given[name] = bench.deadline - time.monotonic()
            return {"errors": {}, "curves": {}}

        return Part("?", 1, measured, PARTS["zero"].judge, str)

    parts = {name: part(name) for name in "abc"}
    monkeypatch.setattr(accept_gpu, "PARTS", parts)
    run_parts([*parts], bench, minutes=30)
    assert given == pytest.approx({"a": 600, "b": 1200, "c": 1800}, abs=5)


def sleep_long() -> None:
    time.sleep(60)


def test_a_process_is_killed_when_its_time_is_over(tmp_path: Path) -> None:
    processes = Processes(tmp_path, how="fork", deadline=time.monotonic() + 0.2)
    child = processes.start(sleep_long)
    with pytest.raises(OutOfTime):
        processes.wait([child])
    child.process.join(10)
    assert child.code == -9


# ---- verdicts


def test_a_device_that_somebody_else_uses_fails_before_the_run(bench: Bench) -> None:
    assert judged("preflight", bench.facts, bench) == (PASSED, "")
    bench.facts["devices"][0]["free_bytes"] = 40e9
    status, why = judged("preflight", bench.facts, bench)
    assert status == FAILED and "device 0: 40.0 GB of its memory are in use" in why
    bench.facts["devices"] = [{**H100, "capability": "7.5"}, dict(H100)]
    assert "no flash attention" in judged("preflight", bench.facts, bench)[1]
    bench.facts |= {"devices": [dict(H100)], "compiler": "there is no C compiler (gcc)"}
    assert judged("preflight", bench.facts, bench) == (FAILED, "there is no C compiler (gcc)")


def test_a_slow_or_wrong_all_reduce_fails(bench: Bench) -> None:
    found: dict[str, Any] = {
        "ranks": 8,
        "sum_is_right": True,
        "rows": [{"bytes": 2**30, "seconds": 0.005, "bus_bytes_per_second": 4e11}],
    }
    assert judged("bandwidth", found, bench) == (PASSED, "")
    found["rows"][0]["bus_bytes_per_second"] = 12e9  # PCIe's, where there is NVLink
    assert "12.0 GB/s at most, 100 are expected" in judged("bandwidth", found, bench)[1]
    bench.facts["devices"][0]["name"] = "NVIDIA GeForce RTX 4090"
    assert judged("bandwidth", found, bench) == (PASSED, "")
    assert judged("bandwidth", {**found, "sum_is_right": False}, bench)[0] == FAILED


def curves(**changed: float) -> dict[str, Any]:
    """Return loss curves of the CPU and four ZeRO stages; ``changed`` replaces a stage's last loss."""
    names = [REFERENCE, *(f"ZeRO {stage}" for stage in range(4))]
    each = {n: {10: {"mlm_loss": 6.0, "disc_loss": 0.4}, 20: {"mlm_loss": changed.get(n[-1:], 5.5)}} for n in names}
    return {"errors": {}, "curves": each}


def test_a_diverging_zero_stage_fails(bench: Bench) -> None:
    found = curves(**{"1": 5.5007})
    assert judged("zero", found, bench) == (PASSED, "")
    assert found["apart"]["ZeRO 1 and CPU"]["held_out"] == pytest.approx(0.0007)
    status, why = judged("zero", curves(**{"2": 5.502}), bench)
    assert status == FAILED
    assert "ZeRO 2 and CPU differ by 0.002 in mlm_loss at step 20, 0.001 is allowed" in why
    assert "ZeRO 2 and ZeRO 0 differ" in why and "ZeRO 1" not in why and "ZeRO 3" not in why


def beside_reference(name: str, batches: dict[int, float]) -> dict[str, Any]:
    """Return a curve with these losses of batches by step, and its reference, where they are 6."""
    reference = REFERENCE + (SAMPLED if SAMPLED in name else "")
    curve = {step: {"train_mlm_loss": loss, "mlm_loss": 5.0} for step, loss in batches.items()}
    same = {step: {"train_mlm_loss": 6.0, "mlm_loss": 5.0} for step in batches}
    return {"errors": {}, "curves": {reference: same, name: curve}}


@pytest.mark.parametrize(
    ("name", "batches", "why"),
    [
        ("ZeRO 0", {200: 6.0009}, ""),
        ("ZeRO 0", {200: 6.002}, "differ by 0.002 in train_mlm_loss at step 200, 0.001 is allowed"),
        (DEFAULT, {200: 6.009}, ""),
        (DEFAULT, {30: 6.02}, "differ by 0.02 in train_mlm_loss at step 30, 0.01 is allowed"),
        ("ZeRO 0" + SAMPLED, {20: 6.009, 21: 6.09}, ""),  # a token is sampled otherwise
        ("ZeRO 0" + SAMPLED, {10: 6.02}, "CPU, electra differ by 0.02 in train_mlm_loss at step 10, 0.01 is"),
        (DEFAULT + SAMPLED, {10: 6.06}, "differ by 0.06 in train_mlm_loss at step 10, 0.05 is allowed"),
    ],
)
def test_batches_are_compared_until_other_tokens_may_be_sampled(
    bench: Bench, name: str, batches: dict[int, float], why: str
) -> None:
    status, reasons = judged("zero", beside_reference(name, batches), bench)
    assert status == (FAILED if why else PASSED) and why in reasons


def test_held_out_losses_are_compared_at_every_step(bench: Bench) -> None:
    for name, allowed in (("ZeRO 0", 0.001), ("ZeRO 0" + SAMPLED, 0.02), (DEFAULT, 0.01), (DEFAULT + SAMPLED, 0.05)):
        found = beside_reference(name, {200: 6.0})
        found["curves"][name][200]["mlm_loss"] += 0.9 * allowed
        assert judged("zero", found, bench) == (PASSED, "")
        found["curves"][name][200]["mlm_loss"] += 0.2 * allowed
        assert f"in mlm_loss at step 200, {allowed:g} is allowed" in judged("zero", found, bench)[1]


def test_a_loss_that_is_missing_or_no_number_is_infinitely_far(bench: Bench) -> None:
    assert apart({1: {"mlm_loss": 5.0}}, {1: {"mlm_loss": math.nan}}) == (math.inf, "mlm_loss at step 1")
    assert apart({1: {"mlm_loss": 5.0}}, {}) == (math.inf, "mlm_loss at step 1")
    assert judged("zero", curves(**{"3": math.nan}), bench)[0] == FAILED


def test_a_stage_that_did_not_run_fails_and_the_others_are_compared(bench: Bench) -> None:
    found = curves()
    del found["curves"]["ZeRO 3"]
    found["errors"] = {"ZeRO 3": NOT_RUN}
    assert judged("zero", found, bench) == (FAILED, f"ZeRO 3: {NOT_RUN}")
    assert "ZeRO 2 and CPU" in found["apart"]


def interrupted(**changes: Any) -> dict[str, Any]:
    same = {10: {"mlm_loss": 6.0}}
    run = {"codes": [[-9, -9], [5, 5], [0, 0]], "resumed_at": [0, 7, 14], "last_words": "", "curves": [same, same]}
    return {"stages": {"ZeRO 1": {**run, **changes}}}


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"codes": [[0, 0], [5, 5], [0, 0]]}, "ended by itself"),
        ({"codes": [[-9, -9], [1, 5], [0, 0]]}, "exit codes [1, 5] after SIGTERM, 5 is right"),
        ({"resumed_at": [0, 0, 14]}, "0 means that it began anew"),
        (
            {"codes": [[-9, -9], [5, 5], [1, 0]], "last_words": "exit code 1: oops"},
            "the resumed run failed, exit code 1",
        ),
        ({"curves": [{10: {"mlm_loss": 6.0}}, {10: {"mlm_loss": 6.1}}]}, "differs from the uninterrupted run by 0.1"),
    ],
)
def test_a_run_that_does_not_go_on_as_it_was_fails(bench: Bench, changes: dict[str, Any], why: str) -> None:
    assert judged("resume", interrupted(), bench) == (PASSED, "")
    status, reasons = judged("resume", interrupted(**changes), bench)
    assert status == FAILED and why in reasons


def test_a_resumed_run_on_a_cpu_has_the_same_bits(bench: Bench) -> None:
    near = [{10: {"mlm_loss": 6.0}}, {10: {"mlm_loss": 6.000001}}]
    assert judged("resume", interrupted(curves=near), bench)[0] == PASSED
    bench.device = "cpu"
    assert judged("resume", interrupted(curves=near), bench)[0] == FAILED


def timed(name: str, tokens: float, *, over_ours: float = 1.5, measured_gb: float = 20.0) -> dict[str, Any]:
    spread = {"median": tokens, "min": tokens, "max": tokens}
    ratio = {"median": over_ours, "min": over_ours, "max": over_ours}
    step = {
        "tokens_per_second": {OURS: spread, "peer": spread},
        "seconds_over_ours": {"peer": ratio},
        "flops_per_token": 1e8,
        "matrix_peak_flops": 700e12,
        "idle_share": 0.1,
        "batch_size": 128,
        "layers": 12,
        "predicted_bytes": 20e9,
        "measured_bytes": measured_gb * 1e9,
    }
    return {"steps": {name: step}, "missing": []}


def test_a_step_that_is_too_slow_fails(bench: Bench) -> None:
    assert judged("speed", timed("small, T=128", 1.25e6), bench) == (PASSED, "")
    status, why = judged("speed", timed("small, T=128", 1.1e6), bench)
    assert (status, why) == (FAILED, "small, T=128: 1,100,000 tokens/s, 1,200,000 are expected")
    status, why = judged("speed", timed("base, T=512", 400e3, over_ours=0.8), bench)
    assert status == FAILED and "takes 0.80 times our seconds" in why
    status, why = judged("speed", timed("large, T=512", 0.35 * 700e12 / 1e8), bench)
    assert status == FAILED and "35.0% of the matrix peak, 40% are expected" in why
    late = timed("small, T=128", 1.25e6) | {"missing": ["base, T=512"]}
    assert judged("speed", late, bench) == (FAILED, "base, T=512: not measured, the time was over")


def test_a_device_without_expectations_and_tiny_shapes_are_not_judged_by_them(bench: Bench) -> None:
    bench.facts["devices"][0]["name"] = "NVIDIA GeForce RTX 4090"
    assert judged("speed", timed("small, T=128", 3e5), bench) == (PASSED, "")
    bench.size = TINY
    assert judged("speed", timed("small, T=16", 10, over_ours=0.3), bench) == (PASSED, "")


def test_memory_that_is_20_percent_off_its_prediction_fails(bench: Bench) -> None:
    assert judged("memory", timed("large, T=128", 1, measured_gb=21.5), bench) == (PASSED, "")
    for measured in (24.0, 16.0):
        status, why = judged("memory", timed("large, T=128", 1, measured_gb=measured), bench)
        assert (status, why) == (FAILED, f"large, T=128: {measured:.2f} GB, 20.00 were predicted")


def test_a_cell_that_learns_otherwise_than_on_the_cpu_fails(bench: Bench) -> None:
    cell = {"loss": 0.6, "rows": 200, "predictions": 200, "scores": {"matthews": 0.1}, "seconds": "3 s"}
    assert judged("cells", {"CoLA, cuda": {**cell, "loss": 0.65}, "CoLA, cpu": cell}, bench) == (PASSED, "")
    assert judged("cells", {"CoLA, cuda": {**cell, "loss": 0.9}, "CoLA, cpu": cell}, bench)[0] == FAILED
    assert judged("cells", {"CoLA, cuda": {**cell, "loss": math.nan}, "CoLA, cpu": cell}, bench)[0] == FAILED
    assert "199 predictions for 200 rows" in judged("cells", {"CoLA, cuda": {**cell, "predictions": 199}}, bench)[1]


def test_a_lost_process_that_is_noticed_late_or_not_named_fails(bench: Bench) -> None:
    run = {"rank": 1, "seconds": 25.0, "codes": [5], "are_told_whom": True, "last_words": "exit code 5: error: ..."}
    found = {"silence_seconds": 20.0, "ranks": 2, "killed": run, "stopped": run}
    assert judged("silence", found, bench) == (PASSED, "")
    for changed in ({"seconds": 41.0}, {"seconds": math.nan}, {"codes": [1]}, {"are_told_whom": False}):
        assert judged("silence", {**found, "stopped": {**run, **changed}}, bench)[0] == FAILED


def test_the_idle_share_is_what_no_kernel_covers() -> None:
    assert measure.idle_share([(0, 2), (1, 4), (6, 8), (8, 10)]) == pytest.approx(0.2)
    assert measure.idle_share([(0, 10), (2, 3)]) == 0
    assert measure.idle_share([]) is None


def test_only_a_whole_run_on_a_device_goes_to_the_results() -> None:
    result = {"machine": {"device": "NVIDIA H100 80GB HBM3"}, "devices": 8, "parts": dict.fromkeys(PARTS)}
    options = argparse.Namespace(shapes="full", device="cuda", write=None)
    assert file_of(result, options) == Path("benchmarks/results/accept-nvidia-h100-80gb-hbm3-x8")
    for part_of_it in ({**vars(options), "shapes": "tiny"}, {**vars(options), "device": "cpu"}):
        assert file_of(result, argparse.Namespace(**part_of_it)).parent == Path("logs/benchmarks")
    assert file_of({**result, "parts": {"zero": {}}}, options).parent == Path("logs/benchmarks")


def test_the_page_says_device_date_versions_commit_and_every_verdict(bench: Bench) -> None:
    found = timed("small, T=128", 1.1e6)
    verdict = PARTS["speed"].judge(found, bench)
    part = {"verdict": verdict.status, "reasons": list(verdict.reasons), "seconds": 600.0, "found": found}
    machine = {"device": H100["name"], "date": "2026-11-22", "torch": "2.13.0", "revision": "abc123"}
    text = page(
        {"verdict": FAILED, "machine": machine, "devices": 1, "command": "x", "seconds": 900, "parts": {"speed": part}}
    )
    assert "# Acceptance on 1 x NVIDIA H100 80GB HBM3: failed" in text
    assert "date: 2026-11-22, torch: 2.13.0, revision: abc123" in text
    assert "| `speed` | How fast is a step? | failed | 600 | small, T=128: 1,100,000 tokens/s" in text
    assert re.search(r"\| small, T=128, .* \| ours \| 1,100,000 .* \| 1 \| 1,200,000 \| 15.7% \| 10.0% \|", text)
