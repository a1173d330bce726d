"""Order, masks and samples are pure functions of seed, epoch and example."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from electra.pretrain.data.masking import MaskingRule, draw_masking, examples_at, num_masked, permute, philox, uniforms
from electra.pretrain.engine import seed_dropout

SPECIAL = np.array([0, 2, 3, 4])


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_philox_gives_the_published_words(
    counter: tuple[int, ...], key: tuple[int, int], expected: tuple[int, ...]
) -> None:
    assert tuple(philox(np.array(counter, dtype=np.uint64), key).tolist()) == expected


def test_uniforms_are_uniform_and_depend_on_every_argument() -> None:
    draws = uniforms(1, 2, np.zeros(500), np.arange(500), 40)
    assert draws.min() >= 0 and draws.max() < 1
    assert abs(draws.mean() - 0.5) < 0.01 and abs(np.histogram(draws, 10)[0] / draws.size - 0.1).max() < 0.01
    row = uniforms(1, 2, np.array([0]), np.array([7]), 40)
    assert (row == draws[7]).all(), "independent of the examples beside it"
    for other in (
        uniforms(2, 2, np.array([0]), np.array([7]), 40),
        uniforms(1, 3, np.array([0]), np.array([7]), 40),
        uniforms(1, 2, np.array([1]), np.array([7]), 40),
        uniforms(1, 2, np.array([0]), np.array([7 + 2**32]), 40),
    ):
        assert (other != row).mean() > 0.9


@given(num_examples=st.integers(1, 3000), epoch=st.integers(0, 5), seed=st.integers(0, 2**32 - 1))
def test_every_epoch_is_a_permutation(num_examples: int, epoch: int, seed: int) -> None:
    order = permute(np.arange(num_examples), np.full(num_examples, epoch), num_examples, seed)
    assert sorted(order) == list(range(num_examples))


def test_epochs_differ_and_positions_need_no_history() -> None:
    epochs, examples = examples_at(np.arange(3000), 1000, seed=1)
    assert epochs.tolist() == sorted([0, 1, 2] * 1000)
    first, second, third = examples.reshape(3, 1000)
    assert (first != second).mean() > 0.9 and (second != third).mean() > 0.9
    assert examples_at(np.array([2345]), 1000, seed=1)[1][0] == examples[2345]


def rows(lengths: list[int], width: int, seed: int) -> np.ndarray:
    random = np.random.default_rng(seed)
    tokens = np.zeros((len(lengths), width), dtype=np.int64)
    for row, length in zip(tokens, lengths, strict=True):
        row[:length] = random.integers(1, 50, length)
        row[0], row[length - 1] = 2, 3
    return tokens


@given(
    lengths=st.lists(st.integers(4, 64), min_size=1, max_size=12),
    probability=st.floats(0.05, 0.5),
    seed=st.integers(0, 1000),
)
def test_masking_counts_places_and_independence(lengths: list[int], probability: float, seed: int) -> None:
    tokens = rows(lengths, 64, seed)
    arguments = {"special_ids": SPECIAL, "rule": MaskingRule(probability), "seed": seed}
    sizes, epochs, examples = np.array(lengths), np.full(len(lengths), 3), np.arange(len(lengths)) * 7
    masking = draw_masking(tokens, sizes, epochs, examples, **arguments)
    for row, length in enumerate(lengths):
        real = masking.weights[row] > 0
        chosen = masking.positions[row][real]
        candidates = [p for p in range(length) if tokens[row, p] not in SPECIAL]
        assert real.sum() == min(num_masked(np.array([length]), probability)[0], len(candidates))
        assert len(set(chosen)) == len(chosen), "without replacement"
        assert set(chosen) <= set(candidates), "never a special token, never padding"
        assert (masking.positions[row][~real] == 0).all()
    last = slice(len(lengths) - 1, len(lengths))
    alone = draw_masking(tokens[last], sizes[last], epochs[last], examples[last], **arguments)
    for field in ("positions", "weights", "shown", "uniforms"):
        assert (getattr(alone, field)[0] == getattr(masking, field)[-1]).all(), "independent of the batch"


def test_shares_of_masked_and_shown_tokens() -> None:
    lengths = np.full(2000, 128)
    tokens = rows(lengths.tolist(), 128, 0)
    masking = draw_masking(
        tokens, lengths, np.zeros(2000), np.arange(2000),
        special_ids=SPECIAL, rule=MaskingRule(), seed=1,
    )  # fmt: skip
    assert masking.positions.shape == (2000, 19) and masking.weights.all()
    assert abs(masking.shown.mean() - 0.15) < 0.01
    hits = np.bincount(masking.positions.ravel(), minlength=128)[1:127]
    assert hits.std() / hits.mean() < 0.1, "every place is as likely"


def test_an_example_is_masked_anew_in_every_epoch() -> None:
    lengths = np.full(200, 64)
    tokens = rows(lengths.tolist(), 64, 0)

    def drawn(epoch: int) -> list[np.ndarray]:
        masking = draw_masking(
            tokens, lengths, np.full(200, epoch), np.arange(200),
            special_ids=SPECIAL, rule=MaskingRule(), seed=1,
        )  # fmt: skip
        return [np.sort(masking.positions, axis=1), masking.shown, masking.uniforms]

    first, again, second = drawn(0), drawn(0), drawn(1)
    assert all((one == same).all() for one, same in zip(first, again, strict=True))
    assert [(one != other).any(axis=1).mean() > 0.5 for one, other in zip(first, second, strict=True)] == [True] * 3


def test_masked_random_and_original_tokens_have_the_shares_of_the_rule() -> None:
    lengths = np.full(2000, 128)
    masking = draw_masking(
        rows(lengths.tolist(), 128, 0), lengths, np.zeros(2000), np.arange(2000),
        special_ids=SPECIAL, rule=MaskingRule(as_mask=0.8, as_random=0.1), seed=1,
    )  # fmt: skip
    assert not (masking.shown & masking.random).any()
    assert abs(masking.random.mean() - 0.1) < 0.01
    assert abs(masking.shown.mean() - 0.1) < 0.01


def test_dropout_differs_between_seeds_steps_and_micro_batches_and_repeats() -> None:
    def draws(*number: int) -> tuple[int, ...]:
        seed_dropout(*number)
        return tuple(torch.randint(2**62, (4,)).tolist())

    numbers = list(itertools.product((1, 2), (0, 1, 7, 100_000), (0, 1, 63)))
    first = {number: draws(*number) for number in numbers}
    assert len(set(first.values())) == len(numbers)
    assert {number: draws(*number) for number in reversed(numbers)} == first
