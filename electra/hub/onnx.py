"""Write models as ONNX graphs in fp32 and int8, checked against PyTorch: ``electra export --onnx``.

``onnx/model.onnx`` and ``onnx/model_quantized.onnx`` are where transformers.js, Optimum and sentence-transformers look
for them. A graph takes what the folder's tokenizer returns and has the outputs of the folder's class of
``transformers``. Batch and length are dynamic.

The graphs come from PyTorch's newer exporter (``dynamo=True``), under which the project's CPU kernels are plain PyTorch
operations. The older one, of TorchScript, records what the kernels computed for its example as a constant: its graph
lacks ``attention_mask``, and it fails for rotary positions.

int8: the weights of matrix products and of embeddings are 8-bit integers, those of products one scale for each output;
activations are quantized while the graph runs. Weights use 7 of the 8 bits, since processors without VNNI would
saturate in sums of products.

Shape legend: B examples, T tokens, D hidden width, C choices or classes.
"""

import contextlib
import logging
import statistics
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from electra.cluster.run_facts import processor
from electra.common.artifacts import write_json
from electra.common.errors import ConfigError, DataError
from electra.finetune.features import Batch
from electra.finetune.input_format import InputFormat
from electra.model.encoder import Encoder

FOLDER, FP32, INT8, FACTS = "onnx", "model.onnx", "model_quantized.onnx", "check.json"
PACKAGES = ("onnx", "onnxruntime", "onnxscript")
TOLERANCE = 1e-4  # largest difference between the outputs of the fp32 graph and PyTorch's, which are of size 1
MOST_LOST = 0.01  # of a task's score, by int8
TIMED_TOKENS = 128
REPEATS = 15


def require_onnx() -> None:
    """Check that the extra is installed.

    Raises:
        ConfigError: a package is missing.
    """
    for name in PACKAGES:
        if find_spec(name) is None:
            raise ConfigError(
                f"{name} is not installed", where="--onnx", next_step="pip install 'electra-pipeline[onnx]'"
            )


class Graph(nn.Module):
    """A module with the inputs and outputs of the ONNX graph.

    Args:
        encoder: the encoder, in evaluation mode.
        outputs: names of what :meth:`result` returns.

    Attributes:
        has_choices: True if inputs are [B, C, T].
    """

    has_choices = False
    reads_summary_only = False

    def __init__(self, encoder: Encoder, outputs: Sequence[str]):
        super().__init__()
        self.encoder, self.outputs = encoder, list(outputs)
        self.inputs = ["input_ids", "attention_mask"]
        if not encoder.config.is_modern:
            self.inputs.append("token_type_ids")

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None) -> Any:
        segments = torch.zeros_like(input_ids) if token_type_ids is None else token_type_ids
        shape = input_ids.shape
        rows_BT, segments_BT, mask_BT = (x.view(-1, shape[-1]) for x in (input_ids, segments, attention_mask))
        hidden_BTD = self.encoder(rows_BT, segments_BT, mask_BT.bool(), first_only=self.reads_summary_only)
        found = self.result(hidden_BTD)
        return found.view(shape[0], shape[1]) if self.has_choices else found

    def result(self, hidden_BTD: Tensor) -> Any:
        """Return the outputs."""
        raise NotImplementedError


class EncoderGraph(Graph):
    """An encoder's hidden states, and the logits of being replaced where a discriminator's head is given."""

    def __init__(self, encoder: Encoder, head: nn.Module | None):
        super().__init__(encoder, ["last_hidden_state", *(["logits"] if head is not None else [])])
        self.head = head

    def result(self, hidden_BTD: Tensor) -> Any:
        return hidden_BTD if self.head is None else (hidden_BTD, self.head(hidden_BTD))


class SentenceGraph(Graph):
    """One linear layer on the first token: classes, a score, or one logit for each choice."""

    reads_summary_only = True

    def __init__(self, encoder: Encoder, output: nn.Module, has_choices: bool):
        super().__init__(encoder, ["logits"])
        self.output, self.has_choices = output, has_choices

    def result(self, hidden_BTD: Tensor) -> Any:
        return self.output(hidden_BTD[:, 0])


class TokenGraph(Graph):
    """One linear layer on every token."""

    def __init__(self, encoder: Encoder, output: nn.Module):
        super().__init__(encoder, ["logits"])
        self.output = output

    def result(self, hidden_BTD: Tensor) -> Any:
        return self.output(hidden_BTD)


