"""Cost of a run before it starts: parameters, tokens, FLOPs, hours.

Hardware FLOPs per training token count matrix products only: a multiply-add counts two, the backward pass twice the
forward pass, and lookups are free. The paper's way of counting is in published.py. The speed of this machine is
measured by real steps on placeholder examples, without validation, checkpoints and waiting for data.
"""

import textwrap
import time
from dataclasses import dataclass

import torch

from electra import config
from electra.cluster.busy_cores import watch_cores
from electra.cluster.estimate import published as paper_flops
from electra.cluster.estimate.memory import fitted, forward_loss, free_memory, placeholder_batch
from electra.cluster.estimate.published import ROWS, Row
from electra.cluster.hardware import resolve_machine
from electra.common.errors import ConfigError
from electra.config import Settings
from electra.config.methods import METHODS
from electra.model.encoder import Encoder
from electra.model.shape import EncoderConfig
from electra.objectives.base import Objective, build_objective, objective_class
from electra.objectives.flops import encoder_flops
from electra.optim import ElectraAdamW, parameter_groups


def flops_per_token(settings: config.Settings, vocab_size: int) -> float:
    """Return the hardware FLOPs of training per token with these settings, averaged over a curriculum's lengths."""
    model, recipe = settings.model, settings.pretrain
    shares = {settings.shards.max_length: 1.0}
    if curriculum := recipe.length_curriculum:
        shares = {curriculum.length: curriculum.share, settings.shards.max_length: 1 - curriculum.share}
    generator = EncoderConfig.generator(model, vocab_size) if recipe.generator == "transformer" else None
    discriminator = EncoderConfig.discriminator(model, vocab_size)
    return sum(
        share
        * objective_flops_per_token(
            recipe.objective, generator, discriminator, length, recipe.mask_probability, recipe.two_stage_switch
        )
        for length, share in shares.items()
    )


def objective_flops_per_token(
    objective: str,
    generator: EncoderConfig | None,
    discriminator: EncoderConfig,
    length: int,
    masked_share: float,
    two_stage_switch: float = 0.5,
) -> float:
    """Return the hardware FLOPs of training per token, by pre-training method (names as in ``pretrain.objective``).

    Args:
        objective: the method.
        generator: None if replacements are drawn from fixed frequencies. Ignored by ``bert``, ``bert_nsp`` and
            ``two_stage``, whose generator has the discriminator's shape.
        discriminator: the main encoder, with any head.
        length: tokens per example.
        masked_share: share of the tokens that are masked and predicted.
        two_stage_switch: share of the steps in the first phase of a method with two; the result is the average over the
            run.

    Raises:
        ValueError: the method is unknown, or ``electric``, which always trains a generator, has none.
    """
    method = objective_class(objective)
    return method.training_flops(generator, discriminator, length, masked_share, two_stage_switch)


@dataclass(frozen=True)
class Estimate:
    """Cost of one pre-training run.

    Attributes:
        encoder_parameters: the main encoder, from which fine-tuning starts, embeddings included.
        head_parameters: the main encoder's pre-training heads, without weights shared with the embeddings.
        generator_parameters: the generator and its head, without weights shared with the main encoder.
        tokens: steps x batch x length, padding included.
        paper_training_flops: by the paper's rules (published.py); None for a method its script does not count.
        paper_inference_flops: one example of 128 tokens through the main encoder, by the paper's rules; None if the
            blocks differ from the paper's.
        hardware_training_flops: matrix products of the whole run (:func:`flops_per_token`).
    """

    profile: str
    objective: str
    encoder_parameters: int
    head_parameters: int
    generator_parameters: int
    steps: int
    examples: int
    tokens: int
    paper_training_flops: float | None
    paper_inference_flops: float | None
    hardware_training_flops: float

    @property
    def total_parameters(self) -> int:
        """Number of all trained parameters; shared weights count once."""
        return self.encoder_parameters + self.head_parameters + self.generator_parameters

    @property
    def hardware_flops_per_example(self) -> float:
        """Hardware FLOPs of training on one example, forward and backward."""
        return self.hardware_training_flops / self.examples

    def hours(self, peak_flops: float, utilization: float) -> float:
        """Return the hours of training, without validation and checkpoints.

        Args:
            peak_flops: peak FLOP/s of the machine, all its devices together.
            utilization: share of the peak that training reaches.

        Raises:
            ConfigError: the peak is not positive, or the share not in (0, 1].
        """
        if not (peak_flops > 0 and 0 < utilization <= 1):
            raise ConfigError(
                f"a peak of {peak_flops:g} FLOP/s with a utilization of {utilization:g} gives no time",
                next_step="give a positive --peak-flops and a --utilization above 0, at most 1",
            )
        return self.hardware_training_flops / (peak_flops * utilization) / 3600


def tokens_and_flops(settings: Settings, vocab_size: int) -> tuple[int, float]:
    """Return the tokens of a run, padding included, and its hardware FLOPs. No module is built."""
    tokens = settings.pretrain.num_steps * settings.pretrain.batch_size * settings.shards.max_length
    return tokens, tokens * flops_per_token(settings, vocab_size)


