"""Gradients of each pre-training method: parameters that learn, and parameters that must not."""

import math
from typing import get_args

import pytest
import torch

from electra.config import Method, Model, ObjectiveName
from electra.objectives.adversarial import Adversarial
from electra.objectives.all_tokens_mlm import AllTokensMlm
from electra.objectives.base import Batch, Objective, build_objective, masked_input, put_samples
from electra.objectives.bert import Bert
from electra.objectives.electra import Electra
from electra.objectives.electra_15 import Electra15
from electra.objectives.electric import Electric
from electra.objectives.mlm_then_rtd import MlmThenRtd
from electra.objectives.two_stage import TwoStage
from tests.model.test_electra import TINY, random_batch

V, MASK = 50, 4


def batch_for(objective: str, examples: int = 6, length: int = 16) -> Batch:
    batch = random_batch(examples, length, 3, V)
    batch.candidate_BT = batch.mask_BT.clone()
    batch.candidate_BT[:, 0] = False
    batch.mask_positions_BK = batch.mask_positions_BK.clamp(min=1)
    batch.mask_positions_BK = torch.stack([torch.randperm(length - 1)[:3] + 1 for _ in range(examples)])
    if objective == "bert_nsp":
        batch.next_B = torch.tensor([0.0, 1.0, 1.0, 0.0, -1.0, 1.0])[torch.arange(examples) % 6]
    return batch


def make(objective: str, model: Model = TINY, **options: object) -> Objective:
    torch.manual_seed(0)
    method = Method(objective=objective, **options)
    return build_objective(model, V, MASK, method).initialize(0.1, seed=1)


def total(model: Objective, batch: Batch, only: str | None = None) -> torch.Tensor:
    outputs, counts = model(batch), model.counts(batch)
    return sum(
        weight * outputs.loss_sums[term] / counts[term]
        for term, weight in model.loss_weights.items()
        if term in outputs.loss_sums and only in (None, term)
    )


def reached(model: Objective, loss: torch.Tensor) -> set[str]:
    """Parts of the model whose parameters the loss moves."""
    model.zero_grad()
    loss.backward()
    moved = {n for n, p in model.named_parameters() if p.grad is not None and p.grad.abs().sum() > 0}
    return {".".join(name.split(".")[:2]) if ".embeddings." in name else name.split(".")[0] for name in moved}


SHARED = "discriminator.embeddings"
EXPECTED = {  # objective: term: what its gradient reaches
    "electra": {
        "mlm": {"generator", "generator_head", SHARED},
        "disc": {"discriminator", "discriminator_head", SHARED},
    },
    "adversarial": {
        "mlm": set(),
        "reinforce": {"generator", "generator_head", SHARED},
        "baseline": {"generator_baseline"},
        "disc": {"discriminator", "discriminator_head", SHARED},
    },
    "replace_mlm": {
        "mlm": {"generator", "generator_head", "encoder.embeddings"},
        "replace_mlm": {"encoder", "head", "encoder.embeddings"},
    },
    "all_tokens_mlm": {
        "mlm": {"generator", "generator_head", "encoder.embeddings"},
        "all_tokens_mlm": {"encoder", "head", "copy", "encoder.embeddings"},
    },
    "bert": {"mlm": {"encoder", "head", "encoder.embeddings"}},
    "bert_nsp": {
        "mlm": {"encoder", "head", "encoder.embeddings"},
        "nsp": {"encoder", "next_sentence_head", "encoder.embeddings"},
    },
    "electric": {
        "cloze": {"generator_from_left", "generator_from_right", "generator_head", SHARED},
        "disc": {"discriminator", "discriminator_head", SHARED},
    },
}
EXPECTED["electra_15"] = EXPECTED["electra"]


@pytest.mark.parametrize(("objective", "term"), [(o, t) for o, terms in EXPECTED.items() for t in terms])
def test_each_loss_reaches_its_own_parameters_and_no_others(objective: str, term: str) -> None:
    model = make(objective)
    loss = model(batch_for(objective)).loss_sums[term]
    if not EXPECTED[objective][term]:
        assert not loss.requires_grad, "measured, not learned from"
        return
    found = reached(model, loss)
    found = {name for name in found if name not in ("generator.embeddings", "generator_from_left.embeddings")}
    assert found == EXPECTED[objective][term]


