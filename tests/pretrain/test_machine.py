"""Values of ``auto`` on a machine with a GPU, and on one whose GPU cannot be used."""

import os
import sysconfig
import warnings
from pathlib import Path
from typing import Literal

import pytest
import torch
import yaml

from electra.cluster.hardware import (
    choose_compile,
    choose_device,
    choose_precision,
    compiler_trouble,
    cuda_state,
    describe_cuda,
    resolve_machine,
)
from electra.cluster.launchers import pretraining
from electra.cluster.launchers.job import IN_JOB
from electra.cluster.processor import SLOW_BF16, is_bf16_faster
from electra.common.errors import ConfigError
from electra.config import Cluster
from electra.pretrain.run import pretrain
from electra.pretrain.telemetry import describe_passes
from tests.workspace import ROOT, Workspace

TOO_OLD = "CUDA initialization: The NVIDIA driver on your system is too old (found version 11040)."


@pytest.fixture(autouse=True)
def asked_anew() -> None:
    cuda_state.cache_clear()


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let PyTorch report two devices."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)


@pytest.mark.parametrize("device", ["auto", "cuda"])
def test_a_driver_that_is_too_old_is_an_error_and_no_run_on_the_cpu(
    monkeypatch: pytest.MonkeyPatch, device: str
) -> None:
    def is_available() -> bool:
        warnings.warn(TOO_OLD, stacklevel=2)
        return False

    monkeypatch.setattr(torch.cuda, "is_available", is_available)
    with pytest.raises(ConfigError, match="driver on your system is too old") as raised:
        choose_device(Cluster(device=device))
    assert raised.value.exit_code == 2
    assert choose_device(Cluster(device="cpu")) == "cpu"


def test_a_machine_without_a_gpu_takes_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert choose_device(Cluster()) == "cpu"
    with pytest.raises(ConfigError, match="no CUDA device"):
        choose_device(Cluster(device="cuda"))


@pytest.mark.parametrize(
    ("vendor", "flags", "expected"),
    [
        ("GenuineIntel", "avx512f avx512_bf16 amx_bf16", True),
        ("GenuineIntel", "avx512f avx512_bf16", False),  # half the rate of fp32, measured
        ("AuthenticAMD", "avx512f avx512_bf16", True),
        ("AuthenticAMD", "avx2", False),
    ],
)
def test_matrix_products_are_in_bf16_on_cpus_where_that_is_faster(
    tmp_path: Path, vendor: str, flags: str, expected: bool
) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text(f"vendor_id : {vendor}\nflags : fpu {flags} sse\n")
    assert is_bf16_faster(cpuinfo) is expected
    assert not is_bf16_faster(tmp_path / "missing")


@pytest.mark.parametrize(
    ("device", "precision", "warned"), [("cpu", "bf16", 1), ("cpu", "fp32", 0), ("cuda", "bf16", 0)]
)
def test_bf16_that_is_slower_than_fp32_is_warned_of(
    monkeypatch: pytest.MonkeyPatch,
    recwarn: pytest.WarningsRecorder,
    device: Literal["cpu", "cuda"],
    precision: Literal["fp32", "bf16"],
    warned: int,
) -> None:
    monkeypatch.setattr("electra.cluster.hardware.is_bf16_faster", lambda: False)
    assert choose_precision(Cluster(precision=precision), device) == precision
    assert [str(warning.message) for warning in recwarn] == [SLOW_BF16] * warned


def test_a_job_that_asked_its_queue_for_gpus_does_not_run_on_a_cpu(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for name, value in {IN_JOB: "slurm", "SLURM_PROCID": "0", "SLURM_NTASKS": "1", "SLURM_LOCALID": "0"}.items():
        monkeypatch.setenv(name, value)
    before = dict(os.environ)
    settings = workspace.write({"cluster": {"device": "auto"}}).settings()
    try:
        launched = pretraining.launched(settings, workspace.paths)
        with pytest.raises(ConfigError, match="no CUDA device"), launched as own_settings:
            pretrain(own_settings, workspace.paths)
    finally:
        os.environ.clear()
        os.environ.update(before)


def test_the_whole_forward_pass_is_compiled_on_cuda_but_not_with_zero_3(gpus: None) -> None:
    assert choose_compile(Cluster(), "cuda") == "model"
    assert choose_compile(Cluster(zero_stage=3), "cuda") == "off"
    assert choose_compile(Cluster(), "cpu") == "off"
    machine = resolve_machine(Cluster(), 64)
    assert (machine.num_processes, machine.activation_checkpointing, machine.fits_itself) == (2, "auto", True)


def test_auto_means_the_gpus_of_every_node(gpus: None) -> None:
    torchrun = {"launcher": "torchrun", "torchrun": {"endpoint": "node1:29400"}}
    machine = resolve_machine(Cluster.model_validate({"num_nodes": 3, **torchrun}), 72)
    assert (machine.num_processes, machine.micro_batch_size) == (6, 12)
    assert resolve_machine(Cluster.model_validate({"num_nodes": 3, "device": "cpu", **torchrun}), 72).num_processes == 3
    with pytest.raises(ConfigError, match=r"choose a divisor of 128[\s\S]*") as raised:
        resolve_machine(Cluster(num_processes=3), 128)
    assert raised.value.where == "cluster.num_processes"


def test_zero_is_off_unless_it_is_asked_for() -> None:
    """Stage 3 takes several times the host's time, and nothing up to Large needs what the others save."""
    assert Cluster().zero_stage == 0
    assert yaml.safe_load((ROOT / "params.yaml").read_text())["cluster"]["zero_stage"] == 0


@pytest.mark.parametrize("missing", ["compiler", "headers"])
def test_what_triton_needs_is_looked_for_before_a_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], missing: str
) -> None:
    if missing == "compiler":
        monkeypatch.setenv("CC", "no-such-compiler")
    else:
        monkeypatch.setattr(sysconfig, "get_path", lambda name: "/no/such/folder")
    said = compiler_trouble()
    assert said
    assert choose_compile(Cluster(), "cuda") == "off"
    assert said in capsys.readouterr().out
    with pytest.raises(ConfigError, match=said.split("(")[0]):
        choose_compile(Cluster(compile="model"), "cuda")


def test_a_run_that_repeats_its_corpus_often_says_so(prepared: Workspace) -> None:
    recipe = prepared.settings().pretrain.model_copy(update={"num_steps": 400_000, "batch_size": 2048})
    assert "makes 90 passes over its 9,102,222 examples" in describe_passes(recipe, 9_102_222)
    assert describe_passes(recipe, 81_920_000) == ""


def test_the_first_line_on_cuda_names_what_nccl_was_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "H100")
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "eth0")
    said = describe_cuda()
    assert said.startswith("; H100, CUDA ") and "NCCL_SOCKET_IFNAME=eth0" in said
