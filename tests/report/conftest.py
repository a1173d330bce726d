"""Settings of the example run."""

import pytest

from electra.config import Settings
from electra.config.loading import parse_settings
from tests.fixtures import LABELLED, text_source

from .example import TASKS


@pytest.fixture(scope="module")
def settings() -> Settings:
    return parse_settings(
        {
            "profile": "books",
            "cells": {"tasks": list(TASKS), "seeds": [1]},
            "cluster": {},
            "corpus": {"sources": [text_source()]},
            "tokenizer": {"vocab_size": 4000},
            "shards": {"max_length": 64},
            "model": {"num_layers": 3, "hidden_size": 128, "num_heads": 4, "intermediate_size": 512,
                      "embedding_size": 128},
            "pretrain": {"num_steps": 3000, "batch_size": 32, "learning_rate": 1e-3, "warmup_steps": 300,
                         "eval_every": 500},
            "tasks": {"source": LABELLED},
            "finetune": {"learning_rate": 5e-4},
        },
        where="tests",
    )  # fmt: skip
