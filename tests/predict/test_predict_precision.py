"""Rounding weights once has the same result as autocast, which rounds them for every batch."""

import json

import pytest
import torch

from electra.config import Cluster
from electra.predict import run as module
from electra.predict.run import predict_file, round_weights


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
