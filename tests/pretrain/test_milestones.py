"""Milestones by text seen: the weights after so many tokens, words or steps, with what they have seen."""

import random
import signal

import numpy as np
import pytest
from safetensors.torch import load_file

from electra.common.artifacts import read_json, read_manifest
from electra.common.errors import DataError
from electra.config import Pretrain
from electra.hub.export.pretrained import model_card
from electra.pretrain.checkpoint import Milestones
from electra.pretrain.data import seen as module
from electra.pretrain.data.batches import DataParallel, ExampleDrawer, training_steps
from electra.pretrain.data.dataset import CutExamples
from electra.pretrain.data.masking import examples_at
from electra.pretrain.data.seen import Order, TextCounter, times_seen
from electra.text.shards.layout import Shards
from tests.pretrain.test_resume import EVERY_STEP, kill_at
from tests.workspace import Workspace

RULES = ["every 1k tokens to 3k", "2k words", "every 10 steps", "9B tokens"]


def seen_by_step(order: Order, shards: Shards) -> tuple[np.ndarray, np.ndarray]:
    """Return the tokens and the words seen after each step, from the order of all examples that the run reads."""
    tokens, words = [], []
    for examples, batch_size, steps in order.parts(shards, order.num_steps):
        words_per_token = shards.num_words / examples.lengths(np.arange(len(examples))).sum()
        positions = np.arange(steps.start * batch_size, steps.stop * batch_size)
        lengths = examples.lengths(examples_at(positions, len(examples), order.seed)[1])
        tokens.append(lengths.reshape(len(steps), batch_size).sum(1).astype(np.float64))
        words.append(tokens[-1] * words_per_token)
    return np.concatenate(tokens).cumsum(), np.concatenate(words).cumsum()


