"""The baseline of sentence embeddings: the mean of word vectors that were learned from the same text.

The vectors are a truncated singular value decomposition of the positive pointwise mutual information of wordpieces and
their neighbours, with the smoothed context distribution of word2vec (Levy, Goldberg and Dagan 2015, sections 2 and 3).

Shape legend: V vocabulary, N pairs of wordpieces that occur together, D width of a vector.
"""

from collections.abc import Sequence

import numpy as np
import torch
from scipy import sparse
from tokenizers import Tokenizer
from torch import Tensor

from electra.common.artifacts import JudgedShardsManifest, read_manifest, sha256
from electra.common.errors import DataError
from electra.common.parsing import read_tokenizer
from electra.common.paths import Paths
from electra.model.pretrained import special_token_ids
from electra.text.shards.layout import Shards

WIDTH = 128
MAX_TOKENS = 3_000_000  # of the training text, spread over it: seconds of one core
MAX_ENTRIES = 16_384  # of the vocabulary, the most frequent: bounds the memory
_WINDOW = 5  # wordpieces on each side
_SMOOTHING = 0.75  # power of the context frequencies
_OVERSAMPLED, _ITERATIONS = 10, 3  # of the randomized decomposition (Halko et al. 2011)


class WordVectors:
    """A vector for each wordpiece; a text has the mean of its own.

    Args:
        vectors_VD: float32; zero for wordpieces without one.
    """

    def __init__(self, tokenizer: Tokenizer, vectors_VD: np.ndarray):
        self.tokenizer, self.vectors_VD = tokenizer, vectors_VD
        self.tokenizer.encode_special_tokens = True  # "[SEP]" in a text is text

    @classmethod
    def learn(cls, paths: Paths) -> "WordVectors":
        """Learn vectors from the training split of ``data/shards``.

        Raises:
            DataError: shards or tokenizer are missing or damaged, or the shards have the ids of another tokenizer.
        """
        shards = Shards(paths.shards, "train")
        if not have_ids_of_tokenizer(paths):
            raise DataError(
                "the examples were made with another tokenizer",
                where=f"{paths.shards} and {paths.tokenizer}",
                next_step="run: dvc repro shards",
            )
        text = sample_of(shards, special_token_ids(paths.tokenizer))
        return cls(read_tokenizer(paths.tokenizer / "tokenizer.json"), learn_vectors(text, shards.vocab_size))

    def embed(self, texts: Sequence[str]) -> Tensor:
        """Return the mean vector [B, D] of each text; zeros for a text without wordpieces."""
        found = [self.tokenizer.encode(text, add_special_tokens=False).ids for text in texts]
        means = [self.vectors_VD[ids].mean(0) if ids else np.zeros(self.vectors_VD.shape[1]) for ids in found]
        return torch.from_numpy(np.stack(means).astype(np.float32))


def have_ids_of_tokenizer(paths: Paths) -> bool:
    """Return whether the ids in ``data/shards`` are those of ``data/tokenizer``, by its checksum."""
    made_with: str = read_manifest(paths.shards, JudgedShardsManifest)["tokenizer_sha256"]
    return made_with == sha256(paths.tokenizer / "tokenizer.json")


def sample_of(shards: Shards, special_ids: Sequence[int]) -> np.ndarray:
    """Return at most about :data:`MAX_TOKENS` wordpieces of the text, spread over it, without special ones."""
    number = min(len(shards), max(1, MAX_TOKENS // shards.max_length))
    tokens, spans = shards.gather(np.linspace(0, len(shards) - 1, number).astype(np.int64))
    text: np.ndarray = tokens[np.arange(shards.max_length) < spans[:, :1]]  # without padding
    return text[~np.isin(text, special_ids)]


def learn_vectors(text: np.ndarray, vocab_size: int, width: int = WIDTH) -> np.ndarray:
    """Return vectors [V, D] of the wordpieces of a text.

    Args:
        text: ids in their order, without special tokens.
    """
    counts_V = np.bincount(text, minlength=vocab_size)
    entries = np.sort(np.argsort(-counts_V, kind="stable")[:MAX_ENTRIES])
    entries = entries[counts_V[entries] > 0]
    number = np.full(vocab_size, -1)
    number[entries] = np.arange(len(entries))
    left_U = factor(positive_information(number[text], len(entries)), width)
    vectors_VD = np.zeros((vocab_size, left_U.shape[1]), dtype=np.float32)
    vectors_VD[entries] = left_U
    return vectors_VD


def positive_information(text: np.ndarray, size: int) -> sparse.csr_matrix:
    """Return the positive pointwise mutual information [size, size] (nats); -1 in the text has none."""
    together = sparse.csr_matrix((size, size), dtype=np.float64)
    for distance in range(1, _WINDOW + 1):
        a, b = text[:-distance], text[distance:]
        known = (a >= 0) & (b >= 0)
        together += sparse.coo_matrix((np.ones(known.sum()), (a[known], b[known])), shape=(size, size)).tocsr()
    pairs = (together + together.T).tocoo()
    counts = np.asarray(pairs.sum(1)).ravel()
    contexts = counts**_SMOOTHING / (counts**_SMOOTHING).sum()
    values = np.log(pairs.data / (counts[pairs.row] * contexts[pairs.col]))
    kept = values > 0
    return sparse.csr_matrix((values[kept], (pairs.row[kept], pairs.col[kept])), shape=(size, size))


def factor(matrix: sparse.csr_matrix, width: int) -> np.ndarray:
    """Return the left singular vectors [rows, D], each times the root of its singular value."""
    basis = np.random.default_rng(0).standard_normal((matrix.shape[1], min(width + _OVERSAMPLED, matrix.shape[1])))
    for _ in range(_ITERATIONS):
        basis = np.linalg.qr(matrix @ basis)[0]
        basis = np.linalg.qr(matrix.T @ basis)[0]
    left, singular, _ = np.linalg.svd(matrix @ basis, full_matrices=False)
    return (left * singular**0.5)[:, :width].astype(np.float32)
