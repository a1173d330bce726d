"""Agreement of processes before a step, and how many steps ahead it is made."""

import torch

from electra.cluster.estimate.memory import placeholder_batch
from electra.config import Pretrain
from electra.pretrain.agreement import Agreement

RECIPE = Pretrain(num_steps=4, batch_size=8, learning_rate=1e-3, warmup_steps=1, eval_every=4, eval_examples=20)
BATCHES = [[placeholder_batch(RECIPE, number, 8)] * 2 for number in (1, 2, 3)]


def order_of_steps(ahead: int) -> list[str]:
    """The order in which steps are started and taken."""
    order: list[str] = []

    def requests() -> tuple[bool, bool]:
        order.append(f"start {sum(line.startswith('start') for line in order)}")
        return False, False

    agreement = Agreement(lambda batch: {"tokens": batch.mask_BT.sum()}, ["tokens"], None, ahead)
    for step, agreed in enumerate(agreement.of_steps(BATCHES, requests)):
        assert agreed.micro_batches is BATCHES[step]
        assert agreed.counts.tolist() == [2 * 8 * (step + 1)]
        order.append(f"take {step}")
    return order


def test_on_a_cpu_a_step_is_agreed_on_when_it_begins() -> None:
    assert order_of_steps(0) == ["start 0", "take 0", "start 1", "take 1", "start 2", "take 2"]


def test_on_cuda_the_next_step_is_started_before_this_one_begins() -> None:
    assert order_of_steps(1) == ["start 0", "start 1", "take 0", "start 2", "take 1", "take 2"]


def test_requests_reach_their_step_and_no_count_is_zero() -> None:
    requests = iter([(False, False), (True, False), (False, True)]).__next__
    agreement = Agreement(lambda batch: {"none": torch.zeros(())}, ["none"], None, 1)
    found = [(agreed.save, agreed.stop, agreed.counts.item()) for agreed in agreement.of_steps(BATCHES, requests)]
    assert found == [(False, False, 1), (True, False, 1), (False, True, 1)]
