"""Next-sentence examples (BERT): half of the second segments are replaced by one from elsewhere, anew every epoch."""

import numpy as np

from electra.shards.dataset import Shards
from electra.shards.philox import uniforms
from electra.shards.pieces import Pieces

_PURPOSE = 3


def draw_next_sentences(
    shards: Shards | Pieces, tokens: np.ndarray, spans: np.ndarray, epochs: np.ndarray, examples: np.ndarray, seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Replace second segments, each with probability 1/2, by the last segment of a random example.

    A replacement is cut to the room there is, its [SEP] kept. An example of one segment stays as it is.

    Args:
        tokens, spans: of the examples, as :meth:`Shards.gather` gives them.
        epochs, examples: [n] what the draws depend on.

    Returns:
        Tokens [n, T] and spans [n, 2], and labels [n] float32: 1 replaced, 0 the text's own, -1 no second segment.
    """
    draws = uniforms(seed, _PURPOSE, epochs, examples, 2)
    partners = np.minimum((draws[:, 1].astype(np.float64) * len(shards)).astype(np.int64), len(shards) - 1)
    their_tokens, their_spans = shards.gather(partners)
    has_second, they_have = spans[:, 0] > spans[:, 1], their_spans[:, 0] > their_spans[:, 1]
    their_starts = np.where(they_have, their_spans[:, 1], 1)  # of one segment: all after [CLS]
    replaced = (draws[:, 0] < 0.5) & has_second & (partners != examples) & (their_spans[:, 0] > 0)

    tokens, spans, width = tokens.copy(), spans.copy(), tokens.shape[1]
    for row in np.flatnonzero(replaced):
        first = spans[row, 1]
        theirs = their_tokens[row, their_starts[row] : their_spans[row, 0]]
        room = width - first
        if len(theirs) > room:
            theirs = np.append(theirs[: room - 1], theirs[-1])
        end = first + len(theirs)
        tokens[row, first:end], tokens[row, end:] = theirs, 0
        spans[row, 0] = end
    labels = np.where(has_second, replaced.astype(np.float32), np.float32(-1))
    return tokens, spans, labels.astype(np.float32)
