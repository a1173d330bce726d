"""The metrics of GLUE, in numpy. All are fractions or coefficients; the score card multiplies by 100.

They agree with scikit-learn and scipy, including on degenerate inputs. Correlations of a constant are nan there and
here; scoring.py says what becomes of it.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray


def accuracy(gold: ArrayLike, predicted: ArrayLike) -> float:
    """Share of equal entries."""
    return float(np.mean(np.asarray(gold) == np.asarray(predicted)))


def f1(gold: ArrayLike, predicted: ArrayLike, positive: object = 1) -> float:
    """Harmonic mean of precision and recall of the positive class; 0 where it is neither in gold nor predicted."""
    is_gold, is_predicted = np.asarray(gold) == positive, np.asarray(predicted) == positive
    denominator = int(is_gold.sum() + is_predicted.sum())
    return 2 * int((is_gold & is_predicted).sum()) / denominator if denominator else 0.0


def macro_f1(gold: ArrayLike, predicted: ArrayLike) -> float:
    """Mean of the F1 of every class that is in gold or predicted, each counting the same."""
    classes = np.unique(np.concatenate([gold, predicted]))
    return float(np.mean([f1(gold, predicted, positive=label) for label in classes]))


def matthews(gold: ArrayLike, predicted: ArrayLike) -> float:
    """Matthews' correlation coefficient for any number of classes (Gorodkin 2004); 0 where one side is constant."""
    classes, codes = np.unique(np.concatenate([gold, predicted]), return_inverse=True)
    gold_codes, predicted_codes = np.split(codes, 2)
    n = len(gold_codes)
    gold_counts = np.bincount(gold_codes, minlength=len(classes)).astype(float)
    predicted_counts = np.bincount(predicted_codes, minlength=len(classes)).astype(float)
    covariance = float((gold_codes == predicted_codes).sum()) * n - gold_counts @ predicted_counts
    gold_variance = n**2 - gold_counts @ gold_counts
    predicted_variance = n**2 - predicted_counts @ predicted_counts
    if gold_variance == 0 or predicted_variance == 0:
        return 0.0
    return float(covariance / np.sqrt(gold_variance * predicted_variance))


def pearson(gold: ArrayLike, predicted: ArrayLike) -> float:
    """Linear correlation; nan where one side is constant."""
    x, y = np.asarray(gold, dtype=float), np.asarray(predicted, dtype=float)
    if (x == x[0]).all() or (y == y[0]).all():
        return float("nan")
    x, y = x - x.mean(), y - y.mean()
    # Normalising first keeps tiny and huge values from under- or overflowing in the product.
    return float(np.clip((x / np.linalg.norm(x)) @ (y / np.linalg.norm(y)), -1.0, 1.0))


def spearman(gold: ArrayLike, predicted: ArrayLike) -> float:
    """Linear correlation of the ranks; ties share their mean rank; nan where one side is constant."""
    return pearson(ranks(gold), ranks(predicted))


def ranks(values: ArrayLike) -> NDArray[np.float64]:
    """Ranks from 1; ties share their mean rank."""
    _, inverse, counts = np.unique(np.asarray(values), return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[inverse]
