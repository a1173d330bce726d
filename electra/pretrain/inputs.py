"""Inputs of a run: its files, verified before the first step, and the weights of ``pretrain.initialize_from``.

Shards are mapped into memory and never read in order: a damaged file would be noticed late, or never.
"""

import os
from pathlib import Path
from typing import Literal

import torch
import torch.distributed
from torch import Tensor

from electra import config
from electra.common.artifacts import ListedFile, listed_files, sha256, verify_files
from electra.common.errors import DataError
from electra.common.paths import Paths
from electra.common.tensors import read_tensors
from electra.config import Pretrain
from electra.model.layers import merge_differences, with_differences
from electra.model.pretrained import read_config
from electra.objectives.base import Objective

ENCODER_NAMES = ("discriminator", "encoder")  # attributes that hold an objective's main encoder


def verify_inputs(recipe: Pretrain, paths: Paths, device: Literal["cpu", "cuda"]) -> None:
    """Compare tokenizer, shards and the weights to start from with their manifests; together, all processes of the run.

    Each process hashes its share of the files, so that every file is read once, however many nodes there are. They are
    expected to see the same files, as on a shared file system.

    Args:
        device: of the processes, through which they exchange one number.

    Raises:
        DataError: on every process, if any of them found a file that is not as its manifest says.
    """
    rank, num_processes = torch.distributed.get_rank(), torch.distributed.get_world_size()
    damage: DataError | None = None
    try:
        verify_files(share_of(_inputs(recipe, paths), rank, num_processes))
    except DataError as error:
        damage = error
    # the engine, which gives each process its GPU, is not built yet
    device_name = f"cuda:{os.environ.get('LOCAL_RANK', 0)}" if device == "cuda" else "cpu"
    count = torch.tensor([float(damage is not None)], device=device_name)
    if num_processes > 1:
        torch.distributed.all_reduce(count)
    if damage:
        raise damage
    if count.item():
        raise DataError("another process found damaged files; it names them above")


def share_of(files: list[ListedFile], rank: int, num_processes: int) -> list[ListedFile]:
    """Return the files that one process checks: every file with one process, about the same number of bytes each."""
    largest_first = sorted(files, key=lambda file: (-file.num_bytes, str(file.path)))
    return largest_first[rank::num_processes]


def _inputs(recipe: Pretrain, paths: Paths) -> list[ListedFile]:
    folders = [paths.tokenizer, paths.shards]
    if recipe.initialize_from and os.path.exists(recipe.initialize_from):  # else load_initial_weights says so
        folders.append(Path(recipe.initialize_from))
    return [file for folder in folders for file in listed_files(folder)]


def load_initial_weights(model: Objective, recipe: config.Pretrain, paths: Paths) -> None:
    """Copy the weights of ``pretrain.initialize_from`` by name.

    Weights that the folder lacks stay random, as does a generator of another size. The main encoder may come from a
    run of another method: a masked language model's starts a discriminator, and the reverse.

    Raises:
        DataError: the folder is missing, lacks the main encoder, has other shapes, or belongs to another vocabulary.
    """
    if recipe.initialize_from is None:
        return
    folder = Path(recipe.initialize_from)
    next_step = "write the folder again with: electra import-huggingface, import-tensorflow or resize"
    path = folder / "model.safetensors"
    weights = _for_encoders(model, _named_for(model.encoder_name, read_tensors(path, next_step)))
    _require_same_vocabulary(folder, paths)
    rows = read_config(folder).vocab_size if (folder / "tokenizer").is_dir() else 0
    copied, total = 0, 0
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            total += 1
            if name not in weights:
                if name.startswith(f"{model.encoder_name}."):
                    raise DataError(f"{name} is missing", where=str(path), next_step=next_step)
                continue
            given = weights[name]
            if given.shape[:1] == (rows,) and len(parameter) < rows and given.shape[1:] == parameter.shape[1:]:
                given = given[: len(parameter)]  # published tables are padded to a round number of rows
            if given.shape != parameter.shape:
                if name.startswith("generator"):
                    continue
                raise DataError(
                    f"{name}: {tuple(given.shape)} there, {tuple(parameter.shape)} by the settings",
                    where=str(path),
                    next_step="make the model section of the profile agree with the folder's config.json",
                )
            parameter.copy_(given)
            copied += 1
    print(f"starting from {folder}: {copied} of {total} tensors, the others random", flush=True)


def _named_for(encoder_name: str, weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights with the main encoder under this name; methods call it discriminator or encoder."""
    if any(name.startswith(f"{encoder_name}.") for name in weights):
        return weights
    other = next((name for name in ENCODER_NAMES if any(weight.startswith(f"{name}.") for weight in weights)), None)
    if other is None:
        return weights
    return {
        f"{encoder_name}.{name.removeprefix(f'{other}.')}" if name.startswith(f"{other}.") else name: weight
        for name, weight in weights.items()
    }


def _for_encoders(model: Objective, weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights with the main encoder's embeddings in the model's form, under every name they start."""
    prefix = f"{model.encoder_name}."
    encoder = {name.removeprefix(prefix): weight for name, weight in weights.items() if name.startswith(prefix)}
    others = {name: weight for name, weight in weights.items() if not name.startswith(prefix)}
    generators_table = "embeddings.source.word.weight"  # which gradient-disentangled embeddings have
    is_disentangled = generators_table in encoder
    is_wanted = prefix + generators_table in dict(model.named_parameters())
    if is_wanted != is_disentangled:
        encoder = with_differences(encoder) if is_wanted else merge_differences(encoder)
    names = (model.encoder_name, *model.also_initialized)
    return others | {f"{name}.{part}": weight for name in names for part, weight in encoder.items()}


def _require_same_vocabulary(folder: Path, paths: Paths) -> None:
    theirs, ours = folder / "tokenizer/vocab.txt", paths.tokenizer / "vocab.txt"
    if not theirs.is_file():  # models/pretrained of another run has the checksum of its tokenizer alone
        used = read_config(folder).tokenizer_sha256 if (folder / "config.json").is_file() else None
        if used not in (None, sha256(paths.tokenizer / "tokenizer.json")):
            raise DataError(
                "the weights belong to another vocabulary",
                where=f"{folder} and {paths.tokenizer}",
                next_step="set tokenizer.vocab_file to the tokenizer.json of the run that made them",
            )
    elif theirs.read_bytes().split() != ours.read_bytes().split():
        raise DataError(
            "the weights belong to another vocabulary",
            where=f"{theirs} and {ours}",
            next_step=f"set tokenizer.vocab_file: {theirs.with_name('tokenizer.json')}, or carry the weights over: "
            "electra resize",
        )
