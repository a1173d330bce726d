"""Export fine-tuned models for ``transformers``: its class for the kind of task, with the same logits.

The project's heads are one linear layer. Some classes of ``transformers`` have more layers between encoder and output;
they compute the same function with suitable weights:

* The sentence heads of ELECTRA and RoFormer are dense, GELU, dense. Since gelu(x) - gelu(-x) = x, two hidden units per
  class hold its logit and the negated logit.
* ModernBERT's heads are dense, activation, LayerNorm, dense. The dense layer divides by the weight of the encoder's
  last norm, the activation is ``linear``, and the head's norm, whose input is already normalised, multiplies by that
  weight again.
"""

import glob
import re
from pathlib import Path
from typing import Any, cast

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from electra.common.artifacts import (
    MANIFEST,
    building,
    read_json,
    sha256,
    write_json,
    write_manifest,
    write_text,
)
from electra.common.errors import ConfigError, DataError
from electra.common.paths import Paths
from electra.config.loading import load_settings
from electra.config.methods import METHODS
from electra.finetune.classification import HEAD_DROPOUT, SentenceHead
from electra.finetune.features import Batch, Vocabulary
from electra.finetune.kinds import FINETUNING
from electra.finetune.model import TaskModel
from electra.finetune.run import predict_rows
from electra.finetune.saved import SavedModel, load_model
from electra.finetune.span import JointSpanHead, SpanHead
from electra.hub import onnx
from electra.hub.export import modernbert, papers, pretrained
from electra.hub.importing.weights import check_target, tokenizer_files
from electra.kinds import KINDS
from electra.kinds.scores import score
from electra.model.encoder import Encoder
from electra.predict.run import find_model
from electra.results.evaluate import describe_task
from electra.results.report.facts import Facts, gather
from electra.tasks.catalogue import TaskSpec
from electra.tasks.matrix import PRETRAINED, SCRATCH, Start, finetuned_name, read_lines, read_rows, rows_file
from electra.text.tokenizer.wordpiece import normalizer_facts

INITIALIZER_RANGE = 0.02  # config.json needs a value; no exported weight is initialised with it


def export_task(
    paths: Paths, task: str, seed: int | None = None, out: Path | None = None, *, with_onnx: bool = False
) -> Path:
    """Write a fine-tuned model as a folder that ``transformers`` loads, and return the folder.

    Args:
        task: a task with a kept model, the name of a fine-tuning run, or its folder.
        seed: seed of the fine-tuning run; the lowest kept one if None.
        out: the folder to write; ``models/exported/<run>`` if None.
        with_onnx: also write ONNX graphs (:mod:`electra.hub.onnx`) into its subfolder ``onnx``.

    Raises:
        ConfigError: no such model was kept, no class of ``transformers`` can compute it, the folder holds something
            else, or the extra ``onnx`` is not installed.
        DataError: the model's files are missing or damaged, or an ONNX graph computes something else.
    """
    if with_onnx:
        onnx.require_onnx()
    model = _model_folder(paths, task, seed)
    folder = paths.exported(model.name) if out is None else out
    check_target(folder, model, origins={"task"}, allowed=Paths().exported("x").parent)
    saved = load_model(model)
    weights, facts = transformers_model(saved)
    card, lines = _card(paths, model, saved, facts), []
    with building(folder) as scratch:
        tensors = {name: tensor.detach().contiguous().clone() for name, tensor in weights.items()}
        save_file(tensors, scratch / "model.safetensors", metadata={"format": "pt"})
        write_json(scratch / "config.json", facts)
        for name, content in _tokenizer_files(saved).items():
            write_text(scratch / name, content)
        if facts["model_type"] == "modernbert":
            config_file = scratch / "tokenizer_config.json"
            write_json(config_file, modernbert.tokenizer_facts(read_json(config_file)))
        if with_onnx:
            checked = _write_onnx(scratch, paths, saved)
            lines = onnx.describe(checked)
            call, feed = _onnx_call(saved.spec)
            card += "\n" + onnx.card_section(checked, "path/to/this/folder", call, feed=feed)
        write_text(scratch / "README.md", card)
        write_manifest(scratch, cell=model.name, task=saved.spec.name, start=str(_start(model, saved.spec.name)))
    print(f"export: {folder}: {facts['architectures'][0]}, for pipeline() and from_pretrained")
    for line in [*left_out(saved), *lines]:
        print(f"export: {line}")
    return folder


