"""The modern architecture and its parts: fused equals plain, packed equals padded, and the effect of each part."""

from dataclasses import replace
from itertools import product
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from pydantic import ValidationError
from torch import Tensor

from electra.cluster.estimate.memory import recompute_layers
from electra.config import Method, Model
from electra.model.attention import rotate, rotation_of, window_bias
from electra.model.kernels import functions as fused
from electra.model.kernels.apply import use_cpu_kernels
from electra.model.kernels.build import has_operators
from electra.model.layers import Geglu
from electra.objectives.base import build_objective
from electra.objectives.electra import Electra
from electra.pretrain.data.packing import packed
from tests.model.test_fast_paths import V, assert_equal_to_rounding, result, total_loss, uneven_batch
from tests.model.test_kernels import TYPES, assert_alike, gradients, plain_attention, randn

SHAPE: dict[str, Any] = {
    "architecture": "modern", "num_layers": 3, "hidden_size": 32, "num_heads": 4, "intermediate_size": 48,
    "embedding_size": 16, "generator_width": 0.5, "dropout": 0.0, "attention_dropout": 0.0,
}  # fmt: skip
LOCAL = {"local_attention": 8, "global_every": 2, "rotary_base": 160_000.0}
PARTS = list(product(("electra", "modern"), ("learned", "rotary"), ("post", "pre"), ("gelu", "geglu")))
needs_loops = pytest.mark.skipif(not has_operators(), reason="no C++ compiler here: the loops are not built")


def plain_model(**changes: Any) -> Electra:
    return Electra(Model(**{**SHAPE, **changes}), V, mask_id=4).initialize(0.1, seed=1)


def model(**changes: Any) -> Electra:
    return use_cpu_kernels(plain_model(**changes))


def combination(architecture: str, positions: str, norm: str, feed_forward: str) -> Electra:
    return plain_model(architecture=architecture, positions=positions, norm=norm, feed_forward=feed_forward)


def test_an_architecture_names_the_parts_that_the_settings_leave_out() -> None:
    parts = ("positions", "norm", "feed_forward")
    modern, electra = Model(**SHAPE), Model(**{**SHAPE, "architecture": "electra"})
    assert [getattr(modern, part) for part in parts] == ["rotary", "pre", "geglu"]
    assert [getattr(electra, part) for part in parts] == ["learned", "post", "gelu"]
    overridden = Model(**{**SHAPE, "norm": "post"})
    assert [getattr(overridden, part) for part in parts] == ["rotary", "post", "geglu"]
    assert Model(**overridden.model_dump()) == overridden


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_heads": 32}, "rotary positions rotate pairs: 32 heads in a width of 32"),
        ({"local_attention": 7}, "local_attention 7 is odd"),
        ({"positions": "sinusoidal"}, "Input should be 'learned' or 'rotary'"),
    ],
)
def test_impossible_parts_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Model(**{**SHAPE, **changes})


def test_modern_has_no_biases_segments_or_position_table() -> None:
    names = {name for name, _ in model().named_parameters()}
    assert {name for name in names if name.endswith("bias")} == {
        "discriminator_head.output.bias",
        "generator_head.bias",
    }
    assert not any(part in name for name in names for part in (".segment.", ".position.", "embeddings.norm"))
    assert {
        "discriminator.embedding_norm.weight",
        "generator.embedding_norm.weight",
    } < names


@needs_loops
@pytest.mark.parametrize("parts", PARTS, ids="-".join)
def test_fused_loops_are_pytorchs_own_operations(parts: tuple[str, ...]) -> None:
    batch = packed(uneven_batch(), 24)
    assert_equal_to_rounding(result(use_cpu_kernels(combination(*parts)), batch), result(combination(*parts), batch))


@pytest.mark.parametrize("local", [{}, LOCAL], ids=["global", "local"])
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_packed_rows_are_the_padded_ones(norm: str, local: dict[str, Any]) -> None:
    """Rotations restart in every example, and a window ends with it."""
    batch = uneven_batch()
    assert_equal_to_rounding(
        result(model(norm=norm, **local), packed(batch, 24)), result(model(norm=norm, **local), batch)
    )