def estimate(settings: Settings) -> Estimate:
    """Estimate a profile's run. The vocabulary has ``tokenizer.vocab_size`` entries; a ``vocab_file`` is not opened."""
    recipe, length = settings.pretrain, settings.shards.max_length
    with torch.device("meta"):  # shapes without memory
        module = build_objective(settings.model, settings.tokenizer.vocab_size, 0, recipe)
    main = module.main_encoder
    generator = _generator_shape(module)
    examples = recipe.num_steps * recipe.batch_size
    tokens, flops = tokens_and_flops(settings, settings.tokenizer.vocab_size)
    return Estimate(
        profile=settings.profile,
        objective=recipe.objective,
        **_count_parameters(module, main),
        steps=recipe.num_steps,
        examples=examples,
        tokens=tokens,
        paper_training_flops=_paper_training_flops(recipe.objective, generator, main.config, length, examples),
        paper_inference_flops=paper_flops.inference_flops(main.config) if main.config.is_the_papers else None,
        hardware_training_flops=flops,
    )


def render(estimate: Estimate, peak_flops: float | None = None, utilization: float = 0.3) -> str:
    """Return the estimate as text, with hours if the machine's peak (FLOP/s) is given."""
    paper = inference = "not counted by the paper's script for this method and architecture"
    if estimate.paper_training_flops is not None:
        paper = _power(estimate.paper_training_flops)
    if estimate.paper_inference_flops is not None:
        inference = f"{_power(estimate.paper_inference_flops)} ({paper_flops.INFERENCE_LENGTH} tokens)"
    lines = [
        ("profile", f"{estimate.profile}, objective {estimate.objective}"),
        ("parameters, main encoder", f"{estimate.encoder_parameters:,}"),
        ("parameters, its heads", f"{estimate.head_parameters:,}"),
        ("parameters, generator", f"{estimate.generator_parameters:,} (with its head, without shared embeddings)"),
        ("parameters, in all", f"{estimate.total_parameters:,}"),
        ("tokens", f"{_power(estimate.tokens)} ({estimate.steps:,} steps, {estimate.examples:,} examples)"),
        ("paper FLOPs, training", paper),
        ("paper FLOPs, inference", inference),
        ("hardware FLOPs, training", _power(estimate.hardware_training_flops)),
        ("hardware FLOPs, example", f"{_power(estimate.hardware_flops_per_example)} (forward and backward)"),
    ]
    if peak_flops is not None:
        hours = estimate.hours(peak_flops, utilization)
        lines.append(("hours", f"{hours:,.2f} at {utilization:.0%} of {_power(peak_flops)} FLOP/s"))
    return "".join(f"{name:<26}{value}\n" for name, value in lines)


def published_table() -> str:
    """Return a table of the paper's figures beside the counted ones, with notes."""
    heading = (
        f"{'':<15}{'training FLOPs':<28}{'inference FLOPs':<18}parameters\n"
        f"{'model':<15}{'paper':<8}{'counted':<10}{'script':<10}{'paper':<8}{'counted':<10}{'paper':<7}counted\n"
    )
    notes = [textwrap.fill(f"{row.name}: {row.note}", 100, subsequent_indent="  ") + "\n" for row in ROWS if row.note]
    return heading + "".join(map(_published_line, ROWS)) + "\n" + "".join(notes)


def _published_line(row: Row) -> str:
    inference, parameters = row.counted_inference_flops(), row.counted_parameters()
    line = (
        f"{row.name:<15}{_power(row.training_flops, '.1e'):<8}{_power(row.counted_training_flops()):<10}"
        f"{_power(row.printed, '.4g'):<10}{_power(row.inference_flops, '.1e'):<8}{_power(inference):<10}"
        f"{_millions(row.parameters, 0):<7}{_millions(parameters, 1)}"
    )
    return line.rstrip() + "\n"


def _power(value: float | None, form: str = ".3e") -> str:
    """Format a number as the paper does: 3.7e9."""
    return "-" if value is None else f"{value:{form}}".replace("e+0", "e").replace("e+", "e")


def _millions(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value / 1e6:.{digits}f}M"


def _count_parameters(module: Objective, main: Encoder) -> dict[str, int]:
    """Count the parameters of each part; weights that others share with the main encoder count for the encoder."""
    own = {id(p) for p in main.parameters()}
    others = [(name, p.numel()) for name, p in module.named_parameters() if id(p) not in own]
    return {
        "encoder_parameters": sum(p.numel() for p in main.parameters()),
        "head_parameters": sum(size for name, size in others if not name.startswith("generator")),
        "generator_parameters": sum(size for name, size in others if name.startswith("generator")),
    }


def _generator_shape(module: Objective) -> EncoderConfig | None:
    """Return the shape of the generator, or of one of Electric's towers; None if no generator is trained."""
    for name in ("generator", "generator_from_left"):
        encoder = getattr(module, name, None)
        if isinstance(encoder, Encoder):
            return encoder.config
    return None