class SpanGraph(Graph):
    """Start and end logits of every token, and the logit of having no answer where the model has one."""

    def __init__(self, encoder: Encoder, output: nn.Module, impossible: nn.Module | None):
        super().__init__(encoder, ["start_logits", "end_logits", *(["no_answer_logits"] if impossible else [])])
        self.output, self.impossible = output, impossible

    def result(self, hidden_BTD: Tensor) -> Any:
        start_BT, end_BT = self.output(hidden_BTD).unbind(-1)
        if self.impossible is None:
            return start_BT, end_BT
        return start_BT, end_BT, self.impossible(hidden_BTD[:, 0]).squeeze(-1)


@dataclass
class Checked:
    """Facts about one graph.

    Attributes:
        num_bytes: size of the file.
        milliseconds: median time of one input.
        difference: largest difference of an output from PyTorch's, over random inputs.
        scores: metrics in percent.
    """

    num_bytes: int
    milliseconds: float
    difference: float
    scores: dict[str, float] = field(default_factory=dict)


@dataclass
class GraphFacts:
    """Facts about the graphs of a folder; the content of ``onnx/check.json``.

    Attributes:
        int8_left_out: reason why there is no int8 graph; empty if there is one.
        tokens: length of the input that was timed, alone in its batch.
        graphs: by file name; ``PyTorch`` has the milliseconds alone.
    """

    inputs: list[str]
    outputs: list[str]
    tokens: int
    processor: str
    threads: int
    versions: dict[str, str]
    graphs: dict[str, Checked]
    pytorch_milliseconds: float
    int8_left_out: str = ""


class Session:
    """A graph in onnxruntime, on the CPU with PyTorch's number of threads."""

    def __init__(self, file: Path, graph: Graph):
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        options.log_severity_level = 3
        self._session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
        self.graph = graph

    def __call__(self, *inputs: Tensor) -> list[Tensor]:
        """Return the outputs of the graph for the inputs that it has."""
        named = zip(self.graph.inputs, inputs, strict=False)  # ModernBERT's have no segments
        found = self._session.run(None, {name: tensor.numpy() for name, tensor in named})
        return [torch.from_numpy(np.asarray(array)) for array in found]


Scores = Callable[[Session], dict[str, float]]


@torch.no_grad()
def write_graphs(
    folder: Path,
    graph: Graph,
    special: InputFormat,
    max_length: int,
    *,
    num_choices: int = 1,
    reference: Callable[[Batch], list[Tensor]] | None = None,
    scores: Scores | None = None,
    most_lost: float = MOST_LOST,
    unit: float = 1.0,
) -> GraphFacts:
    """Write both graphs of a model into ``folder/onnx``, check them, and return what was found.

    Args:
        special: ids of the special tokens, for the random inputs of the check.
        max_length: tokens of the longest input.
        reference: outputs of the model that the graph was made of, in the graph's order; the graph's own module in
            PyTorch if None.
        scores: metrics of a graph as fractions, the headline first.
        most_lost: int8 is left out where it loses more of the headline.
        unit: size of the outputs, by which the tolerated difference is multiplied, since rounding grows with it.

    Raises:
        DataError: the outputs of the fp32 graph differ from PyTorch's.
    """
    target = folder / FOLDER
    target.mkdir()
    graph.eval()
    positions = graph.encoder.config.max_positions
    longest = min(max_length, positions)
    _export(graph, target / FP32, positions, num_choices)
    _quantize(target / FP32, target / INT8)
    batches = list(_random_batches(graph, special, longest, num_choices))
    timed = _inputs(graph, _random_batch(graph, special, [min(TIMED_TOKENS, longest)] * num_choices), num_choices)
    found: dict[str, Checked] = {}
    for name in (FP32, INT8):
        session = Session(target / name, graph)
        difference = max(_difference(graph, session, batch, num_choices, reference) for batch in batches)
        if name == FP32 and not difference <= TOLERANCE * unit:
            raise DataError(
                f"the graph's outputs differ from PyTorch's by {difference:.2g}, more than {TOLERANCE * unit:g}",
                where=str(folder / FOLDER / name),
                next_step="report this with the versions of torch, onnxscript and onnxruntime",
            )
        scored = scores(session) if scores else {}
        found[name] = Checked(
            (target / name).stat().st_size,
            _milliseconds(session, *timed),
            float(f"{difference:.2g}"),
            {metric: round(100 * value, 2) for metric, value in scored.items()},
        )
    facts = GraphFacts(
        graph.inputs,
        graph.outputs,
        timed[0].shape[-1],
        processor(),
        torch.get_num_threads(),
        {package: metadata.version(package) for package in ("torch", *PACKAGES)},
        found,
        _milliseconds(graph, *timed[: len(graph.inputs)]),
    )
    if lost := _lost(found[FP32], found[INT8], 100 * most_lost):
        (target / INT8).unlink()
        facts.int8_left_out = lost
    write_json(target / FACTS, asdict(facts))
    return facts


