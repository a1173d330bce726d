"""Alarms: what is wrong with a run that has collapsed, what to try, and when to give it up.

Such a run looks busy: its loss is finite and falls a little. It shows in its loss beside that of a guess by frequencies
alone (docs/alarms.md).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from electra import config
from electra.common.errors import TrainingError
from electra.config.methods import METHODS

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
    """Return the alarms raised by the results of a validation, at any step.

    Args:
        results: of :meth:`electra.pretrain.metrics.HeldoutSums.results`, with ``unigram_entropy``.
    """
    checks = (_one_label, _discriminator_plateau, _unigram_plateau, _generator_collapse, _generator_too_strong)
    return [alarm for check in checks if (alarm := check(results, recipe))]


def _one_label(results: Mapping[str, float], recipe: config.Pretrain) -> Alarm | None:
    if "disc_auc" not in results or 0 < results["fake_rate"] < 1:
        return None
    return Alarm(
        "one_label",
        f"{results['fake_rate']:.0%} of the tokens that the discriminator judges are replaced: there is nothing to "
        "tell apart",
        "a higher pretrain.mask_probability; where only masked tokens are judged, samples that may be right "
        "(pretrain.disallow_correct and correct_samples_are_fake false)",
    )


def _discriminator_plateau(results: Mapping[str, float], recipe: config.Pretrain) -> Alarm | None:
    if "disc_auc" not in results or math.isnan(results["disc_auc"]):
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
    if METHODS[recipe.objective].has_generator or loss < 0.99 * guess:
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


class AlarmMonitor:
    """Alarms over a run: raised, cleared, or raised for so long that the run ends.

    Args:
        recipe: when checks start (``alarm_after``, never during warm-up) and for how long an alarm may stay.
        since: step at which each alarm now raised was first raised; from a checkpoint.
        phases: steps of each phase of the method; each begins at the level of guessing, with a warm-up.
    """

    def __init__(
        self, recipe: config.Pretrain, since: dict[str, int] | None = None, phases: Sequence[range] = (range(0),)
    ):
        self.recipe, self.phases = recipe, phases
        self.since = dict(since or {})

    def check(self, step: int, results: Mapping[str, float]) -> list[Alarm]:
        """Return the alarms raised at this step.

        Raises:
            TrainingError: one has been raised for ``alarm_patience`` steps.
        """
        begun = max((steps.start for steps in self.phases if steps.start < step), default=0)
        if step - begun < max(self.recipe.alarm_after, self.recipe.warmup_steps):
            self.since = {}
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
    """Steps whose gradients were not finite: the first is skipped, then the run goes back, then it ends.

    Steps are counted between two calls, of which a run makes some hundreds, so two that are near each other are taken
    for successive ones.
    """

    def __init__(self) -> None:
        self.just_skipped = self.has_rolled_back = False
        self.num_skipped = 0

    def must_roll_back(self, skipped: int, step: int) -> bool:
        """Record the steps skipped since the last call; return whether the run must go back to its last checkpoint.

        Raises:
            TrainingError: it has gone back before.
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
