"""The order examples are drawn in: every epoch a fresh permutation, computed instead of stored.

A Feistel network with Philox as its round function permutes [0, 4**k); walking the cycle until the value falls below
n makes it a permutation of [0, n). Memory does not grow with the corpus and any position is found at once, so the
state of a run is one integer: the number of examples seen.
"""

import numpy as np

from electra.shards.philox import philox

_PURPOSE = 1
_ROUNDS = 4


def examples_at(positions: np.ndarray, num_examples: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Which example stands at each position of the endless stream of shuffled epochs.

    Args:
        positions: [n] integers counted from the start of training.
        num_examples: size of one epoch.

    Returns:
        epochs [n] and examples [n], int64.
    """
    epochs, places = np.divmod(np.asarray(positions, dtype=np.int64), num_examples)
    return epochs, permute(places, epochs, num_examples, seed)


def permute(places: np.ndarray, epochs: np.ndarray, num_examples: int, seed: int) -> np.ndarray:
    """The image of each place under its epoch's permutation of [0, num_examples), int64 [n]."""
    half_bits = max(1, -(-(num_examples - 1).bit_length() // 2))
    values = places.astype(np.uint64)
    walking = np.ones(len(values), dtype=bool)
    while walking.any():
        values[walking] = _feistel(values[walking], epochs[walking], half_bits, seed)
        walking = values >= num_examples
    return values.astype(np.int64)


def _feistel(values: np.ndarray, epochs: np.ndarray, half_bits: int, seed: int) -> np.ndarray:
    low = np.uint64((1 << half_bits) - 1)
    shift = np.uint64(half_bits)
    left, right = values >> shift, values & low
    counters = np.zeros((len(values), 4), dtype=np.uint64)
    counters[:, 1] = epochs
    for step in range(_ROUNDS):
        counters[:, 0] = step
        counters[:, 2] = right
        mixed = philox(counters, (seed & 0xFFFFFFFF, _PURPOSE))[:, 0].astype(np.uint64)
        left, right = right, left ^ (mixed & low)
    return left << shift | right
