"""Start of a run: verified inputs, and weights of ``pretrain.initialize_from``.

Inputs are checked before the first step, because shards are mapped into memory and never read in order.

A run's numbers are gathered as whole fp32 tensors by parameter name, free of world size and ZeRO stage: DeepSpeed's own
checkpoints are tied to both.
"""

import os
from pathlib import Path
from typing import Any, Literal

import torch
import torch.distributed
from torch import Tensor, nn

from electra import config
from electra.common.artifacts import Listed, listed_files, verify_files
from electra.common.errors import DataError
from electra.common.paths import Paths
from electra.common.tensors import read_tensors
from electra.config import Pretrain
from electra.model.objective import Objective
from electra.optim import MOMENTS
from electra.system.hardware import Machine


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


def start_from(model: Objective, recipe: config.Pretrain, paths: Paths) -> None:
    """Copy the weights that the folder has by name; those it lacks stay random, as does a generator of another size.

    Raises:
        DataError: the folder is missing, lacks the main encoder, has other shapes, or belongs to another vocabulary.
    """
    if recipe.initialize_from is None:
        return
    folder = Path(recipe.initialize_from)
    next_step = "write the folder again with: electra import-huggingface, import-tensorflow or resize"
    path = folder / "model.safetensors"
    weights = read_tensors(path, next_step)
    _require_same_vocabulary(folder, paths)
    copied, total = 0, 0
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            total += 1
            if name not in weights:
                if name.startswith(f"{model.main}."):
                    raise DataError(f"{name} is missing", where=str(path), next_step=next_step)
                continue
            if weights[name].shape != parameter.shape:
                if name.startswith("generator"):
                    continue
                raise DataError(
                    f"{name}: {tuple(weights[name].shape)} there, {tuple(parameter.shape)} by the settings",
                    where=str(path),
                    next_step="make the model section of the profile agree with the folder's config.json",
                )
            parameter.copy_(weights[name])
            copied += 1
    print(f"starting from {folder}: {copied} of {total} tensors, the others random", flush=True)


def _require_same_vocabulary(folder: Path, paths: Paths) -> None:
    theirs, ours = folder / "tokenizer/vocab.txt", paths.tokenizer / "vocab.txt"
    if theirs.is_file() and theirs.read_bytes().split() != ours.read_bytes().split():
        raise DataError(
            "the weights belong to another vocabulary",
            where=f"{theirs} and {ours}",
            next_step=f"set tokenizer.vocab_file: {theirs}, or carry the weights over with: electra resize",
        )


Gathered = tuple[dict[str, Tensor], dict[str, Tensor]]  # weights, moments
Saved = tuple[dict[str, Any], dict[str, Tensor], dict[str, Tensor]]  # state, weights, moments


def gather_state(engine: Any, keep: bool = True, into: Gathered | None = None) -> Gathered:
    """Weights by name, and Adam's moments by ``<moment>.<name>``, on the CPU; every process must call it.

    Parameters at rest have no moments.

    Args:
        keep: whether this process wants them; the others only take part, and get nothing.
        into: the result of an earlier call that is no longer needed: its memory is used again. Fresh gigabytes
            cost more time than the copy into them.
    """
    old_weights, old_moments = into or ({}, {})
    from deepspeed.runtime.zero import GatheredParameters
    from deepspeed.utils import safe_get_full_fp32_param, safe_get_full_optimizer_state

    weights, moments = {}, {}
    for name, parameter in engine.module.named_parameters():
        parts: dict[str, Tensor] = {}
        if not parameter.requires_grad:
            with GatheredParameters(parameter, enabled=engine.zero_optimization_stage() == 3):
                full = parameter.detach().clone()
        elif engine.zero_optimization_stage() == 0:
            state = engine.optimizer.state.get(parameter, {})
            full = parameter.detach()
            parts = {key: state.get(key, torch.zeros_like(parameter)) for key in MOMENTS}
        else:
            full = safe_get_full_fp32_param(parameter)
            parts = {key: safe_get_full_optimizer_state(parameter, key) for key in MOMENTS}
        if not keep:
            continue
        # ZeRO-3 hands out padded or flat tensors
        shape = getattr(parameter, "ds_shape", parameter.shape)
        weights[name] = _copy(full.reshape(shape), old_weights.get(name))
        for key, value in parts.items():
            moments[f"{key}.{name}"] = _copy(value.reshape(shape), old_moments.get(f"{key}.{name}"))
    return weights, moments


