"""Progress of a training run, and its alarms.

Progress is a bar on a terminal, plain lines elsewhere, progress.json always, and TensorBoard. Nothing here decides what
is learned, and nothing that depends on the clock reaches ``results/``.

An alarm says in words what is wrong with a run that has collapsed, what to try, and when to give it up. Such a run
looks busy: its loss is finite and falls a little. It shows in its loss beside that of a guess by frequencies alone
(docs/alarms.md).
"""

import math
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from electra import config
from electra.common.artifacts import write_json
from electra.common.errors import TrainingError
from electra.common.printing import raw_stream
from electra.config import Settings
from electra.model.methods import binary_entropy
from electra.system.hardware import Machine, describe_cuda

PLATEAU_SHARE = 0.98  # of the loss of a guess by frequencies
MIN_AUC = 0.55
MIN_RECALL = 0.05  # of replaced tokens, where the loss is close to its plateau as well
MIN_REPLACED = 0.3  # of the sampled tokens; 0.045 of all tokens where 15% are masked
MIN_SAMPLE_ENTROPY = 0.5  # of the text's own entropy of tokens
GREEDY_SHARE = 0.97  # samples as often right as first guesses: the distribution has no width


@dataclass(frozen=True)
class Alarm:
    """One thing that is wrong."""

    name: str
    what: str
    advice: str


def alarms_of(results: Mapping[str, float], recipe: config.Pretrain) -> list[Alarm]:
    """Alarms raised by the results of a validation, at any step.

    Args:
        results: of :meth:`electra.pretrain.metrics.HeldoutSums.results`, with ``unigram_entropy``.
    """
    checks = (_discriminator_plateau, _unigram_plateau, _generator_collapse, _generator_too_strong)
    return [alarm for check in checks if (alarm := check(results, recipe))]


def _discriminator_plateau(results: Mapping[str, float], recipe: config.Pretrain) -> Alarm | None:
    if "disc_auc" not in results:
        return None
    loss, guess = results["disc_loss"], results["fake_rate_entropy"]
    auc, recall = results["disc_auc"], results["disc_recall"]
    near = guess > 0 and loss > 0.95 * guess and recall < MIN_RECALL
    if not (near or auc < MIN_AUC or (guess > 0 and loss > PLATEAU_SHARE * guess)):
        return None
    return Alarm(
        "majority_class_plateau",
        f"the discriminator calls nearly every token original: loss {loss:.4f}, {guess:.4f} by the share of replaced "
        f"tokens alone; AUC {auc:.3f}, recall {recall:.1%}",
        "more steps, a lower pretrain.learning_rate, shorter examples (shards.max_length), or a smaller generator "
        "(model.generator_width, generator_depth)",
    )


def _unigram_plateau(results: Mapping[str, float], recipe: config.Pretrain) -> Alarm | None:
    loss, guess = results.get("mlm_loss", 0.0), results["unigram_entropy"]
    if recipe.objective not in ("bert", "bert_nsp") or loss < 0.99 * guess:
        return None
    return Alarm(
        "unigram_plateau",
        f"the model predicts tokens by their frequency alone: loss {loss:.3f}, unigram entropy {guess:.3f}",
        "more steps, a lower pretrain.learning_rate, or an initializer_range nearer to 1/sqrt(model.hidden_size)",
    )


def _generator_collapse(results: Mapping[str, float], recipe: config.Pretrain) -> Alarm | None:
    if "sampled_entropy" not in results or recipe.generator == "unigram":
        return None
    entropy, natural = results["sampled_entropy"], results["unigram_entropy"]
    sampled, guessed = results["sampled_accuracy"], results.get("mlm_accuracy", results.get("cloze_accuracy", 1.0))
    greedy = sampled > GREEDY_SHARE * guessed and 0 < guessed < 0.9 and recipe.temperature == 1
    if entropy > MIN_SAMPLE_ENTROPY * natural and not greedy:
        return None
    return Alarm(
        "generator_collapse",
        f"the generator proposes a few tokens only: entropy of its samples {entropy:.2f} nats, of the text "
        f"{natural:.2f}; right {sampled:.1%} of the time when sampled, {guessed:.1%} as its first guess",
        "a lower pretrain.learning_rate or longer warmup_steps; with objective adversarial, use electra",
    )


def _generator_too_strong(results: Mapping[str, float], recipe: config.Pretrain) -> Alarm | None:
    replaced = 1 - results.get("sampled_accuracy", 0.0)
    if "disc_auc" not in results or recipe.correct_samples_are_fake or replaced > MIN_REPLACED:
        return None
    return Alarm(
        "generator_too_strong",
        f"the generator hits the original {1 - replaced:.0%} of the time: only {results['fake_rate']:.1%} of the "
        "tokens are replaced, and the discriminator has little to learn from",
        "a smaller generator (model.generator_width, generator_depth), or a higher pretrain.mask_probability",
    )


