"""``models/pretrained``: generator and discriminator as one safetensors file with the facts to rebuild them."""

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from torch import Tensor

from electra import config
from electra.artifacts import building, read_json, sha256, write_json, write_manifest
from electra.errors import DataError
from electra.model.electra import Electra
from electra.model.encoder import Encoder, EncoderConfig

SPECIAL_TOKENS = ("[PAD]", "[CLS]", "[SEP]", "[MASK]")


def special_token_ids(tokenizer: Path) -> list[int]:
    """Ids of [PAD], [CLS], [SEP] and, last, [MASK]: never masked, never counted.

    Raises:
        DataError: the vocabulary lacks one.
    """
    vocabulary = Tokenizer.from_file(str(tokenizer / "tokenizer.json"))
    ids = []
    for token in SPECIAL_TOKENS:
        number = vocabulary.token_to_id(token)
        if number is None:
            raise DataError(f"the vocabulary lacks {token}", where=str(tokenizer))
        ids.append(number)
    return ids


def save_pretrained(
    folder: Path, weights: dict[str, Tensor], model: config.Model, vocab_size: int, tokenizer: Path
) -> None:
    """Write the weights (named as in :class:`Electra`, shared ones once), the shapes and the tokenizer's checksum."""
    with building(folder) as scratch:
        save_file({name: tensor.contiguous() for name, tensor in weights.items()}, scratch / "model.safetensors")
        facts = {
            "model": model.model_dump(),
            "vocab_size": vocab_size,
            "mask_id": special_token_ids(tokenizer)[-1],
            "tokenizer_sha256": sha256(tokenizer / "tokenizer.json"),
        }
        write_json(scratch / "config.json", facts)
        write_manifest(scratch, parameters=sum(tensor.numel() for tensor in weights.values()))


def load_electra(folder: Path) -> Electra:
    """Generator and discriminator with their weights, in evaluation mode.

    Raises:
        DataError: the folder is missing, or its weights do not fit its config.
    """
    facts = read_json(folder / "config.json")
    electra = Electra(config.Model(**facts["model"]), facts["vocab_size"], facts["mask_id"])
    _fill(electra, load_file(folder / "model.safetensors"), folder)
    return electra.eval()


def load_discriminator(folder: Path, **changes: Any) -> Encoder:
    """The discriminator's encoder alone, which is what fine-tuning starts from.

    Args:
        changes: fields of :class:`EncoderConfig` to replace, such as the dropout.
    """
    facts = read_json(folder / "config.json")
    model = config.Model(**facts["model"])
    shape = EncoderConfig.discriminator(model, facts["vocab_size"])
    encoder = Encoder(EncoderConfig(**{**vars(shape), **changes}))
    prefix = "discriminator."
    weights = load_file(folder / "model.safetensors")
    _fill(encoder, {k.removeprefix(prefix): v for k, v in weights.items() if k.startswith(prefix)}, folder)
    return encoder.eval()


@torch.no_grad()
def _fill(module: torch.nn.Module, weights: dict[str, Tensor], folder: Path) -> None:
    for name, parameter in module.named_parameters():
        if name not in weights or weights[name].shape != parameter.shape:
            found = tuple(weights[name].shape) if name in weights else "nothing"
            raise DataError(f"{name}: expected {tuple(parameter.shape)}, found {found}", where=str(folder))
        parameter.copy_(weights[name])
