"""Hours and cost on this machine and on GPUs, memory at every ZeRO stage, and the README's figures."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from electra.__main__ import app
from electra.cluster.estimate import machines
from electra.cluster.estimate.cost import Speed, estimate
from electra.cluster.estimate.machines import (
    DEVICES,
    describe_machines,
    gpu_hours,
    gpu_memory,
    parse_gpu,
    render_machines,
)
from electra.cluster.estimate.memory import predict_step_memory
from electra.cluster.hardware import Machine
from electra.common.errors import ConfigError
from electra.config import Settings
from electra.config.loading import _merge, _read_yaml, parse_settings

ROOT = Path(__file__).resolve().parents[2]


def load(name: str) -> Settings:
    common = {**_read_yaml(ROOT / "params.yaml"), "profile": name}
    return parse_settings(_merge(common, _read_yaml(ROOT / f"params/{name}.yaml"), name), where=name)


def test_a_gpu_is_named_by_number_and_kind() -> None:
    assert parse_gpu("8xH100") == (8, DEVICES["h100"]) and parse_gpu("a100") == (1, DEVICES["a100"])
    for wrong in ("0xh100", "8xv100", "8", "h100x8"):
        with pytest.raises(ConfigError, match="such as 8xh100"):
            parse_gpu(wrong)


@pytest.mark.parametrize(
    ("name", "length", "expected"), [("small", 128, 950e3), ("base", 128, 470e3), ("large", 128, 185e3)]
)
def test_rates_on_an_h100_are_those_of_the_page_on_gpus(name: str, length: int, expected: float) -> None:
    """docs/gpu.md: tokens a second, +-25%."""
    settings = load(name)
    settings = settings.model_copy(update={"shards": settings.shards.model_copy(update={"max_length": length})})
    counted = estimate(settings)
    rate = counted.tokens / gpu_hours(settings, counted, 1, DEVICES["h100"]) / 3600
    assert rate == pytest.approx(expected, rel=0.25)


def test_more_and_faster_gpus_take_fewer_hours_and_the_gradients_way_costs() -> None:
    settings = load("base")
    counted = estimate(settings)
    one, eight = (gpu_hours(settings, counted, number, DEVICES["h100"]) for number in (1, 8))
    assert 8 * eight > one > 5 * eight
    small = load("small")
    hours = [gpu_hours(small, estimate(small), number, DEVICES["h100"]) for number in (1, 8)]
    assert hours[1] == pytest.approx(hours[0], rel=0.05), "the host's launches decide"
    assert gpu_hours(settings, counted, 1, DEVICES["a100"]) > 2 * one
    with pytest.raises(ConfigError, match="does not split into 3 GPUs"):
        gpu_hours(settings, counted, 3, DEVICES["h100"])


def test_a_method_without_a_generator_launches_no_generators_layers() -> None:
    settings = load("small")  # launches decide its time on 8 GPUs
    bert = settings.model_copy(update={"pretrain": settings.pretrain.model_copy(update={"objective": "bert"})})
    electra, plain = (gpu_hours(one, estimate(one), 8, DEVICES["h100"]) for one in (settings, bert))
    assert plain == pytest.approx(electra / (1 + settings.model.generator_depth), rel=0.05)


@pytest.mark.parametrize(
    ("profile", "examples", "length", "part", "allocated"),
    [
        ("small", 128, 128, "off", 3.21e9),  # on the pretended device; the others on an H200
        ("small", 128, 128, "model", 2.873e9),
        ("base", 128, 128, "model", 9.863e9),
        ("large", 64, 128, "model", 14.950e9),
        ("large", 16, 512, "model", 14.925e9),
    ],
)
def test_memory_traced_without_cuda_is_what_cuda_took(
    profile: str, examples: int, length: int, part: Any, allocated: float
) -> None:
    """Rows of the tables in docs/gpu-tests.md."""
    settings = load(profile)
    recipe = settings.pretrain.model_copy(update={"batch_size": examples})
    machine = Machine("cuda", 1, "bf16", 0, examples, 1, compile=part)
    with machines.traced_as_on_cuda():
        found = predict_step_memory(settings.model, recipe, machine, length, 30522)
    assert found.peak == pytest.approx(allocated, rel=0.05)
    assert torch.version.cuda or not torch.empty(1).is_cuda


def test_compiled_a_step_without_logits_takes_no_less() -> None:
    settings = load("small")
    for generator, saved in (("transformer", 128 * 19 * 30522 * 4), ("unigram", 0)):  # 19 masked tokens an example
        recipe = settings.pretrain.model_copy(update={"batch_size": 128, "generator": generator})
        with machines.traced_as_on_cuda():
            plain, compiled = (
                predict_step_memory(
                    settings.model, recipe, Machine("cuda", 1, "bf16", 0, 128, 1, compile=part), 128, 30522
                ).peak
                for part in ("off", "model")
            )
        assert plain - compiled == saved


def test_every_zero_stage_has_its_memory_and_what_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    def peak(model: Any, recipe: Any, machine: Machine, length: int, vocab_size: int) -> Any:
        class Found:
            peak = int((10 / (machine.num_processes if machine.zero_stage else 1) + machine.micro_batch_size) * 1e9)

        return Found

    monkeypatch.setattr(machines, "predict_step_memory", peak)
    settings = load("base")
    fits = gpu_memory(settings, 8, DEVICES["a100"])
    assert [fit.zero_stage for fit in fits] == [0, 1, 2, 3]
    assert fits[0].bytes == (10 + fits[0].examples) * 1e9 and fits[1].bytes < fits[0].bytes
    assert fits[0].most == fits[3].most == settings.pretrain.batch_size // 8  # 32: 42 GB of 67
    small = machines.Device("small", 1e12, 0.1, int(9e9), 1e9)
    assert [fit.most for fit in gpu_memory(settings, 8, small)] == [0, 4, 4, 4]


def test_the_estimate_tells_hours_here_and_the_cost_and_is_json_for_programs(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(machines, "measure_speed", lambda *_: Speed(0.36, 1.0, 1.0, 0.7))
    settings = load("books")
    pretrain = settings.pretrain.model_copy(update={"num_steps": 2600})
    found = describe_machines(settings.model_copy(update={"pretrain": pretrain}), rate=2.0)
    here, *gpus = found["hours"]
    assert here["hours"] == pytest.approx(2600 * 0.36 / 3600) and here["cost"] == 2 * here["hours"]
    assert [row["machine"] for row in gpus] == ["1 x A100 80 GB", "1 x H100 80 GB", "1 x H200 141 GB"]
    assert "0.26 measured; other processes use 0.7 cores, alone it is faster; cost 0.52" in render_machines(found)
    assert describe_machines(load("large"))["hours"][0]["hours"] is None, "a step of Large takes minutes on a CPU"
    shown = CliRunner().invoke(app, ["estimate", "--json", "--gpu", "8xh100", "--rate", "2.5", "--no-memory"])
    row = json.loads(shown.stdout)["machines"]["hours"][1]
    assert row["cost"] == pytest.approx(8 * 2.5 * row["hours"])


def test_the_hours_of_the_readme_are_the_estimates() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    told = dict(re.findall(r"^\| `(small|base|large|large-1.75M)` \|.*\| ([\d.]+) h \|$", text, re.MULTILINE))
    modern = re.search(r"^\| `modern-small`, `modern-base` \|.*\| ([\d.]+) h, ([\d.]+) h \|$", text, re.MULTILINE)
    assert modern
    told |= {"modern-small": modern[1], "modern-base": modern[2]}
    settings = {name: load(name) for name in ("small", "base", "large", "large-1.75M", "modern-small", "modern-base")}
    hours = {name: gpu_hours(own, estimate(own), 8, DEVICES["h100"]) for name, own in settings.items()}
    assert told == {name: machines.shown_hours(value) for name, value in hours.items()}
