"""The cost model: limits of its formulas."""

import pytest

from benchmarks.cost_model import Links, Weights, step_of

LINKS = Links(gpus_per_node=8, inside=400e9, between=100e9, hop_seconds=0.0)


def step(processes: int, zero_stage: int = 0, batch_size: int = 2048):
    return step_of(
        processes,
        batch_size=batch_size,
        examples_per_second=100.0,
        least_batch=8,
        weights=Weights(10**9, 9 * 10**8),
        zero_stage=zero_stage,
        links=LINKS,
    )


def test_one_process_communicates_nothing():
    alone = step(1)
    assert (alone.compute, alone.communication, alone.seconds) == (20.48, 0.0, 20.48)


def test_a_ring_moves_nearly_all_bytes_twice():
    assert step(8).communication == pytest.approx(2 * 7 / 8 * 4e9 / 400e9)


def test_zero_sends_gradients_of_linear_layers_in_bf16():
    mixed = 2 * 9e8 + 4 * 1e8
    assert step(8, zero_stage=2).communication == pytest.approx(7 / 8 * (2 * mixed + 4e9) / 400e9)
    assert step(8, zero_stage=3).communication == pytest.approx(7 / 8 * 2 * mixed / 400e9)
    assert Weights(10**9, 9 * 10**8).payload(1, bf16=False) == 8e9


def test_between_nodes_the_slower_link_counts():
    assert step(16).communication == pytest.approx(2 * 15 / 16 * 4e9 / 100e9)


def test_a_step_is_no_shorter_than_its_least_batch():
    assert step(256).compute == step(1024).compute == 0.08
    assert step(128).compute == 0.16
