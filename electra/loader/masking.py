"""Which tokens of an example are masked, shown and sampled how: drawn in the loader, from counters.

The original (google-research/electra, pretrain_helpers.mask) draws positions with replacement and averages the ids of
two samples that hit the same position; its author names drawing without replacement as the fix, and so it is here,
unless ``fidelity: original`` asks for the old way.
"""

from dataclasses import dataclass

import numpy as np

from electra.loader.random import uniforms

_PURPOSE = 2


@dataclass(frozen=True)
class Masking:
    """Masked slots of n examples; slots beyond a row's count have weight 0 and position 0."""

    positions: np.ndarray  # int64 [n, K]
    weights: np.ndarray  # float32 [n, K]
    shown: np.ndarray  # bool [n, K], True where the original token is seen
    random: np.ndarray  # bool [n, K], True where a random token is seen (BERT)
    uniforms: np.ndarray  # float32 [n, K] in [0, 1), for the sample or the random token


@dataclass(frozen=True)
class MaskingRule:
    """How much is masked, and what is seen at masked positions: [MASK], a random token, or (the rest) the original."""

    probability: float = 0.15
    as_mask: float = 0.85
    as_random: float = 0.0
    with_replacement: bool = False


def num_masked(lengths: np.ndarray, probability: float) -> np.ndarray:
    """Masked tokens of examples with these lengths ([CLS] and [SEP] counted, as in the original): at least 1."""
    return np.maximum(1, np.rint(np.asarray(lengths) * probability)).astype(np.int64)


def num_slots(length: int, rule: MaskingRule) -> int:
    """Slots of a row: what a full row needs, or the original's max_predictions_per_seq."""
    if rule.with_replacement:
        return int((rule.probability + 0.005) * length)
    return int(num_masked(np.array([length]), rule.probability)[0])


def draw_masking(
    tokens: np.ndarray,
    lengths: np.ndarray,
    epochs: np.ndarray,
    examples: np.ndarray,
    *,
    special_ids: np.ndarray,
    rule: MaskingRule,
    seed: int,
) -> Masking:
    """Draw the masking of each example as a pure function of (seed, epoch, example).

    Args:
        tokens: [n, T] ids.
        lengths: [n] real tokens per row.
        epochs, examples: [n] what the draws depend on.
        special_ids: ids never masked: [CLS], [SEP], [MASK].
        rule: how much is masked and what is seen there.
    """
    num_rows, width = tokens.shape
    slots = num_slots(width, rule)
    draws = uniforms(seed, _PURPOSE, epochs, examples, width + 2 * slots)
    scores, show_draws, sample_draws = np.split(draws, [width, width + slots], axis=1)

    candidate = is_candidate(tokens, lengths, special_ids)
    if rule.with_replacement:
        counts = np.minimum(num_masked(lengths, rule.probability), slots) * (candidate.sum(1) > 0)
        positions = _with_replacement(candidate, scores[:, :slots])
    else:
        counts = np.minimum(num_masked(lengths, rule.probability), candidate.sum(1))
        # the positions with the smallest scores among the candidates: a uniform choice without replacement
        positions = np.argsort(np.where(candidate, scores, np.inf), axis=1, kind="stable")[:, :slots]
    real = np.arange(slots) < counts[:, None]
    shown = show_draws >= rule.as_mask + rule.as_random
    if rule.with_replacement:
        shown = _only_if_all_agree(shown, positions, real)
    return Masking(
        positions=np.where(real, positions, 0),
        weights=real.astype(np.float32),
        shown=shown,
        random=(show_draws >= rule.as_mask) & ~shown,
        uniforms=sample_draws,
    )


def is_candidate(tokens: np.ndarray, lengths: np.ndarray, special_ids: np.ndarray) -> np.ndarray:
    """True [n, T] at tokens that may be masked: real ones that are not special."""
    return (np.arange(tokens.shape[1]) < lengths[:, None]) & ~np.isin(tokens, special_ids)


def _with_replacement(candidate: np.ndarray, draws: np.ndarray) -> np.ndarray:
    """A candidate position [n, K] for each draw in [0, 1); two draws may hit the same one."""
    order = np.argsort(~candidate, axis=1, kind="stable")  # candidates first, in their order
    chosen = (draws * candidate.sum(1, keepdims=True)).astype(np.int64)
    return np.take_along_axis(order, chosen, axis=1)


def _only_if_all_agree(shown: np.ndarray, positions: np.ndarray, real: np.ndarray) -> np.ndarray:
    """A position is [MASK] as soon as one of the draws that hit it says so."""
    same = (positions[:, :, None] == positions[:, None, :]) & real[:, None, :]
    return ~(same & ~shown[:, None, :]).any(2)