def left_out(saved: SavedModel) -> list[str]:
    """Return what ``electra predict`` computes but the class of ``transformers`` cannot represent."""
    if isinstance(saved.model.head, SpanHead) and saved.model.head.impossible is not None:
        return [
            "the logit of having no answer is left out: the class has start and end alone; they are exact, and a "
            "question without answer points at [CLS], as it was trained to"
        ]
    return []


def _write_onnx(folder: Path, paths: Paths, saved: SavedModel) -> onnx.GraphFacts:
    """Write the model's ONNX graphs, checked by its logits and by its scores on the development set."""
    spec, kind = saved.spec, KINDS[saved.spec.kind]
    low, high = kind.target_range(spec)

    def reference(batch: Batch) -> list[Tensor]:
        outputs = saved.model(batch)
        found = [tensor for tensor in outputs if tensor is not None] if isinstance(outputs, tuple) else [outputs]
        return [tensor * (high - low) + low for tensor in found]

    def scores(session: onnx.Session) -> dict[str, float]:
        model = cast(TaskModel, OnnxTask(saved, session))
        found = predict_rows(saved.options, spec, model, rows, saved.vocabulary, bf16=False)
        computed = score(spec, rows, found)
        return {metric: computed[metric] for metric in (spec.headline, *spec.metrics) if metric in computed}

    try:
        rows = read_rows(paths, spec.name, spec.dev_splits[0])
    except DataError:
        rows = []
        print(f"export: {paths.tasks} has no rows of {spec.name}: the graphs are not scored")
    return onnx.write_graphs(
        folder,
        _graph(saved),
        saved.vocabulary.inputs,
        FINETUNING[spec.kind].max_length(saved.options),
        num_choices=FINETUNING[spec.kind].inputs_per_row(spec),
        reference=reference,
        scores=scores if rows else None,
        unit=max(high - low, abs(low), abs(high)),
    )


def _graph(saved: SavedModel) -> onnx.Graph:
    """Return the module to export, with the outputs of the class of ``transformers``, scores in the task's units."""
    encoder, head, spec = saved.model.encoder, saved.model.head, saved.spec
    assert isinstance(encoder, Encoder)  # transformers_model has refused others
    if isinstance(head, SpanHead):
        return onnx.SpanGraph(encoder, head.span, head.impossible)
    weight, bias = _in_the_targets_units(spec, _output_layer(saved))
    output = nn.Linear(weight.shape[1], weight.shape[0])
    output.load_state_dict({"weight": weight, "bias": bias})
    if isinstance(head, SentenceHead):
        return onnx.SentenceGraph(encoder, output, FINETUNING[spec.kind].inputs_per_row(spec) > 1)
    return onnx.TokenGraph(encoder, output)


class OnnxTask(nn.Module):
    """A fine-tuned model whose layers run in onnxruntime; returns what the head's ``decode`` takes."""

    def __init__(self, saved: SavedModel, session: onnx.Session):
        super().__init__()
        self.head, self.saved, self.session = saved.model.head, saved, session

    def forward(self, batch: Batch) -> Any:
        spec = self.saved.spec
        found = onnx.run_batch(self.session, batch, FINETUNING[spec.kind].inputs_per_row(spec))
        if isinstance(self.head, SpanHead):
            start, end, *no_answer = found
            return (*self.head.framed(torch.stack([start, end], -1), batch), no_answer[0] if no_answer else None)
        low, high = KINDS[spec.kind].target_range(spec)
        return (found[0] - low) / (high - low)


