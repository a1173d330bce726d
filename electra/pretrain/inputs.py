"""Checking what pre-training reads, before the first step: shards are mapped into memory and never read in order."""

import os
from pathlib import Path
from typing import Literal

import torch.distributed

from electra.checksums import Listed, listed_files, verify_files
from electra.config import Pretrain
from electra.errors import DataError
from electra.paths import Paths


def verify_inputs(recipe: Pretrain, paths: Paths, device: Literal["cpu", "cuda"]) -> None:
    """Compare tokenizer, shards and the weights to start from with their manifests; together, all processes of the run.

    Each process hashes its share of the files, so that every file is read once, however many nodes there are. They are
    expected to see the same files, as on a shared file system.

    Args:
        device: what the processes run on, and exchange one number through.

    Raises:
        DataError: on every process, if any of them found a file that is not as its manifest says.
    """
    rank, num_processes = torch.distributed.get_rank(), torch.distributed.get_world_size()
    damage: DataError | None = None
    try:
        verify_files(share_of(_inputs(recipe, paths), rank, num_processes))
    except DataError as error:
        damage = error
    # the engine, which gives each process its GPU, is not there yet
    place = f"cuda:{os.environ.get('LOCAL_RANK', 0)}" if device == "cuda" else "cpu"
    count = torch.tensor([float(damage is not None)], device=place)
    if num_processes > 1:
        torch.distributed.all_reduce(count)
    if damage:
        raise damage
    if count.item():
        raise DataError("another process found damaged files; it names them above")


def share_of(files: list[Listed], rank: int, num_processes: int) -> list[Listed]:
    """The files one process checks: about the same number of bytes each, every file with exactly one process."""
    largest_first = sorted(files, key=lambda file: (-file.num_bytes, str(file.path)))
    return largest_first[rank::num_processes]


def _inputs(recipe: Pretrain, paths: Paths) -> list[Listed]:
    folders = [paths.tokenizer, paths.shards]
    if recipe.initialize_from and os.path.exists(recipe.initialize_from):  # else: start_from names what is missing
        folders.append(Path(recipe.initialize_from))
    return [file for folder in folders for file in listed_files(folder)]
