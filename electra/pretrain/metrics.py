"""Metrics on held-out text, as sums that add up over batches and processes, and the learning curve.

The curve holds training losses by window and validations, as rows that survive a resume. Its two kinds of MLM loss
differ by more than the split: in training a share of the masked slots is shown to the generator as it is, in validation
every one is [MASK], since a token that can be seen tests nothing. Shape legend: as in electra/objectives/base.py.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import torch
import torch.distributed
from torch import Tensor

from electra.common.artifacts import write_json, write_text
from electra.common.paths import Paths
from electra.config import Settings
from electra.objectives.base import Batch, Outputs
from electra.text.shards.layout import Shards

_BINS = 40_000
_RANGE = 20.0  # logits beyond are as good as certain


class HeldoutSums:
    """Counts over validation batches. All are float64 on the CPU, so that one all-reduce adds up the processes.

    Args:
        terms: names of the method's losses.
        special_ids: ids that are never masked.
        vocab_size: entries of the vocabulary.
    """

    counts = ("slots", "sampled_correct", "tokens", "true_positive", "false_positive", "false_negative")

    def __init__(self, terms: Sequence[str], special_ids: list[int], vocab_size: int):
        self.terms = tuple(terms)
        self.names = (*(f"{kind} {term}" for term in terms for kind in ("count", "loss", "correct")), *self.counts)
        self.special_ids = torch.tensor(special_ids)
        self.totals = torch.zeros(len(self.names), dtype=torch.float64)
        self.histograms = torch.zeros(2, _BINS, dtype=torch.float64)  # of logits: original tokens, replaced tokens
        self.guessing: set[str] = set()  # terms that have first guesses
        self.samples = torch.zeros(vocab_size, dtype=torch.float64)  # how often the generator proposed each token

    def add(self, batch: Batch, outputs: Outputs, counts: Mapping[str, Tensor]) -> None:
        """Count one batch."""
        found = dict.fromkeys(self.names, torch.zeros(()))
        for term in outputs.loss_sums:
            found[f"count {term}"] = counts[term]
            found[f"loss {term}"] = outputs.loss_sums[term]
            if term in outputs.correct_sums:
                found[f"correct {term}"] = outputs.correct_sums[term]
                self.guessing.add(term)
        if outputs.sampled_ids_BK is not None:
            real_BK = batch.mask_weights_BK > 0
            found["slots"] = real_BK.sum()
            found["sampled_correct"] = ((outputs.sampled_ids_BK == batch.original_ids_BK()) & real_BK).sum()
            self.samples += _counts(outputs.sampled_ids_BK, real_BK, len(self.samples))
        if outputs.discriminator_logits_BT is not None:
            found.update(self._decisions(batch, outputs))
        self.totals += torch.stack([found[name].double().cpu() for name in self.names])

    def _decisions(self, batch: Batch, outputs: Outputs) -> dict[str, Tensor]:
        """Count the discriminator's right and wrong decisions, and its logits by label."""
        is_replaced_BT, loss_mask_BT = outputs.is_replaced_BT, outputs.loss_mask_BT
        logits_BT = outputs.discriminator_logits_BT
        assert is_replaced_BT is not None and logits_BT is not None and loss_mask_BT is not None
        guessed_BT, is_replaced_BT = (logits_BT > 0) & loss_mask_BT, is_replaced_BT & loss_mask_BT
        # special tokens are never replaced: as easy negatives they would flatter the area
        counted_BT = loss_mask_BT & ~torch.isin(batch.input_ids_BT, self.special_ids.to(batch.input_ids_BT.device))
        bins_BT = ((logits_BT.clamp(-_RANGE, _RANGE) + _RANGE) * ((_BINS - 1) / (2 * _RANGE))).long()
        for row, chosen_BT in enumerate((counted_BT & ~is_replaced_BT, counted_BT & is_replaced_BT)):
            self.histograms[row] += _counts(bins_BT, chosen_BT, _BINS)
        return {
            "tokens": loss_mask_BT.sum(),
            "true_positive": (guessed_BT & is_replaced_BT).sum(),
            "false_positive": (guessed_BT & ~is_replaced_BT).sum(),
            "false_negative": (~guessed_BT & is_replaced_BT).sum(),
        }

    def all_reduce(self, device: torch.device) -> None:
        """Add up over all processes, on the device their group communicates on."""
        if torch.distributed.get_world_size() > 1:
            parts = [self.totals, self.histograms.flatten(), self.samples]
            together = torch.cat(parts).to(device)
            torch.distributed.all_reduce(together)
            self.totals, histograms, self.samples = together.cpu().split([len(part) for part in parts])
            self.histograms = histograms.view(2, _BINS)

    def results(self) -> dict[str, float]:
        """Return means and rates; losses in nats. Only what the method has: no AUC without a discriminator."""
        t = dict(zip(self.names, self.totals.tolist(), strict=True))
        results = {}
        for term in self.terms:
            if count := t[f"count {term}"]:
                results[f"{term}_loss"] = t[f"loss {term}"] / count
                if term in self.guessing:
                    results[f"{term}_accuracy"] = t[f"correct {term}"] / count
        if t["slots"]:
            results["sampled_accuracy"] = t["sampled_correct"] / t["slots"]
            shares = self.samples[self.samples > 0] / t["slots"]
            results["sampled_entropy"] = float(-(shares * shares.log()).sum())
        if t["tokens"]:
            results.update(self._discriminator(t))
        return results

    def _discriminator(self, t: dict[str, float]) -> dict[str, float]:
        replaced = t["true_positive"] + t["false_negative"]
        flagged = t["true_positive"] + t["false_positive"]
        fake_rate = replaced / t["tokens"]
        return {
            "fake_rate": fake_rate,
            "fake_rate_entropy": binary_entropy(fake_rate),
            "disc_auc": area_under_curve(self.histograms),
            "disc_precision": t["true_positive"] / flagged if flagged else 0.0,
            "disc_recall": t["true_positive"] / replaced if replaced else 0.0,
            "disc_accuracy": 1 - (t["false_positive"] + t["false_negative"]) / t["tokens"],
        }


