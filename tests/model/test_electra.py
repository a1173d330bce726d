"""The pair: start values, sharing, and what each loss may touch."""

import math

import pytest
import torch

from electra.config import Model
from electra.model.generator import sample
from electra.model.shape import EncoderConfig
from electra.objectives.base import Batch
from electra.objectives.electra import Electra

SMALL = Model(num_layers=12, hidden_size=256, num_heads=4, intermediate_size=1024, embedding_size=128)
BASE = Model(
    num_layers=12, hidden_size=768, num_heads=12, intermediate_size=3072, embedding_size=768, generator_width=0.33333
)  # fmt: skip
LARGE = Model(num_layers=24, hidden_size=1024, num_heads=16, intermediate_size=4096, embedding_size=1024)
TINY = Model(
    num_layers=2, hidden_size=32, num_heads=2, intermediate_size=64, embedding_size=16, generator_width=0.5,
    dropout=0.0, attention_dropout=0.0,
)  # fmt: skip


def random_batch(examples: int, length: int, slots: int, vocab_size: int, padding: int = 0) -> Batch:
    random = torch.Generator().manual_seed(0)
    tokens = torch.randint(5, vocab_size, (examples, length), generator=random)
    mask = torch.ones(examples, length, dtype=torch.bool)
    if padding:
        mask[:, -padding:] = False
        tokens[:, -padding:] = 0
    order = torch.rand(examples, length - padding, generator=random).argsort(1)
    return Batch(
        input_ids_BT=tokens,
        segments_BT=(torch.arange(length) >= length // 2).long().expand(examples, -1),
        mask_BT=mask,
        mask_positions_BK=order[:, :slots],
        mask_weights_BK=torch.ones(examples, slots),
        shown_BK=torch.rand(examples, slots, generator=random) < 0.15,
        uniforms_BK=torch.rand(examples, slots, generator=random),
        candidate_BT=mask.clone(),
    )


def losses(model: Electra, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    outputs = model(batch)
    return (
        outputs.loss_sums["mlm"] / batch.mask_weights_BK.sum(),
        outputs.loss_sums["disc"] / batch.mask_BT.sum(),
    )


def test_initial_loss_of_small_is_ln_v_plus_50_ln_2() -> None:
    """10.33 + 34.66. The original's glorot-uniform output layer tilts all logits one way by chance (a seed's total
    lies within about 2 of it), so the mean is taken over that layer and its equally likely mirror image."""
    model = Electra(SMALL, vocab_size=30522, mask_id=103).initialize(0.02, seed=1).eval()
    batch, totals = random_batch(4, 128, 19, 30522), []
    with torch.no_grad():
        for _ in range(2):
            generator, discriminator = losses(model, batch)
            assert float(generator) == pytest.approx(math.log(30522), abs=0.05)
            totals.append(float(generator + 50 * discriminator))
            model.discriminator_head.output.weight.neg_()
    assert sum(totals) / 2 == pytest.approx(44.98, abs=0.3)


@pytest.mark.parametrize(
    ("model", "discriminator", "total"),
    [(SMALL, 13_483_008, 14_196_219), (BASE, 108_891_648, 119_386_427), (LARGE, 334_092_288, 354_655_291)],
)
def test_parameter_counts_are_the_papers(model: Model, discriminator: int, total: int) -> None:
    with torch.device("meta"):
        electra = Electra(model, vocab_size=30522, mask_id=103)
    assert sum(p.numel() for p in electra.discriminator.parameters()) == discriminator
    assert sum(p.numel() for p in electra.parameters()) == total


def test_generator_heads_are_64_wide() -> None:
    assert [EncoderConfig.generator(m, 100).num_heads for m in (SMALL, BASE, LARGE)] == [1, 4, 4]
    assert [EncoderConfig.generator(m, 100).hidden_size for m in (SMALL, BASE, LARGE)] == [64, 256, 256]


def test_discriminator_loss_reaches_the_generator_through_the_shared_embeddings_only() -> None:
    model = Electra(TINY, vocab_size=50, mask_id=4).initialize(0.1, seed=1)
    _, discriminator = losses(model, random_batch(4, 16, 3, 50))
    discriminator.backward()
    touched = {name for name, p in model.named_parameters() if p.grad is not None and p.grad.abs().sum() > 0}
    assert not any(name.startswith(("generator.", "generator_head.")) for name in touched)
    assert "discriminator.embeddings.word.weight" in touched and "discriminator_head.output.weight" in touched


def test_generator_loss_leaves_the_discriminator_alone() -> None:
    model = Electra(TINY, vocab_size=50, mask_id=4).initialize(0.1, seed=1)
    generator, _ = losses(model, random_batch(4, 16, 3, 50))
    generator.backward()
    touched = {name for name, p in model.named_parameters() if p.grad is not None and p.grad.abs().sum() > 0}
    own = {name for name in touched if not name.startswith("discriminator.embeddings.")}
    assert own and all(name.startswith(("generator.", "generator_head.")) for name in own)


def test_embeddings_are_one_storage_with_their_norm() -> None:
    model = Electra(TINY, vocab_size=50, mask_id=4)
    assert model.generator.embeddings is model.discriminator.embeddings
    assert model.generator_head.weight is model.discriminator.embeddings.word.weight


def test_a_sample_that_hits_the_original_counts_as_real() -> None:
    model = Electra(TINY, vocab_size=50, mask_id=4).initialize(0.1, seed=1)
    batch = random_batch(8, 16, 3, 50)
    outputs = model(batch)
    originals = batch.input_ids_BT.gather(1, batch.mask_positions_BK)
    replaced = outputs.is_replaced_BT.gather(1, batch.mask_positions_BK)
    assert (replaced == (outputs.sampled_ids_BK != originals)).all()
    elsewhere = outputs.is_replaced_BT.scatter(1, batch.mask_positions_BK, False)
    assert not elsewhere.any(), "only masked positions can be replaced"


def test_padding_changes_nothing() -> None:
    model = Electra(TINY, vocab_size=50, mask_id=4).initialize(0.1, seed=1).eval()
    batch = random_batch(4, 24, 3, 50, padding=8)
    cut = Batch(**{k: v[:, :16] if k.endswith("_BT") and v is not None else v for k, v in vars(batch).items()})
    for padded, plain in zip(losses(model, batch), losses(model, cut), strict=True):
        assert padded.item() == pytest.approx(plain.item(), rel=1e-5)


def test_samples_follow_the_distribution() -> None:
    logits = torch.tensor([2.0, 0.0, -1.0, 1.0])
    uniforms = (torch.arange(20_000) + 0.5)[None] / 20_000
    drawn = sample(logits.expand(1, 20_000, 4), uniforms)
    shares = torch.bincount(drawn.flatten(), minlength=4) / 20_000
    assert torch.allclose(shares, logits.softmax(0), atol=1e-3)
    assert sample(logits.expand(1, 1, 4), torch.tensor([[1 - 2**-24]])).item() == 3, "never past the vocabulary"


def test_a_token_of_probability_zero_is_never_drawn() -> None:
    """Also where the uniform is exactly 0, or exactly where the distribution function rests."""
    never = float("-inf")
    logits = torch.tensor([[[never, 0.0, never, 0.0, never]]])
    assert [sample(logits, torch.tensor([[uniform]])).item() for uniform in (0.0, 0.25, 0.5, 0.75)] == [1, 1, 3, 3]


def test_majority_guess_costs_the_entropy_of_the_fake_rate() -> None:
    from electra.pretrain.metrics import binary_entropy

    assert binary_entropy(0.138) == pytest.approx(0.401, abs=1e-3)
    assert binary_entropy(0.5) == pytest.approx(math.log(2))
    assert binary_entropy(0.0) == 0
