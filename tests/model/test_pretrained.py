"""Reading ``models/pretrained``."""

from pathlib import Path
from typing import get_args

import pytest
import torch

from electra import config
from electra.common.artifacts import write_manifest
from electra.config import ObjectiveName
from electra.config.text import SPECIAL_TOKENS
from electra.model.pretrained import load_encoder, save_pretrained
from electra.objectives.base import build_objective
from electra.objectives.saved import load_objective
from electra.text.tokenizer.wordpiece import make_tokenizer

SHAPE = {"num_layers": 1, "hidden_size": 16, "num_heads": 2, "intermediate_size": 32, "embedding_size": 8}


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokenizer")
    (folder / "tokenizer.json").write_text(make_tokenizer([*SPECIAL_TOKENS, "a", "b"], lowercase=True).to_str())
    write_manifest(folder)
    return folder


SHARINGS = [("electra", "none"), ("electra", "gradient_disentangled"), ("electra", "all")]


@pytest.mark.parametrize(
    ("objective", "sharing"), [*((name, "embeddings") for name in get_args(ObjectiveName)), *SHARINGS]
)
def test_the_encoder_alone_is_that_of_the_whole_method(objective, sharing, tokenizer, tmp_path):
    width = {"generator_width": 1.0} if sharing == "all" else {}
    model = config.Model(**SHAPE, **width, max_positions=16, embedding_sharing=sharing)
    method = config.Method(objective=objective)
    objective_module = build_objective(model, 7, 4, method)
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in objective_module.parameters():
            parameter.copy_(torch.randn_like(parameter))
    weights = {name: parameter.detach() for name, parameter in objective_module.named_parameters()}
    save_pretrained(tmp_path / "model", weights, model, 7, tokenizer, method)

    expected = load_objective(tmp_path / "model").encoder_to_publish().state_dict()
    alone = load_encoder(tmp_path / "model", dropout=0.3)

    assert alone.config.dropout == 0.3
    assert not alone.training
    found = alone.state_dict()
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)
