"""Sentences per second of `electra predict`, compared with a transformers pipeline with the same weights.

    python -m benchmarks.inference --texts path/to/lines.txt --vocab path/to/vocab.txt

A classifier of ELECTRA-Small's shape (random weights, exported, then trained for some steps to separate lines with
a word from lines without it) labels the same lines on all sides with the same batch size. Our side times all of
``predict_file``: loading the model, reading, tokenizing, writing JSONL. A pipeline is loaded beforehand; its classifier
is one linear layer on [CLS], like ours. By default it pads each batch to its longest line; *sorted* gets its lines in
order of length, an optimization left to the caller. *bf16* loads the pipeline's weights in bf16; ours keeps norms,
embeddings and the sums between layers in fp32. Without bf16 units, sides in bf16 are left out.
"""

import argparse
import json
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks import measure
from benchmarks.finetune import make_workspace
from electra.cluster.hardware import choose_precision
from electra.common.errors import ConfigError
from electra.common.paths import Paths
from electra.config import Cluster, Settings
from electra.finetune.classification import sentence_features
from electra.finetune.features import Vocabulary
from electra.finetune.model import TaskModel
from electra.finetune.run import DROPOUT
from electra.finetune.saved import load_model, save_model
from electra.finetune.trainer import train
from electra.hub.export.papers import discriminator_weights
from electra.model.heads import DiscriminatorHead
from electra.model.pretrained import load_encoder
from electra.predict.run import predict_file
from electra.tasks.catalogue import TASKS

TASK = TASKS["CoLA"]
WORD, TRAINING_TEXTS, EPOCHS = "the", 512, 4.0
OURS = "ours"


def main() -> None:
    parser = measure.argument_parser(__doc__, "inference")
    parser.add_argument("--texts", type=Path, required=True, help="plain lines, one sentence each")
    parser.add_argument("--vocab", type=Path, required=True, help="vocab.txt")
    parser.add_argument("--num-texts", type=int, default=1024, help="the first lines only")
    parser.add_argument("--batch-size", type=int, default=64)
    options = parser.parse_args()
    device = measure.device_of(options)
    texts = read_texts(options.texts, options.num_texts)
    with tempfile.TemporaryDirectory() as folder:
        result = compare(Paths(Path(folder)), texts, options, device)
    result = {"machine": measure.machine(device), **result}
    measure.finish(options, result, as_table(result))


def read_texts(path: Path, limit: int) -> list[str]:
    try:
        with open(path, encoding="utf-8") as file:
            texts = [line.strip() for line in file if line.strip()][:limit]
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", where=str(path)) from None
    if not texts:
        raise ConfigError("there is no text", where=str(path))
    return texts


def compare(paths: Paths, texts: list[str], options: argparse.Namespace, device: measure.Device) -> dict[str, Any]:
    settings = make_workspace(paths, options.vocab)
    saved = paths.finetuned("classifier")
    make_classifier(paths, saved, texts, settings)
    has_bf16 = choose_precision(Cluster(), device) == "bf16"
    found: dict[str, list[float]] = {}  # each side's last output: the probability of the second label
    sides: dict[str, Callable[[], None]] = {}
    for precision in ("bf16", "fp32") if has_bf16 else ("fp32",):
        name = f"{OURS}, {precision}"
        sides[name] = partial(_ours, found, name, paths, saved, texts, options.batch_size, device, precision)
        pipe = _pipeline(paths, saved, options.batch_size, device, precision)
        for order in ("as they come", "sorted"):
            name = f"transformers pipeline, {precision}, {order}"
            sides[name] = partial(_theirs, found, name, pipe, texts, order == "sorted")
    seconds = measure.interleave(sides, options.repeats, device=device)
    best = next(iter(sides))
    return {
        "shapes": {
            "layers": settings.model.num_layers,
            "width": settings.model.hidden_size,
            "texts": len(texts),
            "characters": sum(map(len, texts)),
            "batch_size": options.batch_size,
        },
        "sentences_per_second": {name: measure.rates(len(texts), taken) for name, taken in seconds.items()},
        "seconds_over_ours": {
            precision: measure.ratios({n: t for n, t in seconds.items() if precision in n}, f"{OURS}, {precision}")
            for precision in ("bf16", "fp32")
            if f"{OURS}, {precision}" in seconds
        },
        "seconds_over_best": measure.ratios(seconds, best),
        "outputs": {name: agreement(values, found[f"{OURS}, fp32"]) for name, values in found.items()},
    }