class Watch:
    """Alarms over a run: raised, cleared, or raised for so long that the run ends.

    Args:
        recipe: when judging starts (``alarm_after``, never during warm-up) and how patient it is.
        since: step at which each alarm now raised was first raised; from a checkpoint.
    """

    def __init__(self, recipe: config.Pretrain, since: dict[str, int] | None = None):
        self.recipe = recipe
        self.since = dict(since or {})

    def judge(self, step: int, results: Mapping[str, float]) -> list[Alarm]:
        """Alarms raised at this step.

        Raises:
            TrainingError: one has been raised for ``alarm_patience`` steps.
        """
        if step < max(self.recipe.alarm_after, self.recipe.warmup_steps):
            return []
        alarms = alarms_of(results, self.recipe)
        self.since = {alarm.name: self.since.get(alarm.name, step) for alarm in alarms}
        for alarm in alarms:
            if step - self.since[alarm.name] >= self.recipe.alarm_patience:
                raise TrainingError(
                    f"{alarm.name} since step {self.since[alarm.name]}, still at step {step}: {alarm.what}",
                    next_step=f"try {alarm.advice}",
                )
        return alarms


class NonFinite:
    """Steps whose gradients were not finite: the first is skipped, then the run goes back, then it ends."""

    def __init__(self) -> None:
        self.just_skipped = self.has_rolled_back = False
        self.num_skipped = 0

    def judge(self, skipped: int, step: int) -> bool:
        """Take note of the steps skipped since the last call; True where the run should go back to its checkpoint.

        Raises:
            TrainingError: it has done so before.
        """
        if not skipped:
            self.just_skipped = False
            return False
        self.num_skipped += skipped
        if skipped == 1 and not self.just_skipped:
            self.just_skipped = True
            print(f"step {step}  a batch whose gradients are not finite was skipped", flush=True)
            return False
        if self.has_rolled_back:
            raise TrainingError(
                f"the gradients are no longer finite at step {step}, and again after going back to the last checkpoint",
                next_step="lower pretrain.learning_rate, lengthen pretrain.warmup_steps, or set precision: fp32",
            )
        self.has_rolled_back, self.just_skipped = True, False
        return True


SECONDS_BETWEEN_BEATS = 30.0


class Telemetry:
    """Progress of one run; used on the first process only.

    Args:
        folder: ``logs/pretrain``.
        name: of the run: its folder of TensorBoard events.
        num_steps, first_step: of the run; the first is not 0 after a resume.
        tokens_per_step: real tokens are close to this many.
        flops_per_token: hardware FLOPs of training on one token.
        peak: FLOP/s that one matrix product reaches on this machine, all processes together.
        max_grad_norm: above it a gradient is clipped.
    """

    def __init__(
        self,
        folder: Path,
        *,
        name: str,
        num_steps: int,
        first_step: int,
        tokens_per_step: int,
        flops_per_token: float,
        peak: float,
        max_grad_norm: float,
    ):
        from torch.utils.tensorboard import SummaryWriter

        self.progress_file = folder / "progress.json"
        self.num_steps, self.first_step = num_steps, first_step
        self.tokens_per_step, self.flops_per_token, self.peak = tokens_per_step, flops_per_token, peak
        self.max_grad_norm, self.num_norms, self.num_clipped = max_grad_norm, 0, 0
        self.started = self.last_line = self.reported = time.monotonic()
        self.progress: dict[str, Any] = {"stage": "pretrain", "num_steps": num_steps}
        self.writer = SummaryWriter(str(folder / "tensorboard" / name), purge_step=first_step)
        self.bar = _terminal_bar(num_steps, first_step) if sys.stderr.isatty() else None

    def close(self) -> None:
        """Write what is buffered and give the terminal back."""
        self.writer.close()
        if self.bar:
            self.bar.stop()

    def step(self, step: int, means: dict[str, float], norms: dict[str, float], num_skipped: int) -> None:
        """Tell the state after ``step`` steps taken; called when losses are logged.

        Args:
            means: losses and rates of the steps since the last call.
            norms: of the gradients of this step: ``total`` and by part.
            num_skipped: steps so far whose gradients were not finite.
        """
        seconds = max(time.monotonic() - self.started, 1e-9)
        rate = (step - self.first_step) * self.tokens_per_step / seconds
        share = rate * self.flops_per_token / self.peak
        eta = (self.num_steps - step) * seconds / max(step - self.first_step, 1)
        self.num_norms += 1
        self.num_clipped += norms.get("total", 0.0) > self.max_grad_norm
        told = {
            **means,
            **{f"gradient_norm/{part}": norm for part, norm in norms.items()},
            "clip_rate": self.num_clipped / self.num_norms,  # of the steps looked at
        }
        if "disc_loss" in means and (guess := binary_entropy(means["fake_rate"])):
            told["disc_loss_of_guess"] = means["disc_loss"] / guess
        progress = {
            "stage": "pretrain",
            "step": step,
            "num_steps": self.num_steps,
            **{name: round(value, 5) if math.isfinite(value) else None for name, value in told.items()},
            "skipped_steps": num_skipped,
            "tokens_per_second": round(rate),
            "share_of_peak": round(share, 4),
            "eta_seconds": round(eta),
            "time": round(time.time()),
        }
        self._report(progress)
        for name, value in told.items():
            self.writer.add_scalar(f"train/{name}", value, step)
        self.writer.add_scalar("speed/tokens_per_second", rate, step)
        losses = " + ".join(f"{value:.4g}" for name, value in means.items() if name.endswith("_loss"))
        line = f"loss {losses}  {rate:,.0f} tokens/s  {share:.1%} of peak"
        if self.bar:
            self.bar.update(self.bar.task_ids[0], completed=step, what=line)
        elif time.monotonic() - self.last_line > 10 or step == self.num_steps:
            self.last_line = time.monotonic()
            print(f"step {step}/{self.num_steps}  {line}  eta {_clock(eta)}", flush=True)

    def beat(self, step: int) -> None:
        """Tell that the run is alive, where losses are logged more rarely than somebody looks; called at every step."""
        if time.monotonic() - self.reported > SECONDS_BETWEEN_BEATS:
            self._report({**self.progress, "step": step, "time": round(time.time())})

    def _report(self, progress: dict[str, Any]) -> None:
        self.progress, self.reported = progress, time.monotonic()
        write_json(self.progress_file, progress)

    def validation(self, step: int, results: dict[str, float], alarms: list[Alarm]) -> None:
        """Tell a validation's results, and what is wrong with them."""
        for name, value in results.items():
            self.writer.add_scalar(f"heldout/{name}", value, step)
        self._say(f"step {step}  held out: {', '.join(_in_words(results))}")
        for alarm in alarms:
            self._say(f"step {step}  ALARM {alarm.name}: {alarm.what}\n  try {alarm.advice}")

    def _say(self, line: str) -> None:
        if self.bar:
            self.bar.console.print(line)
        else:
            print(line, flush=True)