def transformers_model(saved: SavedModel) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the weights by ``transformers``' names, and the content of ``config.json``.

    Raises:
        ConfigError: no class computes the same; the message gives the reason.
    """
    model, spec = saved.model, saved.spec
    encoder = model.encoder
    if not isinstance(encoder, Encoder):
        raise ConfigError(
            f"the encoder of this {spec.name} model is a third-party one; only the project's encoders can be exported",
            next_step="fine-tune the pre-trained encoder: leave out --encoder",
        )
    modernbert.check_home(encoder.config)
    if isinstance(model.head, JointSpanHead):
        raise ConfigError(
            "transformers has no class for this span head, whose end logits depend on the start",
            where="finetune.span_head: joint",
            next_step="fine-tune with finetune.span_head: plain, and --keep",
        )
    weight, bias = _in_the_targets_units(spec, _output_layer(saved))
    shape, inputs, task_kind = encoder.config, saved.vocabulary.inputs, KINDS[spec.kind]
    kind, names = task_kind.transformers_class, task_kind.output_names(spec)
    if shape.is_modern:
        special = {"pad": inputs.pad, "cls": inputs.before[0], "sep": inputs.after[0]}
        facts = modernbert.modernbert_config(shape, f"ModernBert{kind}", INITIALIZER_RANGE, special)
        for key in ("id2label", "label2id"):  # labels of the detector
            facts.pop(key, None)
        facts |= {"classifier_activation": "linear", "classifier_dropout": HEAD_DROPOUT}
        weights = modernbert.encoder_weights(encoder, "model.") | _modern_head(encoder, weight, bias)
    else:
        facts = papers.huggingface_config(shape, f"{papers.family(shape)}{kind}", INITIALIZER_RANGE, inputs.pad)
        facts |= {"classifier_dropout": HEAD_DROPOUT, "summary_use_proj": False, "summary_activation": "linear"}
        weights = papers.encoder_weights(encoder) | _electra_head(kind, weight, bias)
    if task_kind.problem_type:
        facts["problem_type"] = task_kind.problem_type
    facts["id2label"] = {str(number): name for number, name in enumerate(names)}
    facts["label2id"] = {name: number for number, name in enumerate(names)}
    return weights, facts


def _output_layer(saved: SavedModel) -> nn.Linear:
    output = saved.model.head.get_submodule("span" if isinstance(saved.model.head, SpanHead) else "output")
    assert isinstance(output, nn.Linear)
    return output


def _in_the_targets_units(spec: TaskSpec, output: nn.Linear) -> tuple[Tensor, Tensor]:
    """Return weight and bias of the last layer in units of the target: scores are learned scaled to 0..1."""
    low, high = KINDS[spec.kind].target_range(spec)
    return output.weight * (high - low), output.bias * (high - low) + low


def _electra_head(kind: str, weight: Tensor, bias: Tensor) -> dict[str, Tensor]:
    if kind == "ForQuestionAnswering":
        return {"qa_outputs.weight": weight, "qa_outputs.bias": bias}
    if kind != "ForSequenceClassification":
        return {"classifier.weight": weight, "classifier.bias": bias}
    (num_outputs, width), unit = weight.shape, torch.eye(len(weight))
    if 2 * num_outputs > width:
        raise ConfigError(
            f"transformers' head can compute {width // 2} classes from {width} hidden units, the task has "
            f"{num_outputs}",
            next_step="use electra predict, or model.architecture: modern",
        )
    dense, dense_bias, out = torch.zeros(width, width), torch.zeros(width), torch.zeros(num_outputs, width)
    dense[: 2 * num_outputs] = torch.cat([weight, -weight])
    dense_bias[: 2 * num_outputs] = torch.cat([bias, -bias])
    out[:, : 2 * num_outputs] = torch.cat([unit, -unit], 1)
    return {
        "classifier.dense.weight": dense,
        "classifier.dense.bias": dense_bias,
        "classifier.out_proj.weight": out,
        "classifier.out_proj.bias": torch.zeros(num_outputs),
    }


def _modern_head(encoder: Encoder, weight: Tensor, bias: Tensor) -> dict[str, Tensor]:
    """Return a head whose norm repeats the encoder's last one; zero weights of that norm are not divided out.

    Normalising twice changes the result only by rounding: for hidden states of variance v, the second norm scales by
    1 + eps/2 * (1 - 1/v).
    """
    norm = dict(encoder.layers[-1].named_parameters())["feed_forward_norm.weight"]
    divisor = norm.where(norm != 0, 1.0)
    return {
        "model.final_norm.weight": divisor,
        "head.dense.weight": torch.diag(1 / divisor),
        "head.norm.weight": norm,
        "classifier.weight": weight,
        "classifier.bias": bias,
    }


def _model_folder(paths: Paths, task: str, seed: int | None) -> Path:
    """Return the folder of the fine-tuning run with a model."""
    if seed is not None:
        return find_model(paths, finetuned_name(task, seed, PRETRAINED))
    if Path(task).name != task:  # a folder's path: no name to complete with a seed, and absolute ones cannot be globbed
        return find_model(paths, task)
    roots = [paths.kept(task).parent, paths.finetuned(task).parent]
    found = [path.parent for root in roots for path in root.glob(f"{glob.escape(task)}-*/model.safetensors")]
    seeds = {
        int(number): model for model in reversed(found) if (number := model.name.removeprefix(f"{task}-")).isdigit()
    }
    return seeds[min(seeds)] if seeds else find_model(paths, task)


def _tokenizer_files(saved: SavedModel) -> dict[str, str]:
    """Return the tokenizer's files; ``truncation=True`` truncates texts to the length used in fine-tuning."""
    tokenizer = saved.vocabulary.tokenizer
    ids = tokenizer.get_vocab(with_added_tokens=True)
    lowercase = bool(normalizer_facts(tokenizer).get("lowercase"))
    max_length = FINETUNING[saved.spec.kind].max_length(saved.options)
    return tokenizer_files(tokenizer, sorted(ids, key=ids.__getitem__), lowercase=lowercase, max_length=max_length)


