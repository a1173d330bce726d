"""The pre-training loop."""

import copy
import itertools
import signal
import time
from contextlib import ExitStack
from datetime import timedelta

import torch
import torch.distributed

from electra.common.errors import InfrastructureError
from electra.common.output import exclusive
from electra.common.paths import Paths
from electra.config import Cluster, Settings
from electra.estimate.cost import flops_per_token
from electra.estimate.memory import fitted, free_memory, recompute_layers, wants_recompute
from electra.loader.batches import DataParallel, ExampleDrawer, heldout_batches, training_steps
from electra.loader.dataset import Pieces, Shards
from electra.loader.packing import StaticShapes
from electra.model.encoder import Encoder, has_kernel
from electra.model.generator import WithGenerator
from electra.model.objective import Batch, Objective, build_objective, objective_class
from electra.model.pretrained import save_pretrained, special_token_ids
from electra.optim import rate_of
from electra.pretrain.alarms import AlarmMonitor, NonFinite
from electra.pretrain.checkpoint import Background, Checkpoints, Milestones, fingerprint
from electra.pretrain.engine import (
    Agreement,
    build_engine,
    gradient_norms,
    host_group,
    seed_dropout,
    set_step,
    start_distributed,
)
from electra.pretrain.metrics import Curve, HeldoutSums, token_counts, training_rates, unigram_entropy
from electra.pretrain.start import (
    Gathered,
    exchange_device,
    gather_state,
    load_weights,
    scatter_state,
    share_state,
    start_from,
    verify_inputs,
)
from electra.pretrain.telemetry import Telemetry, describe_passes, describe_start
from electra.system.hardware import Machine, matrix_peak, repeat_exactly, resolve_machine, watch_cores
from electra.system.memory import keep_freed_memory
from electra.system.processes import EndRequest, Peers, SignalWatch
from electra.system.run_facts import run_name


def pretrain(settings: Settings, paths: Paths) -> None:
    """Train the method that ``pretrain.objective`` names on the shards; one of ``cluster.num_processes`` processes.

    Resumes from the newest checkpoint of the same settings and data, exactly. Writes ``models/pretrained``,
    ``models/milestones``, ``results/pretrain.json``, ``results/pretrain.tsv`` and ``results/metrics/pretrain.json``.

    Raises:
        DataError: tokenizer or shards are not as their manifests say.
        TrainingError: the gradients are no longer finite, or the run has collapsed.
        InfrastructureError: ended by a signal, after a checkpoint was written; or another process is training the
            same thing; or another process of this run is gone.
    """
    machine = resolve_machine(settings.cluster, settings.pretrain.batch_size)
    if machine.device == "cuda" and settings.cluster.deterministic:
        repeat_exactly(strict=True)
    torch.set_num_threads(machine.num_threads)
    keep_freed_memory()
    torch.set_flush_denormal(True)  # Adam's moments of rare tokens fade into denormals, which CPUs multiply slowly
    cluster = settings.cluster
    # the time-out of single operations comes after that of Peers, which can say more
    start_distributed(machine, timedelta(minutes=1.25 * cluster.timeout_minutes))
    verify_inputs(settings.pretrain, paths, machine.device)
    folder = paths.checkpoints / fingerprint(settings, paths)
    checkpoints = Checkpoints(folder, cluster.keep_checkpoints, cluster.checkpoint_mirror)
    is_first = torch.distributed.get_rank() == 0
    watched = Peers(60 * cluster.timeout_minutes, cluster.silence_seconds)
    with ExitStack() as stack:
        if is_first:
            stack.enter_context(exclusive(paths.pretrained))  # also against a run with other settings
            stack.enter_context(checkpoints.only_writer())
        peers = stack.enter_context(watched)
        Pretraining(settings, paths, machine, checkpoints, peers).run()
        if is_first:
            checkpoints.clear()


# Slurm announces preemption by SIGTERM and the end of a job's time by a signal of the user's choice.
INTERRUPTIONS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2)


class RollBack(Exception):
    """The run should go back to its last checkpoint."""


