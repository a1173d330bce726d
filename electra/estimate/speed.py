"""Measured speed of this machine: real steps of pre-training on placeholder examples, and the minutes of a run from it.

Load, processor and kernels count as they are at the moment. Not counted: validation, checkpoints, the wait for data.
"""

import time
from dataclasses import dataclass

import torch

from electra.config import Settings
from electra.estimate.cost import flops_per_token, forward_flops_per_token
from electra.estimate.memory import forward_loss, placeholder_batch
from electra.model.objective import build_objective
from electra.model.shape import EncoderConfig
from electra.optim import ElectraAdamW, parameter_groups
from electra.system.hardware import resolve_machine, watch_cores

WARM_UP = 2  # steps that compile, allocate and fill caches
STAGE_SECONDS = 5.0  # of a stage's start, DVC's part included
TEXT_BYTES_PER_SECOND = 1e6  # corpus, vocabulary and shards together, one worker


@dataclass(frozen=True)
class Speed:
    """Measured rate of training.

    Attributes:
        seconds_per_step: median over the measured steps, one global batch each.
        tokens_per_second: of these steps, padding included.
        flops_per_second: matrix products, as :func:`electra.estimate.cost.flops_per_token` counts them.
        used_by_others: cores that other processes used meanwhile; training is slower for it.
    """

    seconds_per_step: float
    tokens_per_second: float
    flops_per_second: float
    used_by_others: float = 0.0


def measure_speed(settings: Settings, vocab_size: int, seconds: float = 3.0) -> Speed:
    """Train on one device for about ``seconds`` and tell the rate of a global batch of all processes.

    Args:
        vocab_size: entries of the vocabulary.
    """
    recipe, length = settings.pretrain, settings.shards.max_length
    machine = resolve_machine(settings.cluster, recipe.batch_size)
    threads = torch.get_num_threads()
    torch.set_num_threads(machine.num_threads)
    cores = watch_cores(machine.num_threads) if machine.device == "cpu" else None  # waits as a run's do
    try:
        torch.manual_seed(0)
        model = build_objective(settings.model, vocab_size, 4, recipe)
        model.initialize(settings.model.initializer_range, 0).to(machine.device)
        batch = placeholder_batch(recipe, machine.micro_batch_size, length)
        batch.tokens_BT = torch.randint(5, vocab_size, (machine.micro_batch_size, length))
        batch.positions_BK = torch.arange(batch.positions_BK.shape[1]).expand_as(batch.positions_BK).contiguous()
        batch = batch.to(machine.device)
        optimizer = ElectraAdamW(parameter_groups(model, recipe.weight_decay), lr=1e-5)
        accumulation = recipe.batch_size // (machine.micro_batch_size * machine.num_processes)
        times: list[float] = []
        deadline = time.perf_counter() + seconds
        while len(times) <= WARM_UP or time.perf_counter() < deadline:
            if cores and not cores.shares:
                times.clear()  # threads may still wait in the way for idle cores
            started = time.perf_counter()
            forward_loss(model, batch, machine).backward()
            optimizer.step()
            optimizer.zero_grad()
            if machine.device == "cuda":
                torch.cuda.synchronize()
            times.append(time.perf_counter() - started)
    finally:
        torch.set_num_threads(threads)
    step = accumulation * sorted(times[WARM_UP:])[len(times[WARM_UP:]) // 2]
    tokens = recipe.batch_size * length
    others = cores.used_by_others if cores else 0.0
    return Speed(step, tokens / step, tokens * flops_per_token(settings, vocab_size) / step, others)


def run_minutes(settings: Settings, speed: Speed, vocab_size: int, text_bytes: int, train_rows: int) -> float:
    """Minutes of all stages, from the measured rate of training.

    Args:
        text_bytes: of the corpus.
        train_rows: training rows of all tasks together, fine-tuned with every seed from both starts.
    """
    finetune = settings.finetune
    encoder = EncoderConfig.discriminator(settings.model, vocab_size)
    tokens = 2 * len(settings.cells.seeds) * train_rows * finetune.epochs * finetune.max_length
    learning = settings.pretrain.num_steps * speed.seconds_per_step
    fine_tuning = 3 * tokens * forward_flops_per_token(encoder, finetune.max_length) / speed.flops_per_second
    num_cells = 2 * len(settings.cells.seeds) * len(settings.cells.tasks)
    starts = STAGE_SECONDS * (13 + num_cells)
    return (learning + fine_tuning + starts + text_bytes / TEXT_BYTES_PER_SECOND) / 60
