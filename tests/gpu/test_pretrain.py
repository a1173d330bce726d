"""Pre-training on a pretended device, which computes nothing: kernel launches, copies and waits."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any, get_args

import pytest

from electra.config import ObjectiveName
from tests.gpu.conftest import Environment
from tests.workspace import Workspace

Probe = Callable[..., dict[str, Any]]
# Where a step waits whose figures are logged, as each one is in so short a run; a real run logs 400 times.
LOGGING = ("gradient_norms", "full_gradient", "take_skipped", "end_window")
GATHERING = ("pretrain/zero.py gather_state", "pretrain/zero.py _copy", "pretrain/zero.py scatter_state")
# Waits of a step beside those, by ZeRO stage: DeepSpeed 0.19.8 reads the norm of ZeRO 1 to 3 on the host
WAITS = {0: 0, 1: 8, 2: 8, 3: 5}


def waits_of(step: dict[str, Any]) -> int:
    places = {place: count for place, count in step["told"].items() if not place.endswith(LOGGING)}
    return sum(count for place, count in places.items() if place.startswith("wait"))


def launches_of(step: dict[str, Any], kernel: str) -> int:
    return sum(count for name, count in step["by_name"].items() if kernel in name)


def quiet_steps(report: dict[str, Any]) -> list[dict[str, Any]]:
    """Steps in which no checkpoint or milestone was gathered, nothing was validated, and nothing started."""
    return [step for step in report["steps"][1:] if not any(place.endswith(GATHERING) for place in step["told"])]


@pytest.mark.parametrize("ranks", [1, 8])
@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_steps_are_taken_at_every_zero_stage_within_the_budget_of_waits(probe: Probe, stage: int, ranks: int) -> None:
    report = probe({"zero_stage": stage, "compile": "off"}, ranks)
    steps = quiet_steps(report)
    assert steps
    for step in steps:
        assert step["by_name"].keys() & {name for name in step["by_name"] if "adam" in name.lower()}, "no step"
        assert waits_of(step) <= WAITS[stage], step["told"]
        copies = sum(count for place, count in step["told"].items() if place.startswith("pageable copy to the device"))
        assert copies <= (3 if stage else 0), step["told"]  # DeepSpeed's own
    if ranks > 1:
        assert "torch.bfloat16" not in report["reduced"], "gradients are summed in one type"
        assert report["reduced"]["torch.float32"] >= 8, "in each of 8 steps"


@pytest.mark.parametrize("objective", get_args(ObjectiveName))
def test_every_method_runs_in_bf16_without_a_product_in_fp32(probe: Probe, objective: str) -> None:
    report = probe({"compile": "off"}, pretrain={"objective": objective})
    for step in quiet_steps(report):
        assert step["by_name"].get("product in bf16") and not step["by_name"].get("product in fp32"), step["by_name"]


@pytest.mark.parametrize("objective", ["electra", "bert", "all_tokens_mlm"])
def test_deterministic_algorithms_alone_are_enough_for_steps_validation_and_packed_rows(
    probe: Probe, objective: str
) -> None:
    """PyTorch raises where an operation has none; FlashAttention's is a kernel of its own."""
    report = probe({"compile": "off", "deterministic": True, "pack_examples": True}, pretrain={"objective": objective})
    for step in quiet_steps(report):
        assert any("adam" in name.lower() for name in step["by_name"]), "no step"
        fills = sum(count for name, count in step["by_name"].items() if "FillFunctor" in name)
        assert fills < 60, "tensors that are written anyway are filled"


def test_fp32_runs_too(probe: Probe) -> None:
    report = probe({"compile": "off", "precision": "fp32"})
    for step in quiet_steps(report):
        assert step["by_name"].get("product in fp32") and not step["by_name"].get("product in bf16")


@pytest.mark.parametrize("packing", [False, True])
def test_attention_is_the_flash_kernel_with_padding_packed_rows_and_dropout(probe: Probe, packing: bool) -> None:
    report = probe({"compile": "off", "pack_examples": packing})
    for step in quiet_steps(report):
        assert launches_of(step, "flash_fwd_kernel") == 4, "each of two layers of both encoders"
        assert launches_of(step, "flash_bwd_dq_dk_dv") == 4
        assert not launches_of(step, "fmha_cutlass")


@pytest.mark.long  # two minutes of compilation
def test_the_compiled_forward_pass_is_one_graph_before_and_after_the_curriculums_switch(probe: Probe) -> None:
    """Three in all: short examples, full ones, and validation; Triton's kernels run in all of them."""
    one_layer = {"num_layers": 1}
    report = probe({"compile": "auto"}, model=one_layer, pretrain={"length_curriculum": {"length": 16, "share": 0.5}})
    assert report["graphs"] <= 3
    for step in report["steps"]:
        assert any(name.startswith("triton") for name in step["by_name"])


@pytest.mark.parametrize("ranks", [1, 8])
@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_after_sigterm_a_run_resumes_and_takes_steps_at_every_zero_stage(probe: Probe, stage: int, ranks: int) -> None:
    report = probe({"zero_stage": stage, "compile": "off"}, ranks, "--interrupt=3")
    assert "a checkpoint is saved" in report["output"]
    last = report["output"].index("interrupted after step ") + len("interrupted after step ")
    resumed = int(report["output"][last:].split(";")[0])
    assert 3 <= resumed <= 6  # what was agreed on a step ahead is still done
    assert report["started"] == [*range(resumed), *range(resumed, 8)]
    assert f"resuming electra at step {resumed}" in report["output"]
    for step in report["steps"][-3:]:
        assert any("adam" in name.lower() for name in step["by_name"]), "no step"


