"""Save and load fine-tuned models: weights, tokenizer, and what is needed to rebuild the model."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from electra.common.artifacts import read_json, sha256, write_json, write_text
from electra.common.errors import DataError
from electra.common.tensors import read_tensors
from electra.config import Finetune
from electra.finetune.encoders import AnyEncoder, TransformersEncoder, configuration, rebuild
from electra.finetune.features import Vocabulary
from electra.finetune.input_format import InputFormat
from electra.finetune.model import TaskModel
from electra.model.encoder import Encoder
from electra.model.kernels.apply import use_cpu_kernels
from electra.model.pretrained import fill
from electra.model.shape import EncoderConfig
from electra.tasks.catalogue import TaskSpec

PARTS = {"task", "encoder", "inputs", "finetune", "tokenizer_sha256"}  # keys of config.json


@dataclass
class SavedModel:
    """A fine-tuned model with its task, tokenizer and settings."""

    model: TaskModel
    spec: TaskSpec
    vocabulary: Vocabulary
    options: Finetune


def save_model(folder: Path, model: TaskModel, spec: TaskSpec, vocabulary: Vocabulary, options: Finetune) -> None:
    """Write ``model.safetensors``, ``config.json`` and ``tokenizer.json`` into a fine-tuning run's folder."""
    weights = {name: parameter.detach().cpu().contiguous() for name, parameter in model.named_parameters()}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    write_text(folder / "tokenizer.json", vocabulary.tokenizer.to_str())
    write_json(
        folder / "config.json",
        {
            "task": dataclasses.asdict(spec),
            "encoder": _describe_encoder(model.encoder),
            "inputs": dataclasses.asdict(vocabulary.inputs),
            "finetune": options.model_dump(),
            "tokenizer_sha256": sha256(folder / "tokenizer.json"),
        },
    )


def load_model(folder: Path) -> SavedModel:
    """Return the saved model in evaluation mode, on the CPU.

    Raises:
        DataError: there is no saved model, or its files are damaged or do not match each other.
        ConfigError: ``transformers`` is needed and missing.
    """
    path = folder / "model.safetensors"
    if not path.is_file():
        raise DataError(
            "there is no fine-tuned model",
            where=str(folder),
            next_step="fine-tune with --keep (or finetune.keep_models: true), or correct the path",
        )
    next_step = "fine-tune it again, or get the folder again from where it came from"
    facts = read_json(folder / "config.json", next_step, next_step)
    if not isinstance(facts, dict) or not PARTS <= facts.keys():
        raise DataError("this is another kind of model, not a fine-tuned one", where=str(folder / "config.json"))
    try:
        spec = _spec(facts["task"])
        inputs = InputFormat.from_facts(facts["inputs"])
        known = {name: value for name, value in facts["finetune"].items() if name in Finetune.model_fields}
        options = Finetune.model_validate(known)
        encoder = _encoder(facts["encoder"], inputs)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(f"this describes no model: {error!r:.200}", where=str(folder / "config.json")) from error
    if sha256(folder / "tokenizer.json") != facts["tokenizer_sha256"]:
        raise DataError("tokenizer.json is not the one the model was fine-tuned with", where=str(folder))
    vocabulary = Vocabulary.read(folder / "tokenizer.json", inputs)
    model = TaskModel(spec, encoder, torch.Generator(), inputs.layout, span_head=options.span_head)
    fill(model, read_tensors(path), str(path))
    return SavedModel(model.eval(), spec, vocabulary, options)


def _describe_encoder(encoder: AnyEncoder) -> dict[str, Any]:
    if isinstance(encoder, TransformersEncoder):
        return {"make": "transformers", "config": configuration(encoder)}
    return {"make": "electra", "config": dataclasses.asdict(encoder.config)}


def _spec(facts: dict[str, Any]) -> TaskSpec:
    fields = {field.name for field in dataclasses.fields(TaskSpec)}
    values: dict[str, Any] = {}
    for name in fields & facts.keys():
        values[name] = tuple(facts[name]) if isinstance(facts[name], list) else facts[name]  # JSON has no tuples
    return TaskSpec(**values)


def _encoder(facts: dict[str, Any], inputs: InputFormat) -> AnyEncoder:
    if facts["make"] == "transformers":
        return rebuild(facts["config"], inputs)
    return use_cpu_kernels(Encoder(EncoderConfig(**facts["config"])))
