"""One-off experiments; their figures are in ``experiments/results``."""
