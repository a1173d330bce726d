"""The pre-training loop."""

import math
import signal
import time
from typing import Any

import torch
import torch.distributed

from electra import config
from electra.config import Settings
from electra.errors import InfrastructureError, TrainingError
from electra.hardware import Machine, matrix_peak, resolve_machine
from electra.model.electra import Batch, Electra
from electra.model.pretrained import save_pretrained, special_token_ids
from electra.paths import Paths
from electra.pretrain.checkpoint import Checkpoints, fingerprint
from electra.pretrain.curve import Curve
from electra.pretrain.engine import build_engine, seed_everything, set_step, start_distributed
from electra.pretrain.flops import training_flops_per_token
from electra.pretrain.metrics import HeldoutSums, unigram_entropy
from electra.pretrain.optimizer import learning_rate
from electra.pretrain.state import gather_state, load_weights, scatter_state
from electra.pretrain.telemetry import Telemetry
from electra.shards.dataset import Shards
from electra.shards.loader import ExampleDrawer, Share, heldout_batches, training_steps


def pretrain(settings: Settings, paths: Paths) -> None:
    """Train generator and discriminator on the shards; one of ``cluster.num_processes`` processes.

    Resumes from the newest checkpoint of the same settings and data, exactly. Writes ``models/pretrained``,
    ``results/pretrain.json`` and ``results/pretrain.tsv``.

    Raises:
        TrainingError: the loss is no longer finite.
        InfrastructureError: ended by SIGTERM or SIGINT; a checkpoint was written first.
    """
    machine = resolve_machine(settings.cluster, settings.pretrain.batch_size)
    torch.set_num_threads(machine.num_threads)
    start_distributed(machine)
    rank = torch.distributed.get_rank()
    checkpoints = Checkpoints(paths.checkpoints / fingerprint(settings, paths), settings.cluster.keep_checkpoints)
    if rank > 0:
        return _train(settings, paths, machine, checkpoints, rank)
    with checkpoints.only_writer():
        _train(settings, paths, machine, checkpoints, rank)
    checkpoints.clear()


