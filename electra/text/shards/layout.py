"""The layout of one example, which the shards are written in and the loader cuts anew."""

import numpy as np


def write_example(
    tokens: np.ndarray, pieces: np.ndarray, cut: tuple[int, int, int], *, cls_id: int, sep_id: int
) -> tuple[int, int]:
    """Write ``[CLS] a [SEP]`` or ``[CLS] a [SEP] b [SEP]`` into one row.

    Args:
        tokens: the row [max_length], all zeros.
        pieces: ids of the document's wordpieces.
        cut: (start, middle, end) of the two segments in ``pieces``; middle equals end when there is one.
        cls_id, sep_id: ids of the special tokens.

    Returns:
        Number of tokens, and length of the first segment with ``[CLS]`` and its ``[SEP]``.
    """
    start, middle, end = cut
    first = middle - start + 2
    tokens[0] = cls_id
    tokens[1 : first - 1] = pieces[start:middle]
    tokens[first - 1] = sep_id
    if middle == end:
        return first, first
    length = first + end - middle + 1
    tokens[first : length - 1] = pieces[middle:end]
    tokens[length - 1] = sep_id
    return length, first
