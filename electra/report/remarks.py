"""Remarks on the score card, one sentence each; the margins are stated in docs/alarms.md."""

from collections.abc import Iterator
from typing import Any

from electra.report.facts import Facts

# Shares of the loss of a guess by frequency, and areas under the ROC curve. Measured: discriminators that helped
# fine-tuning had 0.79 or more; with 0.67 pre-training hurt every task, although the loss was below that of a guess.
LOSS_BELOW, AUC_ABOVE = 0.95, 0.75  # better than guessing
HARDLY_BELOW, HARDLY_ABOVE = 0.98, 0.55  # hardly better; what is not even this raises an alarm while training
_STARTS = {"pretrained": "pre-trained", "scratch": "from scratch"}


def score_remarks(facts: Facts) -> list[str]:
    """Where pre-training did not help, and where a model gives every row the same answer or does no better."""
    scores = facts.scores
    if not scores:
        return []
    return [*_below_scratch(scores), *_same_answers(scores), *_no_better_than_one_answer(scores)]


def _below_scratch(scores: dict[str, Any]) -> Iterator[str]:
    gains = {task: entry["gain"] for task, entry in scores["tasks"].items()}
    worse = [f"{task} ({gain:+.1f})" for task, gain in gains.items() if round(gain, 1) < 0]
    mean = scores["mean"]["gain"]
    if worse or mean < 0:
        verdict = f" The mean is too: {mean:+.1f}. This pre-training did not help." if mean < 0 else ""
        named = f": {', '.join(worse)}" if worse else ""
        yield f"Pre-trained is below random weights on {len(worse)} of {len(gains)} tasks{named}.{verdict}"


def _same_answers(scores: dict[str, Any]) -> Iterator[str]:
    total = scores.get("seeds", 1)
    found = [
        f"{task}, {start} ({len(seeds)} of {total} {'seed' if total == 1 else 'seeds'})"
        for task, entry in scores["tasks"].items()
        for start, seeds in _constant_seeds(entry)
        if seeds
    ]
    if found:
        yield f"The same answer for every row, so nothing was learned: {'; '.join(found)}."


def _constant_seeds(entry: dict[str, Any]) -> Iterator[tuple[str, list[int]]]:
    """Of every start of a task: its name, and the seeds whose cells give every row the same answer."""
    for init, seeds in entry.get("constant_seeds", {}).items():
        yield _STARTS[init], seeds
    names = {"milestones": "after {}%", "encoders": "{}", "intermediate": "after {}"}
    for group, name in names.items():
        for start, found in entry.get(group, {}).items():
            yield name.format(start), found.get("constant_seeds", [])


def _no_better_than_one_answer(scores: dict[str, Any]) -> Iterator[str]:
    found = [
        f"{task}, {name} ({entry[init]:.1f}, one answer {entry['constant']:.1f})"
        for task, entry in scores["tasks"].items()
        for init, name in _STARTS.items()
        if entry.get("constant") is not None and entry[init] <= entry["constant"]
    ]
    if found:
        yield f"No better than the most frequent answer for every row: {'; '.join(found)}."


def plateaus(facts: Facts) -> list[str]:
    """Return whether generator and discriminator do better than guessing by frequency: by a margin, or not."""
    known, lines = facts.pretrain or {}, []
    model = "model" if facts.settings.pretrain.objective.startswith("bert") else "generator"
    for name, loss, guess, auc in [
        (model, "mlm_loss", "unigram_entropy", None),
        ("discriminator", "disc_loss", "fake_rate_entropy", known.get("disc_auc")),
    ]:
        if loss in known and guess in known:
            lines.append(f"The {name} {_verdict(known[loss], known[guess], auc)}")
    return lines


def _verdict(loss: float, guess: float, auc: float | None) -> str:
    figures = f"loss {loss:.3f}, guessing {guess:.3f}" + ("" if auc is None else f", AUC {auc:.3f}")
    area = 1.0 if auc is None else auc
    if loss <= LOSS_BELOW * guess and area >= AUC_ABOVE:
        return f"does better than guessing by frequency: {figures}."
    wanted = f"a loss {1 - LOSS_BELOW:.0%} below guessing" + ("" if auc is None else f" and an AUC of {AUC_ABOVE}")
    if loss <= HARDLY_BELOW * guess and area >= HARDLY_ABOVE:
        return f"does hardly better than guessing by frequency: {figures}; {wanted} would be better."
    return f"is still at guessing by frequency: {figures}; {wanted} would be better."
