"""A small workspace with a WordPiece tokenizer over a handful of words."""

from pathlib import Path

import pytest
import torch
from tokenizers import BertWordPieceTokenizer

from electra.paths import Paths

from .small import VOCAB


@pytest.fixture(autouse=True)
def _one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    paths = Paths(tmp_path)
    paths.tokenizer.mkdir(parents=True)
    vocabulary = tmp_path / "vocab.txt"
    vocabulary.write_text("\n".join(VOCAB) + "\n", encoding="utf-8")
    BertWordPieceTokenizer(str(vocabulary), lowercase=True).save(str(paths.tokenizer / "tokenizer.json"))
    return paths
