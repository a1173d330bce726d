"""The model of a run: built from the settings, fitted to the memory, and made fast for the machine from outside."""

from dataclasses import replace

import numpy as np
import torch
import torch.distributed

from electra.cluster.estimate.memory import fitted, free_memory, recompute_layers, wants_recompute
from electra.cluster.hardware import Machine
from electra.config import Settings
from electra.model.encoder import Encoder
from electra.objectives.base import Objective, build_objective
from electra.pretrain.engine import communication_device


def build_model(settings: Settings, vocab_size: int, mask_id: int, token_counts: np.ndarray) -> Objective:
    """Return the method that ``pretrain.objective`` names, with weights not yet drawn.

    Args:
        token_counts: of the training text [V]: the frequencies of a unigram generator.
    """
    model = build_objective(settings.model, vocab_size, mask_id, settings.pretrain)
    model.set_frequencies(torch.from_numpy(token_counts))
    return model


def fit_to_memory(settings: Settings, machine: Machine, vocab_size: int) -> Machine:
    """Return the machine with a micro-batch and activation checkpointing that fit, the same on all processes."""
    if machine.device == "cuda":
        free = torch.tensor(float(free_memory(machine)), device=communication_device(machine))
        if machine.num_processes > 1:
            torch.distributed.all_reduce(free, torch.distributed.ReduceOp.MIN)
        return fitted(settings, machine, vocab_size, int(free.item()))
    recompute = torch.tensor(float(wants_recompute(settings, machine, vocab_size)))
    if machine.num_processes > 1 and machine.activation_checkpointing == "auto":
        torch.distributed.all_reduce(recompute, torch.distributed.ReduceOp.MAX)
    return replace(machine, activation_checkpointing="layers" if recompute.item() else "off")


def make_fast(model: Objective, machine: Machine) -> None:
    """Apply activation checkpointing and compilation to a model, in place."""
    if machine.activation_checkpointing == "layers":
        recompute_layers(model)
    if machine.compile == "model":
        model.forward = torch.compile(model.forward, dynamic=False, fullgraph=True)  # type: ignore[method-assign]
    if machine.compile == "layers":
        for encoder in (module for module in model.modules() if isinstance(module, Encoder)):
            encoder.compile_layers()
