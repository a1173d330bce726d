"""The loop, the heads and whole cells, with a one-layer model."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from electra.common.artifacts import read_json, write_manifest
from electra.common.errors import ConfigError, DataError, TrainingError
from electra.finetune.classification import sentence_features
from electra.finetune.features import Vocabulary, collate
from electra.finetune.model import TaskModel
from electra.finetune.run import finetune_task
from electra.finetune.span import BestSpan, Window, answers, best_spans, span_features
from electra.finetune.trainer import layer_rates, num_steps, train
from electra.model.encoder import Encoder
from electra.model.pretrained import save_pretrained
from electra.model.shape import EncoderConfig
from electra.objectives.electra import Electra
from electra.optim import OPTIMIZERS, ElectraAdamW, parameter_groups
from electra.results.evaluate import evaluate_runs
from electra.results.report.facts import read_scores
from electra.tasks.catalogue import TASKS
from electra.tasks.matrix import read_lines
from tests.fixtures import LABELLED, exchange_two_entries
from tests.small_tasks import CPU, VOCAB, make_settings


def encoder(num_layers=3, embedding_size=8):
    config = EncoderConfig(
        vocab_size=len(VOCAB),
        embedding_size=embedding_size,
        hidden_size=16,
        num_layers=num_layers,
        num_heads=2,
        intermediate_size=32,
        max_positions=32,
    )
    module = Encoder(config)
    module.init_weights(0.02, torch.Generator().manual_seed(0))
    return module


def test_the_rate_falls_layer_by_layer_from_the_head_down():
    settings = make_settings(LABELLED, ["CoLA"], learning_rate=0.1, layerwise_decay=0.5, weight_decay=0.01).finetune
    model = TaskModel(TASKS["CoLA"], encoder(), torch.Generator())
    rates, decays = {}, {}
    for group in parameter_groups(model, settings.weight_decay, layer_rates(model, settings.layerwise_decay)):
        for parameter in group["params"]:
            rates[id(parameter)], decays[id(parameter)] = 0.1 * group["rate_factor"], group["weight_decay"]
    expected = {
        "head.": 0.1,
        "encoder.layers.2.": 0.05,
        "encoder.layers.1.": 0.025,
        "encoder.layers.0.": 0.0125,
        "encoder.embeddings.": 0.00625,
        "encoder.projection.": 0.00625,
    }
    assert len(rates) == sum(1 for _ in model.parameters())
    for name, parameter in model.named_parameters():
        (rate,) = [rate for prefix, rate in expected.items() if name.startswith(prefix)]
        assert rates[id(parameter)] == pytest.approx(rate, rel=1e-12), name
        is_matrix = parameter.dim() == 2
        assert decays[id(parameter)] == (0.01 if is_matrix else 0.0), name


def test_steps_count_partial_batches_and_parts_of_epochs():
    assert num_steps(1000, 32, 3) == 96
    assert num_steps(10, 32, 0.1) == 1


def test_a_loss_that_is_not_finite_stops_with_its_own_error(paths, workspace):
    settings = workspace(["CoLA"], learning_rate=1.0, epochs=4)
    vocabulary = Vocabulary.load(paths)
    model = TaskModel(TASKS["CoLA"], encoder(), torch.Generator())
    with torch.no_grad():
        model.head.output.bias.fill_(float("nan"))
    row = {"id": "0", "text_a": "cat", "text_b": None, "label": "1"}
    features = sentence_features(TASKS["CoLA"], [row] * 8, vocabulary, 16)
    with pytest.raises(TrainingError, match="not finite at step 1 of 4"):
        train(model, features, settings.finetune, epochs=4, seed=1, pad=0, bf16=False, name="x")


def test_heads_start_glorot_uniform_with_zero_biases():
    model = TaskModel(TASKS["MNLI"], encoder(embedding_size=8), torch.Generator().manual_seed(1))
    weight, limit = model.head.output.weight, (6 / (model.encoder.config.hidden_size + 3)) ** 0.5
    assert weight.abs().max() <= limit and weight.abs().max() > 0.8 * limit
    assert not model.head.output.bias.any()


def test_original_fidelity_sums_the_losses_of_a_batch(paths, workspace, monkeypatch):
    settings = workspace(["CoLA"], learning_rate=1e-3, epochs=1, max_grad_norm=1e9)
    vocabulary = Vocabulary.load(paths)
    row = {"id": "0", "text_a": "cat", "text_b": None, "label": "1"}
    features = sentence_features(TASKS["CoLA"], [row] * 8, vocabulary, 16)
    norms = {}
    clip = torch.nn.utils.clip_grad_norm_
    for fidelity in ("corrected", "original"):

        def record(parameters, limit, fidelity=fidelity):
            norms[fidelity] = float(clip(parameters, limit))

        monkeypatch.setattr("electra.finetune.trainer.nn.utils.clip_grad_norm_", record)
        model = TaskModel(TASKS["CoLA"], encoder(), torch.Generator().manual_seed(1))
        options = {"epochs": 1, "seed": 1, "pad": 0, "bf16": False, "name": "x", "fidelity": fidelity}
        train(model, features, settings.finetune, **options)
    assert norms["original"] == pytest.approx(8 * norms["corrected"], rel=1e-4)


@pytest.mark.parametrize("task_learning_rate", [{}, {"CoLA": 5e-4}])
def test_a_task_is_trained_at_its_own_rate_and_others_at_the_common_one(
    paths, workspace, monkeypatch, task_learning_rate
):
    settings = workspace(["CoLA"], learning_rate=2e-3, task_learning_rate=task_learning_rate, layerwise_decay=1.0)
    rates = []

    class Recording(ElectraAdamW):
        def step(self, *arguments):
            rates.append(max(group["lr"] for group in self.param_groups))
            return super().step(*arguments)

    monkeypatch.setitem(OPTIMIZERS, "adamw", Recording)
    finetune_task(settings, paths, task="CoLA", seed=1, scratch=True)
    assert max(rates) == pytest.approx(task_learning_rate.get("CoLA", 2e-3), rel=0.2)


def test_a_rate_for_a_task_that_does_not_exist_is_refused():
    with pytest.raises(ConfigError, match="finetune.task_learning_rate: there is no task 'Cola'"):
        make_settings({"kind": "files"}, ["CoLA"], task_learning_rate={"Cola": 5e-4})


@pytest.mark.parametrize("limit", [1e-3, 1e-2])
def test_gradients_are_clipped_at_the_norm_of_the_settings(paths, workspace, monkeypatch, limit):
    settings = workspace(["CoLA"], max_grad_norm=limit)
    row = {"id": "0", "text_a": "cat", "text_b": None, "label": "1"}
    features = sentence_features(TASKS["CoLA"], [row] * 8, Vocabulary.load(paths), 16)
    norms = []

    class Recording(ElectraAdamW):
        def step(self, *arguments):
            gradients = [p.grad for group in self.param_groups for p in group["params"] if p.grad is not None]
            norms.append(float(torch.nn.utils.get_total_norm(gradients)))
            return super().step(*arguments)

    monkeypatch.setitem(OPTIMIZERS, "adamw", Recording)
    model = TaskModel(TASKS["CoLA"], encoder(1), torch.Generator().manual_seed(1))
    train(model, features, settings.finetune, epochs=2, seed=1, pad=0, bf16=False, name="x")
    assert norms == pytest.approx([limit, limit], rel=1e-3)


@pytest.mark.parametrize("task", ["CoLA", "STS-B", "SQuAD1.1", "SQuAD2.0"])
def test_a_tiny_model_learns_a_trivial_task(paths, workspace, task):
    settings = workspace([task], epochs=20, learning_rate=5e-3, layerwise_decay=1.0, span_max_length=48)
    finetune_task(settings, paths, task=task, seed=1, scratch=True)
    finetune_task(settings, paths, task=task, seed=2, scratch=True)
    for seed in (1, 2):  # evaluation wants both starts; the same cells stand for the pre-trained ones
        cell = paths.finetuned(f"{task}-{seed}-scratch")
        cell.with_name(f"{task}-{seed}").symlink_to(cell.name)
    evaluate_runs(settings, paths)
    entry = read_scores(paths)["tasks"][task]
    assert entry["scratch"] > 95, entry
    assert entry["metric"] == TASKS[task].headline
    assert entry["dev_rows"] == (32 if task == "SQuAD1.1" else 64)


def test_the_same_cell_gives_the_same_bytes_and_another_seed_others(paths, workspace):
    settings = workspace(["CoLA"], epochs=1)

    def predictions(seed):
        finetune_task(settings, paths, task="CoLA", seed=seed, scratch=True)
        return (paths.finetuned(f"CoLA-{seed}-scratch") / "predictions.jsonl").read_bytes()

    first = predictions(1)
    assert first == predictions(1)
    assert first != predictions(2)
    run = read_json(paths.finetuned("CoLA-1-scratch") / "run.json")
    assert (run["task"], run["seed"], run["init"], run["train_rows"], run["steps"]) == ("CoLA", 1, "scratch", 64, 8)


def test_rows_that_are_cut_are_counted_in_the_cell_and_on_the_card(paths, workspace, capsys):
    settings = workspace(["STS-B", "CoLA"], epochs=0.01, max_length=8, double_unordered=True)
    rows = read_lines(paths.tasks / "STS-B/train.jsonl", "")
    for row in rows[:5]:
        row["text_b"] = "the cat sat on the park"
    (paths.tasks / "STS-B/train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    write_manifest(paths.tasks, **{k: v for k, v in read_json(paths.tasks / "manifest.json").items() if k != "files"})
    for task in ("STS-B", "CoLA"):
        for seed in (1, 2):
            finetune_task(settings, paths, task=task, seed=seed, scratch=True)
            cell = paths.finetuned(f"{task}-{seed}-scratch")
            cell.with_name(f"{task}-{seed}").symlink_to(cell.name)
    assert read_json(cell / "run.json")["rows_cut"] == {"train": 0, "dev": 0}
    assert "STS-B-1-scratch: 5 rows of train are longer than the whole of the model's inputs" in capsys.readouterr().out
    evaluate_runs(settings, paths)
    entry = read_scores(paths)["tasks"]["STS-B"]
    assert entry["rows_cut"] == {"train": 5, "dev": 0}, "each once, in both orders"
    assert not entry["official_rows"] and entry["not_official"] == "not on the official rows"


def test_a_cell_gives_the_same_bytes_on_any_number_of_threads(paths, workspace):
    """Matrix products of this size run on one thread, so that the test holds with every library of them."""
    settings = workspace(["CoLA"], epochs=1)

    def weights(num_threads):
        cluster = CPU.model_copy(update={"num_threads": num_threads})
        on_these = settings.model_copy(update={"cluster": cluster})
        finetune_task(on_these, paths, task="CoLA", seed=1, scratch=True, keep=True)
        assert torch.get_num_threads() == num_threads
        return next(paths.kept("CoLA-1-scratch").rglob("*.safetensors")).read_bytes()

    assert weights(1) == weights(2) == weights(3)


def test_fine_tuning_computes_without_denormals(paths, workspace):
    """They cost a CPU five times the time: a task of tags that is learned well has them in every gradient."""
    torch.set_flush_denormal(False)
    assert torch.tensor([2e-39]) * 0.5 > 0
    finetune_task(workspace(["CoLA"], epochs=1), paths, task="CoLA", seed=1, scratch=True)
    try:
        assert torch.tensor([2e-39]) * 0.5 == 0
    finally:
        torch.set_flush_denormal(False)


def test_fine_tuning_watches_its_cores_and_says_when_others_take_them(paths, workspace, monkeypatch, capsys):
    settings, watched = workspace(["CoLA"], epochs=1), []

    def watch(num_threads):
        watched.append(num_threads)
        return SimpleNamespace(warning=lambda: "WARNING other processes use the cores")

    for module in ("run", "trainer"):
        monkeypatch.setattr(f"electra.finetune.{module}.watch_cores", watch)
    finetune_task(settings, paths, task="CoLA", seed=1, scratch=True)
    assert "CoLA-1-scratch: WARNING other processes use the cores\n" in capsys.readouterr().out
    assert set(watched) == {1}


def test_a_cell_starts_from_the_pretrained_weights_and_a_scratch_cell_never_reads_them(paths, workspace, monkeypatch):
    settings = workspace(["CoLA"], epochs=0.01)
    electra = Electra(settings.model, len(VOCAB), mask_id=4).initialize(0.02, seed=7)
    weights = {name: parameter.detach() for name, parameter in electra.named_parameters()}
    starts = []
    monkeypatch.setattr("electra.finetune.run.train", lambda model, *_, **__: starts.append(model.encoder) or 0.0)

    finetune_task(settings, paths, task="CoLA", seed=1, scratch=True)
    with pytest.raises(DataError, match="models/pretrained"):
        finetune_task(settings, paths, task="CoLA", seed=1, scratch=False)
    save_pretrained(paths.pretrained, weights, settings.model, len(VOCAB), paths.tokenizer)
    finetune_task(settings, paths, task="CoLA", seed=1, scratch=False)

    expected = electra.discriminator.state_dict()
    found = starts[1].state_dict()
    assert found.keys() == expected.keys() == starts[0].state_dict().keys()
    assert all(torch.equal(value, expected[name]) for name, value in found.items())
    assert {m.p for start in starts for m in start.modules() if isinstance(m, torch.nn.Dropout)} == {0.1}


def test_a_milestone_is_fine_tuned_and_scored_beside_the_end_of_training(paths, workspace):
    settings = workspace(["CoLA"], epochs=1)
    settings = settings.model_copy(update={"cells": settings.cells.model_copy(update={"milestones": ["25"]})})
    for number, folder in enumerate((paths.pretrained, paths.milestones / "25"), start=1):
        electra = Electra(settings.model, len(VOCAB), mask_id=4).initialize(0.02, seed=number)
        weights = {name: parameter.detach() for name, parameter in electra.named_parameters()}
        save_pretrained(folder, weights, settings.model, len(VOCAB), paths.tokenizer)
    for seed in (1, 2):
        finetune_task(settings, paths, task="CoLA", seed=seed)
        finetune_task(settings, paths, task="CoLA", seed=seed, scratch=True)
    with pytest.raises(DataError, match="--milestone 25"):
        evaluate_runs(settings, paths)
    for seed in (1, 2):
        finetune_task(settings, paths, task="CoLA", seed=seed, milestone="25")
    assert read_json(paths.finetuned("CoLA-1-25") / "run.json")["init"] == "25"
    evaluate_runs(settings, paths)
    card = read_scores(paths)
    assert set(card["milestones"]) == {"25"}
    assert card["milestones"]["25"]["mean"] == card["tasks"]["CoLA"]["milestones"]["25"]["median"]


@pytest.mark.parametrize("milestone", [None, "25"])
def test_weights_of_another_tokenizer_of_the_same_size_are_refused(paths, workspace, milestone):
    settings = workspace(["CoLA"], epochs=0.01)
    electra = Electra(settings.model, len(VOCAB), mask_id=4)
    weights = {name: parameter.detach() for name, parameter in electra.named_parameters()}
    folder = paths.milestones / milestone if milestone else paths.pretrained
    save_pretrained(folder, weights, settings.model, len(VOCAB), paths.tokenizer)
    exchange_two_entries(paths.tokenizer)
    with pytest.raises(DataError, match=r"(?s)pre-trained with another tokenizer.*dvc repro pretrain"):
        finetune_task(settings, paths, task="CoLA", seed=1, milestone=milestone)
    finetune_task(settings, paths, task="CoLA", seed=1, scratch=True)


def test_unknown_tasks_and_missing_inputs_are_refused(paths, workspace):
    settings = workspace(["CoLA"])
    with pytest.raises(ConfigError, match="choose one of: CoLA"):
        finetune_task(settings, paths, task="cola", seed=1, scratch=True)
    with pytest.raises(ConfigError, match=r"(?s)RTE is not among .*add RTE to cells\.tasks .*dvc repro tasks"):
        finetune_task(settings, paths, task="RTE", seed=1)  # before the weights, which are missing as well
    wanted = settings.model_copy(update={"cells": settings.cells.model_copy(update={"tasks": ["CoLA", "RTE"]})})
    with pytest.raises(DataError, match=r"(?s)RTE/train.jsonl does not exist.*dvc repro tasks"):
        finetune_task(wanted, paths, task="RTE", seed=1, scratch=True)
    with pytest.raises(DataError, match="electra finetune --task CoLA --seed 1"):
        evaluate_runs(settings, paths)


def test_the_best_span_is_found_exactly_and_within_the_length_limit():
    inf = float("-inf")
    start_BT = torch.tensor([[0.0, inf, 2.0, 1.0, 3.0, inf]])
    end_BT = torch.tensor([[0.0, inf, 5.0, 0.0, 1.0, inf]])
    (span,) = best_spans(start_BT, end_BT, None, 3)
    assert (span.start, span.end) == (2, 2)
    end_BT = torch.tensor([[0.0, inf, -9.0, -9.0, 5.0, inf]])
    start_BT = torch.tensor([[0.0, inf, 9.0, 1.0, 3.0, inf]])
    assert [(s.start, s.end) for s in best_spans(start_BT, end_BT, None, 3)] == [(2, 4)]
    assert [(s.start, s.end) for s in best_spans(start_BT, end_BT, None, 2)] == [(4, 4)]


def test_the_best_window_answers_and_the_least_sure_refusal_counts():
    windows = [
        Window([0] * 5, 2, None, 0, [(0, 3), (4, 7)]),
        Window([0] * 5, 2, None, 0, [(4, 7), (8, 11)]),
    ]
    spans = [BestSpan(2, 3, -5.0, 2.0), BestSpan(3, 3, -1.0, -1.0)]
    rows = [{"id": "q", "context": "the cat sat"}]
    assert answers(rows, windows, spans) == [{"id": "q", "text": "sat", "null_score": -1.0}]


def test_three_seeds_are_told_by_their_median_and_the_sample_deviation(paths, workspace):
    settings = workspace(["CoLA"])
    settings = settings.model_copy(update={"cells": settings.cells.model_copy(update={"seeds": [1, 2, 3]})})
    rows = read_lines(paths.tasks / "CoLA/dev.jsonl", "")
    for seed, wrong in [(1, 0), (2, 16), (3, 24)]:
        for init in ("", "-scratch"):
            labels = ["10"[int(row["label"])] if i < wrong else row["label"] for i, row in enumerate(rows)]
            folder = paths.finetuned(f"CoLA-{seed}{init}")
            folder.mkdir(parents=True)
            lines = [{"split": "dev", "id": row["id"], "label": label} for row, label in zip(rows, labels, strict=True)]
            (folder / "predictions.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
            (folder / "run.json").write_text('{"train_rows": 64}')
            write_manifest(folder)
    evaluate_runs(settings, paths)
    entry = read_scores(paths)["tasks"]["CoLA"]
    assert entry["other_metrics"]["accuracy"]["pretrained"] == 75  # of 100, 75 and 62.5
    values = [entry["seeds"][seed]["pretrained"]["matthews"] for seed in "123"]
    assert entry["pretrained"] == values[1]
    assert entry["pretrained_sd"] == pytest.approx(np.std(values, ddof=1), abs=2e-3)


def test_warm_up_is_the_whole_steps_of_its_share(paths, workspace, monkeypatch):
    """As in google-research/electra: int(steps * share)."""
    settings = workspace(["CoLA"], warmup_fraction=0.1, layerwise_decay=1.0, learning_rate=1e-3)
    row = {"id": "0", "text_a": "cat", "text_b": None, "label": "1"}
    features = sentence_features(TASKS["CoLA"], [row] * 8, Vocabulary.load(paths), 16)
    rates = []

    class Recording(ElectraAdamW):
        def step(self, *arguments):
            rates.append(self.param_groups[0]["lr"])
            return super().step(*arguments)

    monkeypatch.setitem(OPTIMIZERS, "adamw", Recording)
    for epochs, warmup_steps in [(19, 1), (20, 2), (9, 0)]:
        rates.clear()
        model = TaskModel(TASKS["CoLA"], encoder(1), torch.Generator())
        train(model, features, settings.finetune, epochs=epochs, seed=1, pad=0, bf16=False, name="x")
        expected = [1e-3 * min(1, step / max(1, warmup_steps) or not warmup_steps) for step in range(epochs)]
        assert rates == pytest.approx([rate * (1 - step / epochs) for step, rate in enumerate(expected)])


def test_the_loss_of_a_span_task_counts_the_refusal_half(paths):
    rows = [
        {"id": "0", "question": "who?", "context": "the cat", "answers": [{"text": "cat", "start": 4}]},
        {"id": "1", "question": "where?", "context": "a dog", "answers": []},
    ]
    rows = [{**row, "impossible": not row["answers"]} for row in rows]
    settings = make_settings(LABELLED, ["CoLA"]).finetune
    batch = collate(span_features(rows, Vocabulary.load(paths), settings), 0)
    model = TaskModel(TASKS["SQuAD2.0"], encoder(1), torch.Generator().manual_seed(1)).eval()
    with torch.no_grad():
        start_BT, end_BT, impossible_B = model(batch)
        starts_B, ends_B, labels_B = batch.targets.unbind(1)
        spans = [-logits.log_softmax(-1)[[0, 1], at].mean() for logits, at in ((start_BT, starts_B), (end_BT, ends_B))]
        refusal = -torch.where(labels_B.bool(), impossible_B.sigmoid(), 1 - impossible_B.sigmoid()).log().mean()
        assert model.loss(batch).item() == pytest.approx((sum(spans) / 2 + refusal / 2).item(), rel=1e-5)
    assert refusal > 0.1


def test_the_card_has_medians_deviations_and_says_what_the_data_is(paths, workspace):
    settings = workspace(["CoLA", "STS-B"])
    gold = [json.loads(line) for line in (paths.tasks / "STS-B/dev.jsonl").read_text().splitlines()]
    for seed, wrong in [(1, 16), (2, 32)]:
        for init in ("", "-scratch"):
            cola, sts = paths.finetuned(f"CoLA-{seed}{init}"), paths.finetuned(f"STS-B-{seed}{init}")
            flips = wrong if not init else 0
            lines = []
            for i, line in enumerate((paths.tasks / "CoLA/dev.jsonl").read_text().splitlines()):
                row = json.loads(line)
                label = row["label"] if i >= flips else "10"[int(row["label"])]
                lines.append({"split": "dev", "id": row["id"], "label": label})
            scores = [{"split": "dev", "id": row["id"], "score": 2.5 if init else row["label"]} for row in gold]
            for folder, values in [(cola, lines), (sts, scores)]:
                folder.mkdir(parents=True)
                (folder / "predictions.jsonl").write_text("".join(json.dumps(v) + "\n" for v in values))
                (folder / "run.json").write_text('{"train_rows": 64}')
                write_manifest(folder)
    evaluate_runs(settings, paths)
    card = read_scores(paths)
    cola = card["tasks"]["CoLA"]
    assert cola["scratch"] == 100 and cola["scratch_sd"] == 0
    assert cola["other_metrics"]["accuracy"] == {"pretrained": 62.5, "scratch": 100}  # median of 75 and 50
    assert [cola["seeds"][seed]["pretrained"]["accuracy"] for seed in "12"] == [75, 50]
    assert cola["gain"] == pytest.approx(cola["pretrained"] - cola["scratch"])
    sts = card["tasks"]["STS-B"]
    assert (sts["pretrained"], sts["scratch"]) == (100, 0)  # a constant prediction correlates with nothing
    assert card["mean"]["scratch"] == 50
    assert "not the official split" in card["data"] and "not comparable" in cola["data"]
