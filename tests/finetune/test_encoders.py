"""Encoders that ``transformers`` loads, fine-tuned by the same harness."""

import itertools

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.processors import TemplateProcessing
from transformers import AutoModel, AutoTokenizer

from electra.common.artifacts import read_json
from electra.config import Cluster
from electra.finetune.classification import sentence_features
from electra.finetune.encoders import EncoderSource
from electra.finetune.features import collate, endless_batches
from electra.finetune.input_format import InputFormat
from electra.finetune.model import TaskModel
from electra.finetune.run import finetune_task
from electra.finetune.span import span_features
from electra.finetune.tagging import tagging_features
from electra.finetune.trainer import layer_rates, predict, train
from electra.hub.export.pretrained import export_model
from electra.kinds.scores import score
from electra.model.pretrained import save_pretrained
from electra.objectives.electra import Electra
from electra.optim import ElectraAdamW, parameter_groups
from electra.tasks.catalogue import TASKS
from electra.tasks.matrix import read_lines, read_rows
from tests.fixtures import LABELLED
from tests.foreign_encoders import MAKES, load, write_encoder
from tests.small_tasks import VOCAB, make_settings

SETTINGS = make_settings(LABELLED, ["CoLA"]).finetune
PAIR = {"id": "0", "text_a": "the cat sat on a blue house", "text_b": "a dog ran", "label": "entailment"}
SINGLE = {"id": "0", "text_a": "the cat sat", "text_b": None, "label": "1"}


@pytest.mark.parametrize("make", MAKES)
def test_inputs_are_those_of_the_encoders_own_tokenizer(folders, make):
    encoder, vocabulary, _ = load(folders[make])
    theirs = AutoTokenizer.from_pretrained(folders[make])
    (pair,) = sentence_features(TASKS["RTE"], [PAIR], vocabulary, 60)
    (single,) = sentence_features(TASKS["CoLA"], [SINGLE], vocabulary, 60)
    expected = theirs(PAIR["text_a"], PAIR["text_b"], return_token_type_ids=True)
    assert list(pair.token_ids) == expected["input_ids"]
    assert list(single.token_ids) == theirs(SINGLE["text_a"])["input_ids"]
    assert vocabulary.inputs.layout.summary == ("last" if make in ("xlnet", "gpt2") else "first")
    batch = collate([pair], vocabulary.pad)
    assert encoder.takes_segments == (make in ("bert", "albert", "xlnet"))
    if encoder.takes_segments:
        assert encoder._segments(batch.segments_BT, batch.mask_BT).tolist() == [expected["token_type_ids"]]


def test_a_tokenizer_that_only_begins_texts_is_of_a_one_sided_model_whose_last_state_is_read():
    """As OPT's: its first token sees no other."""
    tokenizer = Tokenizer(WordLevel({"</s>": 0, "a": 1, "b": 2}, unk_token="a"))
    tokenizer.post_processor = TemplateProcessing(
        single="</s> $A", pair="</s> $A </s> $B", special_tokens=[("</s>", 0)]
    )
    assert InputFormat.of(tokenizer, None, 1, "opt").layout.summary == "last"
    assert InputFormat.of(tokenizer, 0, 1, "its summary comes first").layout.summary == "first"


@pytest.mark.parametrize("make", MAKES)
def test_texts_that_are_too_long_keep_their_special_tokens(folders, make):
    _, vocabulary, _ = load(folders[make])
    (whole,) = sentence_features(TASKS["RTE"], [PAIR], vocabulary, 60)
    (cut,) = sentence_features(TASKS["RTE"], [PAIR], vocabulary, 8)
    inputs = vocabulary.inputs
    assert len(whole.token_ids) > len(cut.token_ids) == 8
    assert tuple(cut.token_ids[: len(inputs.before)]) == inputs.before
    assert tuple(cut.token_ids[8 - len(inputs.after) :]) == inputs.after
    assert tuple(cut.token_ids[cut.first_length - len(inputs.between) : cut.first_length]) == inputs.between


