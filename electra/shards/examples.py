"""Cutting a document into ELECTRA's two-segment examples (build_pretraining_dataset.py of the original).

Unlike the original nothing is dropped: what does not fit goes on in the next example, and both segments are contiguous
and in the order of the text. An example holds text of one document only.
"""

from bisect import bisect_left
from collections.abc import Iterator

import numpy as np

from electra.config import Shards
from electra.shards.boundaries import DocumentBoundaries

SHORTEST_TARGET = 5  # of an example that is short on purpose; [CLS] a [SEP] b [SEP] is the least


def document_generator(seed: int, doc_id: str) -> np.random.Generator:
    """Randomness of one document: depends on the seed and the document's hash alone, not on files or workers."""
    key = np.array([seed % 2**64, int(doc_id, 16) % 2**64], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=key))


def cut_document(
    num_tokens: int,
    line_ends: list[int],
    rules: Shards,
    generator: np.random.Generator,
    boundaries: DocumentBoundaries | None = None,
) -> Iterator[tuple[int, int, int]]:
    """Cut ``num_tokens`` wordpieces into the spans of consecutive examples.

    Args:
        num_tokens: wordpieces of the document.
        line_ends: increasing positions after the last wordpiece of each line (a line is a sentence or a paragraph).
        rules: target length and the probabilities of short and of single-segment examples.
        generator: the document's randomness.
        boundaries: an example ends at one of these where there is one in its last quarter, and so does the first
            segment near its middle; without them an example ends where it is full, and only the first segment looks
            for line ends.

    Yields:
        (start, middle, end): the first segment is ``start:middle``, the second ``middle:end``; middle equals end when
        there is one segment. The spans follow each other without gaps from 0 to ``num_tokens``.
    """
    start = 0
    while start < num_tokens:
        short, length, single = generator.random(3)
        target = rules.max_length
        if short < rules.short_example_probability:
            target = SHORTEST_TARGET + int(length * (rules.max_length - SHORTEST_TARGET + 1))
        wanted = (target - 3) // 2  # of the first segment
        if single < rules.single_segment_probability or num_tokens - start <= wanted:
            end = _end(start, start + target - 2, num_tokens, boundaries)
            yield start, end, end
        else:
            end = _end(start, start + target - 3, num_tokens, boundaries)
            middle = _middle(start, end, wanted, boundaries.sentences if boundaries else line_ends)
            if boundaries and middle - start == wanted:  # no sentence ends near
                middle = max(start + 1, boundaries.between_words(middle))
            yield start, middle, end
        start = end


def _end(start: int, full: int, num_tokens: int, boundaries: DocumentBoundaries | None) -> int:
    if full >= num_tokens:
        return num_tokens
    return boundaries.last(full, full - (full - start) // 4) if boundaries else full


def _middle(start: int, end: int, wanted: int, line_ends: list[int]) -> int:
    """The line end nearest to ``start + wanted``; where none is near, as inside a long paragraph, just that."""
    aim = start + wanted
    after = bisect_left(line_ends, aim)
    near = [at for at in line_ends[max(0, after - 1) : after + 1] if start < at < end and abs(at - aim) <= wanted // 2]
    return min(near, key=lambda at: abs(at - aim), default=aim)