def _train(settings: Settings, paths: Paths, machine: Machine, checkpoints: Checkpoints, rank: int) -> None:
    recipe = settings.pretrain
    train, heldout = Shards(paths.shards, "train"), Shards(paths.shards, "heldout")
    special = special_token_ids(paths.tokenizer)
    drawer = ExampleDrawer(train, special, recipe)
    heldout_drawer = ExampleDrawer(heldout, special, recipe)
    share = Share(rank, machine.num_processes, machine.micro_batch_size)
    plateau = unigram_entropy(train, heldout, special)

    model = Electra(settings.model, train.vocab_size, mask_id=special[-1], temperature=recipe.temperature)
    model.initialize(settings.model.initializer_range, recipe.seed)
    shapes = model.generator.config, model.discriminator.config
    saved = checkpoints.load_latest()
    if saved:
        load_weights(model, saved[1])
    engine = build_engine(model, recipe, machine)

    first_step, curve = 0, Curve()
    if saved:
        state, weights, moments = saved
        first_step, curve = state["step"], Curve(**state["curve"])
        scatter_state(engine, weights, moments, first_step)
    if rank == 0:
        print(_opening_line(recipe, machine, engine, first_step), flush=True)

    def save_checkpoint(step: int) -> None:
        weights, moments = gather_state(engine)
        curve_state = curve.state()
        if rank == 0:
            checkpoints.save(step, weights, moments, {"curve": curve_state})

    def validate(step: int) -> dict[str, float]:
        sums = HeldoutSums(special)
        engine.eval()
        with torch.no_grad():
            for batch in heldout_batches(heldout_drawer, share, recipe.eval_examples):
                batch = batch.to(engine.device)
                sums.add(batch, engine(batch))
        engine.train()
        sums.all_reduce()
        results = {"unigram_entropy": plateau, **sums.results()}
        curve.add_validation(step, results)
        return results

    telemetry = _telemetry(settings, paths, machine, shapes, first_step) if rank == 0 else None
    log_every = max(1, recipe.num_steps // 400)
    clock = time.monotonic()
    results: dict[str, float] = {}
    with _Interruption() as interruption:
        for step, micro_batches in enumerate(training_steps(drawer, share, first_step, recipe.num_steps), first_step):
            set_step(engine, step, learning_rate(step, recipe.learning_rate, recipe.num_steps, recipe.warmup_steps, recipe.decay_power))  # fmt: skip
            seed_everything(recipe.seed, step, rank)
            checkpoint_due = time.monotonic() - clock > 60 * settings.cluster.checkpoint_minutes
            counts, wishes = _agree(micro_batches, engine.device, wishes=(checkpoint_due, interruption.requested))
            for batch in micro_batches:
                curve.add_losses(_micro_step(engine, batch.to(engine.device), counts, recipe))

            done = step + 1
            if done % log_every == 0 or done == recipe.num_steps:
                losses = curve.end_window(done)
                if not all(math.isfinite(loss) for loss in losses.values()):
                    raise TrainingError(
                        f"the loss is {losses} at step {done}",
                        next_step="lower pretrain.learning_rate or lengthen pretrain.warmup_steps",
                    )
                if telemetry:
                    telemetry.step(done, losses)
            if done % recipe.eval_every == 0 or done == recipe.num_steps:
                results = validate(done)
                if telemetry:
                    telemetry.validation(done, results)
            if any(wishes) and done < recipe.num_steps:
                save_checkpoint(done)
                clock = time.monotonic()
                if wishes[1]:
                    raise InfrastructureError(
                        f"interrupted after step {done}; a checkpoint is saved",
                        next_step="run the same command to go on",
                    )

    weights, _ = gather_state(engine)
    if rank == 0:
        save_pretrained(paths.pretrained, weights, settings.model, train.vocab_size, paths.tokenizer)
        curve.write(paths.results, settings, results)
    if telemetry:
        telemetry.__exit__(None, None, None)


def _micro_step(engine: Any, batch: Batch, counts: torch.Tensor, recipe: config.Pretrain) -> torch.Tensor:
    """Forward, backward, and at the end of an accumulation the update. Returns the two losses' shares, [2]."""
    outputs = engine(batch)
    losses = torch.stack([outputs.generator_loss_sum, outputs.discriminator_loss_sum]) / counts
    total = recipe.generator_weight * losses[0] + recipe.discriminator_weight * losses[1]
    # DeepSpeed divides by the accumulation steps and averages over processes; these are sums over global counts
    engine.backward(total * (torch.distributed.get_world_size() * engine.gradient_accumulation_steps()))
    engine.step()
    return losses.detach()


def _agree(batches: list[Batch], device: Any, wishes: tuple[bool, bool]) -> tuple[torch.Tensor, tuple[bool, bool]]:
    """What all processes must know before a step: the global counts [2] of masked slots and of tokens; who wants what.

    One small all-reduce, so that no process saves or stops while another goes on.
    """
    slots = sum(batch.weights_BK.sum() for batch in batches)
    tokens = sum(batch.mask_BT.sum() for batch in batches)
    shared = torch.tensor([float(slots), float(tokens), *map(float, wishes)], dtype=torch.float64)
    if torch.distributed.get_world_size() > 1:
        shared = shared.to(device)
        torch.distributed.all_reduce(shared)
    return shared[:2].float().to(device), (bool(shared[2] > 0), bool(shared[3] > 0))


def _telemetry(
    settings: Settings, paths: Paths, machine: Machine, shapes: tuple[Any, Any], first_step: int
) -> Telemetry:
    recipe, length = settings.pretrain, settings.shards.max_length
    return Telemetry(
        paths.logs / "pretrain",
        num_steps=recipe.num_steps,
        first_step=first_step,
        tokens_per_step=recipe.batch_size * length,
        flops_per_token=training_flops_per_token(*shapes, length, recipe.mask_probability),
        peak=matrix_peak(machine) * machine.num_processes,
    )


def _opening_line(recipe: config.Pretrain, machine: Machine, engine: Any, first_step: int) -> str:
    start = f"resuming at step {first_step}" if first_step else "starting"
    return (
        f"{start} of {recipe.num_steps} steps x {recipe.batch_size} examples on {machine.num_processes} x "
        f"{machine.device} ({machine.precision}, ZeRO {machine.zero_stage}, micro-batch {machine.micro_batch_size} x "
        f"{engine.gradient_accumulation_steps()})"
    )


class _Interruption:
    """SIGTERM and SIGINT as a wish that the loop grants between two steps."""

    def __enter__(self) -> "_Interruption":
        self.requested = False
        self.before = {number: signal.signal(number, self._request) for number in (signal.SIGTERM, signal.SIGINT)}
        return self

    def __exit__(self, *_: Any) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)

    def _request(self, *_: Any) -> None:
        self.requested = True