def _lost(fp32: Checked, int8: Checked, most: float) -> str:
    """Return what int8 loses if that is more than ``most`` points of the headline metric; empty otherwise."""
    for metric, before in list(fp32.scores.items())[:1]:
        if before - int8.scores[metric] > most:
            return f"{metric} falls from {before:.2f} to {int8.scores[metric]:.2f}, by more than {most:g} point"
    return ""


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Hide notes of the exporter and of the quantizer about their own insides."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        before = logging.root.manager.disable
        logging.disable(logging.WARNING)
        try:
            yield
        finally:
            logging.disable(before)


def _export(graph: Graph, file: Path, max_positions: int, num_choices: int) -> None:
    rows = (2, num_choices) if graph.has_choices else (2,)
    example = [torch.ones(*rows, 8, dtype=torch.int64) for _ in graph.inputs]
    axes: dict[int, Any] = {0: torch.export.Dim("batch"), len(rows): torch.export.Dim("length", max=max_positions)}
    if graph.has_choices:
        axes[1] = torch.export.Dim("choices")
    with _quiet():
        torch.onnx.export(
            graph,
            tuple(example),
            str(file),
            dynamo=True,
            verbose=False,
            external_data=False,
            input_names=graph.inputs,
            output_names=graph.outputs,
            dynamic_shapes=tuple(axes for _ in example),
        )


def _quantize(source: Path, target: Path) -> None:
    from onnxruntime.quantization import QuantType, quantize_dynamic

    with _quiet():
        quantize_dynamic(
            source,
            target,
            op_types_to_quantize=["MatMul", "Gather"],
            weight_type=QuantType.QInt8,
            per_channel=True,
            reduce_range=True,
        )