def binary_entropy(rate: float) -> float:
    """Return the loss of a discriminator that knows only how many tokens are replaced, nats: its plateau."""
    return -sum(p * math.log(p) for p in (rate, 1 - rate) if p > 0)


def _counts(values: Tensor, chosen: Tensor, size: int) -> Tensor:
    """Return how often each of 0..size-1 is among the chosen values, float64 on the CPU.

    A weighted count instead of ``bincount(values[chosen])``, whose shapes depend on the values: on CUDA the host would
    wait for them twice.
    """
    counts = torch.zeros(size, dtype=torch.float64, device=values.device)
    return counts.scatter_add_(0, values.flatten(), chosen.flatten().double()).cpu()


def training_rates(outputs: Outputs) -> Tensor:
    """Return the numbers of replaced tokens and of those found [2], among the tokens of the discriminator's loss."""
    if outputs.is_replaced_BT is None or outputs.discriminator_logits_BT is None or outputs.loss_mask_BT is None:
        return torch.zeros(2, device=next(iter(outputs.loss_sums.values())).device)
    replaced_BT = outputs.is_replaced_BT & outputs.loss_mask_BT
    return torch.stack([replaced_BT.sum(), (replaced_BT & (outputs.discriminator_logits_BT > 0)).sum()]).float()


def area_under_curve(histograms: Tensor) -> float:
    """Return the area under the ROC curve from two histograms [2, bins] of scores (negatives, positives).

    Ties count half. Not a number where one class is missing.
    """
    negatives, positives = histograms
    below = negatives.cumsum(0) - negatives
    pairs = negatives.sum() * positives.sum()
    return float((positives * (below + negatives / 2)).sum() / pairs) if pairs else math.nan


def unigram_entropy(counts: np.ndarray, heldout_counts: np.ndarray) -> float:
    """Return the loss on held-out tokens of a generator that knows only how frequent each token is, nats: its plateau.

    Args:
        counts: of training tokens [V]; one is added to each.
        heldout_counts: of held-out tokens [V].
    """
    seen = counts + 1.0
    return float(-(heldout_counts * np.log(seen / seen.sum())).sum() / heldout_counts.sum())


