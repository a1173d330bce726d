"""Functions shared by the benchmarks: order of the sides, and comparisons."""

import argparse

import pytest

from benchmarks.measure import device_of, interleave, machine, ratios, run, spread, summary, table
from electra.common.errors import ConfigError


def test_sides_take_turns_in_changing_order_and_warm_ups_do_not_count():
    order = []

    def side(name, own):
        def call():
            order.append(name)
            return own

        return call

    seconds = interleave({"a": side("a", 2.0), "b": side("b", None)}, repeats=3, warmups=1)
    assert order == ["b", "a"] + ["a", "b"] + ["b", "a"] + ["a", "b"]
    assert seconds["a"] == [2.0] * 3  # by its own clock
    assert len(seconds["b"]) == 3 and all(0 < taken < 1 for taken in seconds["b"])


def test_ratios_are_made_repeat_by_repeat():
    # the machine is twice as slow in the second repeat, for both
    found = ratios({"ours": [1, 2, 1], "peer": [3, 6, 4]}, over="ours")
    assert found == {"peer": {"median": 3.0, "min": 3.0, "max": 4.0, "repeats": [3.0, 3.0, 4.0]}}


def test_a_summary_stands_in_a_table():
    cell = spread(summary([1000.4, 3000, 2000]), unit=" tokens/s")
    assert cell == "2,000 tokens/s (1,000 - 3,000)"
    assert table(["side", "rate"], [["ours", cell]]) == f"| side | rate |\n| --- | --- |\n| ours | {cell} |"


def test_cuda_is_refused_where_there_is_none(monkeypatch, capsys):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(ConfigError, match="no CUDA"):
        device_of(argparse.Namespace(device="cuda"))
    with pytest.raises(SystemExit) as ended:
        run(lambda: print(device_of(argparse.Namespace(device="cuda"))))
    assert ended.value.code == 2
    assert "there is no CUDA device" in capsys.readouterr().err


def test_the_machine_is_described():
    facts = machine()
    assert {"date", "device", "cores", "threads", "matrix_units", "revision", "python", "torch"} <= facts.keys()
    assert facts["cores"] >= 1 and facts["revision"]