@pytest.mark.parametrize("objective", get_args(ObjectiveName))
def test_every_method_learns_a_batch_by_heart(objective: str) -> None:
    model, batch = make(objective), batch_for(objective)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    first = last = None
    for _ in range(60):
        loss = total(model, batch, only="baseline" if objective == "adversarial" else None)
        if objective == "adversarial":  # its reward moves with the discriminator: what must fall is the latter's loss
            loss = total(model, batch, only="disc")
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        first, last = first or float(loss.detach()), float(loss.detach())
    assert last < 0.7 * first, (first, last)


def test_two_stages_train_the_generator_then_a_discriminator_that_starts_from_it() -> None:
    model = make("two_stage")
    assert isinstance(model, TwoStage)
    assert model.phases(10) == [range(5), range(5, 10)]
    # 0.29 of 100 is 28.999999999999996 in binary
    assert make("two_stage", two_stage_switch=0.29).phases(100) == [range(29), range(29, 100)]
    batch = batch_for("two_stage")
    model.set_phase(0)
    assert reached(model, total(model, batch)) == {"generator", "generator_head", "generator.embeddings"}
    assert all(p.requires_grad == n.startswith("generator") for n, p in model.named_parameters())
    model.enter_phase(1)
    for name, parameter in model.discriminator.named_parameters():
        assert torch.equal(parameter, model.generator.get_parameter(name)), name
    model.set_phase(1)
    assert reached(model, total(model, batch)) == {"discriminator", "discriminator_head", "discriminator.embeddings"}


def test_the_encoder_learns_masked_tokens_then_detects_replaced_ones() -> None:
    model, batch = make("mlm_then_rtd", two_stage_switch=0.8), batch_for("mlm_then_rtd")
    assert isinstance(model, MlmThenRtd)
    assert model.phases(10) == [range(8), range(8, 10)]
    model.set_phase(0)
    assert set(model(batch).loss_sums) == {"mlm"}
    assert reached(model, total(model, batch)) == {"discriminator", "head", SHARED}
    learned = {name: value.clone() for name, value in model.discriminator.state_dict().items()}
    model.enter_phase(1)
    assert all(torch.equal(value, learned[name]) for name, value in model.discriminator.state_dict().items())
    model.set_phase(1)
    assert not any(parameter.requires_grad for parameter in model.head.transform.parameters()), "it rests"
    ours, electras = model(batch), make("electra")(batch)
    assert ours.loss_sums.keys() == electras.loss_sums.keys()
    assert reached(model, ours.loss_sums["mlm"]) == {"generator", "generator_head", SHARED}
    assert reached(model, model(batch).loss_sums["disc"]) == {"discriminator", "discriminator_head", SHARED}


def test_the_first_phase_predicts_the_masked_tokens_as_bert_does() -> None:
    model, bert, batch = make("mlm_then_rtd"), make("bert"), batch_for("mlm_then_rtd")
    bert.encoder.load_state_dict(model.discriminator.state_dict())
    bert.head.load_state_dict(model.head.state_dict())
    model.set_phase(0)
    assert torch.equal(model(batch).loss_sums["mlm"], bert(batch).loss_sums["mlm"])


def test_with_fixed_frequencies_only_the_first_phase_learns_a_language_model() -> None:
    model, batch = make("mlm_then_rtd", generator="unigram"), batch_for("mlm_then_rtd")
    model.set_frequencies(torch.ones(V, dtype=torch.int64))
    model.set_phase(0)
    assert reached(model, total(model, batch)) == {"discriminator", "head", SHARED}
    model.set_phase(1)
    assert set(model(batch).loss_sums) == {"disc"}
    assert reached(model, total(model, batch)) == {"discriminator", "discriminator_head", SHARED}


def test_electra_15_learns_on_masked_positions_only() -> None:
    model = make("electra_15")
    assert isinstance(model, Electra15)
    batch = batch_for("electra_15")
    outputs = model(batch)
    assert torch.equal(outputs.loss_mask_BT, batch.is_masked_BT())
    assert float(model.counts(batch)["disc"]) == 18
    whole = make("electra")(batch).loss_sums["disc"]
    assert 0 < outputs.loss_sums["disc"].item() < whole.item()