@pytest.mark.parametrize(
    "objective", ["replace_mlm", "all_tokens_mlm", "bert", "electric", "electra_15", "adversarial"]
)
def test_every_method_can_be_packed(objective: str) -> None:
    batch, found = uneven_batch(), []
    for one in (batch, packed(batch, 24)):
        module = build_objective(Model(**SHAPE), V, 4, Method(objective=objective)).initialize(0.1, seed=1)
        found.append({term: float(value.detach()) for term, value in module(one).loss_sums.items()})
    assert found[0] == pytest.approx(found[1], rel=5e-6)


@pytest.mark.parametrize("sharing", ["none", "embeddings", "all", "gradient_disentangled"])
def test_what_generator_and_discriminator_share(sharing: str) -> None:
    full = {"generator_width": 1.0} if sharing == "all" else {}
    electra = model(embedding_sharing=sharing, **full)
    ours, theirs = electra.discriminator, electra.generator
    assert theirs is not None
    assert (theirs is ours) == (sharing == "all")
    assert (theirs.embeddings is ours.embeddings) == (sharing in ("embeddings", "all"))
    _, found = result(electra, uneven_batch())
    assert found.keys() == dict(electra.named_parameters()).keys(), "a gradient for every parameter"
    if sharing == "gradient_disentangled":
        with torch.no_grad():
            electra.discriminator.embeddings.word_difference.weight.normal_()
        batch = uneven_batch()
        inputs = (batch.input_ids_BT, batch.segments_BT, batch.mask_BT)
        torch.testing.assert_close(electra.encoder_to_publish()(*inputs), ours(*inputs))


def test_the_generators_output_goes_back_through_its_projection() -> None:
    electra = model(generator_width=0.25)
    generator, head = electra.generator, electra.generator_head
    assert generator is not None and head is not None
    hidden = torch.randn(2, 3, 8)
    folded = generator.plain_embeddings.word.weight @ generator.projection.weight.t()
    expected = head.norm(F.gelu(head.transform(hidden))) @ folded.t() + head.bias
    torch.testing.assert_close(head(hidden), expected)


@pytest.mark.parametrize("bf16", [False, True])
def test_activation_checkpointing_is_equal_to_the_last_bit(bf16: bool) -> None:
    batch, found = packed(uneven_batch(), 24), []
    for recompute in (False, True):
        electra = model(dropout=0.1, attention_dropout=0.1, **LOCAL)
        if recompute:
            recompute_layers(electra)
        torch.manual_seed(7)
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            loss = total_loss(electra, batch)
        loss.backward()
        found.append([loss.detach(), *(p.grad for p in electra.parameters() if p.grad is not None)])
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


def test_bf16_is_fp32_to_its_precision() -> None:
    batch, losses = uneven_batch(), []
    for bf16 in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            losses.append(total_loss(model(), batch).item())
    assert losses[1] == pytest.approx(losses[0], rel=5e-3) and losses[1] != losses[0]


def test_compiled_layers_are_the_plain_ones() -> None:
    torch._dynamo.reset()
    batch, compiled = uneven_batch(), model(num_layers=1)
    for layer in compiled.discriminator.layers:  # traced by the compiler; generating code would take half a minute
        layer.compile(dynamic=False, backend="eager")
    assert_equal_to_rounding(result(model(num_layers=1), batch), result(compiled, batch))


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_the_first_token_alone_is_as_among_all(norm: str) -> None:
    batch, encoder = uneven_batch(), model(norm=norm, **LOCAL).discriminator
    inputs = (batch.input_ids_BT, batch.segments_BT, batch.mask_BT, "both")
    torch.testing.assert_close(encoder(*inputs, True)[:, 0], encoder(*inputs, False)[:, 0])