@pytest.mark.parametrize(("ranks", "before", "then"), [(1, 2, 1), (1, 1, 3), (1, 3, 0), (8, 3, 2)])
def test_a_run_goes_on_at_another_zero_stage(probe: Probe, ranks: int, before: int, then: int) -> None:
    changes = json.dumps({"zero_stage": then})
    report = probe({"zero_stage": before, "compile": "off"}, ranks, "--interrupt=3", f"--then={changes}")
    assert f"ZeRO {then}" in report["output"].split("resuming electra at step")[1]
    takes_its_last_steps(report)


@pytest.mark.parametrize(("stage", "before", "then"), [(3, 1, 8), (1, 8, 1)])
def test_a_run_goes_on_on_another_number_of_processes(probe: Probe, stage: int, before: int, then: int) -> None:
    cluster = {"zero_stage": stage, "compile": "off"}
    assert "a checkpoint is saved" in probe(cluster, before, "--interrupt=3", "--then=null")["output"]
    report = probe(cluster, then)
    assert "resuming electra at step" in report["output"] and f"on {then} x cuda" in report["output"]
    takes_its_last_steps(report)


@pytest.mark.parametrize(
    ("ranks", "stage", "offload"), [(1, 2, "optimizer"), (1, 3, "parameters"), (8, 2, "optimizer")]
)
def test_an_offloaded_run_takes_its_steps_on_the_host(probe: Probe, ranks: int, stage: int, offload: str) -> None:
    report = probe({"zero_stage": stage, "offload": offload, "compile": "off"}, ranks)
    assert report["started"][-1] == 7, "the last of 8 steps"
    for step in quiet_steps(report):
        assert not any("adam" in name.lower() for name in step["by_name"]), "the optimizer ran on the device"


def takes_its_last_steps(report: dict[str, Any]) -> None:
    assert report["started"][-1] == 7, "the last of 8 steps"
    for step in report["steps"][-2:]:
        assert any("adam" in name.lower() for name in step["by_name"]), "no step"


def test_sigterm_is_heard_while_the_process_waits_for_a_device_that_never_answers(
    on_device: Environment, workspace: Workspace
) -> None:
    """Python runs no handler in `.tolist()`, which waits for the stream."""
    cluster = {"device": "cuda", "precision": "bf16", "compile": "off", "num_processes": 1, "grace_seconds": 10}
    workspace.write({"cluster": cluster}, pretrain={"num_steps": 5000, "eval_every": 5000})
    stuck = workspace.root / "stuck"
    run = subprocess.Popen(
        [sys.executable, "-m", "electra", "pretrain"],
        cwd=workspace.root,
        env={**on_device, "PRETENDED_HANG": str(stuck)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    progress, deadline = workspace.root / "logs/pretrain/progress.json", time.monotonic() + 900
    while not progress.exists() and run.poll() is None and time.monotonic() < deadline:
        time.sleep(0.2)
    stuck.touch()
    while not stuck.read_text() and run.poll() is None and time.monotonic() < deadline:
        time.sleep(0.2)
    run.send_signal(signal.SIGTERM)
    try:
        output, _ = run.communicate(timeout=60)
    finally:
        run.kill()
    assert run.returncode == 5, output
    assert "SIGTERM came while the process waits for others, at" in output


def test_sigterm_then_a_resume_takes_steps(on_device: Environment, workspace: Workspace) -> None:
    """A resumed step count on the CPU would end the run at its first step."""
    cluster = {"device": "cuda", "precision": "bf16", "compile": "off", "num_processes": 1}
    workspace.write({"cluster": cluster}, pretrain={"num_steps": 5000, "eval_every": 5000})
    command = [sys.executable, "-m", "electra", "pretrain"]
    first = subprocess.Popen(
        command, cwd=workspace.root, env=on_device, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    progress, deadline = workspace.root / "logs/pretrain/progress.json", time.monotonic() + 600
    while not progress.exists() and first.poll() is None and time.monotonic() < deadline:
        time.sleep(0.2)
    first.send_signal(signal.SIGTERM)
    output, _ = first.communicate(timeout=600)
    assert first.returncode == 5 and "a checkpoint is saved" in output, output
    progress.unlink()
    second = subprocess.Popen(
        command, cwd=workspace.root, env=on_device, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    while not progress.exists() and second.poll() is None and time.monotonic() < deadline:
        time.sleep(0.2)
    second.send_signal(signal.SIGTERM)
    output, _ = second.communicate(timeout=600)
    assert "resuming electra at step" in output and second.returncode == 5, output


def test_a_driver_that_is_too_old_is_an_error(on_device: Environment, workspace: Workspace) -> None:
    workspace.write({"cluster": {"device": "auto"}})
    environment = {**on_device, "PRETENDED_OLD_DRIVER": "1"}
    command = [sys.executable, "-m", "electra", "pretrain"]
    done = subprocess.run(command, cwd=workspace.root, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 2 and "PyTorch cannot use CUDA here" in done.stderr, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
