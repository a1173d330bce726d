"""Questions that were answered once; their figures are in ``experiments/results``."""