def test_the_copy_mechanism_is_a_mixture_that_sums_to_one() -> None:
    model = make("all_tokens_mlm")
    assert isinstance(model, AllTokensMlm)
    batch = batch_for("all_tokens_mlm")
    corrupted = model.generate(batch).corrupted_ids_BT
    hidden = model.encoder(corrupted, batch.segments_BT, batch.mask_BT)
    copy = model.copy(hidden).squeeze(-1).sigmoid()
    mixture = (1 - copy)[..., None] * model.head(hidden).softmax(-1)
    mixture = mixture + copy[..., None] * torch.nn.functional.one_hot(corrupted, V)
    assert torch.allclose(mixture.sum(-1), torch.ones(6, 16), atol=1e-5)
    expected = -mixture.gather(-1, batch.input_ids_BT[..., None]).log().sum()
    assert model(batch).loss_sums["all_tokens_mlm"].item() == pytest.approx(expected.item(), rel=1e-5)


def test_a_sample_that_is_the_original_counts_as_copied() -> None:
    """What is right in the input may be copied, also at a masked place (All-Tokens MLM)."""
    model = make("all_tokens_mlm").eval()
    assert isinstance(model, AllTokensMlm)
    batch = batch_for("all_tokens_mlm")
    batch.shown_BK = torch.zeros_like(batch.shown_BK)
    sampled_ids_BK = model.generate(batch).sampled_ids_BK
    # the generator sees [MASK] there: it samples the same, whatever the original is
    batch.input_ids_BT = batch.input_ids_BT.scatter(1, batch.mask_positions_BK[:, :2], sampled_ids_BK[:, :2])
    outputs = model(batch)
    corrupted_ids_BT = put_samples(batch, outputs.sampled_ids_BK)
    hits_BT = batch.is_masked_BT() & (corrupted_ids_BT == batch.input_ids_BT)
    assert int(hits_BT.sum()) >= 12
    hidden_BTD = model.encoder(corrupted_ids_BT, batch.segments_BT, batch.attended_BT)
    copy_BT = model.copy(hidden_BTD).squeeze(-1).sigmoid()
    mixture_BTV = (1 - copy_BT)[..., None] * model.head(hidden_BTD).softmax(-1)
    mixture_BTV = mixture_BTV + copy_BT[..., None] * torch.nn.functional.one_hot(corrupted_ids_BT, V)
    expected = -mixture_BTV.gather(-1, batch.input_ids_BT[..., None]).log().squeeze(-1)[batch.mask_BT].sum()
    assert outputs.loss_sums["all_tokens_mlm"].item() == pytest.approx(expected.item(), rel=1e-5)


def test_next_sentence_prediction_is_a_mean_over_the_examples_with_a_second_segment() -> None:
    model = make("bert_nsp").eval()
    batch = batch_for("bert_nsp")  # labels 0, 1, 1, 0, none, 1
    outputs = model(batch)
    assert float(model.counts(batch)["nsp"]) == 5
    _, hidden_BTD = model.masked_language_model(batch)  # type: ignore[operator]
    probability_B = model.next_sentence_head(hidden_BTD).sigmoid()  # type: ignore[operator]
    labels_B = batch.next_B
    assert labels_B is not None
    right_B = torch.where(labels_B == 1, probability_B, 1 - probability_B)[labels_B >= 0]
    expected = -right_B.log().mean()
    assert (outputs.loss_sums["nsp"] / model.counts(batch)["nsp"]).item() == pytest.approx(expected.item(), rel=1e-5)


@pytest.mark.parametrize(("temperature", "disallow_correct"), [(1.0, False), (2.0, False), (1.0, True)])
def test_the_adversary_is_rewarded_with_the_discriminators_loss(temperature: float, disallow_correct: bool) -> None:
    """One slot, by hand: -(R - b) log p, with b = -log sigmoid(baseline) and p that of the sampling."""
    model = make("adversarial", temperature=temperature, disallow_correct=disallow_correct)
    assert isinstance(model, Adversarial)
    batch = batch_for("adversarial")
    batch.mask_weights_BK = torch.zeros_like(batch.mask_weights_BK)
    batch.mask_weights_BK[2, 1] = 1
    generated = model.generate(batch)
    outputs, losses = model.discriminate(batch, generated)
    reward = losses[2, batch.mask_positions_BK[2, 1]]
    label, logit = outputs.is_replaced_BT[2, batch.mask_positions_BK[2, 1]], outputs.discriminator_logits_BT
    probability = logit[2, batch.mask_positions_BK[2, 1]].sigmoid()
    assert reward.item() == pytest.approx(-math.log(probability if label else 1 - probability), rel=1e-4)
    baseline = model.generator_baseline(generated.hidden_BKG)[2, 1, 0]
    logits_V = generated.logits_BKV[2, 1] / temperature
    if disallow_correct:
        logits_V = logits_V.masked_fill(torch.arange(V) == batch.original_ids_BK()[2, 1], -math.inf)
    log_p = logits_V.log_softmax(-1)[generated.sampled_ids_BK[2, 1]]
    expected = -(reward + baseline.sigmoid().log()) * log_p
    assert model(batch).loss_sums["reinforce"].item() == pytest.approx(expected.item(), rel=1e-4)