def _paper_training_flops(
    objective: str, generator: EncoderConfig | None, main: EncoderConfig, length: int, examples: int
) -> float | None:
    method = METHODS[objective]
    if not (main.is_the_papers and method.in_papers_script):
        return None
    if not method.has_generator:
        return paper_flops.mlm_training_flops(main, length, examples)
    return None if generator is None else paper_flops.electra_training_flops(generator, main, length, examples)


MEASURED_TOKENS = 4096  # per micro-batch on a CPU
MONITOR_SECONDS = 2.0  # longest wait for the monitor of the cores
WARM_UP = 2  # steps that compile, allocate and fill caches
STAGE_SECONDS = 5.0  # to start a stage, DVC's part included
TEXT_BYTES_PER_SECOND = 1e6  # corpus, vocabulary and shards together, one worker


@dataclass(frozen=True)
class Speed:
    """Measured rate of training.

    Attributes:
        seconds_per_step: of one global batch, average over the run: the median of the measured steps, which are of full
            length and of the last phase, times the run's FLOPs a token over theirs.
        tokens_per_second: rate of these steps, padding included.
        flops_per_second: matrix products, as :func:`electra.cluster.estimate.cost.flops_per_token` counts them.
        used_by_others: cores that other processes used meanwhile, which slows training down.
    """

    seconds_per_step: float
    tokens_per_second: float
    flops_per_second: float
    used_by_others: float = 0.0


def measure_speed(settings: Settings, vocab_size: int, seconds: float = 3.0) -> Speed:
    """Train on one device for about ``seconds`` and return the rate of a global batch of all processes.

    Args:
        vocab_size: entries of the vocabulary.
    """
    recipe, length = settings.pretrain, settings.shards.max_length
    machine = resolve_machine(settings.cluster, recipe.batch_size)
    if machine.device == "cuda":
        machine = fitted(settings, machine, vocab_size, free_memory(machine))
    most = max(1, MEASURED_TOKENS // length)  # a CPU is no faster with more
    size = min(machine.micro_batch_size, most) if machine.device == "cpu" else machine.micro_batch_size
    threads = torch.get_num_threads()
    torch.set_num_threads(machine.num_threads)
    cores = watch_cores(machine.num_threads) if machine.device == "cpu" else None  # threads wait as in a run
    try:
        torch.manual_seed(0)
        model = build_objective(settings.model, vocab_size, 4, recipe)
        model.initialize(settings.model.initializer_range, 0).to(machine.device)
        batch = placeholder_batch(recipe, size, length)
        batch.input_ids_BT = torch.randint(5, vocab_size, (size, length))
        num_slots = batch.mask_positions_BK.shape[1]
        batch.mask_positions_BK = torch.arange(num_slots).expand(size, -1).contiguous()
        batch = batch.to(machine.device)
        optimizer = ElectraAdamW(parameter_groups(model, recipe.weight_decay), lr=1e-5)
        accumulation = recipe.batch_size / (size * machine.num_processes)
        times: list[float] = []
        begun = time.perf_counter()
        deadline = begun + seconds
        while len(times) <= WARM_UP or time.perf_counter() < deadline:
            if cores and not cores.shares and time.perf_counter() < begun + MONITOR_SECONDS:
                times.clear()  # the monitor has not yet chosen how threads wait; where it sees no cores, it never does
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
    step *= flops_per_token(settings, vocab_size) / flops_per_token(_as_measured(settings), vocab_size)
    tokens = recipe.batch_size * length
    others = cores.used_by_others if cores else 0.0
    return Speed(step, tokens / step, tokens * flops_per_token(settings, vocab_size) / step, others)


def _as_measured(settings: Settings) -> Settings:
    """Return the settings of a run all of whose steps are as those measured: of full length, in the last phase."""
    changes = {"length_curriculum": None, "two_stage_switch": 0.0}
    return settings.model_copy(update={"pretrain": settings.pretrain.model_copy(update=changes)})


def run_minutes(
    settings: Settings, speed: Speed, vocab_size: int, text_bytes: int, train_rows: dict[str, int]
) -> float:
    """Return the minutes of all stages, estimated from the measured rate of training.

    Args:
        text_bytes: size of the corpus.
        train_rows: training rows by task; each is used with every seed, from pre-trained and from random weights.
    """
    finetune = settings.finetune
    encoder = EncoderConfig.discriminator(settings.model, vocab_size)
    rows = sum(number * finetune.epochs_of(task) for task, number in train_rows.items())
    tokens = 2 * len(settings.cells.seeds) * rows * finetune.max_length
    learning = settings.pretrain.num_steps * speed.seconds_per_step
    fine_tuning = 3 * tokens * encoder_flops(encoder, finetune.max_length) / speed.flops_per_second
    num_runs = 2 * len(settings.cells.seeds) * len(settings.cells.tasks)
    starts = STAGE_SECONDS * (13 + num_runs)
    return (learning + fine_tuning + starts + text_bytes / TEXT_BYTES_PER_SECOND) / 60
