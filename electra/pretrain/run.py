"""The pre-training loop."""

import math
import signal
import time
from types import FrameType

import torch
import torch.distributed

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
from electra.pretrain.optimizer import rate_of
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
        InfrastructureError: ended by SIGTERM or SIGINT, after a checkpoint was written; or another process is
            training the same thing.
    """
    machine = resolve_machine(settings.cluster, settings.pretrain.batch_size)
    torch.set_num_threads(machine.num_threads)
    torch.set_flush_denormal(True)  # Adam's moments of rare tokens fade into denormals, which CPUs multiply slowly
    start_distributed(machine)
    checkpoints = Checkpoints(paths.checkpoints / fingerprint(settings, paths), settings.cluster.keep_checkpoints)
    if torch.distributed.get_rank() > 0:
        return Pretraining(settings, paths, machine, checkpoints).run()
    with checkpoints.only_writer():
        Pretraining(settings, paths, machine, checkpoints).run()
    checkpoints.clear()


class Pretraining:
    """One run: data, engine, curve, and the loop over steps."""

    def __init__(self, settings: Settings, paths: Paths, machine: Machine, checkpoints: Checkpoints):
        self.settings, self.paths, self.machine, self.checkpoints = settings, paths, machine, checkpoints
        self.recipe = settings.pretrain
        self.rank = torch.distributed.get_rank()
        self.is_first = self.rank == 0

        train, heldout = Shards(paths.shards, "train"), Shards(paths.shards, "heldout")
        self.special_ids = special_token_ids(paths.tokenizer)
        self.train_drawer = ExampleDrawer(train, self.special_ids, self.recipe)
        self.heldout_drawer = ExampleDrawer(heldout, self.special_ids, self.recipe)
        self.share = Share(self.rank, machine.num_processes, machine.micro_batch_size)
        self.vocab_size = train.vocab_size
        self.unigram_entropy = unigram_entropy(train, heldout, self.special_ids)
        self._start_or_resume()

    def _start_or_resume(self) -> None:
        model = Electra(self.settings.model, self.vocab_size, self.special_ids[-1], self.recipe.temperature)
        model.initialize(self.settings.model.initializer_range, self.recipe.seed)
        self.shapes = model.generator.config, model.discriminator.config
        saved = self.checkpoints.load_latest()
        self.first_step, self.curve = 0, Curve()
        if saved:
            state, weights, moments = saved
            self.first_step, self.curve = state["step"], Curve(**state["curve"])
            load_weights(model, weights)
        self.engine = build_engine(model, self.recipe, self.machine)
        if saved:
            scatter_state(self.engine, weights, moments, self.first_step)

    def run(self) -> None:
        """From the first step that is not yet taken to the last, then write the result."""
        recipe, telemetry = self.recipe, self._telemetry()
        log_every = max(1, recipe.num_steps // 400)
        saved_at = time.monotonic()
        results: dict[str, float] = {}
        steps = training_steps(self.train_drawer, self.share, self.first_step, recipe.num_steps)
        with Interruption() as interruption:
            for step, micro_batches in enumerate(steps, self.first_step):
                set_step(self.engine, step, rate_of(step, recipe))
                seed_everything(recipe.seed, step, self.rank)
                is_due = time.monotonic() - saved_at > 60 * self.settings.cluster.checkpoint_minutes
                counts, save, stop = self._agree(micro_batches, is_due, interruption.requested)
                for batch in micro_batches:
                    self.curve.add_losses(self._micro_step(batch.to(self.engine.device), counts))

                done = step + 1
                if done % log_every == 0 or done == recipe.num_steps:
                    losses = self.curve.end_window(done)
                    _require_finite(losses, done)
                    if telemetry:
                        telemetry.step(done, losses)
                if done % recipe.eval_every == 0 or done == recipe.num_steps:
                    results = self._validate(done)
                    if telemetry:
                        telemetry.validation(done, results)
                if (save or stop) and done < recipe.num_steps:
                    self._save_checkpoint(done)
                    saved_at = time.monotonic()
                if stop and done < recipe.num_steps:
                    raise InfrastructureError(
                        f"interrupted after step {done}; a checkpoint is saved",
                        next_step="run the same command to go on",
                    )
        self._write_result(results)
        if telemetry:
            telemetry.close()

    def _agree(self, batches: list[Batch], save: bool, stop: bool) -> tuple[torch.Tensor, bool, bool]:
        """What all processes must know before a step, in one small all-reduce.

        Returns:
            The global numbers of masked slots and of tokens [2], which the losses are divided by; and whether any
            process wants a checkpoint, or to stop, so that none saves or stops while another goes on.
        """
        slots = sum(float(batch.weights_BK.sum()) for batch in batches)
        tokens = sum(float(batch.mask_BT.sum()) for batch in batches)
        shared = torch.tensor([slots, tokens, float(save), float(stop)], device=self.engine.device)
        if self.machine.num_processes > 1:
            torch.distributed.all_reduce(shared)
        _, _, save_wishes, stop_wishes = shared.tolist()
        return shared[:2], save_wishes > 0, stop_wishes > 0

    def _micro_step(self, batch: Batch, counts_2: torch.Tensor) -> torch.Tensor:
        """Forward, backward, and at the end of an accumulation the update. Returns the two losses' shares [2]."""
        outputs = self.engine(batch)
        losses_2 = torch.stack([outputs.generator_loss_sum, outputs.discriminator_loss_sum]) / counts_2
        loss = self.recipe.generator_weight * losses_2[0] + self.recipe.discriminator_weight * losses_2[1]
        # DeepSpeed divides by the accumulation steps and averages over processes, but these are shares of a sum
        self.engine.backward(loss * self.machine.num_processes * self.engine.gradient_accumulation_steps())
        self.engine.step()
        return losses_2.detach()

    def _validate(self, step: int) -> dict[str, float]:
        """Held-out losses and rates, all processes together."""
        sums = HeldoutSums(self.special_ids)
        self.engine.eval()
        with torch.no_grad():
            for batch in heldout_batches(self.heldout_drawer, self.share, self.recipe.eval_examples):
                batch = batch.to(self.engine.device)
                sums.add(batch, self.engine(batch))
        self.engine.train()
        sums.all_reduce(self.engine.device)
        results = {"unigram_entropy": self.unigram_entropy, **sums.results()}
        self.curve.add_validation(step, results)
        return results

    def _save_checkpoint(self, step: int) -> None:
        weights, moments = gather_state(self.engine)
        curve = self.curve.state()
        if self.is_first:
            self.checkpoints.save(step, weights, moments, {"curve": curve})

    def _write_result(self, results: dict[str, float]) -> None:
        weights, _ = gather_state(self.engine)
        if self.is_first:
            tokenizer = self.paths.tokenizer
            save_pretrained(self.paths.pretrained, weights, self.settings.model, self.vocab_size, tokenizer)
            self.curve.write(self.paths.results, self.settings, results)

    def _telemetry(self) -> Telemetry | None:
        """The first process tells how it goes."""
        if not self.is_first:
            return None
        recipe, machine, length = self.recipe, self.machine, self.settings.shards.max_length
        start = f"resuming at step {self.first_step}" if self.first_step else "starting"
        print(
            f"{start} of {recipe.num_steps} steps x {recipe.batch_size} examples on {machine.num_processes} x "
            f"{machine.device} ({machine.precision}, ZeRO {machine.zero_stage}, micro-batch "
            f"{machine.micro_batch_size} x {self.engine.gradient_accumulation_steps()})",
            flush=True,
        )
        return Telemetry(
            self.paths.logs / "pretrain",
            num_steps=recipe.num_steps,
            first_step=self.first_step,
            tokens_per_step=recipe.batch_size * length,
            flops_per_token=training_flops_per_token(*self.shapes, length, recipe.mask_probability),
            peak=matrix_peak(machine) * machine.num_processes,
        )


def _require_finite(losses: dict[str, float], step: int) -> None:
    if not all(math.isfinite(loss) for loss in losses.values()):
        raise TrainingError(
            f"the loss is no longer finite at step {step}: {losses}",
            next_step="lower pretrain.learning_rate or lengthen pretrain.warmup_steps",
        )


class Interruption:
    """SIGTERM and SIGINT as a wish that the loop grants between two steps."""

    def __enter__(self) -> "Interruption":
        self.requested = False
        self.before = {number: signal.signal(number, self._request) for number in (signal.SIGTERM, signal.SIGINT)}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)

    def _request(self, number: int, frame: FrameType | None) -> None:
        self.requested = True