@pytest.mark.parametrize("make", MAKES)
def test_texts_that_look_like_special_tokens_are_text(folders, make):
    _, vocabulary, _ = load(folders[make])
    inputs = vocabulary.inputs
    special = {*inputs.before, *inputs.between, *inputs.after}
    assert special or make == "gpt2"
    words = [*(vocabulary.tokenizer.id_to_token(i) for i in sorted(special)), "cat", "\u0001"]
    row = {"text_a": " ".join(words), "question": "who?", "context": " ".join(words), "words": words, "label": None}
    row |= {"tags": None, "impossible": True}
    single = sentence_features(TASKS["CoLA"], [row], vocabulary, 60)[0].token_ids
    assert special.isdisjoint(single[len(inputs.before) : len(single) - len(inputs.after)])
    (tagged,) = tagging_features(TASKS["CoNLL-2003"], [row], vocabulary, 60)
    assert len(tagged.positions) == len(words)
    assert special.isdisjoint(tagged.token_ids[len(inputs.before) : len(tagged.token_ids) - len(inputs.after)])
    (window,) = span_features([row], vocabulary, SETTINGS.model_copy(update={"span_max_length": 60}))
    assert special.isdisjoint(window.token_ids[window.first_length : len(window.token_ids) - len(inputs.after)])


