"""Find text that occurs in more than one document: second editions, extracts, templates.

Documents are compared by their n-grams of words as in :mod:`electra.text.corpus.near_duplicates`, which ignores case,
punctuation in any script, and spaces. Only n-grams with the smallest hashes are kept (FracMinHash: Irber et al. 2022):
unlike a signature of fixed length, this sample also shows that a short document is part of a long one, and two editions
are found wherever each was cut into a training and a held-out part.
"""

from dataclasses import dataclass, field

import numpy as np

from electra.checks.tables import hash_bound
from electra.text.corpus.near_duplicates import ngram_hashes, word_hashes

NGRAM_WORDS = 13  # same as in `corpus.decontamination`; no two of 199 novels share more than one in a thousand n-grams
LEAST_SHARED = 0.5  # least share of a document's n-grams in other documents for its text to count
MAX_NGRAMS = 4_000_000  # limit for text in which every character is a word: 50 MB; English text has a fifth of them
MAX_PAIRS = 10  # pairs listed, if the document's share is at least LEAST_NAMED
LEAST_NAMED = 0.1

_DOCUMENT = np.dtype([("number", np.int64), ("characters", np.int64), ("ngrams", np.int64), ("held", np.int64)])
_NGRAM = np.dtype([("hash", np.uint64), ("times", np.uint32)])


@dataclass(frozen=True)
class Repeat:
    """A document that shares text with another document at least as long.

    Args:
        document, other: index in the order in which documents were added, from 0.
        characters: characters of the document that also occur in other documents.
        share: these characters as a share of the document.
    """

    document: int
    other: int
    characters: int
    share: float


@dataclass
class RepeatedText:
    """Count the text that also occurs in other documents.

    Args:
        expected_characters: characters of the whole corpus, which determine the kept hashes; equal for all parts.
    """

    expected_characters: int
    num_documents: int = 0
    characters: int = 0
    _documents: list[np.ndarray] = field(default_factory=list)
    _ngrams: list[np.ndarray] = field(default_factory=list)

    def add(self, texts: list[str]) -> None:
        """Add documents."""
        bound = hash_bound(self.expected_characters, MAX_NGRAMS)
        rows = []
        for number, text in enumerate(texts, start=self.num_documents):
            hashes = ngram_hashes(word_hashes([text])[0], NGRAM_WORDS)
            held, times = np.unique(hashes[hashes <= bound], return_counts=True)
            if len(held):
                rows.append((number, len(text), len(hashes), len(held)))
                ngrams = np.empty(len(held), _NGRAM)
                ngrams["hash"], ngrams["times"] = held, times
                self._ngrams.append(ngrams)
        self._documents.append(np.array(rows, _DOCUMENT))
        self.num_documents += len(texts)
        self.characters += sum(map(len, texts))

    def add_all(self, part: "RepeatedText") -> None:
        """Add the documents of the next part of the corpus."""
        for documents in part._documents:
            moved = documents.copy()
            moved["number"] += self.num_documents
            self._documents.append(moved)
        self._ngrams += part._ngrams
        self.num_documents += part.num_documents
        self.characters += part.characters

    def find(self) -> tuple[float, list[Repeat]]:
        """Return the share of characters that also occur in a longer document, and the documents with most of them.

        For documents that share at least ``LEAST_SHARED`` of their n-grams with others, each n-gram counts in all but
        the longest document (of equally long ones, all but the first). The share is an unbiased estimate from the kept
        n-grams, and exact if all are kept.
        """
        documents = np.concatenate([np.empty(0, _DOCUMENT), *self._documents])
        if not len(documents):
            return 0.0, []
        by_length = np.lexsort((documents["number"], -documents["characters"]))
        rank = np.empty(len(documents), np.int64)
        rank[by_length] = np.arange(len(documents))
        owners = np.repeat(rank, documents["held"])
        ngrams = np.concatenate(self._ngrams)
        documents = documents[by_length]
        order = np.lexsort((owners, ngrams["hash"]))
        ngrams, owners = ngrams[order], owners[order]
        is_first = np.concatenate(([True], ngrams["hash"][1:] != ngrams["hash"][:-1]))
        first = owners[np.maximum.accumulate(np.where(is_first, np.arange(len(ngrams)), 0))]
        is_shared = ~is_first | np.concatenate((~is_first[1:], [False]))

        def per_document(of: np.ndarray) -> np.ndarray:
            return np.bincount(owners[of], ngrams["times"][of], minlength=len(documents))

        held = per_document(np.ones(len(ngrams), bool))
        counts = per_document(is_shared) >= LEAST_SHARED * held
        repeats = ~is_first & counts[owners]
        repeated = per_document(repeats)
        kept_share = (int(hash_bound(self.expected_characters, MAX_NGRAMS)) + 1) / 2**64
        characters = documents["characters"] / documents["ngrams"] * repeated / kept_share
        pairs = []
        for place in np.argsort(-characters, kind="stable")[:MAX_PAIRS]:
            if (share := repeated[place] / held[place]) >= LEAST_NAMED:
                number, other = documents["number"][[place, np.bincount(first[repeats & (owners == place)]).argmax()]]
                pairs.append(Repeat(int(number), int(other), round(share * documents["characters"][place]), share))
        return min(1.0, float(characters.sum() / self.characters)), pairs  # an estimate may exceed 1
