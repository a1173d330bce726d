"""Counter-based randomness: Philox-4x32-10 (Salmon et al., SC 2011), and the order of examples made from it.

There is no state to save, split between processes or advance: the numbers of (seed, epoch, example) are a pure function
of these, on any machine and in any order. The order of an epoch is a permutation that is computed, not stored: a
Feistel network with Philox as its round function permutes [0, 4**k), and walking the cycle until the value falls below
n makes it a permutation of [0, n). So the state of a run is one integer: the number of examples seen."""

import numpy as np

_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_WEYL = (np.uint64(0x9E3779B9), np.uint64(0xBB67AE85))
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_ROUNDS = 10


def philox(counters: np.ndarray, key: tuple[int, int]) -> np.ndarray:
    """Four random 32-bit words per counter.

    Args:
        counters: [..., 4] integers below 2**32.
        key: two integers below 2**32.

    Returns:
        [..., 4] uint32.
    """
    c0, c1, c2, c3 = np.moveaxis(np.asarray(counters, dtype=np.uint64), -1, 0)
    k0, k1 = np.uint64(key[0]), np.uint64(key[1])
    for _ in range(_ROUNDS):
        p0, p1 = _MULTIPLIERS[0] * c0, _MULTIPLIERS[1] * c2
        c0, c1, c2, c3 = (p1 >> _HALF) ^ c1 ^ k0, p1 & _LOW, (p0 >> _HALF) ^ c3 ^ k1, p0 & _LOW
        k0, k1 = (k0 + _WEYL[0]) & _LOW, (k1 + _WEYL[1]) & _LOW
    return np.stack([c0, c1, c2, c3], axis=-1).astype(np.uint32)


def uniforms(seed: int, purpose: int, epochs: np.ndarray, examples: np.ndarray, count: int) -> np.ndarray:
    """``count`` numbers in [0, 1) for each (epoch, example), for one purpose (a small integer that names the use).

    Args:
        epochs, examples: [n] integers below 2**31 and 2**62.

    Returns:
        [n, count] float32, multiples of 2**-24.
    """
    blocks = -(-count // 4)
    counters = np.empty((len(examples), blocks, 4), dtype=np.uint64)
    counters[..., 0] = np.arange(blocks)
    counters[..., 1] = (np.asarray(epochs, dtype=np.uint64))[:, None]
    counters[..., 2] = (np.asarray(examples, dtype=np.uint64) & _LOW)[:, None]
    counters[..., 3] = (np.asarray(examples, dtype=np.uint64) >> _HALF)[:, None]
    words = philox(counters, (seed & 0xFFFFFFFF, purpose)).reshape(len(examples), -1)[:, :count]
    return ((words >> np.uint32(8)) * np.float32(2**-24)).astype(np.float32)


_PURPOSE = 1
_FEISTEL_ROUNDS = 4


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
    for step in range(_FEISTEL_ROUNDS):
        counters[:, 0] = step
        counters[:, 2] = right
        mixed = philox(counters, (seed & 0xFFFFFFFF, _PURPOSE))[:, 0].astype(np.uint64)
        left, right = right, left ^ (mixed & low)
    return left << shift | right