def shards_of(lengths: np.ndarray, num_words: int) -> Shards:
    shards = object.__new__(Shards)
    shards.max_length, shards.vocab_size, shards.num_words = 64, 600, num_words
    shards._spans, shards._starts = [np.stack([lengths, lengths // 2], 1)], np.array([0, len(lengths)])
    return shards


@pytest.mark.parametrize("seed", range(12))
def test_text_seen_is_counted_without_the_order_of_every_epoch(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    draw, permuted = random.Random(seed), []
    size, batch_size = draw.randint(1, 200), draw.randint(1, 60)
    shards = shards_of(np.random.default_rng(seed).integers(8, 65, size), draw.randint(500, 4000))
    curriculum = (draw.randint(0, 60), 16) if seed % 2 else ()
    order = Order(seed, batch_size, 60, *curriculum)
    tokens, words = seen_by_step(order, shards)
    monkeypatch.setattr(module, "_CHUNK", draw.choice([50, 65_536]))
    monkeypatch.setattr(module, "examples_at", lambda *given: permuted.append(len(given[0])) or examples_at(*given))
    counter = TextCounter(order, shards)
    counter.after(counter.first_step("words", round(0.3 * words[-1])))
    epochs = 2 + (3 if curriculum else 1)  # of the milestone, whose step may end in the next, and of the ends of parts
    assert sum(permuted) <= epochs * size * (64 // 16 if curriculum else 1)

    tie = np.array([-1e-6, 1e-6])  # sums of fractions are inexact: a half may be rounded either way
    for step in draw.sample(range(1, 61), 10):
        found, index = counter.after(step), step - 1
        assert (found.step, found.examples, found.tokens) == (step, step * batch_size, round(tokens[index]))
        assert found.words in np.round(words[index] + tie)
    for unit, counted in (("tokens", tokens), ("words", words)):
        for amount in [1, *(draw.randint(1, round(counted[-1])) for _ in range(10)), round(counted[-1])]:
            expected = 1 + np.searchsorted(counted, amount - 0.5 + tie)
            assert counter.first_step(unit, amount) in np.minimum(expected, 60)


def test_milestones_of_a_long_run_are_found_in_their_epochs(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    permuted = 0

    def counted(positions: np.ndarray, *rest: int) -> tuple[np.ndarray, np.ndarray]:
        nonlocal permuted
        permuted += len(positions)
        return examples_at(positions, *rest)

    monkeypatch.setattr(module, "examples_at", counted)
    shards = shards_of(np.full(1000, 60), 40_000)
    rules = ["1M tokens", "1050k tokens", "every 1M words to 2M", "every 10000 steps"]
    recipe = Pretrain(num_steps=20_000, batch_size=50, learning_rate=1e-3, warmup_steps=1, eval_every=1,
                      milestones=rules)  # fmt: skip
    found = Milestones(tmp_path, recipe, shards)
    assert {name: found.steps[name] for name in found.seen} == {
        "tokens-1M": 334, "tokens-1050k": 350, "words-1M": 500, "words-2M": 1_000, "steps-10k": 10_000,
        "steps-20k": 20_000,
    }  # fmt: skip
    assert permuted <= 4 * 1000, "of 1,000,000: epochs in which a milestone lies"


@pytest.mark.parametrize("curriculum", [None, {"length": 16, "share": 0.4}])
def test_tokens_and_examples_are_those_that_the_loader_draws(prepared: Workspace, curriculum: dict | None) -> None:
    recipe = prepared.settings().pretrain.model_copy(update={"num_steps": 40})
    recipe = type(recipe).model_validate({**recipe.model_dump(), "length_curriculum": curriculum})
    train = Shards(prepared.paths.shards, "train")
    short = ExampleDrawer(CutExamples(train, 16), [0, 2, 3, 4], recipe) if curriculum else None
    num_short = 16 if curriculum else 0
    steps = training_steps(ExampleDrawer(train, [0, 2, 3, 4], recipe), DataParallel(0, 1, 8), 0, 40,
                           short=short, num_short_steps=num_short)  # fmt: skip
    drawn = np.cumsum([sum(int(batch.mask_BT.sum()) for batch in batches) for batches in steps])
    order = Order.of(recipe)
    counter = TextCounter(order, train)
    seen = [counter.after(step) for step in range(1, 41)]
    assert [one.tokens for one in seen] == drawn.tolist()
    words = [one.words for one in seen]
    assert 0 < words[-1] and words == sorted(words)
    assert times_seen(order, train, 40).sum() >= (40 - num_short) * 8


def test_lengths_of_pieces_are_those_of_their_tokens(prepared: Workspace) -> None:
    train = Shards(prepared.paths.shards, "train")
    for length in (8, 16):
        pieces = CutExamples(train, length)
        rows = np.arange(min(400, len(pieces)))
        np.testing.assert_array_equal(pieces.lengths(rows), pieces.gather(rows)[1][:, 0])


def test_words_of_a_pass_over_the_data_are_those_of_the_corpus(prepared: Workspace) -> None:
    from electra.common.corpus_file import read_documents

    train = Shards(prepared.paths.shards, "train")
    files = sorted(prepared.paths.corpus.glob("train-*.parquet"))
    assert train.num_words == sum(len(t.split()) for file in files for _, texts in read_documents(file) for t in texts)
    order = Order(seed=1, batch_size=len(train), num_steps=2)
    counter = TextCounter(order, train)
    assert [counter.after(step).words for step in (1, 2)] == [train.num_words, 2 * train.num_words]
    assert times_seen(order, train, 2).tolist() == [2] * len(train)


def test_a_run_keeps_them_at_the_first_step_that_has_seen_so_much_also_when_it_was_killed(workspace: Workspace) -> None:
    workspace.write({"cluster": {"checkpoint_minutes": EVERY_STEP}}, pretrain={"milestones": RULES})
    kill_at(workspace, 12, signal.SIGKILL)
    workspace.pretrain()
    manifest = read_manifest(workspace.paths.milestones)
    tokens, words = seen_by_step(Order(**manifest["order"]), Shards(workspace.paths.shards, "train"))
    named = {"tokens-1k": (tokens, 1_000), "tokens-2k": (tokens, 2_000), "tokens-3k": (tokens, 3_000),
             "words-2k": (words, 2_000)}  # fmt: skip
    named |= {f"steps-{number}": (np.arange(1, 25), number) for number in (10, 20)}
    assert set(manifest["seen"]) == set(named) and set(manifest["steps"]) == {*named, "6.25", "12.5", "25", "50"}
    for name, (after, amount) in named.items():
        step = manifest["steps"][name]
        assert after[step - 1] >= amount and (step == 1 or after[step - 2] < amount)
        seen = manifest["seen"][name]
        assert (seen["step"], seen["tokens"], seen["examples"]) == (step, tokens[step - 1], 8 * step)
        assert load_file(workspace.paths.milestones / name / "model.safetensors")
    plain = workspace.copy("plain").write(pretrain={"milestones": []})
    plain.pretrain()
    final = [one.paths.pretrained / "model.safetensors" for one in (workspace, plain)]
    assert final[0].read_bytes() == final[1].read_bytes(), "training is as without them"
    assert "seen" not in read_manifest(plain.paths.milestones)


def test_milestones_by_words_need_shards_that_count_them(prepared: Workspace, tmp_path) -> None:
    recipe = prepared.settings().pretrain.model_copy(update={"milestones": ["1k words"]})
    train = Shards(prepared.paths.shards, "train")
    train.num_words = 0
    with pytest.raises(DataError, match="dvc repro -f shards"):
        Milestones(tmp_path, recipe, train)


def test_a_run_of_epochs_ends_with_the_last_whole_step_in_them_and_may_end_as_its_last_milestone(
    workspace: Workspace,
) -> None:
    train = Shards(workspace.paths.shards, "train")
    end = round(1.5 * train.num_words)
    last = 1_000 * -(-end // 1_000) + 1_000  # not reached
    rules = [f"every 2k words to {last // 2_000 * 2}k or end as chck_"]
    workspace.write(pretrain={"num_steps": 10, "epochs": 1.5, "milestones": rules, "batch_size": 16})
    workspace.pretrain()
    steps = int(1.5 * len(train)) // 16
    manifest, facts = read_manifest(workspace.paths.milestones), read_json(workspace.paths.results / "pretrain.json")
    assert manifest["order"]["num_steps"] == facts["step"] == steps != 10
    seen = manifest["seen"]
    assert list(seen) == [f"chck_{number}k" for number in range(2, last // 1_000 + 1, 2)]
    assert all(seen[f"chck_{number}k"]["words"] >= number * 1_000 for number in range(2, last // 1_000 - 1, 2))
    final = seen[list(seen)[-1]]
    assert final["step"] == steps and 0 <= end - final["words"] <= 2 * 16 * 32
    assert max(one["examples"] for one in seen.values()) <= 1.5 * len(train)
    pretrained, kept = (folder / "model.safetensors" for folder in
                        (workspace.paths.pretrained, workspace.paths.milestones / list(seen)[-1]))  # fmt: skip
    assert pretrained.read_bytes() == kept.read_bytes()
    assert f"{steps:,} steps of" in model_card(workspace.settings(), workspace.paths)
