"""What a text, a time and a shape are good for: the held-out loss and scores to expect, by a law of measured runs.

The runs are masked language modelling of English prose with the modern block and a vocabulary of 8,192 entries
(``experiments/curves.py``). Another block has another law, and nothing is said of it. Another language, vocabulary or
method has another loss; which of text and time is short is taken to be the same.
"""

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from electra import config
from electra.cluster.estimate.text_size import BYTES_PER_TOKEN, is_local, local_text_bytes
from electra.config import Settings
from electra.model.shape import EncoderConfig
from electra.objectives.flops import encoder_flops

BEYOND = 3.0  # the law is used up to this many times beyond the measured sizes and tokens
# Tasks of which something is said. STS-B (`similarity`) was at the level of random weights in all runs.
SHOWN = {"chunks": "CoNLL-2000 chunks F1"}


@dataclass(frozen=True)
class Law:
    """Loss = floor + (size_scale / size)^size_power + (tokens_scale / tokens)^tokens_power (Hoffmann et al., 2022).

    Text that is read again is worth less than new text: tokens are counted by :meth:`worth`.

    Attributes:
        floor: the loss that remains, in nats.
        size_scale, size_power: of the number of weights in the layers' matrices (:func:`body_parameters`).
        tokens_scale, tokens_power: of the tokens of pre-training.
        passes: how fast the worth of further passes falls (Muennighoff et al., 2023, equation 5).
        scores: task to intercept, slope by loss and slope by the natural logarithm of the size, percent.
        loss_spread: standard deviation of the runs' losses from the law, in percent of the loss.
        score_spreads: the same for the scores of each task, in points.
        sizes, tokens: smallest and largest of the runs.
    """

    floor: float
    size_scale: float
    size_power: float
    tokens_scale: float
    tokens_power: float
    passes: float
    scores: dict[str, tuple[float, float, float]]
    loss_spread: float
    score_spreads: dict[str, float]
    sizes: tuple[float, float]
    tokens: tuple[float, float]

    def worth(self, tokens: float, text_tokens: float) -> float:
        """Return how many tokens of new text teach as much as these tokens of a text that may be read repeatedly."""
        if tokens <= text_tokens:
            return tokens
        repetitions = tokens / text_tokens - 1
        return text_tokens * (1 + self.passes * (1 - math.exp(-repetitions / self.passes)))

    def loss(self, size: float, tokens: float, text_tokens: float) -> float:
        """Return the held-out loss to expect, nats per masked token."""
        of_size = (self.size_scale / size) ** self.size_power
        return self.floor + of_size + (self.tokens_scale / self.worth(tokens, text_tokens)) ** self.tokens_power

    def score(self, task: str, size: float, loss: float) -> float:
        """Return the score to expect of an encoder with this loss, percent."""
        intercept, by_loss, by_size = self.scores[task]
        return intercept + by_loss * loss + by_size * math.log(size)

    def covers(self, size: float, tokens: float) -> bool:
        """Return whether the law is used for a run of this size and length."""
        return all(
            low / BEYOND <= value <= high * BEYOND for value, (low, high) in ((size, self.sizes), (tokens, self.tokens))
        )


# `law` of experiments/results/curves.json. The floor is not determined by runs of this size.
MEASURED = Law(
    floor=1.5,
    size_scale=15160.0,
    size_power=0.6553,
    tokens_scale=1.747e10,
    tokens_power=0.1416,
    passes=6.494,
    scores={"chunks": (76.62, -3.183, 1.623), "similarity": (13.33, -1.416, 0.3818)},
    loss_spread=0.7407,
    score_spreads={"chunks": 0.8401, "similarity": 3.37},
    sizes=(395264, 4743168),
    tokens=(1500000, 24000000),
)


@dataclass(frozen=True)
class Expectation:
    """What to expect of a run.

    Attributes:
        loss: held-out loss of masked language modelling, nats per masked token.
        scores: of fine-tuning with 1,500 labelled rows, by task, percent.
        loss_within, scores_within: twice the standard deviation of the measured runs from the law, in the same units.
        by_text, by_time, by_size: how much lower the loss is with twice the text, twice the tokens of pre-training, and
            twice the weights in the layers' matrices.
        passes: how often the text is read.
    """

    loss: float
    scores: dict[str, float]
    loss_within: float
    scores_within: dict[str, float]
    by_text: float
    by_time: float
    by_size: float
    passes: float

    @property
    def short(self) -> str:
        """Which of the two is short, ``text`` or ``time``: the one of which twice as much lowers the loss more."""
        return "text" if self.by_text > self.by_time else "time"


def body_parameters(model: config.Model) -> int:
    """Return the number of weights in the matrices of the main encoder's layers, without embeddings and biases."""
    flops = encoder_flops(EncoderConfig.discriminator(model, vocab_size=0), length=0)
    projection = model.embedding_size * model.hidden_size if model.embedding_size != model.hidden_size else 0
    return int(flops / 2 - projection)  # a multiply-add per weight and token counts two


def expect(settings: Settings, text_tokens: float, law: Law | None = None) -> Expectation | None:
    """Return what to expect of the run of these settings with a text of ``text_tokens``.

    Args:
        law: by default the measured one.

    Returns:
        None for a block, size or length that the law does not cover.
    """
    law, recipe = law or MEASURED, settings.pretrain
    shape = EncoderConfig.discriminator(settings.model, vocab_size=0)
    size = body_parameters(settings.model)
    tokens = recipe.num_steps * recipe.batch_size * settings.shards.max_length
    if not (text_tokens and shape.is_modern and shape.is_gated and law.covers(size, tokens)):
        return None
    loss = law.loss(size, tokens, text_tokens)
    return Expectation(
        loss,
        {task: min(100.0, max(0.0, law.score(task, size, loss))) for task in SHOWN},
        loss_within=2 * law.loss_spread / 100 * loss,
        scores_within={task: 2 * law.score_spreads[task] for task in SHOWN},
        by_text=loss - law.loss(size, tokens, 2 * text_tokens),
        by_time=loss - law.loss(size, 2 * tokens, text_tokens),
        by_size=loss - law.loss(2 * size, tokens, text_tokens),
        passes=tokens / text_tokens,
    )


def expect_profile(settings: Settings, root: Path = Path(".")) -> Expectation | None:
    """Return what to expect of a profile.

    Returns:
        None as for :func:`expect`, and where the text is not in local files, so that its size is unknown.
    """
    return expect(settings, local_text_bytes(settings, root) / BYTES_PER_TOKEN) if is_local(settings) else None


def described(found: Expectation) -> list[str]:
    """Return the expectation as lines of text for the user."""
    loss = f"held-out loss {found.loss:.2f} ± {found.loss_within:.2f}"
    scores = (f"{SHOWN[task]} {score:.0f} ± {found.scores_within[task]:.0f}" for task, score in found.scores.items())
    return [
        f"{', '.join([loss, *scores])} (masked language modelling of English prose)",
        f"{found.short} is short: twice the text lowers the loss by {found.by_text:.2f}, twice the time by "
        f"{found.by_time:.2f}; twice the weights in the layers by {found.by_size:.2f}",
    ]


def render(found: Expectation | None) -> str:
    """Return the expectation as `electra estimate` shows it; empty if there is none."""
    lines = described(found) if found else []
    return "".join(f"{name:<26}{line}\n" for name, line in zip(("expected", ""), lines, strict=False))


def as_json(found: Expectation | None) -> dict[str, Any] | None:
    """Return the expectation as `electra estimate --json` shows it."""
    return None if found is None else {**asdict(found), "short": found.short}