def _random_batches(graph: Graph, special: InputFormat, longest: int, num_choices: int) -> Iterator[Batch]:
    """Yield one text, texts of several lengths, and a full batch."""
    for lengths in ([min(5, longest)], [longest, max(3, longest // 2), max(3, longest // 3)], [longest] * 2):
        yield _random_batch(graph, special, [length for length in lengths for _ in range(num_choices)])


def _random_batch(graph: Graph, special: InputFormat, lengths: list[int]) -> Batch:
    random = torch.Generator().manual_seed(len(lengths))
    width = max(lengths)
    tokens_BT = torch.randint(0, graph.encoder.config.vocab_size, (len(lengths), width), generator=random)
    lengths_B, positions_T = torch.tensor(lengths), torch.arange(width)
    mask_BT = positions_T < lengths_B[:, None]
    first_B = lengths_B // 2 + 1
    segments_BT = (mask_BT & (positions_T >= first_B[:, None])).long()
    return Batch(tokens_BT.masked_fill(~mask_BT, special.pad), segments_BT, mask_BT, first_B, None)


def _inputs(graph: Graph, batch: Batch, num_choices: int) -> list[Tensor]:
    """Return the inputs of the graph, one more than ModernBERT's graphs take."""
    tensors = [batch.tokens_BT, batch.mask_BT.long(), batch.segments_BT]
    return [tensor.view(-1, num_choices, tensor.shape[1]) for tensor in tensors] if graph.has_choices else tensors


def run_batch(session: Session, batch: Batch, num_choices: int) -> list[Tensor]:
    """Return the outputs of a graph for a batch of fine-tuning."""
    return session(*_inputs(session.graph, batch, num_choices))


def _difference(
    graph: Graph,
    session: Session,
    batch: Batch,
    num_choices: int,
    reference: Callable[[Batch], list[Tensor]] | None,
) -> float:
    """Return the largest difference of a graph's outputs from PyTorch's, at real tokens and finite values."""
    if reference is None:
        whole = graph(*_inputs(graph, batch, num_choices)[: len(graph.inputs)])
        expected = list(whole) if isinstance(whole, tuple) else [whole]
    else:
        expected = reference(batch)
    differences = [0.0]
    for ours, theirs in zip(expected, run_batch(session, batch, num_choices), strict=True):
        if ours.shape != theirs.shape:
            return float("inf")
        compared = ours.isfinite()
        if ours.shape[:2] == batch.mask_BT.shape:
            compared &= batch.mask_BT.view(*batch.mask_BT.shape, *[1] * (ours.dim() - 2))
        differences.append(float((ours[compared] - theirs[compared]).abs().max()))
    return float("nan") if any(value != value for value in differences) else max(differences)


def _milliseconds(run: Callable[..., Any], *inputs: Tensor) -> float:
    """Return the median time of some runs, after two that allocate memory."""
    seconds = []
    for _ in range(REPEATS + 2):
        started = time.perf_counter()
        run(*inputs)
        seconds.append(time.perf_counter() - started)
    return round(1000 * statistics.median(seconds[2:]), 3)


def card_section(
    facts: GraphFacts, path: str, call: str, *, feed: str = "dict(inputs)", scored_on: str = "the development set"
) -> str:
    """Return the section of the model card: the lines that run the graph, and what was measured.

    Args:
        path: folder, as the card names it.
        call: arguments of the tokenizer's call in the example.
        feed: the expression of the example that gives the graph its inputs.
        scored_on: what the scores were computed on.
    """
    outputs = ", ".join(facts.outputs) + ("," if len(facts.outputs) == 1 else "")
    there = f"`{FOLDER}/{FP32}` (fp32)"
    if not facts.int8_left_out:
        there += f" and `{FOLDER}/{INT8}` (int8)"
    metrics = list(facts.graphs[FP32].scores)
    lines = [
        "## ONNX",
        "",
        f"{there} in onnxruntime, without PyTorch; batch and length are dynamic:",
        "",
        "```python",
        "import onnxruntime, transformers",
        "",
        f'inputs = transformers.AutoTokenizer.from_pretrained("{path}")({call}, return_tensors="np")',
        f'file = transformers.utils.cached_file("{path}", "{FOLDER}/{FP32}")',
        f"{outputs} = onnxruntime.InferenceSession(file).run(None, {feed})",
        "```",
        "",
        f"| graph | MB | milliseconds | largest difference |{''.join(f' {name} |' for name in metrics)}",
        f"|---|---:|---:|---:|{'---:|' * len(metrics)}",
        f"| PyTorch | | {facts.pytorch_milliseconds:.2f} | |{' |' * len(metrics)}",
    ]
    for name, one in facts.graphs.items():
        if name == INT8 and facts.int8_left_out:
            continue
        values = "".join(f" {one.scores[metric]:.2f} |" for metric in metrics)
        size = f"{one.num_bytes / 1e6:.2f}"
        lines.append(f"| `{name}` | {size} | {one.milliseconds:.2f} | {one.difference:.1g} |{values}")
    scored = f" Scores: percent, on {scored_on}." if metrics else ""
    lines += [
        "",
        f"Milliseconds: median of one input of {facts.tokens} tokens on {facts.processor}, {facts.threads} threads. "
        f"Difference: of outputs from PyTorch's.{scored}",
    ]
    if facts.int8_left_out:
        lines.append(f"There is no int8 graph: {facts.int8_left_out}.")
    return "\n".join(lines) + "\n"


def describe(facts: GraphFacts) -> list[str]:
    """Return a printed line for each graph."""
    lines = []
    for name, one in facts.graphs.items():
        scores = "".join(f", {metric} {value:.2f}" for metric, value in one.scores.items())
        lines.append(
            f"{FOLDER}/{name}: {one.num_bytes:,} bytes, {one.milliseconds:.2f} ms for {facts.tokens} tokens (PyTorch "
            f"{facts.pytorch_milliseconds:.2f}), largest difference {one.difference:.1g}{scores}"
        )
    if facts.int8_left_out:
        lines[-1] = f"{FOLDER}/{INT8} is left out: {facts.int8_left_out}"
    return lines
