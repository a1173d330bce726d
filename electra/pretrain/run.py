"""The pre-training loop and its step.

Around a step: agreement.py (of the processes, on counts and requests), checkpoint.py and mirror.py, alarms.py,
telemetry.py, metrics.py; beneath it: model.py, engine.py, and zero.py for what is particular to DeepSpeed.
"""

import copy
import gc
import itertools
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, nullcontext
from datetime import timedelta

import torch
import torch.distributed

from electra.cluster.busy_cores import watch_cores
from electra.cluster.hardware import Machine, repeat_exactly, resolve_machine
from electra.cluster.memory import keep_freed_memory
from electra.cluster.peers import Peers, SignalMonitor
from electra.cluster.processes import EndRequest
from electra.common.artifacts import write_json
from electra.common.errors import InfrastructureError
from electra.common.locks import exclusive
from electra.common.parsing import read_tokenizer
from electra.common.paths import Paths
from electra.common.subwords import WordStarts
from electra.config import Settings
from electra.config.methods import METHODS
from electra.model.attention import has_kernel
from electra.model.pretrained import save_pretrained, special_token_ids
from electra.objectives.base import Objective, Outputs, objective_class
from electra.optim import rate_of
from electra.pretrain.agreement import AgreedStep, Agreement
from electra.pretrain.alarms import AlarmMonitor, NonFinite
from electra.pretrain.checkpoint import (
    Background,
    Checkpoints,
    Milestones,
    broadcast_saved,
    fingerprint,
    load_weights,
    seconds_between_checkpoints,
)
from electra.pretrain.data.batches import DataParallel, ExampleDrawer, heldout_batches, training_steps
from electra.pretrain.data.dataset import CutExamples
from electra.pretrain.data.packing import StaticShapes
from electra.pretrain.engine import (
    build_engine,
    communication_device,
    gradient_norms,
    host_group,
    seed_dropout,
    set_step,
    start_distributed,
)
from electra.pretrain.inputs import load_initial_weights, verify_inputs
from electra.pretrain.metrics import Curve, HeldoutSums, token_counts, training_rates, unigram_entropy
from electra.pretrain.model import build_model, fit_to_memory, make_fast
from electra.pretrain.telemetry import Telemetry, start_telemetry
from electra.pretrain.zero import Gathered, backward, gather_state, scatter_state, take_skipped
from electra.text.shards.layout import Shards


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
    with started_run(settings, paths) as run:
        with run.noted_signals():
            for step, agreed in run.steps():
                norms = run.train_step(step, agreed)
                done = step + 1
                run.report_alive(done)
                if (run.should_log(done) or agreed.save) and run.has_diverged(done):
                    run.roll_back()
                    continue
                if run.should_log(done):
                    run.log(done, norms)
                if run.should_validate(done):
                    run.validate(done)
                if run.milestones.has_any_at(done):
                    run.keep_milestone(done)
                if run.should_save(done, agreed):
                    run.save_checkpoint(done)
                if agreed.stop and done < run.num_steps:
                    run.end_interrupted(done)
        run.write_result()


@contextmanager
def started_run(settings: Settings, paths: Paths) -> Iterator["Pretraining"]:
    """Join the processes of the run and verify its inputs; its checkpoints go when the block ends well."""
    cluster, machine = settings.cluster, resolve_machine(settings.cluster, settings.pretrain.batch_size)
    if machine.device == "cuda" and cluster.deterministic:
        repeat_exactly(strict=True)
    torch.set_num_threads(machine.num_threads)
    keep_freed_memory()
    torch.set_flush_denormal(True)  # Adam's moments of rare tokens fade into denormals, which CPUs multiply slowly
    # the time-out of single operations comes after that of Peers, which can say more
    timeout = timedelta(minutes=1.25 * cluster.timeout_minutes)
    start_distributed(machine, timeout)
    verify_inputs(settings.pretrain, paths, machine.device)
    folder = paths.checkpoints / fingerprint(settings, paths)  # of the settings as they are written
    recipe = settings.pretrain.with_steps_for(len(Shards(paths.shards, "train")))
    settings = settings.model_copy(update={"pretrain": recipe})
    checkpoints = Checkpoints(folder, cluster.keep_checkpoints, cluster.checkpoint_mirror)
    is_first = torch.distributed.get_rank() == 0
    watched = Peers(60 * cluster.timeout_minutes, cluster.silence_seconds)
    with ExitStack() as stack:
        if is_first:
            stack.enter_context(exclusive(paths.pretrained))  # also against a run with other settings
            stack.enter_context(checkpoints.only_writer())
        run = Pretraining(settings, paths, machine, checkpoints, stack.enter_context(watched), timeout)
        with closing(run.telemetry) if run.telemetry else nullcontext():  # a terminal is given back after an error, too
            yield run
        if is_first:
            checkpoints.clear()


