"""Losses over the vocabulary without all logits at once: for CUDA, where they would not fit."""

from functools import partial
from typing import get_args

import pytest
import torch
import torch.nn.functional as F

from electra.cluster.estimate.memory import placeholder_batch
from electra.config import Model, ObjectiveName, Pretrain
from electra.model import generator
from electra.model.generator import Draw, in_chunks, losses_and_hits, sample, sums_of_blocks
from electra.model.heads import MOST_LOGITS, VocabularyHead
from electra.model.layers import Embeddings
from electra.model.shape import EncoderConfig
from electra.objectives.base import build_objective

SHAPE = Model(num_layers=1, hidden_size=16, num_heads=2, intermediate_size=32, embedding_size=8, max_positions=64)
SHAPE = SHAPE.model_copy(update={"dropout": 0.0, "attention_dropout": 0.0})
RECIPE = Pretrain(num_steps=4, batch_size=8, learning_rate=1e-3, warmup_steps=1, eval_every=4, eval_examples=20)
VOCABULARY = 60


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four rows at a time, the last chunk smaller; on a CPU, too."""
    monkeypatch.setattr(generator, "CHUNK", 4 * VOCABULARY)
    monkeypatch.setattr(VocabularyHead, "exceeds_memory", lambda *_: True)


@pytest.mark.parametrize("disallow_correct", [False, True])
def test_losses_gradients_guesses_and_samples_are_those_of_all_logits(
    small_chunks: None, disallow_correct: bool
) -> None:
    torch.manual_seed(1)
    shape = EncoderConfig.discriminator(SHAPE, VOCABULARY)
    head = VocabularyHead(shape, Embeddings(shape)).eval()
    torch.nn.init.normal_(head.bias)
    states = torch.randn(3, 5, 16, requires_grad=True)
    tokens, uniforms, grads = torch.randint(VOCABULARY, (3, 5)), torch.rand(3, 5), torch.randn(3, 5)
    inputs = [states, *head.parameters()]

    logits = head(states)
    plain = F.cross_entropy(logits.flatten(0, 1), tokens.flatten(), reduction="none").view(3, 5)
    expected = torch.autograd.grad(plain, inputs, grads)
    losses, right, sampled = in_chunks(head, states, tokens, Draw(uniforms, 0.7, disallow_correct))
    found = torch.autograd.grad(losses, inputs, grads)
    torch.testing.assert_close(losses, plain)
    for mine, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-6)
    assert right is not None and torch.equal(right, logits.argmax(-1) == tokens)
    allowed = logits.scatter(-1, tokens[..., None], float("-inf")) if disallow_correct else logits
    assert torch.equal(sampled, sample(allowed, uniforms, 0.7))


@pytest.mark.parametrize("objective", get_args(ObjectiveName))
def test_every_method_learns_the_same_with_chunks(monkeypatch: pytest.MonkeyPatch, objective: str) -> None:
    recipe = RECIPE.model_copy(update={"objective": objective})
    model = build_objective(SHAPE, VOCABULARY, 4, recipe).initialize(0.2, seed=1).train()
    batch = placeholder_batch(recipe, 4, 16)
    batch.input_ids_BT = torch.randint(5, VOCABULARY, (4, 16), generator=torch.Generator().manual_seed(1))
    batch.mask_positions_BK = torch.arange(1, 1 + batch.mask_positions_BK.shape[1]).expand(4, -1).contiguous()
    batch.uniforms_BK = torch.rand(batch.mask_positions_BK.shape, generator=torch.Generator().manual_seed(2))

    def learned() -> dict[str, torch.Tensor]:
        model.zero_grad()
        losses = model(batch).loss_sums
        sum(losses.values()).backward()
        grads = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
        return {**{term: loss.detach() for term, loss in losses.items()}, **grads}

    expected = learned()
    monkeypatch.setattr(generator, "CHUNK", 4 * VOCABULARY)
    monkeypatch.setattr(VocabularyHead, "exceeds_memory", lambda *_: True)
    torch.testing.assert_close(learned(), expected, rtol=1e-3, atol=1e-4)


def test_chunks_are_part_of_the_one_graph_of_a_compiled_forward_pass(small_chunks: None) -> None:
    shape = EncoderConfig.discriminator(SHAPE, VOCABULARY)
    head = VocabularyHead(shape, Embeddings(shape))
    states, tokens = torch.randn(2, 3, 16), torch.zeros(2, 3, dtype=torch.long)
    torch.compiler.reset()
    compiled = torch.compile(partial(losses_and_hits, head), backend="eager", dynamic=False, fullgraph=True)
    torch.testing.assert_close(compiled(states, tokens)[0], losses_and_hits(head, states, tokens)[0])


def test_chunks_are_for_cuda_and_for_many_logits_alone() -> None:
    shape = EncoderConfig.discriminator(SHAPE, 30_522)
    with torch.device("meta"):
        head = VocabularyHead(shape, Embeddings(shape))
    rows = MOST_LOGITS // 30_522

    class OnCuda(torch.Tensor):
        is_cuda = True

    few, many = (torch.empty(2, n, 16, device="meta").as_subclass(OnCuda) for n in (rows // 2, rows // 2 + 1))
    assert head.exceeds_memory(many) and not head.exceeds_memory(few)
    assert not head.exceeds_memory(torch.empty(2, rows, 16, device="meta"))


def test_guesses_are_told_in_evaluation_only(small_chunks: None) -> None:
    shape = EncoderConfig.discriminator(SHAPE, VOCABULARY)
    head = VocabularyHead(shape, Embeddings(shape))
    states, tokens = torch.randn(2, 3, 16), torch.zeros(2, 3, dtype=torch.long)
    assert losses_and_hits(head.train(), states, tokens)[1] is None
    assert losses_and_hits(head.eval(), states, tokens)[1] is not None


def test_running_sums_by_products_are_those_of_pytorch() -> None:
    """Those stand in where deterministic algorithms are asked for on CUDA."""
    for size in (1, 255, 256, 700):
        values = torch.rand(2, 3, size)
        torch.testing.assert_close(sums_of_blocks(values), values.cumsum(-1))