def describe_start(settings: Settings, machine: Machine, first_step: int, accumulation: int) -> str:
    """The first line of a run."""
    recipe = settings.pretrain
    start = f"resuming {recipe.objective} at step {first_step}" if first_step else f"starting {recipe.objective}"
    return (
        f"{start}: {recipe.num_steps} steps x {recipe.batch_size} examples on {machine.num_processes} x "
        f"{machine.device} ({machine.precision}, ZeRO {machine.zero_stage}, micro-batch "
        f"{machine.micro_batch_size} x {accumulation}){describe_cuda() if machine.device == 'cuda' else ''}"
    )


MANY_PASSES = 10  # over a corpus: of a text that has been seen that often there is little left to learn


def describe_passes(recipe: config.Pretrain, num_examples: int) -> str:
    """A line about how often the run sees each example, where that is often; '' else."""
    passes = recipe.num_steps * recipe.batch_size / max(1, num_examples)
    if passes <= MANY_PASSES:
        return ""
    return (
        f"note: this run makes {passes:,.0f} passes over its {num_examples:,} examples; more text would serve it "
        "better (docs/gpu.md names corpora)"
    )


def _in_words(results: dict[str, float]) -> Iterator[str]:
    if "mlm_loss" in results:
        yield f"MLM loss {results['mlm_loss']:.3f} (unigram {results['unigram_entropy']:.3f})"
    for name, value in results.items():
        if name.endswith("_loss") and name not in ("mlm_loss", "disc_loss"):
            yield f"{name.removesuffix('_loss')} loss {value:.3f}"
    if "disc_auc" in results:
        yield f"discriminator loss {results['disc_loss']:.4f} (plateau {results['fake_rate_entropy']:.4f})"
        yield f"AUC {results['disc_auc']:.3f}, recall {results['disc_recall']:.1%}"


def _terminal_bar(total: int, done: int) -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    what = TextColumn("{task.fields[what]}")
    columns = (TextColumn("pretrain"), BarColumn(), MofNCompleteColumn(), what, TimeRemainingColumn())
    bar = Progress(*columns, console=Console(file=raw_stream(sys.stderr)), refresh_per_second=2)
    bar.add_task("pretrain", total=total, completed=done, what="")
    bar.start()
    return bar


def _clock(seconds: float) -> str:
    hours, rest = divmod(int(seconds), 3600)
    return f"{hours}:{rest // 60:02d}:{rest % 60:02d}"
