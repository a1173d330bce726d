"""Rounding weights once has the same result as autocast, which rounds them for every batch."""

import json

import pytest
import torch

from electra.config import Cluster
from electra.finetune.features import Batch
from electra.finetune.model import TaskModel
from electra.predict import run as module
from electra.predict.run import predict_file, round_weights
from electra.tasks.catalogue import TASKS
from tests.foreign_encoders import load, write_encoder


def test_an_encoder_that_computes_in_fp32_keeps_its_weights(tmp_path):
    """DeBERTa switches autocast off: bf16 weights would not go with its fp32 states."""
    encoder, vocabulary, _ = load(write_encoder(tmp_path / "deberta", "deberta"))
    model = TaskModel(TASKS["CoLA"], encoder, torch.Generator().manual_seed(1), span_head="plain").eval()
    tokens_BT = torch.full((2, 8), vocabulary.pad + 7)
    batch = Batch(tokens_BT, torch.zeros_like(tokens_BT), tokens_BT > 0, torch.tensor([4, 4]), None)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        before = model(batch)
        round_weights(model)
        assert torch.equal(model(batch), before)


@pytest.mark.filterwarnings("ignore:cluster.precision is bf16")  # processors without bf16 units
def test_bf16_predictions_are_the_same_with_weights_rounded_once(paths, kept, tmp_path, monkeypatch):
    cell = kept("CoLA")
    source = tmp_path / "in.txt"
    source.write_text("the cat is good\nthe dog is bad\nmary ran\n" * 5)
    rounded = []

    def watched(model):
        round_weights(model)
        rounded.extend(m.weight.dtype for m in model.modules() if isinstance(m, torch.nn.Linear))

    def found(precision):
        cluster = Cluster(device="cpu", precision=precision)
        predict_file(cluster, paths, cell, source, tmp_path / "out.jsonl", batch_size=4)
        return [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]

    monkeypatch.setattr(module, "round_weights", watched)
    once = found("bf16")
    assert set(rounded) == {torch.bfloat16}
    full = found("fp32")
    assert once != full
    monkeypatch.setattr(module, "round_weights", lambda model: None)
    assert found("bf16") == once
