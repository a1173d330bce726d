"""Language identification with py3langid."""

from functools import cache
from typing import Any

import numpy as np

from electra.config.text import Language

SAMPLE_CHARS = 1000  # from the middle of a document, where headers and licences are not
# The first PIECE_CHARS of every 100 characters of the sample are enough to keep most documents; if their language is
# less than SURE, the whole sample decides
PIECE_CHARS, SURE = 25, 0.99


def other_language(lines: list[str], step: Language) -> str | None:
    """Return the code of the document's language if it is not to be kept; None if it is, or if it is uncertain."""
    text = "\n".join(lines)
    start = max(0, (len(text) - SAMPLE_CHARS) // 2)
    sample = text[start : start + SAMPLE_CHARS]
    model = language_model()
    if len(sample) == SAMPLE_CHARS:
        pieces = "\n".join([sample[i : i + PIECE_CHARS] for i in range(0, SAMPLE_CHARS, 100)])
        language, probability = model.classify(pieces)
        if language in step.languages and probability >= SURE:
            return None
    language, probability = model.classify(sample)
    is_other = language not in step.languages and probability >= step.min_probability
    return str(language) if is_other else None


_ZERO = np.int32(0)


@cache
def language_model() -> Any:
    """Return py3langid's model with a vectorised scan of a text's bytes: the same results in a tenth of the time."""
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    class ArrayIdentifier(LanguageIdentifier):
        def __init__(self, nb_ptc: np.ndarray, *args: Any, **options: Any):
            super().__init__(nb_ptc.astype(np.float32), *args, **options)
            self.rows = np.asarray(self.tk_row).astype(np.intp) << 8
            self.moves = np.asarray(self.tk_nextmove)
            self.features = np.asarray(self.tk_output, dtype=np.int32)
            letters = np.arange(256)
            after_two = self.moves[self.rows[self.moves[self.rows[0] + letters]][:, None] + letters].ravel()
            self.row_after_two = self.rows[after_two]

        def _raw_score(self, text: bytes) -> Any:
            found = self.features.take(self._states(text))
            found.sort()
            found = found[found.searchsorted(_ZERO) :]  # -1: no feature ends here
            if not len(found):
                return np.zeros(len(self.nb_classes), dtype=np.float32)
            is_edge = np.ones(len(found) + 1, dtype=bool)
            np.not_equal(found[1:], found[:-1], out=is_edge[1:-1])
            edges = is_edge.nonzero()[0]
            counts = (edges[1:] - edges[:-1]).astype(np.float32)
            return np.log1p(counts) @ self.nb_ptc.take(found.take(edges[:-1]), axis=0) + self.nb_pc

        def _states(self, text: bytes) -> np.ndarray:
            """Return the automaton's state after each byte.

            A state depends only on the last six bytes, so six steps from the initial state are taken for all positions
            at once, the first two by a table. The text is preceded by five bytes that lead from every state to the
            initial one.
            """
            letters = np.frombuffer(b"\xff\xff\xff\xff\xff" + text, dtype=np.uint8).astype(np.intp)
            pairs = letters[:-1] << 8
            pairs += letters[1:]
            at = self.row_after_two.take(pairs[:-1])
            at += letters[2:]
            for begin in (3, 4, 5):
                at = self.rows.take(self.moves.take(at)[:-1])
                at += letters[begin:]
            return self.moves.take(at)

    return ArrayIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