@pytest.mark.parametrize("make", MAKES)
@pytest.mark.parametrize("task", ["RTE", "SQuAD1.1", "SQuAD2.0"])
def test_padding_changes_no_prediction(folders, make, task):
    encoder, vocabulary, _ = load(folders[make])
    model = TaskModel(TASKS[task], encoder, torch.Generator().manual_seed(1), vocabulary.inputs.layout)
    question = {"question": "what cat?", "answers": [{"text": "cat", "start": 4}], "impossible": False}
    rows = [{**PAIR, **question, "context": "the cat sat " * n, "text_b": "a dog ran " * n} for n in (4, 1, 2)]
    if task == "RTE":
        features = sentence_features(TASKS[task], rows, vocabulary, 60)
    else:
        features = span_features(rows, vocabulary, SETTINGS.model_copy(update={"span_max_length": 60}))
    assert len({len(feature.token_ids) for feature in features}) > 1

    def outputs(logits):
        columns = logits if isinstance(logits, tuple) else (logits,)
        return [[part[i][part[i].isfinite()] for part in columns if part is not None] for i in range(len(columns[0]))]

    together = predict(model, features, 8, outputs, pad=vocabulary.pad, bf16=False)
    for feature, found in zip(features, together, strict=True):
        (alone,) = predict(model, [feature], 1, outputs, pad=vocabulary.pad, bf16=False)
        for a, b in zip(alone, found, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("make", MAKES)
def test_the_summary_token_has_seen_the_whole_input(folders, make):
    encoder, vocabulary, _ = load(folders[make])
    model = TaskModel(TASKS["RTE"], encoder, torch.Generator().manual_seed(1), vocabulary.inputs.layout)
    rows = [PAIR, {**PAIR, "text_a": "a cat sat on a blue house"}, {**PAIR, "text_b": "a dog sat"}]
    features = sentence_features(TASKS["RTE"], rows, vocabulary, 60)
    logits = predict(model, features, 8, lambda logits: logits.tolist(), pad=vocabulary.pad, bf16=False)
    assert not np.allclose(logits[0], logits[1]) and not np.allclose(logits[0], logits[2])


@pytest.mark.parametrize("make", MAKES)
def test_only_tokens_of_the_context_can_be_an_answer(folders, make):
    encoder, vocabulary, _ = load(folders[make])
    model = TaskModel(TASKS["SQuAD2.0"], encoder, torch.Generator().manual_seed(1), vocabulary.inputs.layout).eval()
    row = {"question": "what cat?", "answers": [], "impossible": True}
    rows = [{**row, "context": "the cat sat"}, {**row, "context": "the cat sat on a blue house"}]
    windows = span_features(rows, vocabulary, SETTINGS.model_copy(update={"span_max_length": 60}))
    batch = collate(list(windows), vocabulary.pad)
    start_BT, _, impossible_B = model(batch)
    for window, start_T in zip(windows, start_BT, strict=True):
        places = range(window.first_length, window.first_length + len(window.offsets))
        assert start_T.isfinite().nonzero().flatten().tolist() == [0, *places]
    hidden_BTD = encoder(batch.tokens_BT, batch.segments_BT, batch.mask_BT)
    last_B = batch.mask_BT.sum(1) - 1
    null_B = last_B if make == "xlnet" else 0 * last_B
    summary_B = last_B if make in ("xlnet", "gpt2") else 0 * last_B
    both = torch.arange(2)
    torch.testing.assert_close(start_BT[:, 0], model.head.span(hidden_BTD[both, null_B])[:, 0])
    torch.testing.assert_close(impossible_B, model.head.impossible(hidden_BTD[both, summary_B]).squeeze(-1))


@pytest.mark.parametrize("make", MAKES)
def test_an_answer_is_recovered_from_its_tokens(folders, make):
    _, vocabulary, _ = load(folders[make])
    context = "the red cat sat on a blue house. mary ran in the park."
    for answer in ("the red cat", "mary", "in the park", "blue house"):
        row = {"id": "q", "question": "what cat?", "context": context, "impossible": False}
        row["answers"] = [{"text": answer, "start": context.index(answer)}]
        windows = span_features([row], vocabulary, SETTINGS.model_copy(update={"span_max_length": 40}))
        holding = [window for window in windows if window.target[0]]
        assert holding
        for window in holding:
            assert window.text(context, window.target[0], window.target[1]) == answer


@pytest.mark.parametrize("make", MAKES)
@pytest.mark.parametrize("task", ["CoLA", "SQuAD1.1"])
def test_every_make_learns_a_trivial_task(paths, workspace, folders, make, task):
    settings = workspace([task], epochs=12, learning_rate=5e-3, layerwise_decay=1.0, span_max_length=56)
    finetune_task(settings, paths, task=task, seed=1, encoder=EncoderSource.named(folders[make]))
    cell = paths.finetuned(f"{task}-1-{make}")
    predictions = read_lines(cell / "predictions.jsonl", "")
    values = score(TASKS[task], read_rows(paths, task, "dev"), predictions)
    assert values[TASKS[task].headline] > 0.9, values
    run = read_json(cell / "run.json")
    assert (run["init"], run["encoder"]["model_type"], run["encoder"]["source"]) == (make, make, make)
    assert list(run["encoder"]["weights"]) == ["model.safetensors"]


@pytest.mark.parametrize("task", ["CoLA", "SQuAD2.0"])
def test_an_exported_encoder_fares_as_it_does_at_home(paths, workspace, monkeypatch, task):
    settings = workspace([task], epochs=2, learning_rate=2e-3)
    settings = settings.model_copy(update={"cluster": Cluster(device="cpu", precision="fp32")})
    electra = Electra(settings.model, len(VOCAB), mask_id=4).initialize(0.2, seed=7)
    weights = {name: parameter.detach() for name, parameter in electra.named_parameters()}
    save_pretrained(paths.pretrained, weights, settings.model, len(VOCAB), paths.tokenizer)
    (paths.tokenizer / "vocab.txt").write_text("\n".join(VOCAB) + "\n", encoding="utf-8")
    (paths.tokenizer / "tokenizer_config.json").write_text('{"tokenizer_class": "BertTokenizer"}')
    monkeypatch.setattr("electra.hub.export.pretrained.model_card", lambda *_, **__: "")
    export_model(settings, paths)
    # what the folder says of dropout is pre-training's, fine-tuning's own is another
    monkeypatch.setattr("electra.finetune.run.DROPOUT", {"dropout": 0.0, "attention_dropout": 0.0})

    finetune_task(settings, paths, task=task, seed=3)
    finetune_task(settings, paths, task=task, seed=3, encoder=EncoderSource.named(paths.export / "discriminator"))
    ours, theirs = (
        read_lines(paths.finetuned(f"{task}-3{name}") / "predictions.jsonl", "") for name in ("", "-discriminator")
    )
    assert len(ours) == len(theirs) == 64
    for a, b in zip(ours, theirs, strict=True):
        assert {k: v for k, v in a.items() if isinstance(v, str)} == {k: v for k, v in b.items() if isinstance(v, str)}
        numbers = [np.ravel([v for k, v in x.items() if k in ("logits", "null_score")]) for x in (a, b)]
        np.testing.assert_allclose(*numbers, rtol=2e-3, atol=2e-4)
    losses = [read_json(paths.finetuned(f"{task}-3{name}") / "run.json")["loss"] for name in ("", "-discriminator")]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


@pytest.mark.parametrize("task", ["CoLA", "RTE"])
def test_fine_tuning_takes_the_steps_of_a_plain_loop_around_transformers(tmp_path, monkeypatch, task):
    """The head is dropout and a linear layer on the first token's last state, without the pooler of the weights."""
    folder = write_encoder(tmp_path / "bert", "bert", hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    monkeypatch.setattr("electra.finetune.classification.HEAD_DROPOUT", 0.0)
    spec, words = TASKS[task], PAIR["text_a"].split()
    texts = [" ".join(words[: 1 + number % 7]) for number in range(22)]
    rows = [
        {"id": str(n), "text_a": text, "text_b": texts[-n] if spec.text_b else None, "label": spec.labels[n % 2]}
        for n, text in enumerate(texts)
    ]
    recipe = {"learning_rate": 1e-2, "layerwise_decay": 1.0, "batch_size": 4, "warmup_fraction": 0.25}
    settings = SETTINGS.model_copy(update=recipe | {"weight_decay": 0.0, "max_grad_norm": 0.5})
    encoder, vocabulary, _ = load(folder)
    ours = TaskModel(spec, encoder, torch.Generator().manual_seed(1), vocabulary.inputs.layout)
    model, head = AutoModel.from_pretrained(folder), torch.nn.Linear(16, 2)
    head.load_state_dict(ours.head.output.state_dict())
    before = head.weight.clone()

    features = sentence_features(spec, rows, vocabulary, 32)
    train(ours, features, settings, epochs=2, seed=3, pad=vocabulary.pad, bf16=False, name=task)

    tokenizer, steps = AutoTokenizer.from_pretrained(folder), 12
    parameters = [*model.parameters(), *head.parameters()]
    optimizer = ElectraAdamW(parameters, lr=1e-2, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1, step / 3) * (1 - step / steps))
    order = endless_batches([len(feature.token_ids) for feature in features], 4, seed=3)
    for indices in itertools.islice(order, steps):
        chosen = [rows[i] for i in indices]
        pairs = [row["text_b"] for row in chosen] if spec.text_b else None
        inputs = tokenizer([row["text_a"] for row in chosen], pairs, padding=True, return_tensors="pt")
        logits = head(model(**inputs).last_hidden_state[:, 0])
        labels = torch.tensor([spec.labels.index(row["label"]) for row in chosen])
        torch.nn.functional.cross_entropy(logits, labels).backward()
        torch.nn.utils.clip_grad_norm_(parameters, 0.5)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()

    assert (head.weight - before).abs().max() > 0.01
    torch.testing.assert_close(ours.head.output.state_dict(), head.state_dict(), rtol=1e-4, atol=1e-5)
    expected = {name: value for name, value in model.state_dict().items() if not name.startswith("pooler.")}
    torch.testing.assert_close(encoder.model.state_dict(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("make", MAKES)
def test_the_rate_falls_layer_by_layer_in_every_make(folders, make):
    encoder, vocabulary, _ = load(folders[make])
    model = TaskModel(TASKS["CoLA"], encoder, torch.Generator(), vocabulary.inputs.layout)
    settings = SETTINGS.model_copy(update={"learning_rate": 0.1, "layerwise_decay": 0.5, "weight_decay": 0.01})
    rates, decays = {}, {}
    for group in parameter_groups(model, settings.weight_decay, layer_rates(model, settings.layerwise_decay)):
        for parameter in group["params"]:
            rates[id(parameter)], decays[id(parameter)] = 0.1 * group["rate_factor"], group["weight_decay"]
    by_rate: dict[float, set[str]] = {}
    for name, parameter in model.named_parameters():
        by_rate.setdefault(round(rates[id(parameter)], 6), set()).add(name)
        if "norm" in name.lower() or ".ln_" in name or name.endswith("bias"):
            assert decays[id(parameter)] == 0, name
        if name.endswith(("embeddings.weight", "query.weight", "wte.weight")):
            assert decays[id(parameter)] == 0.01, name
    assert all(name.startswith("head.") for name in by_rate[0.1])
    words = [name for name, p in model.named_parameters() if p is encoder.model.get_input_embeddings().weight]
    if make == "albert":  # its layers are one, as deep as the last
        assert set(by_rate) == {0.1, 0.05, 0.0125}
        assert all("albert_layer" in name for name in by_rate[0.05])
    else:
        assert set(by_rate) == {0.1, 0.05, 0.025, 0.0125}
        layers = {rate: {n for n in by_rate[rate] if ".layer." in n or ".h." in n} for rate in (0.05, 0.025)}
        assert layers[0.05] and all(".1." in name for name in layers[0.05])
        assert layers[0.025] == by_rate[0.025] and all(".0." in name for name in layers[0.025])
        assert by_rate[0.05] - layers[0.05] == (
            {"encoder.model.ln_f.weight", "encoder.model.ln_f.bias"} if make == "gpt2" else set()
        )
    assert words[0] in by_rate[0.0125]


def test_bf16_autocast_runs_every_make(folders):
    for folder in folders.values():
        encoder, vocabulary, _ = load(folder)
        model = TaskModel(TASKS["SQuAD2.0"], encoder, torch.Generator(), vocabulary.inputs.layout)
        row = {"question": "what cat?", "context": "the cat sat", "answers": [], "impossible": True}
        batch = collate(list(span_features([row], vocabulary, SETTINGS)), vocabulary.pad)
        with torch.autocast("cpu", torch.bfloat16):
            loss = model.loss(batch)
        loss.backward()
        assert loss.isfinite()
