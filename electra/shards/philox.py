"""Philox-4x32-10: random numbers as a pure function of a key and a counter (Salmon et al., SC 2011).

There is no state to save, split between processes or advance: whoever asks for the numbers of (seed, epoch, example)
gets the same ones, on any machine, in any order. Vectorised over counters, which numpy's own generator is not.
"""

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
