"""Which tokens of an example are masked, shown and sampled how: drawn in the loader, from counters.

The original (google-research/electra, pretrain_helpers.mask) draws positions with replacement and averages the ids of
two samples that hit the same position; its author names drawing without replacement as the fix, and so it is here.
"""

from dataclasses import dataclass

import numpy as np

from electra.shards.philox import uniforms

_PURPOSE = 2


@dataclass(frozen=True)
class Masking:
    """Masked slots of n examples; slots beyond a row's count have weight 0 and position 0."""

    positions: np.ndarray  # int64 [n, K]
    weights: np.ndarray  # float32 [n, K]
    shown: np.ndarray  # bool [n, K], True where the generator sees the original token
    uniforms: np.ndarray  # float32 [n, K] in [0, 1), for the generator's sample


def num_masked(lengths: np.ndarray, probability: float) -> np.ndarray:
    """Masked tokens of examples with these lengths ([CLS] and [SEP] counted, as in the original): at least 1."""
    return np.maximum(1, np.rint(np.asarray(lengths) * probability)).astype(np.int64)


def draw_masking(
    tokens: np.ndarray,
    lengths: np.ndarray,
    epochs: np.ndarray,
    examples: np.ndarray,
    *,
    special_ids: np.ndarray,
    probability: float,
    mask_token_probability: float,
    seed: int,
) -> Masking:
    """Draw the masking of each example as a pure function of (seed, epoch, example).

    Args:
        tokens: [n, T] ids.
        lengths: [n] real tokens per row.
        epochs, examples: [n] what the draws depend on.
        special_ids: ids never masked: [CLS], [SEP], [MASK].
        probability: share of a row's tokens to mask.
        mask_token_probability: share of masked slots shown as [MASK] rather than as they are.
    """
    num_rows, width = tokens.shape
    slots = int(num_masked(np.array([width]), probability)[0])
    draws = uniforms(seed, _PURPOSE, epochs, examples, width + 2 * slots)
    scores, show_draws, sample_draws = np.split(draws, [width, width + slots], axis=1)

    candidate = (np.arange(width) < lengths[:, None]) & ~np.isin(tokens, special_ids)
    counts = np.minimum(num_masked(lengths, probability), candidate.sum(1))
    # the positions with the smallest scores among the candidates: a uniform choice without replacement
    positions = np.argsort(np.where(candidate, scores, np.inf), axis=1, kind="stable")[:, :slots]
    real = np.arange(slots) < counts[:, None]
    return Masking(
        positions=np.where(real, positions, 0),
        weights=real.astype(np.float32),
        shown=show_draws >= mask_token_probability,
        uniforms=sample_draws,
    )