def test_rotary_scores_depend_on_the_distance_alone() -> None:
    places = torch.arange(40)[None]
    rotation = rotation_of(places, 16, 10_000.0)
    one, other = torch.randn(2, 1, 1, 1, 16).expand(2, 1, 40, 1, 16)
    scores = (rotate(one, rotation) * rotate(other.roll(3, 1), rotation)).sum(-1)  # the same vectors everywhere
    query, key = rotate(one, rotation)[0, :, 0], rotate(other, rotation)[0, :, 0]
    distances = query @ key.t()
    assert scores.std() < 1e-4
    torch.testing.assert_close(distances[:-5, :-5], distances[5:, 5:], atol=1e-4, rtol=1e-4)
    assert distances[0, :10].std() > 1e-2


def test_rotary_positions_tell_word_order_and_no_positions_would_not() -> None:
    batch, encoder = uneven_batch(), model().discriminator
    tokens = batch.input_ids_BT[:1]
    swapped = tokens.clone()
    swapped[0, [5, 9]] = tokens[0, [9, 5]]
    first = [encoder(one, torch.zeros_like(one))[0, 0] for one in (tokens, swapped)]
    assert (first[0] - first[1]).abs().max() > 1e-3
    assert torch.equal(
        *[encoder(tokens, segments)[0] for segments in (torch.zeros_like(tokens), torch.ones_like(tokens))]
    )


def test_a_local_layer_sees_its_window_and_no_more() -> None:
    encoder = model(num_layers=2, local_attention=4, global_every=2).discriminator
    assert [encoder.config.is_local(layer) for layer in range(2)] == [False, True]
    hidden = torch.randn(1, 12, 32)
    changed = hidden.clone()
    changed[0, 8] = torch.randn(32)
    bias, rotation = window_bias(12, 4, hidden.device), encoder._rotations(torch.zeros(1, 12), None)[1]
    one, other = (encoder.layers[1]((states, states), bias, rotation)[1][0] for states in (hidden, changed))
    assert (one - other).abs().amax(-1).gt(1e-6).tolist() == [6 <= place <= 10 for place in range(12)]


@TYPES
@needs_loops
@pytest.mark.parametrize("examples", [1, 3])
def test_rotated_attention_and_its_gradient(dtype: torch.dtype, examples: int) -> None:
    qkv, added = randn(3, 9, 3 * 8, dtype=dtype), randn(3 * 8, seed=3)
    rotation = rotation_of(torch.randint(0, 30, (examples, 9)), 4, 100.0)
    ours = fused.attention(qkv, added, None, 2, 0.0, rotation)
    rows = (qkv.float() + added).view(3, 9, 3, 2, 4)
    turned = torch.stack([rotate(rows[:, :, 0], rotation), rotate(rows[:, :, 1], rotation), rows[:, :, 2]], 2)
    theirs = plain_attention(turned.reshape(3, 9, 24), None, 2)
    assert_alike(ours, theirs, dtype)
    upstream = randn(3, 9, 8, dtype=dtype, seed=2).detach()
    found, expected = gradients((ours * upstream).sum(), qkv, added), gradients((theirs * upstream).sum(), qkv, added)
    for one, other in zip(found, expected, strict=True):
        assert_alike(one, other, dtype)


@TYPES
@needs_loops
def test_geglu_and_its_gradient(dtype: torch.dtype) -> None:
    x, added = randn(50, 22, dtype=dtype), randn(22, seed=2)
    upstream = randn(50, 11, dtype=dtype, seed=1).detach()
    for bias in (None, added):
        wide = x.float() if bias is None else x.float() + bias
        ours, theirs = fused.geglu(x, bias), F.gelu(wide[:, :11]) * wide[:, 11:]
        assert_alike(ours, theirs, dtype)
        inputs = (x,) if bias is None else (x, bias)
        found, expected = gradients((ours * upstream).sum(), *inputs), gradients((theirs * upstream).sum(), *inputs)
        for one, other in zip(found, expected, strict=True):
            assert_alike(one, other, dtype)


