"""Sentences per second on minimal pairs: one pass of the discriminator, compared with masking each wordpiece in turn.

    python -m benchmarks.probe --pairs FILE ... [--root FOLDER]

Weights and vocabulary are those of a workspace that has been pre-trained (``models/pretrained``, ``data/tokenizer``).
Sides: the discriminator; the generator beside it, which is narrower and shallower; and a masked language model of the
discriminator's own size (the same encoder under a vocabulary head of random weights), which is what masked scoring
costs with a BERT. All run on one thread, batches of equal size, sentences sorted by length.
"""

from pathlib import Path
from typing import Any

import torch

from benchmarks import measure
from electra.common.errors import ConfigError
from electra.common.paths import Paths
from electra.model.encoder import Encoder
from electra.model.heads import VocabularyHead
from electra.results.probe.scores import Probe, read_pairs

ONE_PASS, GENERATOR, EQUAL = "one pass", "masked, the generator", "masked, of the discriminator's size"


class EqualSize(Probe):
    """Probe that scores by masking, with an encoder of the discriminator's size."""

    head: VocabularyHead

    def language_model(self) -> tuple[Encoder | None, VocabularyHead | None]:
        return self.encoder, self.head


def equal_size(paths: Paths, device: torch.device) -> EqualSize:
    probe = EqualSize(paths, device, bf16=False)
    encoder = probe.encoder
    head = VocabularyHead(encoder.config, encoder.plain_embeddings, projection=encoder.projection)
    probe.head = head.to(device)
    return probe


def main() -> None:
    parser = measure.argument_parser(__doc__, "probe")
    parser.add_argument("--root", type=Path, default=Path(), help="a workspace with pre-trained weights")
    parser.add_argument("--pairs", type=Path, nargs="+", required=True, help="files of minimal pairs in BLiMP's JSONL")
    options = parser.parse_args()
    device = torch.device(measure.device_of(options))
    torch.set_num_threads(1)
    pairs = read_pairs(options.pairs)
    probe, equal = Probe(Paths(options.root), device, bf16=False), equal_size(Paths(options.root), device)
    if probe.one_pass([]) is None or probe.objective.language_model() is None:
        raise ConfigError(
            f"weights of {probe.objective.method.objective} have no discriminator and generator",
            where=str(options.root),
            next_step="name a workspace pre-trained with objective: electra",
        )
    texts = [probe.ids(pair[name]) for pair in pairs for name in ("sentence_good", "sentence_bad")]
    with torch.inference_mode():
        seconds = measure.interleave(
            {
                ONE_PASS: lambda: ignore(probe.one_pass(texts)),
                GENERATOR: lambda: ignore(probe.masked(texts)),
                EQUAL: lambda: ignore(equal.masked(texts)),
            },
            options.repeats,
            device=measure.device_of(options),
        )
    result: dict[str, Any] = {
        "machine": measure.machine(measure.device_of(options)),
        "sentences": len(texts),
        "wordpieces": sum(map(len, texts)),
        "sentences_per_second": {side: measure.rates(len(texts), taken) for side, taken in seconds.items()},
        "seconds_over_one_pass": measure.ratios(seconds, over=ONE_PASS),
    }
    measure.finish(options, result, as_table(result))


def ignore(_scores: object) -> None:
    """Discard a result, so that the side returns no seconds."""


def as_table(result: dict[str, Any]) -> str:
    rows = []
    for side, found in result["sentences_per_second"].items():
        ratio = result["seconds_over_one_pass"].get(side)
        rows.append([side, measure.spread(found), measure.spread(ratio, ".1f", "x") if ratio else "1"])
    return measure.table(["side", "sentences/s", "seconds over one pass"], rows)


if __name__ == "__main__":
    measure.run(main)