def make_classifier(paths: Paths, folder: Path, texts: list[str], settings: Settings) -> None:
    """Save a model trained for some steps to separate lines with the word from lines without it."""
    model = TaskModel(TASK, load_encoder(paths.pretrained, **DROPOUT), torch.Generator().manual_seed(1))
    vocabulary, options = Vocabulary.load(paths), settings.finetune
    bf16 = choose_precision(settings.cluster, "cpu") == "bf16"
    rows = [{"text_a": text, "label": TASK.labels[WORD in text.lower().split()]} for text in texts[:TRAINING_TEXTS]]
    features = sentence_features(TASK, rows, vocabulary, options.max_length)
    train(model, features, options, epochs=EPOCHS, seed=1, pad=vocabulary.pad, bf16=bf16, name="classifier")
    folder.mkdir(parents=True)
    save_model(folder, model, TASK, vocabulary, options)


def _ours(
    found: dict[str, list[float]],
    name: str,
    paths: Paths,
    saved: Path,
    texts: list[str],
    batch_size: int,
    device: measure.Device,
    precision: str,
) -> None:
    source, output = paths.root / "texts.txt", paths.root / "found.jsonl"
    source.write_text("\n".join(texts) + "\n", encoding="utf-8")
    cluster = Cluster.model_validate({"device": device, "precision": precision})
    predict_file(cluster, paths, str(saved), source, output, input_format="lines", batch_size=batch_size)
    records = [json.loads(line) for line in output.read_text(encoding="utf-8").splitlines()]
    found[name] = [record["probabilities"][TASK.labels[1]] for record in records]


class FirstToken(nn.Module):
    """Our sentence head as transformers' classifier."""

    def __init__(self, output: nn.Linear):
        super().__init__()
        self.output = output

    def forward(self, hidden_BTD: Tensor, **_: Any) -> Tensor:
        return self.output(hidden_BTD[:, 0])


def _pipeline(paths: Paths, saved: Path, batch_size: int, device: measure.Device, precision: str) -> Any:
    """Return a text-classification pipeline from the exported folder, with the saved model's weights."""
    from transformers import AutoTokenizer, ElectraForSequenceClassification, pipeline
    from transformers.utils import logging

    logging.disable_progress_bar()
    logging.set_verbosity_error()  # no warning about the new classifier
    folder = paths.export / "discriminator"
    model: Any = ElectraForSequenceClassification.from_pretrained(folder)
    trained: Any = load_model(saved).model
    weights = discriminator_weights(trained.encoder, DiscriminatorHead(trained.encoder.config))
    model.electra.load_state_dict({name.removeprefix("electra."): value for name, value in weights.items()
                                   if name.startswith("electra.")})  # fmt: skip
    model.classifier = FirstToken(trained.head.output)
    model = model.to(torch.bfloat16 if precision == "bf16" else torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    return pipeline(
        "text-classification", model=model, tokenizer=tokenizer, device=device, batch_size=batch_size, top_k=None
    )


def _theirs(found: dict[str, list[float]], name: str, pipe: Any, texts: list[str], is_sorted: bool) -> None:
    order = sorted(range(len(texts)), key=lambda i: -len(texts[i])) if is_sorted else range(len(texts))
    with torch.inference_mode():
        scores = pipe([texts[i] for i in order], function_to_apply="softmax")
    second = [0.0] * len(texts)
    for i, labels in zip(order, scores, strict=True):
        second[i] = next(entry["score"] for entry in labels if entry["label"] == "LABEL_1")
    found[name] = second


def agreement(values: list[float], reference: list[float]) -> dict[str, float]:
    """Return how much a side's outputs differ from ours in fp32."""
    pairs = list(zip(values, reference, strict=True))
    return {
        "largest_difference": float(f"{max(abs(a - b) for a, b in pairs):.2g}"),
        "other_labels": sum((a > 0.5) != (b > 0.5) for a, b in pairs),
    }


def as_table(result: dict[str, Any]) -> str:
    rows = []
    for name, found in result["sentences_per_second"].items():
        precision = "bf16" if "bf16" in name else "fp32"
        ratio = result["seconds_over_ours"][precision].get(name)
        outputs = result["outputs"][name]
        rows.append(
            [
                name,
                measure.spread(found),
                measure.spread(ratio, ".2f", "x") if ratio else "1",
                f"{outputs['largest_difference']:g}",
                str(outputs["other_labels"]),
            ]
        )
    return measure.table(
        ["side", "sentences/s, median (min - max)", "over ours in its precision", "probability off by", "other labels"],
        rows,
    )


if __name__ == "__main__":
    measure.run(main)