def test_bert_shows_masks_random_tokens_and_originals() -> None:
    batch = batch_for("bert")
    batch.shown_BK = torch.tensor([[True, False, False]] * 6)
    batch.random_BK = torch.tensor([[False, True, False]] * 6)
    seen = masked_input(batch, MASK, V).gather(1, batch.mask_positions_BK)
    assert torch.equal(seen[:, 0], batch.original_ids_BK()[:, 0])
    assert torch.equal(seen[:, 1], (batch.uniforms_BK[:, 1] * V).long())
    assert (seen[:, 2] == MASK).all()
    assert isinstance(make("bert"), Bert)


def test_the_cloze_generator_does_not_see_the_token_it_predicts() -> None:
    model = make("electric").eval()
    assert isinstance(model, Electric)
    batch = batch_for("electric")
    before = model.cloze(batch)
    at = 7
    batch.input_ids_BT = batch.input_ids_BT.clone()
    batch.input_ids_BT[:, at] = (batch.input_ids_BT[:, at] + 1) % V
    after = model.cloze(batch)
    assert torch.allclose(before[:, at], after[:, at], atol=1e-6)
    for neighbour in (at - 1, at + 1):
        assert not torch.allclose(before[:, neighbour], after[:, neighbour], atol=1e-4), "it sees both sides"


def test_electric_scores_a_text_by_its_energies() -> None:
    model = make("electric").eval()
    assert isinstance(model, Electric)
    batch = batch_for("electric")
    scores = model.pseudo_log_likelihood(batch.input_ids_BT, batch.segments_BT, batch.mask_BT, batch.candidate_BT)
    energies = model.energies(batch.input_ids_BT, batch.segments_BT, batch.mask_BT)
    assert torch.allclose(scores, -energies[:, 1:].sum(1), atol=1e-5)


