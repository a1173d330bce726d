"""``models/pretrained``: all weights of a method as one safetensors file, with the facts to rebuild it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel, ValidationError
from safetensors.torch import save_file
from torch import Tensor

from electra import config
from electra.common.artifacts import building, read_json, sha256, verify_folder, write_json, write_manifest
from electra.common.errors import DataError
from electra.common.parsing import read_tokenizer
from electra.common.tensors import FETCH_AGAIN, read_tensors
from electra.config.text import SPECIAL_TOKENS
from electra.model.encoder import Encoder
from electra.model.kernels.apply import use_cpu_kernels
from electra.model.layers import merge_differences
from electra.model.shape import EncoderConfig


def special_token_ids(tokenizer: Path) -> list[int]:
    """Ids of [PAD], [CLS], [SEP] and, last, [MASK]: never masked, never counted.

    Raises:
        DataError: the vocabulary lacks one.
    """
    vocabulary = read_tokenizer(tokenizer / "tokenizer.json")
    ids = []
    for token in SPECIAL_TOKENS:
        if token == "[UNK]":  # text like any other
            continue
        number = vocabulary.token_to_id(token)
        if number is None:
            raise DataError(f"the vocabulary lacks {token}", where=str(tokenizer))
        ids.append(number)
    return ids


def save_pretrained(
    folder: Path,
    weights: dict[str, Tensor],
    model: config.Model,
    vocab_size: int,
    tokenizer: Path,
    method: config.Method | None = None,
) -> None:
    """Write the weights (named as in the method's module, shared ones once), the shapes and the tokenizer's checksum.

    Args:
        method: which module the weights are of; ELECTRA's where none is given.
    """
    with building(folder) as scratch:
        save_file({name: tensor.contiguous() for name, tensor in weights.items()}, scratch / "model.safetensors")
        facts = {
            "model": model.model_dump(),
            "method": {name: getattr(method or config.Method(), name) for name in config.Method.model_fields},
            "vocab_size": vocab_size,
            "mask_id": special_token_ids(tokenizer)[-1],
            "tokenizer_sha256": sha256(tokenizer / "tokenizer.json"),
        }
        write_json(scratch / "config.json", facts)
        write_manifest(scratch, parameters=sum(tensor.numel() for tensor in weights.values()))


class PretrainedConfig(BaseModel):
    """``config.json`` of a folder of pre-trained weights."""

    model: config.Model
    method: config.Method = config.Method()
    vocab_size: int
    mask_id: int
    tokenizer_sha256: str


def read_config(folder: Path) -> PretrainedConfig:
    """Facts about the weights in a folder.

    Raises:
        DataError: there is no ``config.json``, or it is of another kind of model.
    """
    path, next_step = folder / "config.json", "name a folder of pre-trained weights, such as models/pretrained"
    try:
        return PretrainedConfig.model_validate(read_json(path, next_step, next_step))
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"])) or "(top level)"
        what = f"these are no weights that this project pre-trained: {key}: {first['msg']}"
        raise DataError(what, where=str(path), next_step=next_step) from None


def require_tokenizer(weights: Path, tokenizer: Path) -> None:
    """Compare the tokenizer with the one that the weights in a folder were pre-trained with, by its checksum.

    With another tokenizer, ids mean other wordpieces. No shape shows that if both vocabularies have the same size.

    Raises:
        DataError: they differ.
    """
    if read_config(weights).tokenizer_sha256 != sha256(tokenizer / "tokenizer.json"):
        raise DataError(
            "the weights were pre-trained with another tokenizer",
            where=f"{weights} and {tokenizer}",
            next_step="run: dvc repro pretrain",
        )


def load_encoder(folder: Path, **changes: Any) -> Encoder:
    """The main encoder alone, in evaluation mode: what fine-tuning starts from.

    Its weights are taken by name; the module of the pre-training method is not needed.

    Args:
        changes: fields of :class:`EncoderConfig` to replace, such as the dropout.

    Raises:
        DataError: the folder is missing, a file is not as its manifest says, or its weights do not fit its config.
    """
    verify_folder(folder)
    path = folder / "model.safetensors"
    facts, saved = read_config(folder), read_tensors(path)
    main = "discriminator." if any(name.startswith("discriminator.") for name in saved) else "encoder."
    weights = {name.removeprefix(main): tensor for name, tensor in saved.items() if name.startswith(main)}
    shape = EncoderConfig.discriminator(facts.model, facts.vocab_size)
    encoder = use_cpu_kernels(Encoder(replace(shape, **changes)))
    fill(encoder, merge_differences(weights), str(path))
    return encoder.eval()


@torch.no_grad()
def fill(module: torch.nn.Module, weights: dict[str, Tensor], where: str) -> None:
    """Copy weights by name.

    Raises:
        DataError: one is missing or has another shape.
    """
    for name, parameter in module.named_parameters():
        if name not in weights or weights[name].shape != parameter.shape:
            found = tuple(weights[name].shape) if name in weights else "nothing"
            what = f"{name}: expected {tuple(parameter.shape)}, found {found}"
            raise DataError(what, where=where, next_step=FETCH_AGAIN)
        parameter.copy_(weights[name])
