"""Validation's sums: right values, whatever the batches."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from electra.common.paths import Paths
from electra.objectives.base import Outputs
from electra.objectives.electra import Electra
from electra.pretrain.metrics import Curve, HeldoutSums, area_under_curve, token_counts, unigram_entropy
from electra.text.shards.layout import Shards
from tests.model.test_electra import TINY, random_batch
from tests.workspace import Workspace

SPECIAL = [0, 2, 3, 4]


def batch_slice(batch: object, rows: slice) -> object:
    return type(batch)(**{name: value if value is None else value[rows] for name, value in vars(batch).items()})


def test_sums_do_not_depend_on_the_batches_and_agree_with_scikit_learn() -> None:
    model = Electra(TINY, vocab_size=50, mask_id=4).initialize(0.3, seed=1).eval()
    batch = random_batch(32, 16, 5, 50, padding=3)
    batch.input_ids_BT[:, 0] = 2
    whole, halves = (HeldoutSums(list(model.loss_weights), SPECIAL, 50) for _ in range(2))
    with torch.no_grad():
        outputs = model(batch)
        whole.add(batch, outputs, model.counts(batch))
        for rows in (slice(0, 10), slice(10, 32)):
            part = batch_slice(batch, rows)
            halves.add(part, model(part), model.counts(part))
    one, two = whole.results(), halves.results()
    assert all(one[name] == pytest.approx(two[name], rel=1e-5) for name in one)

    counted = batch.mask_BT & ~torch.isin(batch.input_ids_BT, torch.tensor(SPECIAL))
    expected = roc_auc_score(outputs.is_replaced_BT[counted], outputs.discriminator_logits_BT[counted])
    assert one["disc_auc"] == pytest.approx(expected, abs=1e-3)
    guessed, labels = outputs.discriminator_logits_BT[batch.mask_BT] > 0, outputs.is_replaced_BT[batch.mask_BT]
    assert one["disc_accuracy"] == pytest.approx((guessed == labels).float().mean().item())
    assert one["disc_recall"] == pytest.approx(guessed[labels].float().mean().item())
    assert one["fake_rate"] == pytest.approx(labels.float().mean().item())


def test_area_counts_ties_half_and_is_no_number_for_one_class() -> None:
    negatives, positives = torch.tensor([1.0, 1.0, 0.0]), torch.tensor([0.0, 1.0, 1.0])
    assert area_under_curve(torch.stack([negatives, positives])) == pytest.approx((1 + 1 + 0.5 + 1) / 4)
    assert np.isnan(area_under_curve(torch.stack([negatives, torch.zeros(3)])))


def test_a_window_has_the_mean_over_the_steps_that_had_a_value_of_each_name(tmp_path: Path) -> None:
    """As where a phase without replaced tokens ends within a window; also after a resume there."""
    curve = Curve(["mlm_loss", "disc_loss", *Curve.RATES])
    curve.add(torch.tensor([6.0, 0.0, 0.0, 0.0]))
    curve.end_step({"mlm_loss"})
    assert curve.end_window(1) == {"mlm_loss": 6.0}
    for mlm, disc in ((5.0, 0.0), (0.0, 0.5), (0.0, 0.3)):
        curve.add(torch.tensor([mlm, disc, 0.1 if disc else 0.0, 0.05 if disc else 0.0]))
        curve.end_step({"mlm_loss"} if mlm else {"disc_loss", *Curve.RATES})
    curve = Curve(curve.names, **curve.state())
    found = curve.end_window(4)
    assert found == pytest.approx({"mlm_loss": 5.0, "disc_loss": 0.4, "fake_rate": 0.1, "recall": 0.5})
    assert curve.rows[1] == {"train_mlm_loss": 6.0}


def test_figures_that_are_no_numbers_are_left_out(tmp_path: Path, prepared: Workspace) -> None:
    curve, paths = Curve(["disc_loss"]), Paths(tmp_path)
    curve.add_validation(4, {"disc_loss": 0.01, "disc_auc": math.nan})
    curve.write(paths, prepared.settings(), {"disc_loss": 0.01, "disc_auc": math.nan})
    assert "nan" not in (paths.results / "pretrain.tsv").read_text()
    for file in (paths.results / "pretrain.json", paths.metrics / "pretrain.json"):
        assert "disc_loss" in file.read_text() and "disc_auc" not in file.read_text()


def test_unigram_entropy_is_the_loss_of_a_frequency_guess(prepared: Workspace) -> None:
    train, heldout = Shards(prepared.paths.shards, "train"), Shards(prepared.paths.shards, "heldout")
    seen = np.ones(train.vocab_size)
    for tokens, spans in (train.gather(np.arange(len(train))),):
        for row, (length, _) in zip(tokens, spans, strict=True):
            np.add.at(seen, [t for t in row[:length] if t not in SPECIAL], 1)
    tokens, spans = heldout.gather(np.arange(len(heldout)))
    wanted = [t for row, (length, _) in zip(tokens, spans, strict=True) for t in row[:length] if t not in SPECIAL]
    expected = -np.log(seen / seen.sum())[wanted].mean()
    assert unigram_entropy(token_counts(train, SPECIAL), token_counts(heldout, SPECIAL)) == pytest.approx(
        expected, rel=1e-9
    )


def test_special_tokens_do_not_flatter_the_area() -> None:
    """They are the easiest negatives: with them the area would be (0.5 * 4 + 1 * 4) / 8."""
    batch = random_batch(1, 6, 1, 50)
    batch.input_ids_BT[0] = torch.tensor([2, 10, 11, 12, 13, 3])
    labels = torch.tensor([[False, True, True, False, False, False]])
    logits = torch.tensor([[-9.0, 1.0, -1.0, 2.0, -2.0, -9.0]])
    outputs = Outputs({}, is_replaced_BT=labels, discriminator_logits_BT=logits, loss_mask_BT=batch.mask_BT)
    sums = HeldoutSums(["disc"], SPECIAL, 50)
    sums.add(batch, outputs, {})
    assert sums.results()["disc_auc"] == pytest.approx(0.5)
