"""The fine-tuning benchmark compares like with like."""

import pytest
import torch

from benchmarks.finetune import OURS, Job, as_table, measure, ratios, summary
from benchmarks.plain_loop import predict_plain, train_plain
from electra.config import Finetune
from electra.finetune.features import Feature


def test_sides_take_turns_and_ratios_are_made_repeat_by_repeat():
    order = []

    def side(name, seconds):
        times = iter(seconds)

        def run(job, seed):
            order.append((seed, job.task, name))
            return next(times), 0.5

        return run

    jobs = [Job("MRPC", [], [], 1), Job("RTE", [], [], 1)]
    # the machine is twice as slow in the second repeat, for both
    sides = {OURS: side(OURS, [1, 1, 2, 2, 1, 1]), "plain": side("plain", [3, 3, 6, 6, 4, 4])}
    measured = measure(sides, jobs, repeats=3)
    assert [name for _, _, name in order] == [OURS, "plain"] * 2 + ["plain", OURS] * 2 + [OURS, "plain"] * 2
    assert ratios(measured) == {"plain": {"median": 3.0, "min": 3.0, "max": 4.0}}
    result = {"sides": {side: summary(runs) for side, runs in measured.items()}, "seconds_over_ours": ratios(measured)}
    assert "| plain | 8.0 (6.0 - 12.0) | 3.00x (3.00 - 4.00) | 50.0 | 50.0 |" in as_table(result)


@pytest.mark.parametrize("length", [None, 12])
def test_the_plain_loop_pads_as_told_and_learns(length):
    from transformers import ElectraConfig, ElectraForSequenceClassification

    torch.manual_seed(0)
    model = ElectraForSequenceClassification(
        ElectraConfig(vocab_size=20, embedding_size=8, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
                      intermediate_size=32, max_position_embeddings=16)
    )  # fmt: skip
    features = [Feature([2, 7 + i % 2, *[9] * (i % 3), 3], 2, i % 2, i) for i in range(32)]
    widths = set()
    model.register_forward_pre_hook(lambda _, args, inputs: widths.add(inputs["input_ids"].shape[1]), with_kwargs=True)
    options = Finetune(learning_rate=1e-2, batch_size=2)
    train_plain(model, features, options, epochs=10, seed=1, pad=0, bf16=False, length=length)
    assert widths == ({12} if length else {3, 4, 5})
    found = predict_plain(model, features, 8, pad=0, bf16=False, length=length)
    assert found == [feature.target for feature in features]
