"""Convert checkpoints of google-research/electra (TensorFlow 1) to the project's format.

The variables are those of its model/modeling.py and run_pretraining.py: ``electra/...`` is the discriminator,
``generator/...`` the generator, which reads ``electra/embeddings``. Optimizer slots are ignored.
"""

import os
import re
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from electra import config
from electra.common.artifacts import sha256
from electra.common.errors import ConfigError, DataError
from electra.common.tensors import check_tensors
from electra.hub.importing.weights import (
    Half,
    Tensors,
    check_target,
    electra_of_pair,
    model_of_pair,
    tokenizer_files,
    write_pretrained,
)
from electra.model.shape import EncoderConfig
from electra.text.tokenizer.wordpiece import make_tokenizer, read_vocab_file

HEAD_WIDTH = 64  # num_heads = max(1, hidden_size // 64), util/training_utils.py
SKIPPED = re.compile(r"(.*/)?(adam_m|adam_v|global_step)$")
ENDINGS = {
    "kernel": "weight",
    "gamma": "weight",
    "beta": "bias",
    "word_embeddings": "word_embeddings.weight",
    "position_embeddings": "position_embeddings.weight",
    "token_type_embeddings": "token_type_embeddings.weight",
}


def import_tensorflow(
    checkpoint: str, vocab_file: Path, target: Path, model: config.Model | None = None, *, lowercase: bool = True
) -> None:
    """Write ``target``, a folder like ``models/pretrained`` with the tokenizer in ``tokenizer/``.

    All sizes are derived from the tensors; the number of attention heads follows from the width as in the original.
    Parts missing in the checkpoint (the generator, if it was fine-tuned) start from random weights.

    Args:
        checkpoint: a prefix such as ``electra_small/electra_small``, or a folder whose last checkpoint is used.
        vocab_file: the vocab.txt of the checkpoint.
        target: the folder to write; replaces an earlier import.
        model: settings the checkpoint must fit; they give what tensors do not determine: heads, dropout, epsilon.
        lowercase: False for cased vocabularies.

    Raises:
        ConfigError: TensorFlow is not installed, there is no such file, or the shapes are not those of ``model``.
        DataError: the checkpoint cannot be read, lacks variables, or does not fit the vocabulary.
    """
    check_target(target, Path(checkpoint), vocab_file)
    if not vocab_file.is_file():
        raise ConfigError(f"there is no file {vocab_file}", next_step="name the vocab.txt beside the checkpoint")
    vocabulary = read_vocab_file(vocab_file)
    discriminator, generator = split_variables(_read_checkpoint(checkpoint), checkpoint)
    asked: tuple[EncoderConfig | None, EncoderConfig | None] = (None, None)
    if model is not None:
        asked = EncoderConfig.discriminator(model, len(vocabulary)), EncoderConfig.generator(model, len(vocabulary))
    ours = _half(discriminator, asked[0])
    if len(vocabulary) != ours.shape.vocab_size:
        raise DataError(
            f"the vocabulary has {len(vocabulary)} entries, the word table {ours.shape.vocab_size} rows",
            where=str(vocab_file),
        )
    theirs = None if generator is None else _half(generator, asked[1])
    made = model or model_of_pair(ours, theirs)
    electra = electra_of_pair(ours, theirs, made, vocabulary.index("[MASK]"))
    tokenizer = make_tokenizer(vocabulary, lowercase=lowercase)
    files = tokenizer_files(tokenizer, vocabulary, lowercase=lowercase, max_length=made.max_positions)
    origin = {"checkpoint": Path(checkpoint).name, "vocab_file_sha256": sha256(vocab_file)}
    write_pretrained(target, electra, made, len(vocabulary), files, imported_from=origin)
    print(f"import-tensorflow: {target}, {len(vocabulary):,} entries, {made.num_layers} layers")


def split_variables(variables: dict[str, Tensor], where: str) -> tuple[Tensors, Tensors | None]:
    """Return discriminator and generator by the names of ``transformers``; None if there is no generator.

    Kernels [in, out] are transposed to weights [out, in]. A generator without layers is the discriminator itself
    (``untied_generator=false``); one without embeddings uses the discriminator's.
    """
    discriminator: dict[str, Tensor] = {}
    generator: dict[str, Tensor] = {}
    for variable, tensor in variables.items():
        scope, _, rest = variable.partition("/")
        if SKIPPED.match(variable) or not rest:
            continue
        tensor = tensor.T.contiguous() if variable.endswith("/kernel") else tensor
        if scope == "electra":
            discriminator[f"electra.{_renamed(rest)}"] = tensor
        elif scope == "generator":
            generator[f"electra.{_renamed(rest)}"] = tensor
        elif scope == "discriminator_predictions":
            discriminator[f"{scope}.{_renamed(rest)}".replace("dense_1", "dense_prediction")] = tensor
        elif variable == "generator_predictions/output_bias":
            generator["generator_lm_head.bias"] = tensor
        elif scope == "generator_predictions":
            generator[f"{scope}.{_renamed(rest)}"] = tensor
    if "generator_lm_head.bias" not in generator or any(name.startswith("generator_ltr/") for name in variables):
        return Tensors(discriminator, where), None  # fine-tuned, or Electric's two towers, which fit no single encoder
    tied = not any(name.startswith("electra.encoder.") for name in generator)
    for name, tensor in discriminator.items():
        if name.startswith("electra.") if tied else name.startswith("electra.embeddings."):
            generator.setdefault(name, tensor)
    return Tensors(discriminator, where), Tensors(generator, where)


def _renamed(variable: str) -> str:
    """``encoder/layer_0/output/dense/kernel`` -> ``encoder.layer.0.output.dense.weight``."""
    *scopes, last = re.sub(r"layer_(\d+)", r"layer/\1", variable).split("/")
    return ".".join([*scopes, ENDINGS.get(last, last)])


def _half(tensors: Tensors, settings: EncoderConfig | None) -> Half:
    """Return a half whose sizes are those of the tensors; other fields are the settings' or the original's."""
    sizes = tensors.sizes()
    if settings is not None:
        return Half(tensors, replace(settings, **sizes))
    return Half(tensors, EncoderConfig(**sizes, num_heads=max(1, sizes["hidden_size"] // HEAD_WIDTH)))


def _read_checkpoint(checkpoint: str) -> dict[str, Tensor]:
    """Return all variables except the optimizer's slots, float32."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # hides its report of CPU instruction sets
    try:
        import tensorflow
    except ImportError:
        raise ConfigError(
            "reading TensorFlow checkpoints needs TensorFlow, which is not installed",
            next_step="pip install tensorflow-cpu (only this command needs it)",
        ) from None
    try:
        reader = tensorflow.train.load_checkpoint(checkpoint)
        names = [name for name in sorted(reader.get_variable_to_shape_map()) if not SKIPPED.match(name)]
        found = {name: torch.from_numpy(reader.get_tensor(name)) for name in names}
    except (ValueError, TypeError, tensorflow.errors.OpError) as error:  # TypeError: a variable of texts
        raise DataError(
            f"the checkpoint cannot be read: {str(error).splitlines()[0]}",
            where=checkpoint,
            next_step="give the path without .index or .data-00000-of-00001, or the folder",
        ) from None
    check_tensors(found, checkpoint)
    return {name: tensor.float() for name, tensor in found.items()}