def _run_facts(model: Path) -> dict[str, Any]:
    """Return ``run.json`` of a fine-tuning run; empty for a folder without it."""
    path = model / "run.json"
    return read_json(path) if path.is_file() else {}


def _scores(paths: Paths, model: Path, spec: TaskSpec) -> dict[str, float]:
    """Return all metrics on the development set, in percent.

    Empty if its rows or predictions are missing, or if the rows are not those that were predicted.
    """
    split = spec.dev_splits[0]
    try:
        rows = read_rows(paths, spec.name, split)
        file = rows_file(paths, spec.name, split)
        predicted = _run_facts(model).get("rows_sha256", {}).get(split)
        if predicted is not None and predicted != sha256(file):
            print(f"export: {file} has changed since {model.name} predicted it: the card has no scores")
            return {}
        predictions = read_lines(model / "predictions.jsonl", "")
        found = score(spec, rows, [line for line in predictions if line["split"] == split])
    except (DataError, KeyError, ValueError):
        return {}
    return {metric: 100 * found[metric] for metric in spec.metrics if metric in found}


def _is_of_this_workspace(paths: Paths, saved: SavedModel) -> bool:
    """Return True if the model's tokenizer is the workspace's, so that the settings here describe the model."""
    tokenizer = paths.tokenizer / "tokenizer.json"
    if not (paths.root / "params.yaml").is_file() or not tokenizer.is_file():
        return False
    return saved.vocabulary.has_tokenizer_of(Vocabulary.read(tokenizer))


def _start(model: Path, task: str) -> Start:
    """Return the initial encoder that ``run.json`` of a fine-tuning run has: its folder may have any name.

    Without ``run.json`` it is taken from the folder's name, and is the pre-trained one for names of another form.
    """
    if init := _run_facts(model).get("init"):
        return Start.parse(init)
    named = re.fullmatch(rf"{re.escape(task)}-\d+-(.+)", model.name)
    return Start.parse(named[1]) if named else PRETRAINED


def _origin(start: Start, facts: Facts | None) -> str:
    """Return the encoder that a fine-tuning run started from, in words.

    Args:
        facts: facts of the pre-training run; None if its settings are not available.
    """
    if start == SCRATCH:
        return "An encoder with random weights"
    return f"An encoder pre-trained by {METHODS[facts.settings.pretrain.objective].title}" if facts else "An encoder"