def token_counts(shards: Shards, special_ids: list[int], max_examples: int = 200_000) -> np.ndarray:
    """Return the count of each token in at most ``max_examples`` examples, evenly spaced [V]; 0 for special ones."""
    chosen = np.linspace(0, len(shards) - 1, min(len(shards), max_examples)).astype(np.int64)
    total = np.zeros(shards.vocab_size, dtype=np.int64)
    for block in np.array_split(chosen, max(1, len(chosen) // 10_000)):
        tokens, spans = shards.gather(block)
        real = np.arange(tokens.shape[1]) < spans[:, :1]
        total += np.bincount(tokens[real], minlength=shards.vocab_size)
    total[special_ids] = 0
    return total


HELDOUT_COLUMNS = ("mlm_loss", "mlm_accuracy", "disc_loss", "fake_rate_entropy", "disc_auc", "disc_recall")


class Curve:
    """Rows by step; the open window's sums are kept on the device until it ends.

    Args:
        names: what is summed in a window: the loss of each term, then the rates of :data:`RATES`.
        rows, window, unmeasured, steps: of a checkpoint.
    """

    RATES = ("fake_rate", "caught_rate")  # of the tokens of the discriminator's loss: replaced, and found

    def __init__(
        self,
        names: Sequence[str],
        rows: dict[str, dict[str, float]] | None = None,
        window: list[float] | None = None,
        unmeasured: list[int] | None = None,
        steps: int = 0,
    ):
        self.names = tuple(names)
        self.rows = {int(step): row for step, row in (rows or {}).items()}
        start = window or [0.0] * len(self.names)
        self.window: Tensor = torch.tensor(start, dtype=torch.float64) / _num_processes()
        self.unmeasured = unmeasured or [0] * len(self.names)  # steps of the window without a value of each name
        self.last_step = steps

    def end_step(self, measured: Collection[str]) -> None:
        """Note which names the step had values of; a phase of a method may lack some."""
        self.unmeasured = [n + (name not in measured) for n, name in zip(self.unmeasured, self.names, strict=True)]

    def add(self, shares: Tensor) -> None:
        """Add one micro-batch's share of everything named, without waiting for the device.

        What is not finite counts as nothing: that step is skipped, and recorded elsewhere.
        """
        self.window = self.window.to(shares.device) + shares.double().nan_to_num(0, 0, 0)

    def end_window(self, step: int) -> dict[str, float]:
        """Return means per step since the last window's end, over all processes; with the discriminator's recall.

        A name has the mean over the steps that had a value of it, and none where no step had.
        """
        _add_up(self.window)
        steps = [step - self.last_step - unmeasured for unmeasured in self.unmeasured]
        means = {name: s / n for name, s, n in zip(self.names, self.window.tolist(), steps, strict=True) if n}
        self.window, self.unmeasured, self.last_step = torch.zeros_like(self.window), [0] * len(steps), step
        caught = means.pop("caught_rate", None)
        if caught is not None:
            means["recall"] = caught / means["fake_rate"] if means["fake_rate"] else 0.0
        self.rows.setdefault(step, {}).update({f"train_{name}": value for name, value in means.items()})
        return means

    def add_validation(self, step: int, results: dict[str, float]) -> None:
        """Add a validation's row: the standard columns, and loss and accuracy of every term."""
        named = [n for n in results if n in HELDOUT_COLUMNS or n.endswith(("_loss", "_accuracy"))]
        chosen = [n for n in named if math.isfinite(results[n])]  # no AUC where all tokens have one label
        left_out = ("sampled_accuracy", "disc_accuracy")  # in pretrain.json; the curve is for those that bend
        self.rows.setdefault(step, {}).update({n: results[n] for n in chosen if n not in left_out})

    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint: the arguments of a new :class:`Curve`. Every process must call it."""
        window = _add_up(self.window.clone())
        return {
            "rows": self.rows, "window": window.tolist(), "unmeasured": self.unmeasured, "steps": self.last_step
        }  # fmt: skip

    def write(self, paths: Paths, settings: Settings, final: dict[str, float]) -> None:
        """Write the curve and the final figures.

        ``results/pretrain.tsv`` has one row a step (empty cells where it has no value); ``results/pretrain.json``
        all final figures; ``results/metrics/pretrain.json`` the held-out loss of every term and the AUC.
        """
        found = dict.fromkeys(name for _, row in sorted(self.rows.items()) for name in row)
        train = [name for name in found if name.startswith("train_")]
        columns = [*train, *HELDOUT_COLUMNS, *(n for n in found if n not in train and n not in HELDOUT_COLUMNS)]
        lines = ["\t".join(("step", *columns))]
        for step, row in sorted(self.rows.items()):
            lines.append("\t".join([str(step), *(f"{row[name]:.6g}" if name in row else "" for name in columns)]))
        write_text(paths.results / "pretrain.tsv", "\n".join(lines) + "\n")
        facts = {
            "step": settings.pretrain.num_steps,
            "examples_seen": settings.pretrain.num_steps * settings.pretrain.batch_size,
            **{name: float(f"{value:.6g}") for name, value in final.items() if math.isfinite(value)},
        }
        write_json(paths.results / "pretrain.json", facts)
        headline = {name: value for name, value in facts.items() if name == "disc_auc" or name.endswith("_loss")}
        write_json(paths.metrics / "pretrain.json", headline)


def _num_processes() -> int:
    return torch.distributed.get_world_size() if torch.distributed.is_initialized() else 1


def _add_up(tensor: Tensor) -> Tensor:
    if _num_processes() > 1:
        torch.distributed.all_reduce(tensor)
    return tensor
