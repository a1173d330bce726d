"""`electra export --onnx`: onnxruntime computes what PyTorch computes, and the cards' lines run."""

# ruff: noqa: F811

import json
import re
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import electra.__main__  # noqa: F401  # adds the commands
from electra.cli import app
from electra.common.errors import ConfigError, DataError
from electra.common.paths import Paths
from electra.hub import onnx
from electra.hub.finetuned import export_task
from electra.tasks.catalogue import TASKS
from tests.predict.test_finetuned_export import MODERN, PAPERS, ROTARY, Keep, batch_of, keep, logits_of  # noqa: F401
from tests.publish.conftest import silence  # noqa: F401

needs_onnx = pytest.mark.skipif(
    any(find_spec(name) is None for name in onnx.PACKAGES),
    reason="the extra onnx is not installed",
)


def run(folder: Path, file: str, inputs: dict[str, Any]) -> list[np.ndarray]:
    """The outputs of a graph, in the library that its users have."""
    import onnxruntime

    session = onnxruntime.InferenceSession(folder / "onnx" / file)
    wanted = {one.name for one in session.get_inputs()}
    return session.run(None, {name: array for name, array in inputs.items() if name in wanted})


@needs_onnx
@pytest.mark.parametrize(
    ("task", "parts"),
    [
        ("CoLA", {**PAPERS, "num_layers": 1}),  # a layer takes seconds to export; deeper: tests/publish
        ("STS-B", {**ROTARY, "num_layers": 1}),
        ("CoNLL-2003", MODERN),
        ("SQuAD2.0", {**PAPERS, "num_layers": 1}),
        ("SWAG", {**MODERN, "num_layers": 1}),
    ],
    ids=["classification-electra", "regression-roformer", "tagging-modern", "span-electra", "choice-modern"],
)
def test_a_task_in_onnxruntime_has_the_logits_of_pytorch_and_the_cards_lines_run(
    task: str,
    parts: dict[str, Any],
    keep: Keep,
    paths: Paths,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    saved = keep(task, parts)
    monkeypatch.chdir(paths.root)
    done = CliRunner().invoke(app, ["export", "--task", task, "--seed", "1", "--onnx", "--out", "out"])
    assert done.exit_code == 0 and "onnx/model_quantized.onnx: " in done.output, done.output
    folder = paths.root / "out"
    for padded in (False, True):  # a batch and a length that the export has not seen
        batch = batch_of(saved, padded=padded)
        _, theirs = logits_of(saved, folder, batch)
        inputs = {
            "input_ids": batch.tokens_BT.numpy(),
            "attention_mask": batch.mask_BT.long().numpy(),
            "token_type_ids": batch.segments_BT.numpy(),
        }
        if task == "SWAG":
            inputs = {name: array[None] for name, array in inputs.items()}
        expected = [theirs.start_logits, theirs.end_logits] if task == "SQuAD2.0" else [theirs.logits]
        found = run(folder, "model.onnx", inputs)
        real = batch.mask_BT.numpy() if task in ("CoNLL-2003", "SQuAD2.0") else np.s_[:]
        for ours, wanted in zip(found, expected, strict=False):
            assert ours.shape == wanted.shape and np.abs(wanted.numpy()).max() > 0.1
            assert np.abs(ours - wanted.numpy())[real].max() < 1e-4
        assert len(found) == (3 if task == "SQuAD2.0" else 1)  # and the logit of having no answer
        int8 = run(folder, "model_quantized.onnx", inputs)
        assert int8[0].shape == found[0].shape and not np.array_equal(int8[0], found[0])
    _, code = re.findall(r"```python\n(.*?)```", (folder / "README.md").read_text(), re.DOTALL)
    variables: dict[str, Any] = {}
    exec(code.replace("path/to/this/folder", str(folder)), variables)  # the project's own text
    assert len(code.strip().splitlines()) == 5  # an import and three lines
    results = [value for name, value in variables.items() if name.endswith("logits")]
    assert len(results) == len(found) and all(np.isfinite(value).all() for value in results)


@needs_onnx
def test_scores_of_a_wide_range_may_differ_by_their_rounding(
    keep: Keep, paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(TASKS, "STS-B", replace(TASKS["STS-B"], score_range=(0.0, 100_000.0)))
    keep("STS-B", {**PAPERS, "num_layers": 1})
    facts = json.loads((export_task(paths, "STS-B", with_onnx=True) / "onnx/check.json").read_text())
    assert 1e-4 < facts["graphs"]["model.onnx"]["difference"] < 10


@needs_onnx
@pytest.mark.parametrize("task", ["STS-B", "SQuAD2.0"])
def test_both_graphs_are_scored_on_the_development_set(task: str, paths: Paths, kept: Any) -> None:
    """The fp32 graph has the score of the model that was trained; int8 is within a point, or is left out."""
    cell = kept(task)
    folder = export_task(paths, cell, with_onnx=True)
    facts = json.loads((folder / "onnx/check.json").read_text())
    card = (folder / "README.md").read_text()
    fp32, int8 = facts["graphs"]["model.onnx"], facts["graphs"]["model_quantized.onnx"]
    scores = dict(re.findall(r"^- (\w+): ([\d.]+)$", card, re.MULTILINE))  # of the trained model's predictions
    assert scores and all(abs(fp32["scores"][name] - float(value)) < 0.02 for name, value in scores.items())
    assert fp32["difference"] < 1e-4 and fp32["num_bytes"] == (folder / "onnx/model.onnx").stat().st_size
    headline = next(iter(fp32["scores"]))
    is_close = int8["scores"][headline] >= fp32["scores"][headline] - 1
    assert is_close == (folder / "onnx/model_quantized.onnx").is_file() == (not facts["int8_left_out"])
    if is_close:
        assert int8["num_bytes"] < fp32["num_bytes"]


@needs_onnx
def test_int8_that_loses_more_than_a_point_is_left_out_with_the_reason(
    paths: Paths, kept: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cell = kept("STS-B")

    def spoil(source: Path, target: Path) -> None:
        import onnx as library

        model = library.load(source)
        for weight in model.graph.initializer:
            if weight.data_type == library.TensorProto.FLOAT:
                zeros = np.zeros_like(library.numpy_helper.to_array(weight))
                weight.CopyFrom(library.numpy_helper.from_array(zeros, weight.name))
        library.save(model, target)

    monkeypatch.setattr(onnx, "_quantize", spoil)
    folder = export_task(paths, cell, with_onnx=True)
    assert not (folder / "onnx/model_quantized.onnx").exists()
    assert "model_quantized.onnx is left out: " in capsys.readouterr().out
    assert "There is no int8 graph: " in (folder / "README.md").read_text()


@needs_onnx
def test_a_graph_that_computes_something_else_is_refused_and_nothing_is_written(
    keep: Keep,
    paths: Paths,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    saved = keep("CoLA", {**PAPERS, "num_layers": 1})
    export = onnx._export

    def other(graph: onnx.Graph, *arguments: Any) -> None:
        weight = graph.encoder.layers[0].attention.output.weight
        with torch.no_grad():
            weight[0, 0] += 0.05
            export(graph, *arguments)
            weight[0, 0] -= 0.05

    monkeypatch.setattr(onnx, "_export", other)
    with pytest.raises(DataError, match="the graph's outputs differ from PyTorch's by"):
        export_task(paths, "CoLA", with_onnx=True)
    assert not paths.exported("CoLA-1").exists() and saved.spec.name == "CoLA"


def test_a_missing_extra_is_named_before_anything_is_done(
    keep: Keep,
    paths: Paths,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keep("CoLA", PAPERS)
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    monkeypatch.chdir(paths.root)
    for command in (["export", "--onnx"], ["export", "--task", "CoLA", "--onnx"]):
        found = CliRunner().invoke(app, command)
        assert isinstance(found.exception, ConfigError), found.output
        assert "pip install 'electra-pipeline[onnx]'" in str(found.exception)
    assert not paths.exported("CoLA-1").exists()
