"""Pre-training that starts from weights somebody else has trained (``pretrain.initialize_from``)."""

from pathlib import Path

import torch
from safetensors.torch import load_file

from electra import config
from electra.errors import DataError
from electra.model.objective import Objective
from electra.paths import Paths


def start_from(model: Objective, recipe: config.Pretrain, paths: Paths) -> None:
    """Copy the weights that the folder has by name; those it lacks stay random, as does a generator of another size.

    Raises:
        DataError: the folder is missing, lacks the main encoder, has other shapes, or belongs to another vocabulary.
    """
    if recipe.initialize_from is None:
        return
    folder = Path(recipe.initialize_from)
    try:
        weights = load_file(folder / "model.safetensors")
    except OSError as error:
        raise DataError(
            f"no pre-trained weights: {error}",
            where=f"pretrain.initialize_from: {folder}",
            next_step="write one with: electra import-huggingface, import-tensorflow or resize",
        ) from None
    _require_same_vocabulary(folder, paths)
    copied, total = 0, 0
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            total += 1
            if name not in weights:
                if name.startswith(f"{model.main}."):
                    raise DataError(f"{name} is missing", where=str(folder))
                continue
            if weights[name].shape != parameter.shape:
                if name.startswith("generator"):
                    continue
                raise DataError(
                    f"{name}: {tuple(weights[name].shape)} there, {tuple(parameter.shape)} by the settings",
                    where=str(folder),
                    next_step="make the model section of the profile agree with the folder's config.json",
                )
            parameter.copy_(weights[name])
            copied += 1
    print(f"starting from {folder}: {copied} of {total} tensors, the others random", flush=True)


def _require_same_vocabulary(folder: Path, paths: Paths) -> None:
    theirs, ours = folder / "tokenizer/vocab.txt", paths.tokenizer / "vocab.txt"
    if theirs.is_file() and theirs.read_text(encoding="utf-8").split() != ours.read_text(encoding="utf-8").split():
        raise DataError(
            "the weights belong to another vocabulary",
            where=f"{theirs} and {ours}",
            next_step=f"set tokenizer.vocab_file: {theirs}, or carry the weights over with: electra resize",
        )