def _card(paths: Paths, model: Path, saved: SavedModel, facts: dict[str, Any]) -> str:
    """Return the model card: hub metadata, usage, scores, and limits."""
    spec, name = saved.spec, facts["architectures"][0]
    kind = KINDS[spec.kind]
    scores = _scores(paths, model, spec)
    manifest = paths.tasks / MANIFEST
    data = describe_task(spec, read_json(manifest)) if scores else "unknown data"
    start = _start(model, spec.name)
    is_of_run = start != SCRATCH and _is_of_this_workspace(paths, saved)  # random weights have no pre-training to state
    facts_of_run = gather(load_settings(paths.root), paths) if is_of_run else None
    results = [pretrained.result(spec, metric, value, data) for metric, value in scores.items()]
    lines = [
        pretrained.front_matter(facts_of_run, kind.pipeline, results, name=f"electra-{model.name}"),
        f"# Encoder, fine-tuned on {spec.name}",
        "",
        f"{_origin(start, facts_of_run)}, fine-tuned on {spec.name} ({data}): {name}. Its logits "
        "are those of the model that was trained.",
        "",
        *_usage(kind.transformers_class, kind.pipeline, spec),
        *(f"Note: {line}.\n" for line in left_out(saved)),
    ]
    if scores:
        lines += ["## Scores", "", f"On the development set, percent: {data}.", ""]
        lines += [*(f"- {metric}: {value:.2f}" for metric, value in scores.items()), ""]
    options, max_length = saved.options, FINETUNING[spec.kind].max_length(saved.options)
    lines += [
        "## Training",
        "",
        f"{options.epochs_of(spec.name):g} epochs at learning rate {options.rate_of(spec.name):g}, "
        f"{options.batch_size} examples a batch; texts are cut at {max_length} wordpieces.",
        "",
        pretrained.LIMITS,
    ]
    return "\n".join(lines).rstrip() + "\n"


_BIOES = (
    "Labels of entities are BIOES (S is an entity of one word, E the last word of one). The tag of a word is that of "
    'its first wordpiece: give the text with spaces around punctuation, and aggregation_strategy="first".\n'
)


def _onnx_call(spec: TaskSpec) -> tuple[str, str]:
    """Return the arguments of the tokenizer in the card's ONNX example, and the graph's inputs made of its output."""
    kind = KINDS[spec.kind].transformers_class
    if kind == "ForQuestionAnswering":
        return '"Who sang?", "The robin sang."', "dict(inputs)"
    if kind == "ForMultipleChoice":
        return (
            f'["A text."] * {len(spec.labels)}, ["An end."] * {len(spec.labels)}, padding=True',
            "{name: array[None] for name, array in inputs.items()}",
        )
    if spec.text_b:
        return '"One text.", "And another.", truncation=True', "dict(inputs)"
    return '"A text.", truncation=True', "dict(inputs)"


def _usage(kind: str, pipeline_tag: str, spec: TaskSpec) -> list[str]:
    """Return example Python code that runs the model."""
    path = '"path/to/this/folder"'
    if kind in ("ForSequenceClassification", "ForTokenClassification"):
        pair = kind == "ForSequenceClassification" and spec.text_b
        text = '{"text": "One text.", "text_pair": "And another."}' if pair else '"A text."'
        cut = ", truncation=True" if kind == "ForSequenceClassification" else ""  # the other pipeline truncates
        code = ["from transformers import pipeline", "", f'pipeline("{pipeline_tag}", {path})({text}{cut})']
    elif kind == "ForQuestionAnswering":
        code = [
            "from transformers import AutoModelForQuestionAnswering, AutoTokenizer",
            "",
            f"tokenizer = AutoTokenizer.from_pretrained({path})",
            f"model = AutoModelForQuestionAnswering.from_pretrained({path})",
            'batch = tokenizer("Who sang?", "The robin sang.", return_offsets_mapping=True, return_tensors="pt")',
            'offsets = batch.pop("offset_mapping")[0]',
            "logits = model(**batch)  # start_logits and end_logits; [CLS] is no answer",
        ]
    else:
        code = [
            "from transformers import AutoModelForMultipleChoice, AutoTokenizer",
            "",
            f"tokenizer = AutoTokenizer.from_pretrained({path})",
            f"model = AutoModelForMultipleChoice.from_pretrained({path})",
            'batch = tokenizer(["A text."] * 2, ["One end.", "Another."], padding=True, return_tensors="pt")',
            "logits = model(**{name: tensor[None] for name, tensor in batch.items()}).logits  # one for each choice",
        ]
    note = [_BIOES] if kind == "ForTokenClassification" and spec.has_entities else []
    return ["## How to use", "", "```python", *code, "```", "", *note]