# Slurm announces preemption by SIGTERM and the end of a job's time by a signal of the user's choice.
INTERRUPTIONS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2)


class Pretraining:
    """One run: data, model, engine and curve, a step of training, and everything that happens between steps."""

    def __init__(
        self,
        settings: Settings,
        paths: Paths,
        machine: Machine,
        checkpoints: Checkpoints,
        peers: Peers,
        timeout: timedelta,
    ):
        self.settings, self.paths, self.checkpoints, self.peers = settings, paths, checkpoints, peers
        self.recipe, self.num_steps = settings.pretrain, settings.pretrain.num_steps
        self.rank = torch.distributed.get_rank()
        self.is_first = self.rank == 0
        self.cores = watch_cores(machine.num_threads) if machine.device == "cpu" else None
        self.host_group = host_group(machine, timeout)
        self.writing = Background()
        self.gathered: Gathered | None = None
        self.non_finite = NonFinite()

        train, heldout = Shards(paths.shards, "train"), Shards(paths.shards, "heldout")
        self.milestones = Milestones(checkpoints.folder, self.recipe, train)
        self.vocab_size, self.special_ids = train.vocab_size, special_token_ids(paths.tokenizer)
        self.train_drawer, self.heldout_drawer = self._drawer(train), self._drawer(heldout)
        self.short_drawer, self.num_short_steps = None, 0
        if curriculum := self.recipe.length_curriculum:
            self.short_drawer = self._drawer(CutExamples(train, curriculum.length))
            self.num_short_steps = round(curriculum.share * self.num_steps)
        self.token_counts = token_counts(train, self.special_ids)
        self.unigram_entropy = unigram_entropy(self.token_counts, token_counts(heldout, self.special_ids))

        self.machine = machine = fit_to_memory(settings, machine, self.vocab_size)
        shapes = None
        if machine.device == "cuda":
            with_ends = has_kernel(communication_device(machine), machine.precision == "bf16")
            shapes = StaticShapes(objective_class(self.recipe.objective).batch_fields, with_ends)
        self.data_parallel = DataParallel(
            self.rank, machine.num_processes, machine.micro_batch_size, settings.cluster.pack_examples, shapes
        )
        self._start_or_resume()
        self.telemetry: Telemetry | None = None
        if self.is_first:
            accumulation, num_examples = self.engine.gradient_accumulation_steps(), len(train)
            self.telemetry = start_telemetry(
                settings, paths, machine, self.first_step, accumulation, num_examples, self.vocab_size
            )

    def _drawer(self, shards: Shards | CutExamples) -> ExampleDrawer:
        starts = None
        if self.recipe.whole_words:
            starts = WordStarts(read_tokenizer(self.paths.tokenizer / "tokenizer.json"))
        return ExampleDrawer(shards, self.special_ids, self.recipe, self.settings.fidelity, starts)

    # ---- a step

    def train_step(self, step: int, agreed: AgreedStep) -> dict[str, float]:
        """Take one optimizer step on the global batch; this process has its micro-batches of it.

        Returns:
            Norms of the gradient, whole and by part, after steps that are logged.
        """
        if (phase := self._phase_at(step)) != self.phase:
            self._enter_phase(phase)
        steps_of_phase = self.phases[phase]
        set_step(self.engine, step - steps_of_phase.start, rate_of(step, self.recipe, steps_of_phase))
        counts = agreed.counts_on(self.engine.device)
        norms: dict[str, float] = {}
        for number, batch in enumerate(agreed.micro_batches):
            seed_dropout(self.recipe.seed, step, number * self.machine.num_processes + self.rank)
            outputs = self.engine(batch.to(self.engine.device))
            losses = self.losses(outputs, counts)
            loss = sum(weight * losses[term] for term, weight in enumerate(self.model.loss_weights.values()))
            backward(self.engine, loss)
            rates = training_rates(outputs) / counts[-1]  # the discriminator's term is the last one
            self.curve.add(torch.cat([losses.detach(), rates])[: len(self.curve.names)])
            if self.should_log(step + 1) and number == len(agreed.micro_batches) - 1:
                norms = gradient_norms(self.engine, self.model.part_of)
            self.engine.step()
        rates_measured = Curve.RATES if outputs.discriminator_logits_BT is not None else ()
        self.curve.end_step({*(f"{term}_loss" for term in outputs.loss_sums), *rates_measured})
        return norms

    def losses(self, outputs: Outputs, counts: torch.Tensor) -> torch.Tensor:
        """Return the local sum over the global count of each term [terms]: shares that add up to the step's losses."""
        zero = torch.zeros((), device=counts.device)  # of a term that this phase does not train
        return torch.stack([outputs.loss_sums.get(term, zero) for term in self.terms]) / counts

    # ---- between steps

    def steps(self) -> Iterator[tuple[int, AgreedStep]]:
        """Yield each step that is not yet taken, with its batches; after a roll-back from the checkpoint's step on."""
        on_cuda = self.machine.device == "cuda"
        self.is_rolled_back = True
        while self.is_rolled_back:
            self.is_rolled_back = False
            self.saved_at, self.pause = time.monotonic(), 60 * self.settings.cluster.checkpoint_minutes
            self.save_is_pending = False  # requested by this process; the step that it is granted to is not over
            batches = training_steps(
                self.train_drawer,
                self.data_parallel,
                self.first_step,
                self.num_steps,
                short=self.short_drawer,
                num_short_steps=self.num_short_steps,
            )
            numbers = itertools.count(self.first_step)

            def requests(numbers: Iterator[int] = numbers) -> tuple[bool, bool]:
                self.peers.begin_step(next(numbers))
                is_due = time.monotonic() - self.saved_at > self.pause and not self.writing.is_busy
                # on CUDA called for the next step before this one has saved: one request for each checkpoint
                requests_save = self.is_first and is_due and not self.save_is_pending
                self.save_is_pending |= requests_save
                return requests_save, bool(self.interruption)

            agreement = Agreement(lambda batch: self.model.counts(batch), self.terms, self.host_group, int(on_cuda))
            for step, agreed in enumerate(agreement.of_steps(batches, requests), self.first_step):
                self.writing.check()
                yield step, agreed
                if self.is_rolled_back:
                    break
                if agreed.save:
                    self.save_is_pending = False  # it is saved, or refused after a skipped step: request again

    @contextmanager
    def noted_signals(self) -> Iterator[None]:
        """Note signals to end, for the next step; at the end of the block, wait for a checkpoint being written."""
        patience = min(30.0, self.settings.cluster.grace_seconds / 2)
        monitor = SignalMonitor(INTERRUPTIONS, patience, self.peers.location)
        with EndRequest(INTERRUPTIONS, monitor.mark_handled) as self.interruption, monitor, self.writing:
            yield

    def report_alive(self, done: int) -> None:
        """Update progress.json now and then, and warn where other processes use this run's cores."""
        if self.telemetry:
            self.telemetry.beat(done)
        if self.cores and (warning := self.cores.warning()):
            print(f"step {done}  {warning}", flush=True)

    def has_diverged(self, done: int) -> bool:
        """Return whether so many steps were skipped for their gradients that the run must go back."""
        return self.non_finite.must_roll_back(take_skipped(self.engine, self.optimizer), done)

    def roll_back(self) -> None:
        """Go back to the last checkpoint, or to step 0."""
        print("going back to the last checkpoint", flush=True)
        self._release_engine()
        self._start_or_resume()
        self.is_rolled_back = True

    def should_log(self, done: int) -> bool:
        return done % max(1, self.num_steps // 400) == 0 or done == self.num_steps

    def log(self, done: int, norms: dict[str, float]) -> None:
        """End a window of the curve; all processes together."""
        means = self.curve.end_window(done)
        if self.telemetry:
            self.telemetry.step(done, means, norms, self.non_finite.num_skipped)

    def should_validate(self, done: int) -> bool:
        return done % self.recipe.eval_every == 0 or done == self.num_steps

    def validate(self, done: int) -> None:
        """Compute held-out losses and rates, all processes together, and check them for alarms."""
        self.results = self._heldout_results(done)
        alarms = self.alarms.check(done, self.results)
        self.results["alarms"] = float(len(alarms))
        if self.telemetry:
            self.telemetry.validation(done, self.results, alarms)

    def _heldout_results(self, done: int) -> dict[str, float]:
        sums = HeldoutSums(self.terms, self.special_ids, self.vocab_size)
        self.engine.eval()
        with torch.no_grad():
            batches = heldout_batches(self.heldout_drawer, self.data_parallel, self.recipe.eval_examples)
            for batch, counts in batches:
                self.peers.begin_step(done)
                batch = batch.to(self.engine.device)
                outputs = self.engine(batch)
                if counts:
                    sums.add(batch, outputs, self.model.counts(batch))
        self.engine.train()
        sums.all_reduce(self.engine.device)
        results = {"unigram_entropy": self.unigram_entropy, **sums.results()}
        self.curve.add_validation(done, results)
        return results

    # ---- phases, the model and its state

    def _start_or_resume(self) -> None:
        """Build model and engine from the newest checkpoint, or from fresh weights."""
        model = build_model(self.settings, self.vocab_size, self.special_ids[-1], self.token_counts)
        self.terms, self.phases = list(model.loss_weights), model.phases(self.num_steps)
        names = [f"{term}_loss" for term in self.terms]
        names += Curve.RATES if METHODS[self.recipe.objective].has_discriminator else ()
        self.first_step, self.curve = 0, Curve(names)
        self.alarms = AlarmMonitor(self.recipe, phases=self.phases)
        self.writing.wait()
        found = self.checkpoints.load_latest() if self.is_first else None
        saved = broadcast_saved(found, communication_device(self.machine))
        if saved:
            state, weights, moments = saved
            self.first_step, self.curve = state["step"], Curve(names, **state["curve"])
            self.alarms = AlarmMonitor(self.recipe, state["alarms"], self.phases)
            self.non_finite.num_skipped = state["num_skipped"]
            load_weights(model, weights)
        else:
            model.initialize(self.settings.model.initializer_range, self.recipe.seed)
            load_initial_weights(model, self.recipe, self.paths)
        self._build_engine(model, self._phase_at(max(0, self.first_step - 1)))
        if saved:
            scatter_state(self.engine, weights, moments)

    def _phase_at(self, step: int) -> int:
        return next(number for number, steps in enumerate(self.phases) if step in steps)

    def _enter_phase(self, phase: int) -> None:
        """Go on with the weights learned so far and an engine for the parameters that the new phase trains."""
        weights = gather_state(self.engine)[0]  # on every process
        self._release_engine()
        model = build_model(self.settings, self.vocab_size, self.special_ids[-1], self.token_counts)
        load_weights(model, weights)
        model.enter_phase(phase)
        self._build_engine(model, phase)

    def _release_engine(self) -> None:
        """Free the engine with its weights and moments, so that there is memory for the next one.

        At ZeRO 3 it stays: a cache of DeepSpeed's (PartitionedParameterCoordinator.__params_to_release) refers to it.
        """
        self.engine.destroy()  # the hooks by which parameters keep it at ZeRO 1 and 2
        del self.engine, self.optimizer, self.model
        gc.collect()  # they refer to one another
        if self.machine.device == "cuda":
            torch.cuda.empty_cache()

    def _build_engine(self, model: Objective, phase: int) -> None:
        self.model, self.phase = model, phase
        model.set_phase(phase)
        make_fast(model, self.machine)
        self.engine, self.optimizer = build_engine(
            model, self.recipe, self.machine, self.settings.cluster.deepspeed.config
        )
        if self.is_first:
            write_json(self.paths.logs / "pretrain/deepspeed.json", self.engine.config)

    # ---- writing

    def _gather(self) -> Gathered:
        """Gather weights and moments on the first process; the next call copies into the same memory."""
        self.writing.wait()  # it writes from that memory
        self.gathered = gather_state(self.engine, keep=self.is_first, into=self.gathered)
        return self.gathered

    def should_save(self, done: int, agreed: AgreedStep) -> bool:
        """Return whether to save a checkpoint now."""
        # a step just skipped may be the first of many: the checkpoint to go back to should lie before it
        return (agreed.stop or (agreed.save and not self.non_finite.just_skipped)) and done < self.num_steps

    def save_checkpoint(self, done: int) -> None:
        """Gather the state, all processes together, and write it while training goes on."""
        start = time.monotonic()
        weights, moments = self._gather()
        extra = {
            "curve": self.curve.state(),
            "alarms": self.alarms.since,
            "num_skipped": self.non_finite.num_skipped,
        }
        if self.is_first:
            as_now = copy.deepcopy(extra)  # it is written while training goes on
            self.writing.start(lambda: self.checkpoints.save(done, weights, moments, as_now))
        self.saved_at = time.monotonic()
        self.pause = seconds_between_checkpoints(self.settings.cluster, waited=self.saved_at - start)

    def end_interrupted(self, done: int) -> None:
        """End the run after its checkpoint is written.

        Raises:
            InfrastructureError: always.
        """
        self.writing.wait()
        torch.distributed.barrier()  # launchers end the others when one ends: not before it is written
        raise InfrastructureError(
            f"interrupted after step {done}; a checkpoint is saved", next_step="run the same command to go on"
        )

    def keep_milestone(self, done: int) -> None:
        """Write the weights as a milestone of the schedule."""
        weights, _ = self._gather()
        if self.is_first:
            self.milestones.keep(done, weights, self.settings, self.vocab_size, self.paths.tokenizer)

    def write_result(self) -> None:
        """Write the published weights, the milestones and the curve."""
        weights, _ = self._gather()
        if self.is_first:
            tokenizer = self.paths.tokenizer
            save_pretrained(
                self.paths.pretrained, weights, self.settings.model, self.vocab_size, tokenizer, self.recipe
            )
            self.milestones.publish(self.paths, self.recipe.initialize_from)
            self.curve.write(self.paths, self.settings, self.results)