def test_electric_learns_which_sequences_are_likely() -> None:
    """Two kinds of rows, one nine times as frequent: its pseudo-log-likelihood ends up the higher one."""
    torch.manual_seed(0)
    model = make("electric")
    assert isinstance(model, Electric)
    kinds = torch.stack([torch.full((8,), 10), torch.full((8,), 20)])
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(250):
        tokens = kinds[(torch.rand(32) < 0.1).long()].clone()
        tokens[:, 0] = 2
        everywhere = torch.ones(32, 8, dtype=torch.bool)
        candidates = everywhere.clone()
        candidates[:, 0] = False
        batch = Batch(
            tokens, torch.zeros_like(tokens), everywhere, torch.randint(1, 8, (32, 1)), torch.ones(32, 1),
            torch.zeros(32, 1, dtype=torch.bool), torch.rand(32, 1), candidate_BT=candidates,
        )  # fmt: skip
        loss = total(model, batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    mixed = kinds.clone()
    mixed[1, ::2] = 30
    mixed[:, 0] = 2
    flat = torch.zeros_like(mixed)
    scores = model.pseudo_log_likelihood(mixed, flat, flat == 0, (flat == 0) & (mixed != 2))
    assert scores[0].item() > scores[1].item() + 1


@pytest.mark.parametrize("generator", ["uniform", "unigram"])
def test_fixed_generators_sample_by_frequency_and_are_not_trained(generator: str) -> None:
    model = make("electra", generator=generator)
    assert isinstance(model, Electra)
    counts = torch.zeros(V, dtype=torch.int64)
    counts[10:20] = 5
    model.set_frequencies(counts)
    outputs = model(batch_for("electra"))
    assert list(model.loss_weights) == ["disc"] and model.generator is None
    inside = ((outputs.sampled_ids_BK >= 10) & (outputs.sampled_ids_BK < 20)).float().mean()
    assert float(inside) == 1 if generator == "unigram" else float(inside) < 0.8


def test_disallowed_correct_samples_never_happen() -> None:
    batch = batch_for("electra")
    batch.uniforms_BK = torch.rand(6, 3)
    outputs = make("electra", disallow_correct=True)(batch)
    assert not (outputs.sampled_ids_BK == batch.original_ids_BK()).any()


def test_correct_samples_can_be_called_fake() -> None:
    model, batch = make("electra", correct_samples_are_fake=True), batch_for("electra")
    assert torch.equal(model(batch).is_replaced_BT, batch.is_masked_BT())


def test_a_high_temperature_flattens_the_samples() -> None:
    hot, cold = make("electra", temperature=100.0), make("electra", temperature=1e-4)
    batch = batch_for("electra")
    guesses = cold.generate(batch).logits_BKV.argmax(-1)
    assert torch.equal(cold(batch).sampled_ids_BK, guesses)
    assert not torch.equal(hot(batch).sampled_ids_BK, guesses)


def shared(**changes: object) -> Model:
    return TINY.model_copy(update=changes)


def test_no_sharing_leaves_each_its_own_embeddings() -> None:
    model = make("electra", shared(embedding_sharing="none"))
    assert isinstance(model, Electra)
    assert model.generator.config.embedding_size == model.generator.config.hidden_size, "as wide as its layers"
    assert reached(model, model(batch_for("electra")).loss_sums["disc"]) == {
        "discriminator", "discriminator_head", SHARED,
    }  # fmt: skip
    assert model.generator_head.weight is model.generator.embeddings.word.weight, "its own two ends are tied"


def test_sharing_all_is_one_encoder() -> None:
    model = make("electra", shared(embedding_sharing="all", generator_width=1.0))
    assert isinstance(model, Electra)
    assert model.generator is model.discriminator
    with pytest.raises(ValueError, match="full size"):
        Model(**{**TINY.model_dump(), "embedding_sharing": "all"})


def test_disentangled_embeddings_start_equal_and_keep_their_gradients_apart() -> None:
    model = make("electra", shared(embedding_sharing="gradient_disentangled")).eval()
    batch = batch_for("electra")
    outputs = model(batch)
    model.zero_grad()
    outputs.loss_sums["disc"].backward()
    table = model.generator.embeddings.word.weight
    assert table.grad is None or not table.grad.any(), "the discriminator's loss stays out of the generator's table"
    assert model.discriminator.embeddings.word_difference.weight.grad.any()
    model.zero_grad()
    model(batch).loss_sums["mlm"].backward()
    assert table.grad.any() and model.discriminator.embeddings.word_difference.weight.grad is None
    with torch.no_grad():
        model.discriminator.embeddings.word_difference.weight.normal_()
        inputs = batch.input_ids_BT, batch.segments_BT, batch.mask_BT
        plain = model.encoder_to_publish()
        assert torch.allclose(plain(*inputs), model.discriminator(*inputs), atol=1e-5)
        assert "embeddings.word.weight" in plain.state_dict()


def test_slots_without_weight_mask_nothing() -> None:
    """They point at position 0, which is [CLS]."""
    batch = batch_for("electra_15")
    batch.mask_weights_BK[:, 1:] = 0
    batch.mask_positions_BK[:, 1:] = 0
    masked_BT = batch.is_masked_BT()
    assert torch.equal(masked_BT.sum(1), torch.ones(6, dtype=torch.long)) and not masked_BT[:, 0].any()


@pytest.mark.parametrize(("share", "temperature"), [(0.15, 1.0), (0.4, 1.0), (0.15, 2.0)])
def test_the_logit_of_noise_is_energy_and_noise_and_the_odds_of_a_replacement(share: float, temperature: float) -> None:
    """E(x) + log q(x) + log(k / (n - k)), with k of n tokens replaced (Electric, section 3.2); q as it is sampled."""
    model = make("electric", mask_probability=share, temperature=temperature).eval()
    assert isinstance(model, Electric)
    batch = batch_for("electric")
    outputs = model(batch)
    corrupted_ids_BT = put_samples(batch, outputs.sampled_ids_BK)
    noise_BTV = (model.cloze(batch) / temperature).log_softmax(-1)
    log_q_BT = noise_BTV.gather(-1, corrupted_ids_BT[..., None]).squeeze(-1)
    energies_BT = model.energies(corrupted_ids_BT, batch.segments_BT, batch.attended_BT)
    expected_BT = energies_BT + log_q_BT + math.log(share / (1 - share))
    torch.testing.assert_close(outputs.discriminator_logits_BT, expected_BT.detach())
