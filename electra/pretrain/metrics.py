"""What validation measures of generator and discriminator: sums that add up over batches and processes.

Shape legend: as in electra/model/electra.py.
"""

import math

import numpy as np
import torch
from torch import Tensor

from electra.model.electra import Batch, Outputs
from electra.shards.dataset import Shards

_BINS = 40_000
_RANGE = 20.0  # logits beyond are as good as certain


class HeldoutSums:
    """Counts over validation batches. All are float64 on the CPU, so that one all-reduce adds up the processes."""

    names = (
        "slots", "mlm_loss", "mlm_correct", "sampled_correct",
        "tokens", "disc_loss", "true_positive", "false_positive", "false_negative",
    )  # fmt: skip

    def __init__(self, special_ids: list[int]):
        self.special_ids = torch.tensor(special_ids)
        self.totals = torch.zeros(len(self.names), dtype=torch.float64)
        self.histograms = torch.zeros(2, _BINS, dtype=torch.float64)  # of logits: original tokens, replaced tokens

    def add(self, batch: Batch, outputs: Outputs) -> None:
        """Count one batch."""
        originals_BK = batch.tokens_BT.gather(1, batch.positions_BK)
        real_BK = batch.weights_BK > 0
        labels_BT, logits_BT = outputs.labels_BT, outputs.discriminator_logits_BT
        guessed_BT = (logits_BT > 0) & batch.mask_BT
        counts = [
            real_BK.sum(),
            outputs.generator_loss_sum,
            ((outputs.generator_logits_BKV.argmax(-1) == originals_BK) & real_BK).sum(),
            ((outputs.sampled_BK == originals_BK) & real_BK).sum(),
            batch.mask_BT.sum(),
            outputs.discriminator_loss_sum,
            (guessed_BT & labels_BT).sum(),
            (guessed_BT & ~labels_BT).sum(),
            (~guessed_BT & labels_BT).sum(),
        ]
        self.totals += torch.stack([count.double().cpu() for count in counts])
        # special tokens are never replaced: as easy negatives they would flatter the area
        counted_BT = batch.mask_BT & ~torch.isin(batch.tokens_BT, self.special_ids.to(batch.tokens_BT.device))
        bins_BT = ((logits_BT.clamp(-_RANGE, _RANGE) + _RANGE) * ((_BINS - 1) / (2 * _RANGE))).long()
        for row, chosen_BT in enumerate((counted_BT & ~labels_BT, counted_BT & labels_BT)):
            self.histograms[row] += torch.bincount(bins_BT[chosen_BT], minlength=_BINS).cpu()

    def all_reduce(self, device: torch.device) -> None:
        """Add up over all processes, on the device their group communicates on."""
        if torch.distributed.get_world_size() > 1:
            both = torch.cat([self.totals, self.histograms.flatten()]).to(device)
            torch.distributed.all_reduce(both)
            self.totals = both[: len(self.names)].cpu()
            self.histograms = both[len(self.names) :].view(2, _BINS).cpu()

    def results(self) -> dict[str, float]:
        """Means and rates; losses in nats."""
        t = dict(zip(self.names, self.totals.tolist(), strict=True))
        replaced = t["true_positive"] + t["false_negative"]
        flagged = t["true_positive"] + t["false_positive"]
        fake_rate = replaced / t["tokens"]
        return {
            "mlm_loss": t["mlm_loss"] / t["slots"],
            "mlm_accuracy": t["mlm_correct"] / t["slots"],
            "sampled_accuracy": t["sampled_correct"] / t["slots"],
            "disc_loss": t["disc_loss"] / t["tokens"],
            "fake_rate": fake_rate,
            "fake_rate_entropy": binary_entropy(fake_rate),
            "disc_auc": area_under_curve(self.histograms),
            "disc_precision": t["true_positive"] / flagged if flagged else 0.0,
            "disc_recall": t["true_positive"] / replaced if replaced else 0.0,
            "disc_accuracy": 1 - (t["false_positive"] + t["false_negative"]) / t["tokens"],
        }


def area_under_curve(histograms: Tensor) -> float:
    """Area under the ROC curve from two histograms [2, bins] of scores (negatives, positives); ties count half.

    Not a number where one class is missing.
    """
    negatives, positives = histograms
    below = negatives.cumsum(0) - negatives
    pairs = negatives.sum() * positives.sum()
    return float((positives * (below + negatives / 2)).sum() / pairs) if pairs else math.nan


def binary_entropy(rate: float) -> float:
    """Loss of a discriminator that knows only how many tokens are replaced, nats: the majority-class plateau."""
    return -sum(p * math.log(p) for p in (rate, 1 - rate) if p > 0)


def unigram_entropy(train: Shards, heldout: Shards, special_ids: list[int], max_examples: int = 200_000) -> float:
    """Loss on held-out tokens of a generator that knows only how frequent each token is, nats: its plateau.

    Frequencies are counted on (at most ``max_examples`` evenly spaced) training examples, one added to each.
    """

    def counts(shards: Shards) -> np.ndarray:
        chosen = np.linspace(0, len(shards) - 1, min(len(shards), max_examples)).astype(np.int64)
        total = np.zeros(shards.vocab_size, dtype=np.int64)
        for block in np.array_split(chosen, max(1, len(chosen) // 10_000)):
            tokens, spans = shards.gather(block)
            real = np.arange(tokens.shape[1]) < spans[:, :1]
            total += np.bincount(tokens[real], minlength=shards.vocab_size)
        total[special_ids] = 0
        return total

    seen, wanted = counts(train) + 1.0, counts(heldout)
    return float(-(wanted * np.log(seen / seen.sum())).sum() / wanted.sum())