class Pretraining:
    """One run: data, engine, curve, and the loop over steps."""

    def __init__(self, settings: Settings, paths: Paths, machine: Machine, checkpoints: Checkpoints, peers: Peers):
        self.settings, self.paths, self.machine, self.checkpoints = settings, paths, machine, checkpoints
        self.peers, self.writing = peers, Background()
        self.cores = watch_cores(machine.num_threads) if machine.device == "cpu" else None
        self.host_group = host_group(machine, timedelta(minutes=1.25 * settings.cluster.timeout_minutes))
        self.gathered: Gathered | None = None
        self.recipe = settings.pretrain
        self.rank = torch.distributed.get_rank()
        self.is_first = self.rank == 0

        train, heldout = Shards(paths.shards, "train"), Shards(paths.shards, "heldout")
        self.special_ids = special_token_ids(paths.tokenizer)
        self.train_drawer = ExampleDrawer(train, self.special_ids, self.recipe, settings.fidelity)
        self.heldout_drawer = ExampleDrawer(heldout, self.special_ids, self.recipe, settings.fidelity)
        self.vocab_size = train.vocab_size
        self.machine, self.recompute = self._fit_memory()
        machine = self.machine
        shapes = None
        if machine.device == "cuda":
            with_ends = has_kernel(exchange_device(machine), machine.precision == "bf16")
            shapes = StaticShapes(objective_class(self.recipe.objective).reads, with_ends)
        self.data_parallel = DataParallel(
            self.rank, machine.num_processes, machine.micro_batch_size, settings.cluster.pack_examples, shapes
        )
        self.short_drawer, self.num_short_steps = None, 0
        if curriculum := self.recipe.length_curriculum:
            pieces = Pieces(train, curriculum.length)
            self.short_drawer = ExampleDrawer(pieces, self.special_ids, self.recipe, settings.fidelity)
            self.num_short_steps = round(curriculum.share * self.recipe.num_steps)
        self.token_counts = token_counts(train, self.special_ids)
        self.unigram_entropy = unigram_entropy(self.token_counts, token_counts(heldout, self.special_ids))
        self.milestones = Milestones(checkpoints.folder, self.recipe.num_steps)
        self.non_finite = NonFinite()
        self._start_or_resume()

    # ---- where a run begins

    def _start_or_resume(self) -> None:
        """From the newest checkpoint, or from fresh weights."""
        model = self._new_model()
        self.terms = list(model.loss_weights)
        self.phases = model.phases(self.recipe.num_steps)
        self.first_step, names = 0, [f"{term}_loss" for term in self.terms]
        names += Curve.RATES if hasattr(model, "discriminator_head") else ()
        self.curve, self.alarms = Curve(names), AlarmMonitor(self.recipe)
        self.writing.wait()
        saved = share_state(self.checkpoints.load_latest() if self.is_first else None, exchange_device(self.machine))
        if saved:
            state, weights, moments = saved
            self.first_step = state["step"]
            self.curve, self.alarms = Curve(names, **state["curve"]), AlarmMonitor(self.recipe, state["alarms"])
            self.non_finite.num_skipped = state["num_skipped"]
            load_weights(model, weights)
        else:
            model.initialize(self.settings.model.initializer_range, self.recipe.seed)
            start_from(model, self.recipe, self.paths)
        self._build_engine(model, self._phase_at(max(0, self.first_step - 1)))
        if saved:
            scatter_state(self.engine, weights, moments)

    def _fit_memory(self) -> tuple[Machine, bool]:
        """The machine with a micro-batch that fits, and whether layers are recomputed: the same on all processes."""
        machine = self.machine
        if machine.device == "cuda":
            free = torch.tensor(float(free_memory(machine)), device=exchange_device(machine))
            if machine.num_processes > 1:
                torch.distributed.all_reduce(free, torch.distributed.ReduceOp.MIN)
            machine = fitted(self.settings, machine, self.vocab_size, int(free.item()))
            return machine, machine.activation_checkpointing == "layers"
        wish = torch.tensor(float(wants_recompute(self.settings, machine, self.vocab_size)))
        if machine.num_processes > 1 and machine.activation_checkpointing == "auto":
            torch.distributed.all_reduce(wish, torch.distributed.ReduceOp.MAX)
        return machine, wish.item() > 0

    def _new_model(self) -> Objective:
        model = build_objective(self.settings.model, self.vocab_size, self.special_ids[-1], self.recipe)
        if isinstance(model, WithGenerator):
            model.set_frequencies(torch.from_numpy(self.token_counts))
        return model

    def _build_engine(self, model: Objective, phase: int) -> None:
        self.model, self.phase = model, phase
        model.set_phase(phase)
        if self.recompute:
            recompute_layers(model)
        if self.machine.compile == "model":
            model.forward = torch.compile(model.forward, dynamic=False, fullgraph=True)  # type: ignore[method-assign]
        if self.machine.compile == "layers":
            for encoder in (module for module in model.modules() if isinstance(module, Encoder)):
                encoder.compile_layers()
        self.engine, self.optimizer = build_engine(model, self.recipe, self.machine)
        self.skipped_by_zero = self.engine.skipped_steps

    def _phase_at(self, step: int) -> int:
        return next(number for number, steps in enumerate(self.phases) if step in steps)

    def _enter_phase(self, phase: int) -> None:
        """Go on with the weights learned so far and an engine for what the new phase trains."""
        weights, _ = gather_state(self.engine)
        model = self._new_model()
        load_weights(model, weights)
        model.enter_phase(phase)
        self._build_engine(model, phase)

    # ---- the loop

    def run(self) -> None:
        """From the first step that is not yet taken to the last, then write the result."""
        telemetry = self._telemetry()
        patience = min(30.0, self.settings.cluster.grace_seconds / 2)
        watch = SignalWatch(INTERRUPTIONS, patience, self.peers.stand)
        with EndRequest(INTERRUPTIONS, watch.answer) as interruption, watch, self.writing:
            while True:
                try:
                    results = self._train(interruption, telemetry)
                    break
                except RollBack:
                    print("going back to the last checkpoint", flush=True)
                    self._start_or_resume()
        self._write_result(results)
        if telemetry:
            telemetry.close()

    def _train(self, interruption: EndRequest, telemetry: Telemetry | None) -> dict[str, float]:
        recipe, num_steps = self.recipe, self.recipe.num_steps
        log_every = max(1, num_steps // 400)
        saved_at, pause = time.monotonic(), 60 * self.settings.cluster.checkpoint_minutes
        results: dict[str, float] = {}

        asked_for = itertools.count(self.first_step)

        def wishes() -> tuple[bool, bool]:
            self.peers.arrive(next(asked_for))
            is_due = self.is_first and time.monotonic() - saved_at > pause and not self.writing.is_busy
            return is_due, bool(interruption)

        steps = training_steps(
            self.train_drawer,
            self.data_parallel,
            self.first_step,
            num_steps,
            short=self.short_drawer,
            num_short_steps=self.num_short_steps,
        )
        on_cuda = self.machine.device == "cuda"
        agreement = Agreement(lambda batch: self.model.counts(batch), self.terms, self.host_group, ahead=int(on_cuda))
        for step, agreed in enumerate(agreement.of_steps(steps, wishes), self.first_step):
            micro_batches, save, stop = agreed.micro_batches, agreed.save, agreed.stop
            if (phase := self._phase_at(step)) != self.phase:
                self._enter_phase(phase)
            set_step(self.engine, step - self.phases[phase].start, rate_of(step, recipe, self.phases[phase]))
            self.writing.check()
            counts = agreed.counts.pin_memory() if on_cuda else agreed.counts
            counts = counts.to(self.engine.device, non_blocking=True)

            done = step + 1
            is_logged = done % log_every == 0 or done == num_steps
            norms: dict[str, float] = {}
            for number, batch in enumerate(micro_batches):
                seed_dropout(recipe.seed, step, number * self.machine.num_processes + self.rank)
                self.curve.add(self._backward(batch.to(self.engine.device), counts))
                if is_logged and number == len(micro_batches) - 1:
                    norms = gradient_norms(self.engine, self.model.part_of)
                self.engine.step()
            if telemetry:
                telemetry.beat(done)
            if self.cores and (warning := self.cores.warning()):
                print(f"step {done}  {warning}", flush=True)

            if (is_logged or save) and self.non_finite.must_roll_back(self._take_skipped(), done):
                raise RollBack
            if is_logged:
                means = self.curve.end_window(done)
                if telemetry:
                    telemetry.step(done, means, norms, self.non_finite.num_skipped)
            if done % recipe.eval_every == 0 or done == num_steps:
                results = self._validate(done)
                alarms = self.alarms.check(done, results)
                results["alarms"] = float(len(alarms))
                if telemetry:
                    telemetry.validation(done, results, alarms)
            if self.milestones.is_due(done):
                self._keep_milestone(done)
            # a step just skipped may be the first of many: what one would go back to should lie before it
            if ((save and not self.non_finite.just_skipped) or stop) and done < num_steps:
                start = time.monotonic()
                self._save_checkpoint(done)
                saved_at = time.monotonic()
                pause = seconds_between_checkpoints(self.settings.cluster, waited=saved_at - start)
            if stop and done < num_steps:
                self.writing.wait()
                torch.distributed.barrier()  # launchers end the others when one ends: not before it is written
                raise InfrastructureError(
                    f"interrupted after step {done}; a checkpoint is saved", next_step="run the same command to go on"
                )
        return results

    def _backward(self, batch: Batch, counts: torch.Tensor) -> torch.Tensor:
        """Forward and backward. Returns the shares of the step's losses and rates, in the curve's order."""
        outputs = self.engine(batch)
        nothing = torch.zeros((), device=counts.device)  # of a term that this phase does not have
        losses = torch.stack([outputs.loss_sums.get(term, nothing) for term in self.terms]) / counts
        loss = sum(weight * losses[number] for number, weight in enumerate(self.model.loss_weights.values()))
        # DeepSpeed divides by the accumulation steps and averages over processes, but these are shares of a sum
        self.engine.backward(loss * self.machine.num_processes * self.engine.gradient_accumulation_steps())
        rates = training_rates(outputs) / counts[-1]  # the discriminator's term is the last one
        return torch.cat([losses.detach(), rates])[: len(self.curve.names)]

    def _take_skipped(self) -> int:
        """Steps since the last call that were skipped for their gradients, by our optimizer or by ZeRO before it."""
        by_zero = self.engine.skipped_steps - self.skipped_by_zero
        self.skipped_by_zero += by_zero
        return self.optimizer.take_skipped() + by_zero

    def _validate(self, step: int) -> dict[str, float]:
        """Held-out losses and rates, all processes together."""
        sums = HeldoutSums(self.terms, self.special_ids, self.vocab_size)
        self.engine.eval()
        with torch.no_grad():
            for batch in heldout_batches(self.heldout_drawer, self.data_parallel, self.recipe.eval_examples):
                self.peers.arrive(step)
                batch = batch.to(self.engine.device)
                sums.add(batch, self.engine(batch), self.model.counts(batch))
        self.engine.train()
        sums.all_reduce(self.engine.device)
        results = {"unigram_entropy": self.unigram_entropy, **sums.results()}
        self.curve.add_validation(step, results)
        return results

    # ---- what is kept

    def _gather(self) -> Gathered:
        """Everything, on the first process; the call after this one copies into the same memory."""
        self.writing.wait()  # it writes what lies there
        self.gathered = gather_state(self.engine, keep=self.is_first, into=self.gathered)
        return self.gathered

    def _save_checkpoint(self, step: int) -> None:
        weights, moments = self._gather()
        extra = {
            "curve": self.curve.state(),
            "alarms": self.alarms.since,
            "num_skipped": self.non_finite.num_skipped,
        }
        if self.is_first:
            as_now = copy.deepcopy(extra)  # it is written while training goes on
            self.writing.start(lambda: self.checkpoints.save(step, weights, moments, as_now))

    def _keep_milestone(self, step: int) -> None:
        weights, _ = self._gather()
        if self.is_first:
            self.milestones.keep(step, weights, self.settings, self.vocab_size, self.paths.tokenizer)

    def _write_result(self, results: dict[str, float]) -> None:
        weights, _ = self._gather()
        if self.is_first:
            tokenizer = self.paths.tokenizer
            save_pretrained(
                self.paths.pretrained, weights, self.settings.model, self.vocab_size, tokenizer, self.recipe
            )
            self.milestones.publish(self.paths.milestones)
            self.curve.write(self.paths, self.settings, results)

    def _telemetry(self) -> Telemetry | None:
        """The first process tells how it goes."""
        if not self.is_first:
            return None
        accumulation = self.engine.gradient_accumulation_steps()
        print(describe_start(self.settings, self.machine, self.first_step, accumulation), flush=True)
        if passes := describe_passes(self.recipe, len(self.train_drawer.shards)):
            print(passes, flush=True)
        return Telemetry(
            self.paths.logs / "pretrain",
            name=run_name(self.settings.profile, self.recipe.objective, self.paths.root),
            num_steps=self.recipe.num_steps,
            first_step=self.first_step,
            tokens_per_step=self.recipe.batch_size * self.settings.shards.max_length,
            flops_per_token=flops_per_token(self.settings, self.vocab_size),
            peak=matrix_peak(self.machine) * self.machine.num_processes,
            max_grad_norm=self.recipe.max_grad_norm,
        )


def seconds_between_checkpoints(cluster: Cluster, waited: float) -> float:
    """As many as the settings say; more where training waited so long for the last one that it would cost over 2%."""
    return max(60 * cluster.checkpoint_minutes, 50 * waited if waited > 1 else 0)
