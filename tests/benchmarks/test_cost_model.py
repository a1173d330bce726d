"""The cost model: what its formulas must say at their ends."""

import pytest

from benchmarks.cost_model import Links, step_of

LINKS = Links(gpus_per_node=8, inside=400e9, between=100e9, hop_seconds=0.0)


def step(processes: int, zero_stage: int = 0, batch_size: int = 2048):
    return step_of(
        processes,
        batch_size=batch_size,
        examples_per_second=100.0,
        least_batch=8,
        parameters=10**9,
        zero_stage=zero_stage,
        links=LINKS,
    )


def test_one_process_communicates_nothing():
    alone = step(1)
    assert (alone.compute, alone.communication, alone.seconds) == (20.48, 0.0, 20.48)


def test_a_ring_moves_nearly_all_bytes_twice_and_zero_3_three_times():
    assert step(8).communication == pytest.approx(2 * 7 / 8 * 4e9 / 400e9)
    assert step(8, zero_stage=2).communication == step(8).communication
    assert step(8, zero_stage=3).communication == pytest.approx(1.5 * step(8).communication)


def test_between_nodes_the_slower_link_counts():
    assert step(16).communication == pytest.approx(2 * 15 / 16 * 4e9 / 100e9)


def test_a_step_is_no_shorter_than_its_least_batch():
    assert step(256).compute == step(1024).compute == 0.08
    assert step(128).compute == 0.16