def _copy(value: Tensor, buffer: Tensor | None) -> Tensor:
    """In fp32 on the CPU, in ``buffer`` if there is one of this shape."""
    if buffer is None or buffer.shape != value.shape:
        buffer = torch.empty(value.shape, dtype=torch.float32)
    return buffer.copy_(value.detach())


def exchange_device(machine: Machine) -> torch.device:
    """Where tensors must lie for the processes to exchange them: NCCL knows GPUs only."""
    return torch.device("cuda", torch.cuda.current_device()) if machine.device == "cuda" else torch.device("cpu")


def share_state(saved: Saved | None, device: torch.device) -> Saved | None:
    """Broadcast what the first process has loaded: only its machine needs to see the checkpoints.

    Args:
        saved: state, weights and moments; looked at on the first process only.
        device: on which the processes exchange tensors.
    """
    if torch.distributed.get_world_size() == 1:
        return saved
    parts = saved[1:] if saved and torch.distributed.get_rank() == 0 else None
    told: list[Any] = [None]
    if saved and parts:
        told = [(saved[0], [{name: tuple(tensor.shape) for name, tensor in part.items()} for part in parts])]
    torch.distributed.broadcast_object_list(told, src=0, device=device)
    if told[0] is None:
        return None
    state, shapes = told[0]
    shared: list[dict[str, Tensor]] = [{}, {}]
    for number, shape_of in enumerate(shapes):
        for name, shape in shape_of.items():
            tensor = parts[number][name].to(device) if parts else torch.empty(shape, device=device)
            torch.distributed.broadcast(tensor, src=0)
            shared[number][name] = tensor.cpu()
    return state, shared[0], shared[1]


@torch.no_grad()
def scatter_state(engine: Any, weights: dict[str, Tensor], moments: dict[str, Tensor]) -> None:
    """Put weights and moments back in whatever layout the engine has; every process must call it."""
    from deepspeed.runtime.zero import GatheredParameters
    from deepspeed.utils import (
        safe_set_full_fp32_param,
        safe_set_full_optimizer_state,
        safe_set_local_fp32_param,
        safe_set_local_optimizer_state,
    )

    stage = engine.zero_optimization_stage()
    for name, parameter in engine.module.named_parameters():
        device = parameter.device
        value = weights[name].to(device)
        if not parameter.requires_grad:
            continue  # loaded before the engine was built, and unchanged since
        parts = {key: moments[f"{key}.{name}"].to(device) for key in MOMENTS}
        if stage == 0:
            parameter.copy_(value)
            engine.optimizer.set_moments(parameter, parts)
            continue
        if stage == 3:
            with GatheredParameters(parameter, modifier_rank=0):
                parameter.copy_(value)
            safe_set_local_fp32_param(parameter, _own_partition(parameter, value))
            for key, part in parts.items():
                safe_set_local_optimizer_state(parameter, _own_partition(parameter, part), key)
            continue
        parameter.copy_(value)
        safe_set_full_fp32_param(parameter, value)
        for key, part in parts.items():
            safe_set_full_optimizer_state(parameter, part, key)


def _own_partition(parameter: Any, value: Tensor) -> Tensor:
    """Return this process's partition of a whole tensor at ZeRO 3: flat, the last one padded with zeros.

    DeepSpeed's ``safe_set_full_*`` do not pad: they fail on tensors that the processes do not divide evenly, such as a
    bias of one number (0.19.8).
    """
    size = parameter.ds_tensor.numel()
    padded = torch.nn.functional.pad(value.flatten(), (0, size * torch.distributed.get_world_size() - value.numel()))
    return padded.narrow(0, size * torch.distributed.get_rank(), size)


def load_weights(model: nn.Module, weights: dict[str, Tensor]) -> None:
    """Copy weights by name into a plain module; names and shapes must match exactly.

    Raises:
        KeyError: a parameter is missing from ``weights``.
    """
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(weights[name])
