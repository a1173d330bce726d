"""``fidelity: original`` brings the original's defects back, one by one, and nothing else does."""

import numpy as np
import pytest
import torch

from electra.finetune.trainer import layer_factor
from electra.objectives.base import Batch, put_samples
from electra.pretrain.data.masking import MaskingRule, draw_masking, num_slots
from tests.loader.test_random import SPECIAL, rows

ORIGINAL = MaskingRule(with_replacement=True)


def draw(rule: MaskingRule, length: int = 128, examples: int = 2000):
    lengths = np.full(examples, length)
    tokens = rows(lengths.tolist(), length, 0)
    return draw_masking(
        tokens, lengths, np.zeros(examples), np.arange(examples), special_ids=SPECIAL, rule=rule, seed=1
    )


def distinct_share(masking, length: int) -> float:
    return (
        np.mean([len(set(row[real > 0])) for row, real in zip(masking.positions, masking.weights, strict=True)])
        / length
    )


@pytest.mark.parametrize(
    ("length", "probability", "share", "slots"),
    [(128, 0.15, 0.138, 19), (512, 0.15, 0.140, 79), (512, 0.25, 0.221, 130)],
)
def test_positions_drawn_with_replacement_mask_fewer(length: int, probability: float, share: float, slots: int) -> None:
    """Distinct masked shares of the original: 13.8%, 14.0%, 22.1%; ours mask what they say."""
    rule = MaskingRule(probability, with_replacement=True)
    assert num_slots(length, rule) == slots
    assert distinct_share(draw(rule, length, 500), length) == pytest.approx(share, abs=0.002)
    assert distinct_share(draw(MaskingRule(probability), length, 500), length) == pytest.approx(probability, abs=0.002)


def test_a_position_drawn_twice_is_shown_only_if_both_draws_say_so() -> None:
    masking = draw(ORIGINAL)
    for positions, shown in zip(masking.positions, masking.shown, strict=True):
        for position in set(positions):
            assert len(set(shown[positions == position])) == 1
    assert masking.shown.mean() < 0.15, "two draws agree less often"
    assert not np.isin(masking.positions, [0, 127]).any(), "never a special token"


def test_two_samples_at_one_position_leave_the_mean_of_their_ids() -> None:
    batch = Batch(
        torch.tensor([[2, 10, 11, 12]]), torch.zeros(1, 4, dtype=torch.long), torch.ones(1, 4, dtype=torch.bool),
        torch.tensor([[1, 3, 1, 0]]), torch.tensor([[1.0, 1.0, 1.0, 0.0]]),
        torch.zeros(1, 4, dtype=torch.bool), torch.rand(1, 4),
    )  # fmt: skip
    assert put_samples(batch, torch.tensor([[30, 40, 35, 99]])).tolist() == [[2, 32, 11, 40]]


@pytest.mark.parametrize(
    ("layers", "decay", "intended", "original"),
    [
        (12, 0.8, (1, 0.8, 0.0687, 0.0550), (1, 0.640, 0.0550, 0.0440)),
        (24, 0.9, (1, 0.9, 0.0798, 0.0718), (1, 0.81, 0.0718, 0.0646)),
    ],
)
def test_layer_factors_of_head_top_bottom_and_embeddings(
    layers: int, decay: float, intended: tuple[float, ...], original: tuple[float, ...]
) -> None:
    depths = (layers + 1, layers, 1, 0)
    assert [layer_factor(d, layers, decay) for d in depths] == pytest.approx(intended, abs=6e-5)
    assert [layer_factor(d, layers, decay, "original") for d in depths] == pytest.approx(original, abs=6e-5)