@TYPES
@needs_loops
@pytest.mark.parametrize("has_bias", [False, True])
def test_residual_norm_and_its_gradients(dtype: torch.dtype, has_bias: bool) -> None:
    x, stream, weight = randn(70, 33, dtype=dtype), randn(70, 33, seed=1), randn(33, seed=2)
    bias, added = (randn(33, seed=3), randn(33, seed=4)) if has_bias else (None, None)
    one, other = randn(70, 33, seed=5).detach(), randn(70, 33, dtype=dtype, seed=6).detach()
    inputs = [tensor for tensor in (x, stream, weight, bias, added) if tensor is not None]
    total, normed = fused.residual_norm(x, added, stream, weight, bias, 1e-5, 0.0)
    expected_total = stream + (x.float() if added is None else x.float() + added)
    expected = F.layer_norm(expected_total, (33,), weight, bias, 1e-5)
    assert total.dtype == torch.float32 and normed.dtype == dtype
    torch.testing.assert_close(total, expected_total)
    assert_alike(normed, expected, dtype)
    found = gradients((total * one).sum() + (normed * other).sum(), *inputs)
    wanted = gradients((expected_total * one).sum() + (expected * other).sum(), *inputs)
    for ours, theirs in zip(found, wanted, strict=True):
        assert_alike(ours, theirs, dtype)


@needs_loops
def test_the_gradient_of_a_residual_drops_the_elements_that_were_dropped() -> None:
    torch.manual_seed(3)
    x, stream, ones = torch.ones(20, 64, requires_grad=True), torch.zeros(20, 64), torch.ones(64)
    total, _ = fused.residual_norm(x, None, stream, ones, None, 1e-5, 0.25)
    (found,) = gradients(total.sum(), x)
    assert torch.equal(found, total.detach()) and 0.6 < float((total > 0).float().mean()) < 0.9


@needs_loops
def test_the_number_of_threads_changes_nothing() -> None:
    batch, before, results = packed(uneven_batch(), 24), torch.get_num_threads(), []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            loss, found = result(model(**LOCAL), batch)
            results.append([loss, *found.values()])
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(one, other) for one, other in zip(*results, strict=True))


def test_what_is_not_a_number_stays_visible() -> None:
    bad = torch.full((2, 16), float("nan"))
    assert Geglu()(bad).isnan().all()
    if has_operators():
        assert fused.geglu(bad).isnan().all()
        assert all(out.isnan().all() for out in fused.residual_norm(bad, None, bad, torch.ones(16), None, 1e-5, 0.1))


def test_gradients_are_those_of_finite_differences() -> None:
    """Through rotation, gate, both norms and a window."""
    electra, batch = model(num_layers=2, **LOCAL), uneven_batch()
    tokens = batch.input_ids_BT[:2, :6]
    names = ("discriminator.layers.1.attention.qkv.weight", "discriminator.layers.0.feed_forward_in.weight")

    def loss() -> Tensor:
        hidden = electra.discriminator.layers[0]((states, states), None, rotation)
        return (electra.discriminator.layers[1](hidden, window, rotation)[1].sin()).sum()

    states = electra.discriminator.embeddings(tokens, tokens) @ electra.discriminator.projection.weight.t()
    states, rotation = states.detach(), rotation_of(torch.arange(6)[None], 8, 100.0)
    window = window_bias(6, 2, tokens.device)
    parameters = dict(electra.named_parameters())
    for name in names:
        weight = parameters[name]
        (found,) = torch.autograd.grad(loss(), weight)
        with torch.no_grad():
            for place in ((0, 0), (5, 7), (20, 3)):
                before, step = weight[place].item(), 1e-2
                weight[place] = before + step
                above = loss()
                weight[place] = before - step
                slope = float(above - loss()) / (2 * step)
                weight[place] = before
                assert float(found[place]) == pytest.approx(slope, rel=1e-2, abs=2e-4)


def test_segments_are_ignored_and_a_batch_without_padding_needs_no_mask() -> None:
    batch, encoder = uneven_batch(), model().discriminator
    whole = replace(batch, mask_BT=torch.ones_like(batch.mask_BT))
    torch.testing.assert_close(
        encoder(whole.input_ids_BT, 1 - whole.segments_BT, whole.mask_BT),
        encoder(whole.input_ids_BT, whole.segments_BT),
    )
